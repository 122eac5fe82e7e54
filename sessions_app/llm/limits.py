"""The limits that a session's calls draw on: of its turn, of the session, of its owner and of the day.

Nothing is counted a second time: the calls in the record say what was spent, and a call that runs is counted at the most
that it can take. Whatever process draws sees what all others have drawn, because a lock on the owner orders them, and a
call that a dead process left counts at its highest. Sums of calls that can no longer change are kept
(``SpendingMark``), so a long history costs no more than a short one. Without limits nothing is queried.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

from django.db import transaction
from django.utils import timezone

from mnesis_core.errors import BudgetExhausted, SessionNotFoundError
from mnesis_core.events import EventType
from mnesis_core.llm.interface import ModelSpec, Usage, cost_micros
from mnesis_core.records import FORK, SessionRecord, TurnRecord
from mnesis_core.spending import (
    Allowance,
    LimitUse,
    PaidCall,
    Scope,
    SpendingSum,
    Spent,
    TurnLimits,
    configured_limits,
    highest_of,
    limits_of,
    lines_of,
    passed_by,
    settled_until,
    shortest_time,
    sum_of,
    tightest,
)
from mnesis_core.turns.options import read_options
from sessions_app.conf import site_config
from sessions_app.llm import spending_store
from sessions_app.llm.spending_store import load_account_limits, load_kept, load_paid_calls
from sessions_app.record.change import Change
from sessions_app.record.session_queries import load_session, temporary_among, titles_of
from sessions_app.record.turn_queries import load_turn
from sessions_app.schemas import Out, Text

Limits = Mapping[str, Any]
"""Limits as a configuration has them: ``{"day": {"tokens": 100000}}``."""
KEEP_AFTER_CALLS = 200  # calls beyond the kept sum after which the sum is kept anew
# What a transaction began to write earlier than this has been committed, or never will be.
SETTLES = timedelta(minutes=10)


class LimitOut(Out):
    """One limit: its ``scope`` (turn, session, user, day), its measure, and how far it is used.

    ``measure`` is tokens, cost_micros, seconds or tool_calls. Running calls count with the highest they can take.
    ``unpriced_calls`` have no known price, and count as nothing.
    """

    scope: str
    measure: str
    limit: float
    spent: float
    left: float
    unpriced_calls: int


class SpentOut(Out):
    """Tokens of prompts and answers, millionths of the currency unit, seconds at work, tool calls."""

    tokens: int
    cost_micros: int
    seconds: float
    tool_calls: int
    unpriced_calls: int


class SessionSpentOut(SpentOut):
    session_id: str
    title: Text


class UsageList(Out):
    """A person's spending today (UTC), in total and by session, largest first, with their limits.

    Models of the search count in the total where there are limits, and in no session.
    """

    day: date
    ends_at: datetime
    budget: list[LimitOut]
    total: SpentOut
    items: list[SessionSpentOut]
    next_cursor: None = None


@dataclass(frozen=True, kw_only=True)
class SpendingLimit:
    """The limits of one scope, and which calls count towards them."""

    scope: Scope
    limits: TurnLimits
    subject: str  # the id of the turn or session, or the number of the account
    session_id: str | None = None  # the root of the tree of sessions whose calls count, if not all calls of a person do
    owner_id: int | None = None
    since: datetime | None = None

    @cached_property
    def mark_id(self) -> str:
        """The id of the ``SpendingMark`` that keeps the sum and the warnings."""
        day = f":{self.since:%Y-%m-%d}" if self.scope is Scope.DAY else ""
        return f"{self.scope}:{self.subject}{day}"

    @property
    def search_id(self) -> str:
        """The id of the ``SpendingMark`` that keeps what models of the search took, of which no call is in the record."""
        return f"search:{self.mark_id}" if self.owner_id is not None else ""

    def paid_calls(self, after: datetime | None) -> list[PaidCall]:
        """Return the calls that count, from a time on or all of them."""
        since = max(filter(None, (after, self.since)), default=None)
        return load_paid_calls(session_id=self.session_id, owner_id=self.owner_id, since=since)


def limits_for(session: SessionRecord, *, turn: TurnRecord | None = None) -> tuple[SpendingLimit, ...]:
    """Return what the next call of a session draws on, the narrowest first; without limits nothing is queried.

    A session that another one launched draws on that one's limits too, and on those of the turn that launched it.
    """
    own = list(_of_session(session, turn))
    with suppress(SessionNotFoundError):  # a deleted session takes its limits with it
        ancestor = session
        while ancestor.parent_id is not None and ancestor.origin != FORK:
            ancestor = load_session(ancestor.parent_id)
            running = ancestor.running_turn_id
            own += _of_session(ancestor, None if running is None else load_turn(running, session_id=ancestor.id))
    of_person = _of_person(session.owner_id, lambda scope: _limits_in(session, scope))
    return tuple(limit for limit in [*own, *of_person] if not limit.limits.is_none)


def load_limits(session_id: str) -> tuple[SpendingLimit, ...]:
    """:raises SessionNotFoundError: there is no such session."""
    return limits_now(load_session(session_id))


def limits_now(session: SessionRecord) -> tuple[SpendingLimit, ...]:
    """Return what a session's calls draw on now, the limits of its running turn included."""
    running = session.running_turn_id
    return limits_for(session, turn=None if running is None else load_turn(running, session_id=session.id))


