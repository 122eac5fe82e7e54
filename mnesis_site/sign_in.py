"""Sign-in: passwords hashed in bounded queues, limited attempts, known devices, the first link, and the gate before it all.

A hash takes a quarter of a second of a processor on purpose, so hashing in the thread of each request would leave no
processor for other requests. All of Django's hashing goes through the hasher here, in a few threads of low priority.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from csp.utils import build_policy
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.deprecation import MiddlewareMixin
from django.utils.encoding import force_bytes, force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode
from django.utils.translation import gettext_noop

from mnesis_core.errors import MnesisError, PasswordsBusy, TooManyAttempts, error_of
from mnesis_core.network.rate_limits import Bucket, client_address, network_of, password_change_buckets, sign_in_buckets
from mnesis_site.errors import json_error, prefers_json, with_pause
from sessions_app.callers import RateLimiter
from sessions_app.conf import site_config, site_secrets
from sessions_app.database.threads import give_back
from sessions_app.llm.spending_store import count_try, seconds_to_wait, take_back_try

T = TypeVar("T")

THREADS = max(1, (os.cpu_count() or 1) // 2)  # at least as many processors are left for everything else
NICENESS = 10  # on Linux, the priority of these threads, so other requests go first
BUSY_SECONDS = 2  # about what a full queue takes
FIRST_ADMIN = "admin"
MARK = "~"  # in no hash, and in no salt of Django's
# A signed cookie of a device that has signed in. Its attempts are counted apart, so a flood of wrong passwords does not
# keep the owner out (OWASP's device cookies). It signs no one in, and reveals no name.
COOKIE = "mnesis_device"
SALT = "mnesis.device"
MAX_AGE = timedelta(days=400)  # the longest that browsers keep a cookie
PASSWORD_PATHS = ("/sign-in/", "/admin/login/")  # where anyone may send a password
HOLD_SECONDS = (1.0, 3.0)  # a random time, so clients that come at once do not come back together
MOST_HELD = 256  # responses at a time in one process; each takes a connection and a few kilobytes
SENT_AT_ONCE = 10  # passwords from one network; after that, one a second
# Sent without a pause. They are counted together, since a flood may use a new address each time.
REFUSALS = Bucket(name=("refusals",), attempts=5, seconds=1.0)


class Lane:
    """Threads that hash, and a limited number of places for passwords that are hashed or wait."""

    def __init__(self, name: str) -> None:
        def lower_priority() -> None:
            if sys.platform == "linux":  # elsewhere a priority belongs to the whole process
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)

        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name, initializer=lower_priority)
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def places(self) -> int:
        return THREADS + site_config().sign_in.waiting

    @property
    def is_full(self) -> bool:
        return self._taken >= self.places

    def enter(self) -> None:
        """:raises PasswordsBusy: there is no place."""
        with self._lock:
            if self.is_full:
                raise PasswordsBusy(retry_after=BUSY_SECONDS)
            self._taken += 1

    def leave(self) -> None:
        with self._lock:
            self._taken -= 1


STRANGERS = Lane("hash-strangers")  # for sign-ins from unknown devices
KNOWN = Lane("hash-known")  # for all others, so strangers cannot take their places
_lane: ContextVar[Lane | None] = ContextVar("lane", default=None)


@contextmanager
def place(lane: Lane) -> Iterator[None]:
    """Take a place for the passwords that the block hashes.

    :raises PasswordsBusy: there is none.
    """
    lane.enter()
    token = _lane.set(lane)
    try:
        yield
    finally:
        _lane.reset(token)
        lane.leave()


class MarkedHasher:
    """Django's hasher for hashes that may have a mark (``marked_anew``) at their end, which is no part of what is proven."""

    def verify(self, password: str, encoded: str) -> bool:
        known: bool = super().verify(password, encoded.partition(MARK)[0])  # type: ignore[misc]
        return known


