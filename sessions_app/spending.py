"""Story: what a session's next call draws on: limits of its turn, of the session, of its person and of the day.

Nothing is counted anew: the record's own calls say what was spent, and a call that runs stands there with the highest
it can take. So whoever draws, in whatever process, sees all others, one after the other by a lock on the person; and
what a dead process held is free when its call is closed. Sums of what cannot change any more are kept
(``SpendingMark``), so a long history costs no more than a short one. Where nothing is limited nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from django.utils import timezone

from mnesis_core.endings import BudgetExhausted
from mnesis_core.errors import SessionNotFoundError
from mnesis_core.events import EventType
from mnesis_core.record import FORK, SessionRecord, TurnRecord
from mnesis_core.spending import (
    Allowance,
    Kept,
    Line,
    PaidCall,
    Scope,
    Spent,
    TurnLimits,
    configured_limits,
    limits_of,
    lines_of,
    passed_by,
    settled_until,
    shortest_time,
    sum_of,
    tightest,
)
from mnesis_core.turn_options import read_options
from sessions_app import store
from sessions_app.conf import site_config
from sessions_app.ledger import Change
from sessions_app.queries import load_account_limits, load_kept, load_paid_calls, load_session, load_turn

Limits = Mapping[str, Any]
"""As they are written in a configuration: ``{"day": {"tokens": 100000}}``."""
KEEP_AFTER_CALLS = 200
"""So many calls beyond the kept sum are added up each time before it is kept anew."""
SETTLES = timedelta(minutes=10)
"""What a transaction began to write so long ago has been committed, or never will be."""


@dataclass(frozen=True, kw_only=True)
class Purse:
    """Something that calls draw on: one scope's limits, and which calls count."""

    scope: Scope
    limits: TurnLimits
    subject: str
    """The id of the turn or session, or the number of the account."""
    session_id: str | None = None
    """The top of the tree of sessions whose calls count."""
    owner_id: int | None = None
    """Else, the person whose calls count."""
    since: datetime | None = None

    @cached_property
    def mark_id(self) -> str:
        """Under which its sum and its warnings are kept."""
        day = f":{self.since:%Y-%m-%d}" if self.scope is Scope.DAY else ""
        return f"{self.scope}:{self.subject}{day}"

    def paid_calls(self, after: datetime | None) -> list[PaidCall]:
        """The calls that count beyond a kept sum."""
        since = max(filter(None, (after, self.since)), default=None)
        return load_paid_calls(session_id=self.session_id, owner_id=self.owner_id, since=since)


def purses_of(session: SessionRecord, *, turn: TurnRecord | None = None) -> tuple[Purse, ...]:
    """What the next call of a session draws on, the narrowest first; without limits nothing, and no query.

    A session that another one launched draws on that one's limits too, and on those of the turn that launched it.
    """
    own = list(_of_session(session, turn))
    for ancestor in _ancestors(session):
        running = ancestor.running_turn_id
        own += _of_session(ancestor, None if running is None else load_turn(running, session_id=ancestor.id))
    of_person = _of_person(session.owner_id, lambda scope: _limits_in(session, scope))
    return tuple(purse for purse in [*own, *of_person] if not purse.limits.is_none)


def running_purses(session_id: str) -> tuple[Purse, ...]:
    """As ``purses_now``, of a session that is not loaded.

    :raises SessionNotFoundError: there is no such session.
    """
    return purses_now(load_session(session_id))


def purses_now(session: SessionRecord) -> tuple[Purse, ...]:
    """What a session's calls draw on now: with the limits of the turn that has it, if one does."""
    running = session.running_turn_id
    return purses_of(session, turn=None if running is None else load_turn(running, session_id=session.id))


def purses_of_person(owner_id: int) -> tuple[Purse, ...]:
    """What all calls of one person draw on."""
    own = load_account_limits(owner_id)
    return tuple(
        purse for purse in _of_person(owner_id, lambda scope: _limits(own, {}, scope)) if not purse.limits.is_none
    )


def draw(record: Change, purses: Sequence[Purse], coming: Spent) -> Line | None:
    """Make sure that what comes may be spent, at its highest; returns the limit of the time it may take, if there is one.

    Write what comes in the same change: until that has ended nobody else draws on the same limits.

    :raises BudgetExhausted: a limit would be passed.
    """
    if not purses:
        return None
    store.lock_spending(record.owner_id)
    allowances = _look(purses, keep=True)
    _warn(record, purses, allowances)
    line = passed_by(coming, allowances)
    if line is not None:
        raise exhausted_at(line, needed=getattr(coming, line.measure))
    return shortest_time(allowances)


def warn(record: Change, purses: Sequence[Purse]) -> None:
    """Say in the ledger which limits are nearly used up, each once."""
    if purses:
        store.lock_spending(record.owner_id)
        _warn(record, purses, _look(purses, keep=False))


