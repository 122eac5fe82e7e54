"""What becomes of an item whose try gave no result: whether it is tried again, and after how long.

A try counts when it was judged. One whose process died was not, and says nothing of the item; still, an item that every
process dies over must come to an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from mnesis_core.endings import ModelError, ModelRateLimited, ModelTimeout
from mnesis_core.operators.values import ErrorKind
from mnesis_core.retrying import LARGEST_SPREAD, Patience, seconds_asked_for

MOST_EXCUSED = 100
"""Tries that count for nothing, as their processes died, before an item is given up: far more than accidents explain."""
RATE_LIMIT_SECONDS = 1.0
"""The pause after the first rate-limit answer that names none."""
_AT_ONCE = frozenset({ErrorKind.VALIDATION, ErrorKind.SCHEMA_ERROR})
"""The model answered, and is to answer otherwise: nothing gets better by waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a try gave no result."""

    kind: ErrorKind
    message: str
    """For people, and for the model where the kind is one of its answer."""
    may_pass: bool = True
    """Whether the same question may have an answer later."""
    retry_after: str = ""
    """What the provider asked for, as it stands in the header."""


def failure_of_call(error: ModelError) -> Failure:
    """Why a call to a model gave nothing."""
    kind = ErrorKind.TIMEOUT if isinstance(error, ModelTimeout) else ErrorKind.LLM_ERROR
    after = str(error.details.get("retry_after", ""))
    return Failure(kind=kind, message=error.message, may_pass=error.retriable, retry_after=after)


def pause_before_try(
    failure: Failure, patience: Patience, *, failures: int, now: datetime, chance: float = 0.0
) -> float | None:
    """How many seconds an item waits before it is tried again, or ``None`` when it has failed.

    :param failures: how many of its tries have failed so far, this one included
    :param chance: a random number, at least 0 and below 1
    """
    if failure.kind is ErrorKind.BUDGET or not failure.may_pass or failures > patience.max_retries:
        return None
    if failure.kind in _AT_ONCE:
        return 0.0
    own = min(patience.base_seconds * (1 << min(failures - 1, 30)), patience.longest_seconds)
    asked = min(seconds_asked_for(failure.retry_after, now), patience.longest_seconds)
    return max(own, asked) + own * LARGEST_SPREAD * chance


def is_deadly(excused: int) -> bool:
    """Whether so many processes died over an item that nobody tries it any more."""
    return excused > MOST_EXCUSED


def pause_of_model(error: ModelRateLimited, *, in_a_row: int, longest_seconds: float, now: datetime) -> float:
    """How many seconds nobody asks a model that said "too many requests".

    :param in_a_row: how often it has said so to this call, this time included
    """
    own = RATE_LIMIT_SECONDS * (1 << min(in_a_row - 1, 10))
    asked = seconds_asked_for(str(error.details.get("retry_after", "")), now)
    return min(max(own, asked), longest_seconds)
