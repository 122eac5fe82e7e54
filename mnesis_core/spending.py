"""What may be spent, what was spent, and whether more may be: by a turn, a session, a person and a person's day.

A limit is enforced before it is passed: what comes next counts at the highest that it can take, so the last call cannot
pass it. Time alone is different: no one knows before how long a call takes, so it is a hard stop while the call runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from mnesis_core.config import LimitConfig

WARN_AT = 0.8  # The share of a limit at which the session's ledger records a warning, once.


class Scope(StrEnum):
    """What a spending limit applies to, from the narrowest to the widest."""

    TURN = "turn"  # A turn with the sessions that it launches and the compactions of its session meanwhile.
    SESSION = "session"  # A session since it began, with the sessions that it launched.
    USER = "user"
    DAY = "day"  # All sessions of one person since midnight UTC.


_UNIT = {"tokens": "tokens", "cost_micros": "currency units", "seconds": "seconds", "tool_calls": "tool calls"}
_PER: dict[str, str] = {
    "run": "in a run",  # An operator's own limits are no scope of a session's.
    Scope.TURN: "in a turn",
    Scope.SESSION: "in a session",
    Scope.USER: "in all",
    Scope.DAY: "a day",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """The most that may be spent in one scope; ``None`` for no limit."""

    tokens: int | None = None
    cost_micros: int | None = None  # millionths of the currency unit
    seconds: float | None = None  # While a model is asked or a tool runs; waiting for people takes none.
    tool_calls: int | None = None

    @property
    def is_none(self) -> bool:
        return self == TurnLimits()


_MEASURES = tuple(item.name for item in fields(TurnLimits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    tokens: int = 0
    cost_micros: int = 0
    seconds: float = 0.0
    tool_calls: int = 0
    unpriced_calls: int = 0  # Model calls without a known price: they cost nothing here, and this counts them.

    def as_parameters(self) -> dict[str, int | None]:
        """Return the most that a call may take, as its record keeps it until the real cost is known."""
        return {"most_tokens": self.tokens, "most_micros": None if self.unpriced_calls else self.cost_micros}

    def __add__(self, other: Spent) -> Spent:
        return Spent(**{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(Spent)})

    def __sub__(self, other: Spent) -> Spent:
        return Spent(**{item.name: getattr(self, item.name) - getattr(other, item.name) for item in fields(Spent)})


ONE_TOOL_CALL = Spent(tool_calls=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidCall:
    """A model call with the tools that it asked for: what the record knows of it, and what it may still take."""

    session_id: str
    is_child: bool  # In a session that a tool launched: the tool's own time includes this call's.
    began: datetime
    ended: datetime | None
    spent: Spent  # Tokens and cost as reported, or at the highest where there is no report.
    tools: tuple[tuple[datetime, datetime | None], ...] = ()  # begin and end of each tool that was started
    is_open: bool = False  # It runs, or tools that it asked for have no result yet.
    count: int = 1  # The number of calls that this stands for: the calls of one minute of a run may be one.
    first: datetime | None = None  # When the first of them began; ``began`` is when the last did.


def sum_of(calls: Iterable[PaidCall], *, now: datetime, apart: bool) -> Spent:
    """Return what calls and their tools have taken.

    :param apart: sessions side by side each count their time; otherwise time that they share counts once, as in one
        tree
    """
    known = list(calls)
    stretches: dict[str, list[tuple[datetime, datetime]]] = {}
    for call in known:
        if not (apart and call.is_child):
            own = stretches.setdefault(call.session_id if apart else "", [])
            own += [(begin, end or now) for begin, end in ((call.first or call.began, call.ended), *call.tools)]
    return Spent(
        tokens=sum(call.spent.tokens for call in known),
        cost_micros=sum(call.spent.cost_micros for call in known),
        unpriced_calls=sum(call.spent.unpriced_calls for call in known),
        tool_calls=sum(len(call.tools) for call in known),
        seconds=sum(busy_seconds(own) for own in stretches.values()),
    )


def busy_seconds(stretches: Iterable[tuple[datetime, datetime]]) -> float:
    """Return how long any of these (begin, end) was at work: what ran side by side counts once."""
    total = 0.0
    until: datetime | None = None
    for begin, end in sorted(stretches):
        fresh = begin if until is None else max(begin, until)
        total += max(0.0, (end - fresh).total_seconds())
        until = end if until is None else max(end, until)
    return total


def settled_until(calls: Sequence[PaidCall], before: datetime) -> datetime | None:
    """Return the time up to which no call can change, since all that began by then have ended.

    :param before: a call that began later may still be about to be written
    """
    first_open = min((call.began for call in calls if call.is_open), default=before)
    return max((call.began for call in calls if call.began < min(first_open, before)), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingSum:
    until: datetime | None = None
    spent: Spent = Spent()
    # measure -> the limit that was nearly used up at the warning
    warned: Mapping[str, float] = field(default_factory=dict)


def highest_of(tokens: int, cost_micros: int | None) -> Spent:
    """Return the most that a model call can take; ``None`` means that its price is not known."""
    return Spent(tokens=tokens, cost_micros=cost_micros or 0, unpriced_calls=int(cost_micros is None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    scope: str
    limits: TurnLimits
    spent: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    scope: str
    measure: str
    limit: float
    spent: float

    @property
    def left(self) -> float:
        return max(0, self.limit - self.spent)

    @property
    def is_near(self) -> bool:
        return self.spent >= self.limit * WARN_AT

    @property
    def words(self) -> str:
        """Return the limit for people, such as ``9,500 of 10,000 tokens a day``."""
        return f"{self.amount(self.spent)} of {self.amount(self.limit)} {_UNIT[self.measure]} {_PER[self.scope]}"

    def amount(self, value: float) -> str:
        if self.measure == "cost_micros":
            return f"{value / 1_000_000:,.6f}".rstrip("0").rstrip(".")
        return f"{value:,.1f}".removesuffix(".0")


def lines_of(allowances: Iterable[Allowance]) -> list[LimitUse]:
    return [
        LimitUse(scope=allowance.scope, measure=measure, limit=limit, spent=getattr(allowance.spent, measure))
        for allowance in allowances
        for measure, limit in asdict(allowance.limits).items()
        if limit is not None
    ]


def passed_by(coming: Spent, allowances: Iterable[Allowance]) -> LimitUse | None:
    for line in lines_of(allowances):
        more = getattr(coming, line.measure)
        if line.measure == "seconds":
            is_passed = line.spent >= line.limit
        else:
            # A question is not a tool call: a model may still answer in words when no tool may be called any more.
            is_passed = line.spent + more > line.limit and (more > 0 or line.measure != "tool_calls")
        if is_passed:
            return line
    return None


def shortest_time(allowances: Iterable[Allowance]) -> LimitUse | None:
    lines = [line for line in lines_of(allowances) if line.measure == "seconds"]
    return min(lines, key=lambda line: line.left, default=None)


def tightest(*limits: TurnLimits) -> TurnLimits:
    """Return the lowest of several limits on each measure: a later one may tighten, never loosen."""
    values = {name: [value for limit in limits if (value := getattr(limit, name)) is not None] for name in _MEASURES}
    return TurnLimits(**{name: min(given, default=None) for name, given in values.items()})


def limits_of(config: LimitConfig, scope: Scope) -> TurnLimits:
    limits = getattr(config, scope)
    return TurnLimits(**{name: getattr(limits, name) or None for name in _MEASURES})  # in a configuration 0 is no limit


def configured_limits(values: Mapping[str, Mapping[str, Any]], scope: Scope) -> TurnLimits:
    """Return the limits in values that were written into a configuration and accepted."""
    limits = values.get(scope, {})
    return TurnLimits(**{name: limits.get(name) or None for name in _MEASURES})
