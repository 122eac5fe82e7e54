"""Passwords are hashed in threads of their own: few, of low priority, and only so many passwords wait for them.

A hash takes a processor for a quarter of a second on purpose, so hashing in the thread of each request would leave none
for anybody else. Every hash of Django's goes through the hasher here, whichever page asks for it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar

from django.contrib.auth.hashers import PBKDF2PasswordHasher

from mnesis_core.errors import PasswordsBusy
from sessions_app.conf import site_config
from sessions_app.database import give_back

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