def look(purses: Sequence[Purse]) -> list[Allowance]:
    """What was spent of each, at this moment."""
    return _look(purses, keep=False)


def exhausted_at(line: Line, *, needed: float = 0) -> BudgetExhausted:
    """The error that names a limit.

    :param needed: what the next call may take, where that and not what was spent is too much
    """
    more = " The day ends at midnight UTC." if line.scope == Scope.DAY else ""
    said = f"A limit is used up: {line.words}."
    if needed and line.left:
        said = (
            f"A limit leaves too little for the next call, which may take {line.amount(needed)}: {line.words} are used."
        )
    said = f"{said} What was said is kept.{more}"
    return BudgetExhausted(said, reason=f"budget_{line.scope}", **event_body(line))


def event_body(line: Line) -> dict[str, str | int]:
    """A limit as an event tells of it: whole numbers only."""
    if line.measure != "seconds":
        return {"scope": str(line.scope), "measure": line.measure, "limit": int(line.limit), "spent": int(line.spent)}
    limit, spent = (round(value * 1000) for value in (line.limit, line.spent))
    return {"scope": str(line.scope), "measure": "milliseconds", "limit": limit, "spent": spent}


def _of_session(session: SessionRecord, turn: TurnRecord | None) -> Iterator[Purse]:
    if turn is not None:
        callers = read_options(turn.options).limits or TurnLimits()
        limits, since = tightest(_limits_in(session, Scope.TURN), callers), _before(turn.created_at)
        yield Purse(scope=Scope.TURN, limits=limits, subject=turn.id, session_id=session.id, since=since)
    limits = _limits_in(session, Scope.SESSION)
    yield Purse(scope=Scope.SESSION, limits=limits, subject=session.id, session_id=session.id)


def _of_person(owner_id: int, limits: Callable[[Scope], TurnLimits]) -> Iterator[Purse]:
    account, since = str(owner_id), _before(midnight())
    yield Purse(scope=Scope.USER, limits=limits(Scope.USER), subject=account, owner_id=owner_id)
    yield Purse(scope=Scope.DAY, limits=limits(Scope.DAY), subject=account, owner_id=owner_id, since=since)


def _limits_in(session: SessionRecord, scope: Scope) -> TurnLimits:
    return _limits(session.account_limits, session.config.get("limits", {}), scope)


def _limits(account: Limits, session: Limits, scope: Scope) -> TurnLimits:
    """The site's, the person's and the session's own, whichever is tightest."""
    site = limits_of(site_config().limits, scope)
    return tightest(site, configured_limits(account, scope), configured_limits(session, scope))


def _ancestors(session: SessionRecord) -> Iterator[SessionRecord]:
    with suppress(SessionNotFoundError):  # whoever deletes a session takes its limits with it
        while session.parent_id is not None and session.origin != FORK:
            session = load_session(session.parent_id)
            yield session


def _look(purses: Sequence[Purse], *, keep: bool) -> list[Allowance]:
    kept, now = load_kept([purse.mark_id for purse in purses]), timezone.now()
    return [_allowance(purse, kept.get(purse.mark_id, Kept()), now, keep=keep) for purse in purses]


def _allowance(purse: Purse, kept: Kept, now: datetime, *, keep: bool) -> Allowance:
    calls, apart = purse.paid_calls(kept.until), purse.owner_id is not None
    spent = kept.spent + sum_of(calls, now=now, apart=apart)
    if keep and sum(call.count for call in calls) > KEEP_AFTER_CALLS:
        _keep(purse, kept, calls, now)
    return Allowance(scope=purse.scope, limits=purse.limits, spent=spent)


def _keep(purse: Purse, kept: Kept, calls: Sequence[PaidCall], now: datetime) -> None:
    until = settled_until(calls, before=now - SETTLES)
    if until is not None:
        settled = sum_of((call for call in calls if call.began <= until), now=now, apart=purse.owner_id is not None)
        store.keep_sum(purse.mark_id, kept.spent + settled, until=until)


def _warn(record: Change, purses: Iterable[Purse], allowances: Iterable[Allowance]) -> None:
    kept = load_kept([purse.mark_id for purse in purses])
    for purse, allowance in zip(purses, allowances, strict=True):
        warned = dict(kept.get(purse.mark_id, Kept()).warned)
        near = [line for line in lines_of([allowance]) if line.is_near and warned.get(line.measure) != line.limit]
        for line in near:
            record.publish(EventType.BUDGET_WARNING, subject=purse.subject, **event_body(line))
        if near:
            store.keep_warnings(purse.mark_id, warned | {line.measure: line.limit for line in near})


def midnight() -> datetime:
    """When the day began, UTC."""
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _before(time: datetime) -> datetime:
    return time - timedelta(microseconds=1)
