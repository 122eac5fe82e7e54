"""One round after another until the context is small enough, and how such a run ends."""

from __future__ import annotations

from enum import StrEnum

from mnesis_core.budget import Budget
from mnesis_core.compaction.condensing import Condensation, choose_condensation
from mnesis_core.compaction.excerpt import Quotable, message_quotables, summary_quotables
from mnesis_core.compaction.spans import Situation, Span, choose_span
from mnesis_core.compaction.transcript import summary_pieces, transcript_pieces
from mnesis_core.dag import SummaryKind


class Outcome(StrEnum):
    """Why a compaction ended. Each but ``ROUNDS_EXHAUSTED`` stays so until something is added to the context."""

    TARGET_MET = "target_met"
    """The context is at or below its target, the low mark."""
    FITS = "fits"
    """It is above the low mark but below the hard threshold, and nothing more may be summarised."""
    NOTHING_TO_SUMMARISE = "nothing_to_summarise"
    """Nothing was done: nothing may be summarised or pruned, or it is too small to shrink."""
    STILL_TOO_LARGE = "still_too_large"
    """All that may be summarised is; the rest alone is above the hard threshold, and assembly shortens it."""
    ROUNDS_EXHAUSTED = "rounds_exhausted"
    """There is more to do than one compaction may; another one goes on, at once while that is due."""


def next_round(situation: Situation) -> Span | Condensation | None:
    """What one more summary is to stand for, or ``None`` at the end: the oldest turns first, then summaries."""
    span = None
    if situation.everything or situation.used > situation.budget.target:
        span = choose_span(situation)
    return span or choose_condensation(situation)


def kind_of(chosen: Span | Condensation) -> SummaryKind:
    """What kind of summary stands for it."""
    return "leaf" if isinstance(chosen, Span) else "condensed"


def reading_of(chosen: Span | Condensation, limit_tokens: int) -> tuple[list[str], tuple[Quotable, ...]]:
    """What there is to read for a summary of it, whole, in pieces; and what level 3 may quote."""
    if isinstance(chosen, Span):
        return transcript_pieces(chosen.messages, limit_tokens), message_quotables(chosen.messages)
    return summary_pieces(chosen.summaries, limit_tokens), summary_quotables(chosen.summaries)


def must_go_on(situation: Situation) -> bool:
    """Whether what is left to do calls for another compaction at once: below the high mark the next turn may."""
    return situation.everything or situation.used >= situation.budget.soft


def outcome(used: int, budget: Budget, *, changed: bool, more: bool) -> Outcome:
    """How a run ended that left ``used`` tokens.

    ``changed``: it pruned or summarised something. ``more``: there is another round to do, which the bound
    on rounds forbids.
    """
    if more:
        return Outcome.ROUNDS_EXHAUSTED
    if used <= budget.target:
        return Outcome.TARGET_MET
    if not changed:
        return Outcome.NOTHING_TO_SUMMARISE
    return Outcome.FITS if used < budget.hard else Outcome.STILL_TOO_LARGE
