"""How much of a model's window the context may take, and when that calls for a compaction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mnesis_core.config import Config
from mnesis_core.limits import spec_in_session
from mnesis_core.llm import ModelSpec

LARGEST_RESERVE_SHARE = 8
"""The compaction reserve is at most one part in so many of what the answer leaves."""
SMALLEST_WINDOW = 20
"""Tokens. Below it nothing can be divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The window of a model, divided. All in tokens."""

    window: int
    reserved_output: int
    """Kept free for the answer; also the most that a call may ask for."""
    reserve: int
    """Kept free for compaction and for the estimate's error."""
    usable: int
    """What system prompt, tools and context may take together."""
    soft: int
    """From here on a compaction is requested after the turn."""
    hard: int
    """From here on a compaction comes before the next call."""
    target: int
    """What compaction goes down to."""


class Pressure(StrEnum):
    """How full the context is."""

    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Whether to compact now, and the reason for that or against it."""

    compact: bool
    pressure: Pressure
    reason: str
    """``below_soft``, ``auto_off``, ``first_turn``, ``too_soon``, ``soft`` or ``hard``."""


def make_budget(spec: ModelSpec, config: Config) -> Budget:
    """The budget of a model under a configuration.

    The reserves of seed 000 are absolute and leave nothing of a small window, so each is also bounded by a
    share: the answer's of the window, the compaction's of the rest. So a larger window never leaves less usable.
    """
    spec = spec_in_session(spec, config)
    window = max(spec.context_window, SMALLEST_WINDOW)
    output_share = max(1, int(window * config.budget.reserved_output_share))
    reserved_output = min(spec.max_output_tokens, output_share) if spec.max_output_tokens > 0 else output_share
    rest = window - reserved_output
    usable = rest - min(config.budget.compaction_reserve_tokens, rest // LARGEST_RESERVE_SHARE)
    return Budget(
        window=window,
        reserved_output=reserved_output,
        reserve=rest - usable,
        usable=usable,
        soft=int(usable * config.budget.soft_threshold_fraction),
        hard=usable,
        target=int(usable * config.budget.target_fraction),
    )


def pressure(used: int, budget: Budget) -> Pressure:
    """How full a context of ``used`` tokens is: what it would take whole, not what was left after cutting."""
    if used >= budget.hard:
        return Pressure.HARD
    return Pressure.SOFT if used >= budget.soft else Pressure.NONE


def should_compact(*, used: int, budget: Budget, config: Config, turns: int, new_tokens: int | None) -> Trigger:
    """Whether automatic compaction is due.

    ``used`` is what the whole context would take now, ``turns`` counts the session's turns, the current one
    included, ``new_tokens`` is what was added since the last compaction (None: there was none). The first
    turn has nothing older than itself to summarise. Soft compactions keep a distance, so that a context
    which cannot shrink is not compacted after every turn; the hard threshold beats the distance.
    """
    level = pressure(used, budget)
    spacing = int(budget.usable * config.compaction.spacing_fraction)
    if level is Pressure.NONE:
        return Trigger(compact=False, pressure=level, reason="below_soft")
    if not config.compaction.auto:
        return Trigger(compact=False, pressure=level, reason="auto_off")
    if turns <= 1:
        return Trigger(compact=False, pressure=level, reason="first_turn")
    if level is Pressure.SOFT and new_tokens is not None and new_tokens < spacing:
        return Trigger(compact=False, pressure=level, reason="too_soon")
    return Trigger(compact=True, pressure=level, reason=level.value)
