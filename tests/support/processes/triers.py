"""A process that counts tries as fast as it can (``sessions_app.llm.spending_store``)."""

from __future__ import annotations

from mnesis_core.network.rate_limits import Bucket
from sessions_app.llm.spending_store import count_try

BUCKETS = [
    Bucket(name=("shared", "one"), attempts=7, seconds=3_600.0),
    Bucket(name=("shared", "two"), attempts=1_000, seconds=3_600.0),
]


def main(tries: str) -> int:
    """Print how many were allowed."""
    print(sum(not count_try(BUCKETS) for _ in range(int(tries))))
    return 0
