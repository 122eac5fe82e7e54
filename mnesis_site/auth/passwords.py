"""Password hashing in a few threads of low priority, with a bounded queue, and limits on attempts.

A hash takes a quarter of a second of a processor on purpose, so hashing in the thread of each request would leave no
processor for other requests. All of Django's hashing goes through the hasher here.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.forms import PasswordChangeForm
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.http import HttpRequest

from mnesis_core.errors import PasswordsBusy, TooManyAttempts
from mnesis_core.network.rate_limits import Bucket, client_address, network_of, password_change_buckets, sign_in_buckets
from mnesis_site.auth.sign_in import known_device
from sessions_app.conf import site_config
from sessions_app.database.threads import give_back
from sessions_app.usage.spending_store import count_try, seconds_to_wait, take_back_try

# At least as many processors are left for everything else.
THREADS = max(1, (os.cpu_count() or 1) // 2)
# Of these threads on Linux, so other requests go first.
NICENESS = 10
# About what a full queue takes.
BUSY_SECONDS = 2


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere a priority belongs to the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


class Lane:
    """Threads that hash, and a limited number of places for passwords that are hashed or wait."""

    def __init__(self, name: str) -> None:
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name, initializer=_lower_priority)
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


# Hashing for sign-ins from unknown devices.
STRANGERS = Lane("hash-strangers")
# Hashing for all others, so strangers cannot take their places.
KNOWN = Lane("hash-known")
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


class LanedPBKDF2PasswordHasher(PBKDF2PasswordHasher):
    """Django's own hasher, in the threads of a lane."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """:raises PasswordsBusy: too many passwords wait already."""
        lane = _lane.get()
        if lane is None:
            with place(KNOWN):
                return self.encode(password, salt, iterations)
        give_back()
        return lane.threads.submit(super().encode, password, salt, iterations).result()


T = TypeVar("T")


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
    """Django's own form, with limited attempts at the old password."""

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
    wait = f"{seconds} second{'s' * (seconds > 1)}" if seconds < 120 else f"{-(-seconds // 60)} minutes"
    return TooManyAttempts(f"Too many wrong passwords. Try again in {wait}.", retry_after=seconds)


def _refuse(seconds: int) -> None:
    if seconds:
        raise too_many(seconds)
