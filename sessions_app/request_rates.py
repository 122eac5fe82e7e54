"""How fast each person and each key asks this process, and the refusal of who asks too fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import ceil

from mnesis_core.errors import TooManyRequests
from mnesis_core.request_rate import Bucket, Rate, is_full, take
from sessions_app.conf import site_config

MOST_BUCKETS = 10_000
"""Beyond so many those that are full are forgotten."""


class RequestRates:
    """In the memory of one process: each web process counts what it is asked itself."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[str, Bucket] = {}

    def draw(self, *, user_id: int, key_prefix: str = "") -> None:
        """Count one request. A key has a bucket of its own, so a program cannot keep its owner from the pages.

        :raises TooManyRequests: it is one too many; ``retry_after`` says after how many seconds it will not be.
        """
        config = site_config().requests
        rate = Rate(per_second=config.per_second, burst=config.burst)
        name = f"key:{key_prefix}" if key_prefix else f"person:{user_id}"
        with self._lock:
            now = self._clock()
            self._buckets[name], wait = take(self._buckets.get(name), rate, now)
            if len(self._buckets) > MOST_BUCKETS:
                self._buckets = {name: kept for name, kept in self._buckets.items() if not is_full(kept, rate, now)}
        if wait:
            raise TooManyRequests(per_second=rate.per_second, burst=rate.burst, retry_after=ceil(wait))


request_rates = RequestRates()
