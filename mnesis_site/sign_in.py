"""The first sign-in: an account without a password, and a link that is good once.

The link is Django's password-reset token, which is made from the time of the last sign-in among other
things: signing in spends it, and every other link of the same account with it.
"""

from __future__ import annotations

from contextlib import suppress

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.db import IntegrityError, transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.encoding import force_bytes, force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

FIRST_ADMIN = "admin"


def first_admin() -> User | None:
    """The first administrator as long as nobody signed in as them; made here when there is no user at all."""
    users = get_user_model().objects
    if not users.exists():
        # Of two sites that start on a new database at once, one makes it.
        with suppress(IntegrityError), transaction.atomic():
            users.create_superuser(FIRST_ADMIN, password=None)
    user = users.filter(username=FIRST_ADMIN, is_superuser=True, is_active=True, last_login=None).first()
    return user if user is not None and not user.has_usable_password() else None


def sign_in_link(user: User) -> str:
    """The path of a link that signs this user in, once."""
    key = urlsafe_base64_encode(force_bytes(user.pk))
    return reverse("sign-in-link", args=[key, default_token_generator.make_token(user)])


def spend_link(key: str, token: str) -> User | None:
    """The user whom this link signs in, or ``None`` if it is wrong, too old or spent."""
    user = _user_of(key)
    if user is None or not default_token_generator.check_token(user, token):
        return None
    # Of two that come at once with the same link, the one whose update finds the old time is let in.
    unspent = get_user_model().objects.filter(pk=user.pk, last_login=user.last_login)
    return user if unspent.update(last_login=timezone.now()) else None


def _user_of(key: str) -> User | None:
    try:
        primary_key = int(force_str(urlsafe_base64_decode(key)))
    except (ValueError, OverflowError):
        return None
    return get_user_model().objects.filter(pk=primary_key, is_active=True).first()
