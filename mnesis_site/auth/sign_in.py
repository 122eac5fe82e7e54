"""Devices that have signed in to an account before, known by a signed cookie.

So a flood of wrong passwords keeps no owner of an account out: their device's tries are counted apart from everybody
else's (OWASP, Authentication Cheat Sheet: device cookies). The cookie signs nobody in, and tells no name.
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
MAX_AGE = timedelta(days=400)
"""The longest that browsers keep a cookie."""


def known_device(request: HttpRequest, account: str) -> str:
    """The device's name, if it has signed in to this account before; else empty."""
    device, _, mark = _cookie(request).partition(".")
    return device if constant_time_compare(mark, _mark_of(account)) else ""


def is_known_device(request: HttpRequest) -> bool:
    """Whether this device has signed in to any account before."""
    return bool(_cookie(request))


def note_sign_in(request: HttpRequest | None, user: User, **_: Any) -> None:
    """Django's signal: somebody has signed in."""
    if request is not None:
        request.signed_in_account = user.get_username()  # type: ignore[attr-defined]


def remember_device(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """The response, with a cookie for the device if somebody has just signed in."""
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


# The first sign-in: an account without a password, and a link that is good until it has one.
#
# The link is a token of Django's kind, made from the account's password among other things: setting one spends every
# link of the account. Opening it changes nothing, since mail programs and messengers open links, too; signing in takes a
# button on its page.

FIRST_ADMIN = "admin"


class FirstSignInToken(PasswordResetTokenGenerator):
    """Good for ``PASSWORD_RESET_TIMEOUT`` and until a password is set, however often somebody has signed in by then."""

    key_salt = "mnesis_site.auth.sign_in"

    def _make_hash_value(self, user: User, timestamp: int) -> str:
        # Django's own has the time of the last sign-in in it.
        return f"{user.pk} {user.password} {timestamp}"


TOKENS = FirstSignInToken()


def first_admin() -> User | None:
    """The first administrator as long as there is no password for them; made here when there is no user at all."""
    users = get_user_model().objects
    if not users.exists():
        # Of two sites that start on a new database at once, one makes it.
        with suppress(IntegrityError), transaction.atomic():
            users.create_superuser(FIRST_ADMIN, password=None)
    user = users.filter(username=FIRST_ADMIN, is_superuser=True, is_active=True).first()
    return user if user is not None and not user.has_usable_password() else None


def sign_in_link(user: User) -> str:
    """The path of a link that signs this user in until they have a password."""
    key = urlsafe_base64_encode(force_bytes(user.pk))
    return reverse("sign-in-link", args=[key, TOKENS.make_token(user)])


def user_of_link(key: str, token: str) -> User | None:
    """Whom this link signs in, or ``None`` if it is wrong or too old, or a password was set since."""
    user = _user_of(key)
    if user is None or user.has_usable_password() or not TOKENS.check_token(user, token):
        return None
    return user


def _user_of(key: str) -> User | None:
    try:
        primary_key = int(force_str(urlsafe_base64_decode(key)))
    except (ValueError, OverflowError):
        return None
    return get_user_model().objects.filter(pk=primary_key, is_active=True).first()