def marked_anew(encoded: str) -> str:
    """Return a stored password that proves the same as before, and to which no sign-in and no link belongs.

    Both are bound to what is stored: Django keeps a digest of it in each session of a browser, and compares it with each
    request; ``live`` compares it for what stays open. So nothing has to look for the sessions of an account.
    """
    return f"{encoded.partition(MARK)[0]}{MARK}{secrets.token_urlsafe(9)}"


class LanedPBKDF2PasswordHasher(MarkedHasher, PBKDF2PasswordHasher):
    """Django's own hasher, in the threads of a lane."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """:raises PasswordsBusy: too many passwords wait already."""
        lane = _lane.get()
        if lane is None:
            with place(KNOWN):
                return self.encode(password, salt, iterations)
        give_back()
        return lane.threads.submit(super().encode, password, salt, iterations).result()


class LimitedBackend(ModelBackend):
    """Django's backend, which checks a password only as often as ``sign_in_buckets`` permit."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """:raises TooManyAttempts: too many passwords were wrong.
        :raises PasswordsBusy: too many passwords wait to be hashed.
        """

        def check() -> User | None:
            return super(LimitedBackend, self).authenticate(request, username, password, **kwargs)

        if request is None or username is None or password is None:  # not a request over the network
            return check()
        device = known_device(request, username)
        buckets = sign_in_buckets(
            site_config().sign_in, account=username, network=network_of(address_of(request)), device=device
        )
        return limited(buckets, check, lane=KNOWN if device else STRANGERS)


class LimitedPasswordChangeForm(PasswordChangeForm):
    def clean_old_password(self) -> str:
        """:raises TooManyAttempts: too many passwords were wrong."""
        buckets = password_change_buckets(site_config().sign_in, account=self.user.get_username())
        return limited(buckets, super().clean_old_password, lane=KNOWN)


def address_of(request: HttpRequest) -> str:
    """Return the address of a request; behind proxies of ``MNESIS_TRUSTED_PROXIES``, the one that they report."""
    peer = request.META.get("REMOTE_ADDR") or ""
    return client_address(peer, request.headers.get("X-Forwarded-For", ""), settings.TRUSTED_PROXIES)


def limited(buckets: Sequence[Bucket], check: Callable[[], T], *, lane: Lane) -> T:
    """Return the result of ``check``, if one more attempt is allowed. A true result is a right password.

    :raises TooManyAttempts: no attempt is allowed.
    :raises PasswordsBusy: too many passwords wait to be hashed.
    """
    _refuse(seconds_to_wait(buckets))  # a flood takes no places, and writes nothing
    with place(lane):
        # Counted before the check, so attempts at the same moment are limited, too.
        _refuse(count_try(buckets))
        found = check()
    if found:
        take_back_try(buckets)
    return found


def too_many(seconds: int) -> TooManyAttempts:
    if seconds == 1:
        return TooManyAttempts(gettext_noop("Too many wrong passwords. Try again in 1 second."), retry_after=seconds)
    told, count = gettext_noop("Too many wrong passwords. Try again in %(count)s seconds."), seconds
    if seconds >= 120:
        told, count = gettext_noop("Too many wrong passwords. Try again in %(count)s minutes."), -(-seconds // 60)
    return TooManyAttempts(told, {"count": str(count)}, retry_after=seconds)


def _refuse(seconds: int) -> None:
    if seconds:
        raise too_many(seconds)


def known_device(request: HttpRequest, account: str) -> str:
    """Return the device's name if it has signed in to this account before, or an empty string."""
    device, _, mark = _cookie(request).partition(".")
    return device if any(constant_time_compare(mark, _mark_of(account, secret)) for secret in site_secrets()) else ""


def note_sign_in(request: HttpRequest | None, user: User, **_: Any) -> None:
    if request is not None:
        request.signed_in_account = user.get_username()  # type: ignore[attr-defined]


