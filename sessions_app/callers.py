"""Who asks at an endpoint."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User
from django.http import HttpRequest

from mnesis_core.errors import NotSignedIn, PermissionDenied, TooManyRequests
from mnesis_core.network.rate_limits import Bucket, decide, request_bucket
from sessions_app.conf import site_config


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and whether they may do more than look."""

    user: User
    may_write: bool

    @property
    def owner_id(self) -> int:
        """Whose sessions they see."""
        return self.user.pk


Asker = HttpRequest | Caller
"""What a call at REST is made for; by name it is the same call, made for a caller."""


def owner_id(request: Asker) -> int:
    """The id of the person who is signed in, by cookie or key.

    :raises NotSignedIn: nobody is.
    """
    if request.user.pk is None:
        raise NotSignedIn()
    return request.user.pk


def check_may_write(may_write: bool) -> None:
    """:raises PermissionDenied: who asks holds a key that may only read."""
    if not may_write:
        raise PermissionDenied("This API key may only read. Make one with '--scope all' to write.")


# How fast somebody may ask this process: buckets in its memory, and the refusal of requests that come too fast.

MOST_BUCKETS = 10_000
"""A process keeps no more. Where all of them are in use, a newcomer is let in without being counted."""
_START = datetime(2000, 1, 1, tzinfo=UTC)


def steady_now() -> datetime:
    """A time that is never set back. It means nothing outside this process."""
    return _START + timedelta(seconds=time.monotonic())


class RateLimiter:
    """Counts in the memory of one process: each web process counts what it is asked itself."""

    def __init__(self, clock: Callable[[], datetime] = steady_now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._empty_at: dict[tuple[str, ...], datetime] = {}

    def seconds_to_wait(self, bucket: Bucket) -> int:
        """Count one try and return 0; or count nothing and return the seconds until the next one is allowed."""
        with self._lock:
            now = self._clock()
            decision = decide([bucket], self._empty_at, now)
            if len(self._empty_at) >= MOST_BUCKETS:
                self._empty_at = {name: until for name, until in self._empty_at.items() if until > now}
            if len(self._empty_at) < MOST_BUCKETS or bucket.name in self._empty_at:
                self._empty_at |= decision.empty_at
            return decision.wait_seconds


request_limiter = RateLimiter()


def count_request(*, user_id: int, key_prefix: str = "") -> None:
    """Count one request. A key has a bucket of its own, so a program cannot keep its owner from the pages.

    :raises TooManyRequests: it is one too many; ``retry_after`` says after how many seconds it will not be.
    """
    config = site_config().requests
    name = ("key", key_prefix) if key_prefix else ("person", str(user_id))
    if seconds := request_limiter.seconds_to_wait(request_bucket(config, name)):
        raise TooManyRequests(per_second=config.per_second, burst=config.burst, retry_after=seconds)