def limits_for_person(owner_id: int) -> tuple[SpendingLimit, ...]:
    limits = _of_account(owner_id, load_account_limits(owner_id))
    return tuple(limit for limit in limits if not limit.limits.is_none)


def draw(record: Change, limits: Sequence[SpendingLimit], coming: Spent) -> LimitUse | None:
    """Make sure that what comes may be spent, at its highest; return the limit of the time that it may take, if any.

    Write what comes in the same change: until it has ended no other process draws on the same limits.

    :raises BudgetExhausted: a limit would be passed.
    """
    if not limits:
        return None
    spending_store.lock_spending(record.owner_id)
    allowances = look(limits, keep=True)
    _warn(record, limits, allowances)
    line = passed_by(coming, allowances)
    if line is not None:
        raise exhausted_at(line, needed=getattr(coming, line.measure))
    return shortest_time(allowances)


def reserve_apart(owner_id: int, coming: Spent) -> list[str]:
    """Count what is spent beside the record, at its highest; return the ids of the sums that it counts in, for ``settle_apart``.

    :raises BudgetExhausted: it would pass a limit of the person's.
    """
    limits = list(_of_account(owner_id, load_account_limits(owner_id)))
    with transaction.atomic():
        spending_store.lock_spending(owner_id)
        line = passed_by(coming, look([limit for limit in limits if not limit.limits.is_none]))
        if line is not None:
            may_take = line.amount(getattr(coming, line.measure))
            said = f"A limit leaves too little for this, which may take {may_take}: {line.words} are used."
            raise BudgetExhausted(said, reason=f"budget_{line.scope}", **event_body(line))
        # Also where there is no limit yet: one that is set later counts it.
        for limit in limits:
            spending_store.add_to_sum(limit.mark_id, coming)
    return [limit.mark_id for limit in limits]


def settle_apart(owner_id: int, mark_ids: Iterable[str], *, reserved: Spent, spent: Spent) -> None:
    """Count what was really spent in the place of what was reserved."""
    more = Spent(
        tokens=spent.tokens - reserved.tokens,
        cost_micros=spent.cost_micros - reserved.cost_micros,
        unpriced_calls=spent.unpriced_calls - reserved.unpriced_calls,
    )
    with transaction.atomic():
        spending_store.lock_spending(owner_id)
        for mark_id in mark_ids:
            spending_store.add_to_sum(mark_id, more)


def warn(record: Change, limits: Sequence[SpendingLimit]) -> None:
    """Publish which limits are nearly used up, each once."""
    if limits:
        spending_store.lock_spending(record.owner_id)
        _warn(record, limits, look(limits))


def look(limits: Sequence[SpendingLimit], *, keep: bool = False) -> list[Allowance]:
    """Return what was spent of each until now; with ``keep``, and the lock held, keep sums that have grown long."""
    kept, now = load_kept([id for limit in limits for id in (limit.mark_id, limit.search_id)]), timezone.now()
    allowances = []
    for limit in limits:
        own = kept.get(limit.mark_id, SpendingSum())
        calls, apart = limit.paid_calls(own.until), limit.owner_id is not None
        beside = kept.get(limit.search_id, SpendingSum()).spent
        spent = own.spent + sum_of(calls, now=now, apart=apart) + beside
        is_long = keep and sum(call.count for call in calls) > KEEP_AFTER_CALLS
        until = settled_until(calls, before=now - SETTLES) if is_long else None
        if until is not None:
            settled = sum_of((call for call in calls if call.began <= until), now=now, apart=apart)
            spending_store.keep_sum(limit.mark_id, own.spent + settled, until=until)
        allowances.append(Allowance(scope=limit.scope, limits=limit.limits, spent=spent))
    return allowances


