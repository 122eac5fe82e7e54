"""How fast somebody may ask this process: buckets in its memory, and the refusal of requests that come too fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from mnesis_core.errors import TooManyRequests
from mnesis_core.rate_limits import Bucket, decide, request_bucket
from sessions_app.conf import site_config

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
