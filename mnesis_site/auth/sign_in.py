"""Known devices, and the first sign-in.

A device that has signed in to an account before is known by a signed cookie. Its attempts are counted apart from all
others, so a flood of wrong passwords does not keep the account's owner out (OWASP, Authentication Cheat Sheet: device
cookies). The cookie signs no one in, and reveals no name.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.encoding import force_bytes, force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

COOKIE = "mnesis_device"
SALT = "mnesis.device"
# The longest that browsers keep a cookie.
MAX_AGE = timedelta(days=400)


def known_device(request: HttpRequest, account: str) -> str:
    """Return the device's name if it has signed in to this account before, or an empty string."""
    device, _, mark = _cookie(request).partition(".")
    return device if constant_time_compare(mark, _mark_of(account)) else ""


def is_known_device(request: HttpRequest) -> bool:
    return bool(_cookie(request))


def note_sign_in(request: HttpRequest | None, user: User, **_: Any) -> None:
    """Receive Django's signal of a sign-in."""
    if request is not None:
        request.signed_in_account = user.get_username()  # type: ignore[attr-defined]


def remember_device(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    account = getattr(request, "signed_in_account", None)
    if account is not None:
        response.set_signed_cookie(
            COOKIE,
            f"{secrets.token_hex(16)}.{_mark_of(account)}",
            salt=SALT,
            max_age=MAX_AGE,
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )
    return response


def _cookie(request: HttpRequest) -> str:
    return request.get_signed_cookie(COOKIE, default="", salt=SALT, max_age=MAX_AGE) or ""


def _mark_of(account: str) -> str:
    return salted_hmac(SALT, account, algorithm="sha256").hexdigest()[:32]


# The link of the first sign-in has a token made from the account's password among other things, so setting a password spends
# every link of the account. Opening a link changes nothing, since mail programs open links, too: its page has a button.

FIRST_ADMIN = "admin"


class FirstSignInToken(PasswordResetTokenGenerator):
    """Valid for ``PASSWORD_RESET_TIMEOUT`` and until a password is set, however many sign-ins there are."""

    key_salt = "mnesis_site.auth.sign_in"

    def _make_hash_value(self, user: User, timestamp: int) -> str:
        # Django's own value includes the time of the last sign-in.
        return f"{user.pk} {user.password} {timestamp}"


TOKENS = FirstSignInToken()


def first_admin() -> User | None:
    """Return the first administrator while it has no password; create it if there is no user at all."""
    users = get_user_model().objects
    if not users.exists():
        # Two sites may start on a new database at once.
        with suppress(IntegrityError), transaction.atomic():
            users.create_superuser(FIRST_ADMIN, password=None)
    user = users.filter(username=FIRST_ADMIN, is_superuser=True, is_active=True).first()
    return user if user is not None and not user.has_usable_password() else None


def sign_in_link(user: User) -> str:
    key = urlsafe_base64_encode(force_bytes(user.pk))
    return reverse("sign-in-link", args=[key, TOKENS.make_token(user)])


def user_of_link(key: str, token: str) -> User | None:
    """Return the user that this link signs in, or ``None`` if it is wrong or expired, or a password has been set."""
    try:
        primary_key = int(force_str(urlsafe_base64_decode(key)))
    except (ValueError, OverflowError):
        return None
    user = get_user_model().objects.filter(pk=primary_key, is_active=True).first()
    if user is None or user.has_usable_password() or not TOKENS.check_token(user, token):
        return None
    return user
