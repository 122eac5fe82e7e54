"""How fast a run goes: from the endings of some of its items to rates, sums and the time that is left.

Some, not all: a run may have a hundred thousand items. They are taken evenly over the input, which is worked through in
its order, so that each stands for as many of its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

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
