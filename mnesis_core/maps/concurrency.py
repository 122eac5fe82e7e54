"""How many calls a worker may have in flight, so that limits hold across all workers and none of them starves.

Each limit (a run's, a model's, a provider's, a person's) is shared by max-min fairness: whoever wants little gets it, and
the others share the rest evenly. Nobody takes what somebody else still holds: a worker that holds more than its share
gives it back when it renews, and only then another one gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from mnesis_core.errors import ModelError, ModelRateLimited, ModelTimeout
from mnesis_core.llm.retrying import LARGEST_SPREAD, Patience, seconds_asked_for
from mnesis_core.maps.values import ErrorKind

QUIET_SECONDS = 10.0
"""Without a rate-limit answer for so long, a model's lower limit doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What another worker holds of a limit, and what it wants."""

    held: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """A model that has said "too many requests"."""

    until: datetime
    """Nobody asks it before."""
    ceiling: int
    """Calls that it took at the time, at the most."""
    since: datetime
    """When it said so last."""


def permits(wanted: int, limits: Iterable[tuple[int, Sequence[Claim]]]) -> int:
    """How many calls a worker may have in flight that wants so many, under every limit and beside the others at each."""
    return min((_permits(wanted, limit, others) for limit, others in limits), default=wanted)


def _permits(wanted: int, limit: int, others: Sequence[Claim]) -> int:
    free = limit - sum(other.held for other in others)
    share = fair_share(limit, [wanted, *(other.wanted for other in others)])
    owed = sum(max(0, min(other.wanted, share) - other.held) for other in others)
    return max(0, min(wanted, free, max(share, free - owed)))


def fair_share(limit: int, wants: Iterable[int]) -> int:
    """What each of those may have of a limit who want more than that; at least 1."""
    left, largest_first = limit, sorted(wants, reverse=True)
    while largest_first and largest_first[-1] <= left // len(largest_first):
        left -= largest_first.pop()
    return max(1, left // len(largest_first)) if largest_first else limit


def braked(brake: Brake | None, *, in_flight: int, seconds: float, began: datetime, now: datetime) -> Brake:
    """The brake after a rate-limit answer to a call.

    Of the calls that were in flight together the first that is refused halves the limit: the others say the same once
    more.

    :param in_flight: calls that the model had at the time, from everybody
    :param seconds: for which nobody is to ask it
    :param began: when the refused call was made
    """
    until = now + timedelta(seconds=seconds)
    if brake is None:
        return Brake(until=until, ceiling=max(1, in_flight // 2), since=now)
    until = max(until, brake.until)
    if began <= brake.since:
        return replace(brake, until=until)
    return Brake(until=until, ceiling=max(1, min(in_flight, ceiling_now(brake, now)) // 2), since=now)


def ceiling_now(brake: Brake, now: datetime) -> int:
    """How many calls a model may have that was braked: twice as many after each quiet time."""
    quiet = max(0.0, (now - max(brake.since, brake.until)).total_seconds())
    doublings = min(int(quiet / QUIET_SECONDS), 30)
    return brake.ceiling << doublings


# What becomes of an item whose try gave no result: whether it is tried again, and after how long.
#
# A try counts when it was judged. One whose process died was not, and says nothing of the item; still, an item that every
# process dies over must come to an end.

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
