"""The caller at an endpoint, and the rate limit on the requests that a process takes from them."""

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
    """The person who makes a request; a key may only let them read."""

    user: User
    may_write: bool

    @property
    def owner_id(self) -> int:
        return self.user.pk


Asker = HttpRequest | Caller  # a REST call has a request, the same call by name a caller


def owner_id(request: Asker) -> int:
    """Return the id of the person who is signed in, by cookie or key.

    :raises NotSignedIn: the request has no user.
    """
    if request.user.pk is None:
        raise NotSignedIn()
    return request.user.pk


def wants_stream(request: HttpRequest) -> bool:
    return "text/event-stream" in request.headers.get("Accept", "")


def check_may_write(may_write: bool) -> None:
    """:raises PermissionDenied: the caller's key may only read."""
    if not may_write:
        raise PermissionDenied("This API key may only read. Make one with '--scope all' to write.")


MOST_BUCKETS = 10_000  # when all of them are in use, a newcomer is let in without being counted
_START = datetime(2000, 1, 1, tzinfo=UTC)


def steady_now() -> datetime:
    """Return a time that is never set back and means nothing outside this process."""
    return _START + timedelta(seconds=time.monotonic())


class RateLimiter:
    def __init__(self, clock: Callable[[], datetime] = steady_now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._empty_at: dict[tuple[str, ...], datetime] = {}

    def seconds_to_wait(self, bucket: Bucket) -> int:
        """Count one attempt and return 0, or count nothing and return the seconds until the next one is allowed."""
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
    """Count one request. A key has its own bucket, so a program cannot keep its owner from the pages.

    :raises TooManyRequests: it is one too many; ``retry_after`` is the number of seconds to wait.
    """
    config = site_config().requests
    name = ("key", key_prefix) if key_prefix else ("person", str(user_id))
    if seconds := request_limiter.seconds_to_wait(request_bucket(config, name)):
        raise TooManyRequests(per_second=config.per_second, burst=config.burst, retry_after=seconds)
