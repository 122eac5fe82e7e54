"""Devices that have signed in to an account before, known by a signed cookie.

So a flood of wrong passwords keeps no owner of an account out: their device's tries are counted apart from everybody
else's (OWASP, Authentication Cheat Sheet: device cookies). The cookie signs nobody in, and tells no name.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.crypto import constant_time_compare, salted_hmac

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