def days_of(owner_ids: Collection[int]) -> dict[int, Allowance]:
    """Return what ended calls of each of these people took today, and what they may take, in a few queries for all.

    ``look`` tells more of one person: it counts what runs, and seconds and tool calls too.
    """
    accounts = spending_store.account_limits_of(owner_ids)
    days: dict[int, SpendingLimit] = {}
    for owner_id in owner_ids:
        *_, days[owner_id] = _of_account(owner_id, accounts.get(owner_id, {}))
    kept = load_kept([id for day in days.values() for id in (day.mark_id, day.search_id)])
    taken = spending_store.taken_today(owner_ids, since=_before(midnight()))
    return {
        owner_id: Allowance(
            scope=day.scope,
            limits=day.limits,
            spent=sum(
                (kept[id].spent for id in (day.mark_id, day.search_id) if id in kept), taken.get(owner_id, Spent())
            ),
        )
        for owner_id, day in days.items()
    }


@contextmanager
def drawing_for_search(owner_id: int, spec: ModelSpec, *, tokens: int) -> Iterator[Callable[[int], None]]:
    """Have a model of the search asked in the block, within its owner's limits; it counts as ``tokens`` until it has ended.

    What a process has not ended stays counted, and nothing is where the person has no limits. The block is given a
    function that it tells how many tokens were read; without that, and after an error, they are none.

    :raises BudgetExhausted: a limit would be passed.
    """

    def taken(tokens: int) -> Spent:
        return highest_of(tokens, cost_micros(spec, Usage(input_tokens=tokens, output_tokens=0)))

    limits = limits_for_person(owner_id)
    if not limits:
        yield lambda read: None
        return
    marks, coming, real = [limit.search_id for limit in limits], taken(tokens), [Spent()]
    with transaction.atomic():
        spending_store.lock_spending(owner_id)
        line = passed_by(coming, look(limits))
        if line is not None:
            raise exhausted_at(line, needed=getattr(coming, line.measure))
        for mark in marks:
            spending_store.add_to_sum(mark, coming)

    def tell(read: int) -> None:
        real[0] = taken(read)

    try:
        yield tell
    finally:
        with transaction.atomic():
            spending_store.lock_spending(owner_id)
            for mark in marks:
                spending_store.add_to_sum(mark, real[0] - coming)


def has_used_up(owner_id: int) -> bool:
    """Return whether a person's limits leave nothing at all for a model."""
    return passed_by(highest_of(1, 1), look(limits_for_person(owner_id))) is not None


def midnight() -> datetime:
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


class TurnSpending:
    """The limits that a running turn draws on, and the timer that ends it. Without limits nothing here costs anything."""

    def __init__(self, limits: Sequence[SpendingLimit]) -> None:
        self.limits = limits
        self._time: LimitUse | None = None
        # Not timeout(None), which needs a running loop: this is made in a database thread.
        self._timer = asyncio.Timeout(None)

    def start_timer(self, time_limit: LimitUse | None) -> None:
        self._time = time_limit
        if time_limit is not None:
            self._timer.reschedule(asyncio.get_running_loop().time() + time_limit.left)

    @asynccontextmanager
    async def hard_stop(self) -> AsyncIterator[None]:
        """:raises BudgetExhausted: no time is left, so the block was cancelled."""
        try:
            async with self._timer:
                yield
        except TimeoutError:
            if self._time is None or not self._timer.expired():
                raise
            raise exhausted_at(replace(self._time, spent=self._time.limit)) from None


def exhausted_at(line: LimitUse, *, needed: float = 0) -> BudgetExhausted:
    """:param needed: what the next call may take, if that is too much and not what was spent"""
    more = " The day ends at midnight UTC." if line.scope == Scope.DAY else ""
    said = f"A limit is used up: {line.words}."
    if needed and line.left:
        said = (
            f"A limit leaves too little for the next call, which may take {line.amount(needed)}: {line.words} are used."
        )
    said = f"{said} What was said is kept.{more}"
    return BudgetExhausted(said, reason=f"budget_{line.scope}", **event_body(line))


