"""Passwords are hashed in threads of their own: few, of low priority, and only so many passwords wait for them.

A hash takes a processor for a quarter of a second on purpose, so hashing in the thread of each request would leave none
for anybody else. Every hash of Django's goes through the hasher here, whichever page asks for it.
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

THREADS = max(1, (os.cpu_count() or 1) // 2)
"""So that at least as many processors are left for everything else."""
NICENESS = 10
"""On Linux, of these threads: what answers other people goes first, and yet a busy machine signs people in."""
BUSY_SECONDS = 2
"""About what a full queue takes."""


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere a priority belongs to the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


class Lane:
    """Threads that hash, and places for what they hash or have waiting."""

    def __init__(self, name: str) -> None:
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name, initializer=_lower_priority)
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def places(self) -> int:
        """Passwords that may be hashed or wait here."""
        return THREADS + site_config().sign_in.waiting

    @property
    def is_full(self) -> bool:
        """Whether one more would be refused."""
        return self._taken >= self.places

    def enter(self) -> None:
        """:raises PasswordsBusy: there is no place."""
        with self._lock:
            if self.is_full:
                raise PasswordsBusy(retry_after=BUSY_SECONDS)
            self._taken += 1

    def leave(self) -> None:
        """Give the place back."""
        with self._lock:
            self._taken -= 1


STRANGERS = Lane("hash-strangers")
"""Hashing for sign-ins from unknown devices."""
KNOWN = Lane("hash-known")
"""For all others, so that strangers cannot take their places."""
_lane: ContextVar[Lane | None] = ContextVar("lane", default=None)


@contextmanager
def place(lane: Lane) -> Iterator[None]:
    """A place for the passwords that this block has hashed.

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
    """Django's own, in the threads of a lane."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """:raises PasswordsBusy: too many wait already."""
        lane = _lane.get()
        if lane is None:
            with place(KNOWN):
                return self.encode(password, salt, iterations)
        give_back()
        return lane.threads.submit(super().encode, password, salt, iterations).result()


# Passwords are tried only so often, wherever they are asked for: signing in, also to the administration, and changing one.

T = TypeVar("T")


class LimitedBackend(ModelBackend):
    """Django's backend, which checks a password only as often as ``sign_in_buckets`` permit."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:
        """Who this is, if the password is right.

        :raises TooManyAttempts: too many were wrong.
        :raises PasswordsBusy: too many wait to be looked at.
        """

        def check() -> User | None:
            return super(LimitedBackend, self).authenticate(request, username, password, **kwargs)

        if request is None or username is None or password is None:  # nobody asks over the network
            return check()
        device = known_device(request, username)
        buckets = sign_in_buckets(
            site_config().sign_in, account=username, network=network_of(address_of(request)), device=device
        )
        return limited(buckets, check, lane=KNOWN if device else STRANGERS)


class LimitedPasswordChangeForm(PasswordChangeForm):
    """Django's own, for which nobody can try out what the old password may be."""

    def clean_old_password(self) -> str:
        """:raises TooManyAttempts: too many were wrong."""
        buckets = password_change_buckets(site_config().sign_in, account=self.user.get_username())
        return limited(buckets, super().clean_old_password, lane=KNOWN)


def address_of(request: HttpRequest) -> str:
    """Where a request comes from; behind proxies that ``MNESIS_TRUSTED_PROXIES`` names, what they say."""
    peer = request.META.get("REMOTE_ADDR") or ""
    return client_address(peer, request.headers.get("X-Forwarded-For", ""), settings.TRUSTED_PROXIES)


def limited(buckets: Sequence[Bucket], check: Callable[[], T], *, lane: Lane) -> T:
    """What ``check`` finds out about a password, if one more try is allowed. What it finds is right, what is empty wrong.

    :raises TooManyAttempts: it is not.
    :raises PasswordsBusy: too many passwords wait to be hashed.
    """
    _refuse(seconds_to_wait(buckets))  # a flood takes no place from anybody, and writes nothing
    with place(lane):
        # Before, not after: of many at once only so many are looked at.
        _refuse(count_try(buckets))
        found = check()
    if found:
        take_back_try(buckets)
    return found


def too_many(seconds: int) -> TooManyAttempts:
    """The refusal of a try that is allowed after so many seconds."""
    wait = f"{seconds} second{'s' * (seconds > 1)}" if seconds < 120 else f"{-(-seconds // 60)} minutes"
    return TooManyAttempts(f"Too many wrong passwords. Try again in {wait}.", retry_after=seconds)


def _refuse(seconds: int) -> None:
    if seconds:
        raise too_many(seconds)
