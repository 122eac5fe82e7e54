"""A run's throughput: rates, sums and the time left, from the endings of a sample of its items.

A run may have a hundred thousand items. The sample is spread evenly over the input, which is processed in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mnesis_core.maps.values import Counts

# With fewer, the time left is unknown.
FEWEST_ENDINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    at: datetime
    is_failed: bool = False
    tokens: int = 0
    cost_micros: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A part of a run's time: what ended in it, and the sums spent by its end."""

    # Seconds after the run began.
    begins: float
    ends: float
    completed: float
    failed: float
    tokens: float
    cost_micros: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpan:
    """The whole run so far."""

    began: datetime
    # The end of the run, or now.
    until: datetime
    ended: int
    tokens: int = 0
    cost_micros: int = 0

    @property
    def seconds(self) -> float:
        return max(0.001, (self.until - self.began).total_seconds())


def spread(count: int, *, most: int) -> list[int]:
    """Return at most ``most`` numbers from 1 to ``count``, evenly spread."""
    if count <= most:
        return list(range(1, count + 1))
    return [(2 * index + 1) * count // (2 * most) + 1 for index in range(most)]


def intervals_of(endings: Sequence[Ending], span: RunSpan, *, most: int) -> list[Interval]:
    """Return the run's time in equal parts, with the endings of a sample scaled up to all items.

    Sums are scaled so that the last part ends at the total spent.
    """
    if not endings:
        return []
    count = max(6, min(most, len(endings) // 3))
    groups: list[list[Ending]] = [[] for _ in range(count)]
    for ending in endings:
        share = (ending.at - span.began).total_seconds() / span.seconds
        groups[max(0, min(count - 1, int(share * count)))].append(ending)
    return _summed(groups, span, weight=span.ended / len(endings))


def seconds_left(endings: Sequence[Ending], span: RunSpan, *, open_items: int) -> float | None:
    """Return the seconds that the open items will take at the rate of the newest tenth; None if it is too early to say."""
    if len(endings) < FEWEST_ENDINGS:
        return None
    times = sorted(ending.at for ending in endings)
    newest = max(FEWEST_ENDINGS, len(times) // 10)
    since = times[-newest - 1] if len(times) > newest else span.began
    seconds = max(0.001, (span.until - since).total_seconds())
    return open_items * seconds / (newest * max(1.0, span.ended / len(times)))


def _summed(groups: Sequence[Sequence[Ending]], span: RunSpan, *, weight: float) -> list[Interval]:
    whole = [ending for group in groups for ending in group]
    token_weight = _scale(span.tokens, sum(ending.tokens for ending in whole))
    cost_weight = _scale(span.cost_micros, sum(ending.cost_micros for ending in whole))
    intervals, tokens, cost = [], 0.0, 0.0
    for index, group in enumerate(groups):
        failed = sum(ending.is_failed for ending in group)
        tokens += token_weight * sum(ending.tokens for ending in group)
        cost += cost_weight * sum(ending.cost_micros for ending in group)
        interval = Interval(
            begins=span.seconds * index / len(groups),
            ends=span.seconds * (index + 1) / len(groups),
            completed=weight * (len(group) - failed),
            failed=weight * failed,
            tokens=tokens,
            cost_micros=cost,
        )
        intervals.append(interval)
    return intervals


def _scale(known: int, summed: int) -> float:
    return known / summed if summed else 0.0


# How far a run is, as one line of a terminal.

BAR = 24
# The window over which throughput is measured.
WINDOW_SECONDS = 30.0
_MINUTE, _HOUR = 60, 3_600


@dataclass(slots=True)
class Throughput:
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def see(self, ended: int, *, now: float) -> None:
        """Note how many items have ended at a time, in seconds of a monotonic clock."""
        self._seen.append((now, ended))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        """Return items per second; 0 while unknown."""
        if len(self._seen) < 2:
            return 0.0
        (began, before), (now, ended) = self._seen[0], self._seen[-1]
        return max(0.0, (ended - before) / (now - began)) if now > began else 0.0


def progress_line(counts: Counts, *, state: str, per_second: float) -> str:
    if counts.items is None:
        return f"{state}: the input is being read"
    share = counts.ended / counts.items if counts.items else 1.0
    bar = "#" * int(BAR * share)
    said = [f"[{bar:-<{BAR}}] {share:4.0%}", f"{counts.ended:,}/{counts.items:,}", state]
    if counts.failed:
        said.append(f"{counts.failed:,} failed")
    if per_second and counts.left:
        said += [f"{per_second:,.1f}/s", f"{_duration(counts.left / per_second)} left"]
    return "  ".join(said)


def _duration(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < _HOUR else f"{seconds / _HOUR:.1f} h"
