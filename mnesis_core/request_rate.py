"""How fast somebody may ask: a bucket of tokens, of which each request takes one and which fills at a steady pace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What is allowed."""

    per_second: float
    """Requests, for as long as one likes."""
    burst: int
    """Requests at once, after a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What somebody has left."""

    tokens: float
    at: float
    """When they were counted, in seconds of a clock that never goes back."""


def take(bucket: Bucket | None, rate: Rate, now: float) -> tuple[Bucket, float]:
    """The bucket after one more request, and how many seconds to wait: 0 where it is allowed; else nothing was taken.

    :param bucket: ``None`` of somebody who has not asked before, or not for long
    """
    tokens = float(rate.burst)
    if bucket is not None:
        tokens = min(tokens, bucket.tokens + max(0.0, now - bucket.at) * rate.per_second)
    if tokens < 1:
        return Bucket(tokens=tokens, at=now), (1 - tokens) / rate.per_second
    return Bucket(tokens=tokens - 1, at=now), 0.0


def is_full(bucket: Bucket, rate: Rate, now: float) -> bool:
    """Whether a bucket may be forgotten, since it says no more than none at all."""
    return bucket.tokens + (now - bucket.at) * rate.per_second >= rate.burst
