"""How much of a model's window the context may take, and when that calls for a compaction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from mnesis_core.config import Config
from mnesis_core.llm.calibration import LARGEST_RATIO, SMALLEST_RATIO, Calibration, CountSource
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.limits import spec_as_said, spec_in_session

LARGEST_RESERVE_SHARE = 8  # The compaction reserve is at most one part in eight of what the answer leaves.
SMALLEST_WINDOW = 20  # Tokens. Nothing smaller can be divided.


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The window of a model, divided; all in tokens."""

    window: int
    reserved_output: int  # Kept free for the answer; also the most that a call may ask for.
    reserve: int  # Kept free for compaction and for the estimate's error.
    usable: int  # What system prompt, tools and context may take together.
    soft: int  # From here on a compaction is requested after the turn.
    hard: int  # From here on a compaction comes before the next call.
    target: int  # What compaction goes down to.


class Pressure(StrEnum):
    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


class Reason(StrEnum):
    SOFT = "soft"
    HARD = "hard"
    BELOW_SOFT = "below_soft"
    AUTO_OFF = "auto_off"
    FIRST_TURN = "first_turn"
    TOO_SOON = "too_soon"  # Too little is new since the last compaction.
    UNCHANGED = "unchanged"  # The last compaction failed, and nothing is new since.
    NOTHING_TO_SUMMARISE = "nothing_to_summarise"  # All that may be summarised or pruned is.
    ALREADY_REQUESTED = "already_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    tokens: int  # of the context at its end, as far as that is known
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    compact: bool
    pressure: Pressure
    reason: Reason
    used: int
    source: CountSource = CountSource.ESTIMATED


def make_budget(spec: ModelSpec, config: Config, *, window_said: int | None = None) -> Budget:
    """Return the budget of a model under a configuration, within the window that its provider says it has.

    The reserves of seed 000 are absolute and leave nothing of a small window, so each is also bounded by a share: the
    answer's of the window, the compaction's of the rest. So a larger window never leaves less usable.
    """
    spec = spec_as_said(spec_in_session(spec, config), window_said)
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
    """Return the pressure of a context of ``used`` tokens: what it would take whole, not what was left after cutting."""
    return pressure_between(used, soft=budget.soft, hard=budget.hard)


def pressure_between(used: int, *, soft: int, hard: int) -> Pressure:
    if used >= hard:
        return Pressure.HARD
    return Pressure.SOFT if used >= soft else Pressure.NONE


def should_compact(
    *, used: int, budget: Budget, config: Config, turns: int, last: LastRun | None, is_something_to_do: bool = True
) -> Trigger:
    """Decide whether automatic compaction is due.

    ``used`` is what the whole context would take now, ``turns`` counts the session's turns, the current one included.
    The high mark is the soft threshold, the low one that a compaction goes down to is the target. The first turn has
    nothing older than itself to summarise (seed 002). Soft compactions keep a distance, so that a context which cannot
    shrink is not compacted after every turn; the hard threshold beats the distance, but not for the context that a
    compaction has just failed on.
    """
    level = pressure(used, budget)
    new_tokens = used if last is None else used - last.tokens
    # At least one token, so that no compaction follows another on the same context.
    distance = max(1, int(budget.usable * config.compaction.spacing_fraction))
    against = (
        (Reason.BELOW_SOFT, level is Pressure.NONE),
        (Reason.AUTO_OFF, not config.compaction.auto),
        (Reason.FIRST_TURN, turns <= 1),
        (Reason.UNCHANGED, last is not None and last.failed and new_tokens <= 0),
        (Reason.TOO_SOON, level is Pressure.SOFT and last is not None and new_tokens < distance),
        (Reason.NOTHING_TO_SUMMARISE, not is_something_to_do),
    )
    reason = next((reason for reason, holds in against if holds), None)
    return Trigger(compact=reason is None, pressure=level, reason=reason or Reason(level.value), used=used)


# How large a context is: by the provider's own count of its last prompt where there is one, else by our estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    tokens: int
    source: CountSource  # ``provider`` for its count of the last prompt with our estimate of what came since


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPrompt:
    """A context as a model was last asked about it, in tokens, estimated and not corrected."""

    whole: int
    sent: int
    reported: int = 0  # what the provider counted in the prompt, or 0


def size_now(whole: int, calibration: Calibration, last: LastPrompt | None) -> Size:
    """Return the size of a context of ``whole`` tokens, estimated and not corrected.

    The provider's count stands for what was sent, within the bounds in which it is believed; what was left out then,
    and what came since, is our estimate. That count says nothing about a context that has lost something since.
    """
    if last is None or last.reported <= 0 or whole < last.whole:
        return Size(tokens=ceil(whole * calibration.ratio), source=calibration.source)
    counted = min(max(last.reported, int(last.sent * SMALLEST_RATIO)), int(last.sent * LARGEST_RATIO))
    return Size(tokens=counted + ceil((whole - last.sent) * calibration.ratio), source=CountSource.PROVIDER)
