"""How many summaries a session has, and of which sorts: a sum over what one query counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from compaction_app.inspect_queries import SummaryCount


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The summaries of a session; those that a revision replaced are counted apart."""

    total: int
    """In place now."""
    leaves: int
    condensed: int
    by_rule: int
    """Of level 3: cut together without a model."""
    stale: int
    superseded: int

    @property
    def all(self) -> int:
        """In place or not."""
        return self.total + self.superseded

    @property
    def words(self) -> list[str]:
        """``31 in place``, ``24 leaves over messages`` and so on; what there is none of is left out."""
        counted = (
            (self.total, "in place"),
            (self.leaves, "leaf over messages" if self.leaves == 1 else "leaves over messages"),
            (self.condensed, "condensed"),
            (self.by_rule, "of level 3"),
            (self.stale, "stale"),
            (self.superseded, "superseded"),
        )
        return [f"{number:,} {words}" for number, words in counted if number]


def counts_of(sorts: Sequence[SummaryCount]) -> Counts:
    """The numbers above the drawing."""
    here = [sort for sort in sorts if not sort.is_superseded]
    kinds: Counter[str] = Counter()
    for sort in here:
        kinds[sort.kind] += sort.number
    return Counts(
        total=kinds.total(),
        leaves=kinds["leaf"],
        condensed=kinds["condensed"],
        by_rule=sum(sort.number for sort in here if sort.level == 3),
        stale=sum(sort.number for sort in here if sort.freshness == "stale"),
        superseded=sum(sort.number for sort in sorts if sort.is_superseded),
    )