def event_body(line: LimitUse) -> dict[str, str | int]:
    """Return a limit as an event tells of it: whole numbers only."""
    if line.measure != "seconds":
        return {"scope": str(line.scope), "measure": line.measure, "limit": int(line.limit), "spent": int(line.spent)}
    limit, spent = (round(value * 1000) for value in (line.limit, line.spent))
    return {"scope": str(line.scope), "measure": "milliseconds", "limit": limit, "spent": spent}


def budget_of(session: SessionRecord) -> list[dict[str, Any]]:
    return budget_out(look(limits_now(session)))


def budget_out(allowances: Iterable[Allowance]) -> list[dict[str, Any]]:
    return [
        {
            "scope": line.scope,
            "measure": line.measure,
            "limit": line.limit,
            "spent": line.spent,
            "left": line.left,
            "unpriced_calls": allowance.spent.unpriced_calls,
        }
        for allowance in allowances
        for line in lines_of([allowance])
    ]


def usage_today(owner_id: int, *, limit: int) -> dict[str, Any]:
    now, began = timezone.now(), midnight()
    calls = load_paid_calls(owner_id=owner_id, since=began - timedelta(microseconds=1), at_home=True)
    of_session: dict[str, list[PaidCall]] = defaultdict(list)
    for call in calls:
        of_session[call.session_id].append(call)
    by_session = {id: sum_of(own, now=now, apart=False) for id, own in of_session.items()}
    largest = sorted(by_session, key=lambda id: (-by_session[id].cost_micros, -by_session[id].tokens, id))[:limit]
    titles = titles_of(largest, owner_id=owner_id)
    titles |= dict.fromkeys(temporary_among(titles), "")
    *_, today = _of_person(owner_id, lambda scope: TurnLimits())
    return {
        "day": began.date(),
        "ends_at": began + timedelta(days=1),
        "budget": budget_out(look(limits_for_person(owner_id))),
        "total": sum_of(calls, now=now, apart=True)
        + load_kept([today.search_id]).get(today.search_id, SpendingSum()).spent,
        "items": [
            {"session_id": id, "title": titles.get(id, "")} | SpentOut.model_validate(by_session[id]).model_dump()
            for id in largest
        ],
    }


def _of_session(session: SessionRecord, turn: TurnRecord | None) -> Iterator[SpendingLimit]:
    if turn is not None:
        callers = read_options(turn.options).limits or TurnLimits()
        limits, since = tightest(_limits_in(session, Scope.TURN), callers), _before(turn.created_at)
        yield SpendingLimit(scope=Scope.TURN, limits=limits, subject=turn.id, session_id=session.id, since=since)
    limits = _limits_in(session, Scope.SESSION)
    yield SpendingLimit(scope=Scope.SESSION, limits=limits, subject=session.id, session_id=session.id)


def _of_account(owner_id: int, account: Limits) -> Iterator[SpendingLimit]:
    return _of_person(owner_id, lambda scope: _limits(account, {}, scope))


def _of_person(owner_id: int, limits: Callable[[Scope], TurnLimits]) -> Iterator[SpendingLimit]:
    account, since = str(owner_id), _before(midnight())
    yield SpendingLimit(scope=Scope.USER, limits=limits(Scope.USER), subject=account, owner_id=owner_id)
    yield SpendingLimit(scope=Scope.DAY, limits=limits(Scope.DAY), subject=account, owner_id=owner_id, since=since)


def _limits_in(session: SessionRecord, scope: Scope) -> TurnLimits:
    return _limits(session.account_limits, session.config.get("limits", {}), scope)


def _limits(account: Limits, session: Limits, scope: Scope) -> TurnLimits:
    """Return the tightest of the site's limits, the account's and the session's own."""
    site = limits_of(site_config().limits, scope)
    return tightest(site, configured_limits(account, scope), configured_limits(session, scope))


def _warn(record: Change, limits: Iterable[SpendingLimit], allowances: Iterable[Allowance]) -> None:
    kept = load_kept([limit.mark_id for limit in limits])
    for limit, allowance in zip(limits, allowances, strict=True):
        warned = dict(kept.get(limit.mark_id, SpendingSum()).warned)
        near = [line for line in lines_of([allowance]) if line.is_near and warned.get(line.measure) != line.limit]
        for line in near:
            record.publish(EventType.BUDGET_WARNING, subject=limit.subject, **event_body(line))
        if near:
            spending_store.keep_warnings(limit.mark_id, warned | {line.measure: line.limit for line in near})


def _before(time: datetime) -> datetime:
    return time - timedelta(microseconds=1)