def remember_device(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    account = getattr(request, "signed_in_account", None)
    if account is not None:
        value = f"{secrets.token_hex(16)}.{_mark_of(account, settings.SECRET_KEY)}"
        secure = settings.SESSION_COOKIE_SECURE
        response.set_signed_cookie(
            COOKIE, value, salt=SALT, max_age=MAX_AGE, secure=secure, httponly=True, samesite="Lax"
        )
    return response


def _cookie(request: HttpRequest) -> str:
    return request.get_signed_cookie(COOKIE, default="", salt=SALT, max_age=MAX_AGE) or ""


def _mark_of(account: str, secret: str) -> str:
    return salted_hmac(SALT, account, secret, algorithm="sha256").hexdigest()[:32]


class FirstSignInToken(PasswordResetTokenGenerator):
    """Tokens valid for ``PASSWORD_RESET_TIMEOUT`` and until a password is set, however many sign-ins there are.

    A token is made from the account's password among other things, so setting one invalidates every link of the account.
    Opening a link changes nothing, since mail programs open links, too: its page has a button.
    """

    key_salt = "mnesis_site.sign_in"  # a name, not a module: another one would void the links that are out

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
    # Not by reverse(), which would load every page into the launcher for this one address.
    return f"/sign-in/link/{key}/{TOKENS.make_token(user)}/"


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


class SignInGate(MiddlewareMixin):
    """Middleware that refuses passwords of unknown devices while too many come, and holds refusals that come too fast.

    It is the first to see a password and the last to see its response, because a request that is refused late has cost
    milliseconds of the only processor that a process has. While refusals are many, each is held, so a client that waits for
    its response sends at most one request in two seconds.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]) -> None:
        super().__init__(get_response)
        self._sent, self._refused = RateLimiter(), RateLimiter()
        self._held = self._inside = 0

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        has_password = request.method == "POST" and request.path in PASSWORD_PATHS
        is_stranger = has_password and not _cookie(request)
        refusal = self._refusal(request) if is_stranger else None
        response = self.get_response(request) if refusal is None else refused(request, refusal)
        if isinstance(response, HttpResponseBase):
            return self._later(request, response) if self.async_mode else remember_device(request, response)
        return self._later(request, self._counted(response) if is_stranger else response)

    async def _counted(self, answer: Awaitable[HttpResponseBase]) -> HttpResponseBase:
        self._inside += 1
        try:
            return await answer
        finally:
            self._inside -= 1

    async def _later(
        self, request: HttpRequest, response: Awaitable[HttpResponseBase] | HttpResponseBase
    ) -> HttpResponseBase:
        done = response if isinstance(response, HttpResponseBase) else await response
        if request.path in PASSWORD_PATHS:
            is_refusal = done.status_code in (TooManyAttempts.status, PasswordsBusy.status)
        else:
            is_refusal = done.status_code == 401 and "Authorization" in request.headers
        if is_refusal and self._refused.seconds_to_wait(REFUSALS) and self._held < MOST_HELD:
            self._held += 1
            try:
                await asyncio.sleep(random.uniform(*HOLD_SECONDS))  # noqa: S311 - nothing secret
            finally:
                self._held -= 1
        return remember_device(request, done)

    def _refusal(self, request: HttpRequest) -> MnesisError | None:
        # Requests inside count too: none of a wave that comes at once has taken a place yet.
        if STRANGERS.is_full or self._inside >= STRANGERS.places:
            return PasswordsBusy(retry_after=BUSY_SECONDS)
        network = network_of(address_of(request))
        seconds = self._sent.seconds_to_wait(Bucket(name=(network,), attempts=SENT_AT_ONCE, seconds=1.0))
        return too_many(seconds) if seconds else None


def refused(request: HttpRequest, error: MnesisError) -> HttpResponse:
    """Return the response, made without the database; no middleware after the gate adds to it."""
    if prefers_json(request):
        return json_error(error)
    response = HttpResponse(_page(error.code, error.message, request.path), status=error.status)
    response.headers["Content-Security-Policy"] = build_policy()
    response.headers["X-Content-Type-Options"] = "nosniff"
    return with_pause(error, response)


@cache  # only the seconds in the text differ, and those are few
def _page(code: str, message: str, path: str) -> str:
    return render_to_string("errors/wait.html", {"error": error_of(code, message), "again": path})
