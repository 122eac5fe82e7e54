"""What was spent and what is left, as all endpoints return it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any

from django.utils import timezone

from mnesis_core.records import SessionRecord
from mnesis_core.spending import Allowance, PaidCall, lines_of, sum_of
from sessions_app.record.session_queries import titles_of
from sessions_app.schemas import Out, Text
from sessions_app.usage.limits import limits_for_person, limits_now, look, midnight
from sessions_app.usage.spending_queries import load_paid_calls


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
    """What a person has spent today (UTC), in all and by session, the largest first, with their limits."""

    day: date
    ends_at: datetime
    budget: list[LimitOut]
    total: SpentOut
    items: list[SessionSpentOut]
    next_cursor: None = None


def budget_of(session: SessionRecord) -> list[dict[str, Any]]:
    """Return the limits of a session's next call as JSON."""
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
    calls = load_paid_calls(owner_id=owner_id, since=began - timedelta(microseconds=1))
    of_session: dict[str, list[PaidCall]] = defaultdict(list)
    for call in calls:
        of_session[call.session_id].append(call)
    by_session = {id: sum_of(own, now=now, apart=False) for id, own in of_session.items()}
    largest = sorted(by_session, key=lambda id: (-by_session[id].cost_micros, -by_session[id].tokens, id))[:limit]
    titles = titles_of(largest, owner_id=owner_id)
    return {
        "day": began.date(),
        "ends_at": began + timedelta(days=1),
        "budget": budget_out(look(limits_for_person(owner_id))),
        "total": sum_of(calls, now=now, apart=True),
        "items": [
            {"session_id": id, "title": titles.get(id, "")} | SpentOut.model_validate(by_session[id]).model_dump()
            for id in largest
        ],
    }
