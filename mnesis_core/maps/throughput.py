"""How fast a run goes: from the endings of some of its items to rates, sums and the time that is left.

Some, not all: a run may have a hundred thousand items. They are taken evenly over the input, which is worked through in
its order, so that each stands for as many of its neighbours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mnesis_core.maps.values import Counts

FEWEST_ENDINGS = 3
"""Before so many items have ended, nobody can say how long the rest will take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """One item that has ended."""

    at: datetime
    is_failed: bool = False
    tokens: int = 0
    cost_micros: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of a run's time: what ended in it, and what had been spent when it was over."""

    begins: float
    """Seconds after the run began."""
    ends: float
    completed: float
    failed: float
    tokens: float
    cost_micros: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """What is known of the whole: how many items have ended, since when, and what was spent."""

    began: datetime
    until: datetime
    """The end of the run, or now."""
    ended: int
    tokens: int = 0
    cost_micros: int = 0

    @property
    def seconds(self) -> float:
        """How long it is; never nothing."""
        return max(0.001, (self.until - self.began).total_seconds())


def spread(count: int, *, most: int) -> list[int]:
    """Numbers from 1 to ``count``, at most ``most`` of them, evenly spread."""
    if count <= most:
        return list(range(1, count + 1))
    return [(2 * index + 1) * count // (2 * most) + 1 for index in range(most)]


def stretches_of(endings: Sequence[Ending], spell: Spell, *, most: int) -> list[Stretch]:
    """The time of a run in equal stretches, with the endings of some items scaled up to all of them.

    Sums are scaled so that the last stretch ends at what was spent in all.
    """
    if not endings:
        return []
    count = max(6, min(most, len(endings) // 3))
    groups: list[list[Ending]] = [[] for _ in range(count)]
    for ending in endings:
        share = (ending.at - spell.began).total_seconds() / spell.seconds
        groups[max(0, min(count - 1, int(share * count)))].append(ending)
    return _summed(groups, spell, weight=spell.ended / len(endings))


def seconds_left(endings: Sequence[Ending], spell: Spell, *, open_items: int) -> float | None:
    """How long the items that have not ended will take, as fast as the newest tenth; ``None``: too early to say."""
    if len(endings) < FEWEST_ENDINGS:
        return None
    times = sorted(ending.at for ending in endings)
    newest = max(FEWEST_ENDINGS, len(times) // 10)
    since = times[-newest - 1] if len(times) > newest else spell.began
    seconds = max(0.001, (spell.until - since).total_seconds())
    return open_items * seconds / (newest * max(1.0, spell.ended / len(times)))


def _summed(groups: Sequence[Sequence[Ending]], spell: Spell, *, weight: float) -> list[Stretch]:
    whole = [ending for group in groups for ending in group]
    token_weight = _scale(spell.tokens, sum(ending.tokens for ending in whole))
    cost_weight = _scale(spell.cost_micros, sum(ending.cost_micros for ending in whole))
    stretches, tokens, cost = [], 0.0, 0.0
    for index, group in enumerate(groups):
        failed = sum(ending.is_failed for ending in group)
        tokens += token_weight * sum(ending.tokens for ending in group)
        cost += cost_weight * sum(ending.cost_micros for ending in group)
        stretch = Stretch(
            begins=spell.seconds * index / len(groups),
            ends=spell.seconds * (index + 1) / len(groups),
            completed=weight * (len(group) - failed),
            failed=weight * failed,
            tokens=tokens,
            cost_micros=cost,
        )
        stretches.append(stretch)
    return stretches


def _scale(known: int, summed: int) -> float:
    return known / summed if summed else 0.0


# How far a run is, as one line of a terminal.

BAR = 24
"""Characters."""
WINDOW_SECONDS = 30.0
"""The pace is that of so long."""
_MINUTE, _HOUR = 60, 3_600


@dataclass(slots=True)
class Pace:
    """How fast items end, as far as it was seen."""

    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def see(self, ended: int, *, now: float) -> None:
        """Note how many items have ended at a moment, in seconds of any clock that never goes back."""
        self._seen.append((now, ended))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        """Items; 0 while nobody can say."""
        if len(self._seen) < 2:
            return 0.0
        (began, before), (now, ended) = self._seen[0], self._seen[-1]
        return max(0.0, (ended - before) / (now - began)) if now > began else 0.0


def progress_line(counts: Counts, *, state: str, per_second: float) -> str:
    """Bar, share, counts, pace and what is left to wait."""
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
