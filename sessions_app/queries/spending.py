"""What was spent: the record's calls with their tools, of one tree of sessions or of one person."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db import connection

from mnesis_core.spending import Kept, PaidCall, Spent
from sessions_app.models import AccountLimit, MessagePart, ModelCall, SpendingMark
from sessions_app.statements import fetch, select_columns, time_of

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_TREE = (
    "WITH RECURSIVE tree (id) AS (SELECT CAST(%s AS varchar(40)) UNION ALL"
    " SELECT child.id FROM sessions child JOIN tree ON child.parent_id = tree.id WHERE child.forked_message_id = ''"
    " AND child.origin <> 'fork')"
    " SELECT id FROM tree"
)
_TIMES = ("created_at", "ended_at")
_NUMBERS = ("tokens_input", "tokens_output", "cost_micros", "estimated_tokens")


def load_paid_calls(
    *, session_id: str | None = None, owner_id: int | None = None, since: datetime | None = None
) -> list[PaidCall]:
    """The calls of a session and of those it launched, or of all sessions of one person, that began after ``since``.

    Those of operators' runs that have ended are together, a minute of a session each.

    A fork is no part of the session it was made from: its copies cost nothing.
    """
    after = connection.ops.adapt_datetimefield_value(since or BEGINNING)
    whose = [owner_id, after] if session_id is None else [session_id]
    rows = fetch(_query(of_tree=session_id is not None), 2 * [*whose, after])
    return list(_calls(rows))


def load_kept(ids: Collection[str]) -> dict[str, Kept]:
    """What is kept of sums and warnings, by the id of its row."""
    return {mark.id: _kept(mark) for mark in SpendingMark.objects.filter(id__in=ids)}


def _kept(mark: SpendingMark) -> Kept:
    spent = Spent(
        tokens=mark.tokens,
        cost_micros=mark.cost_micros,
        seconds=mark.milliseconds / 1000,
        tool_calls=mark.tool_calls,
        unpriced_calls=mark.unpriced_calls,
    )
    return Kept(until=mark.until, spent=spent, warned=mark.warned)


def load_account_limits(owner_id: int) -> dict[str, Any]:
    """What an administrator lets one person spend, as in a configuration."""
    return AccountLimit.objects.filter(owner_id=owner_id).values_list("limits", flat=True).first() or {}


def list_account_limits() -> list[tuple[str, dict[str, Any]]]:
    """(user name, limits) of everybody who has some of their own."""
    return list(AccountLimit.objects.order_by("owner__username").values_list("owner__username", "limits"))


@cache
def _query(*, of_tree: bool) -> str:
    call = select_columns(ModelCall, "c", (*_TIMES, *_NUMBERS))
    tool = select_columns(MessagePart, "p", ("started_at", "completed_at"))
    # Who has a call today has a session that changed today: so only those are looked at, by an index.
    chosen = f"s.id IN ({_TREE})" if of_tree else "s.owner_id = %s AND s.updated_at > %s"
    source = "FROM sessions s JOIN model_calls c ON c.session_id = s.id"
    return (
        f"SELECT c.id, s.id, s.parent_part_id, {call},"
        f" CASE WHEN c.tokens_input IS NULL THEN c.parameters END, p.id, {tool}, NULL, 1, 0 {source}"
        " LEFT JOIN message_parts p ON p.message_id = c.message_id AND p.part_type = 'tool'"
        f" WHERE {chosen} AND c.created_at > %s AND NOT ({_MANY})"
        f" UNION ALL SELECT MAX(c.id), s.id, s.parent_part_id, {_together()} {source}"
        f" WHERE {chosen} AND c.created_at > %s AND {_MANY} GROUP BY s.id, s.parent_part_id, {_minute()}"
        " ORDER BY 4, 1"
    )


_MANY = "c.purpose = 'map' AND c.ended_at IS NOT NULL AND c.tokens_input IS NOT NULL"
"""Calls of operators' runs, of which a session has thousands: those of a minute are one row once they have ended."""


def _together() -> str:
    """The columns of calls that are one row: when the last of them began, and as the last but two when the first did."""
    text, whole = ("", "") if connection.vendor == "sqlite" else ("::text", "::bigint")
    return (
        f"MAX(c.created_at){text}, MAX(c.ended_at){text}, SUM(c.tokens_input + COALESCE(c.tokens_output, 0)){whole}, 0,"
        f" SUM(COALESCE(c.cost_micros, 0)){whole}, 0, NULL, NULL, NULL, NULL, MIN(c.created_at){text}, COUNT(*),"
        " COUNT(*) - COUNT(c.cost_micros)"
    )


def _minute() -> str:
    return "substr(c.created_at, 1, 16)" if connection.vendor == "sqlite" else "date_trunc('minute', c.created_at)"


def _calls(rows: Sequence[tuple[Any, ...]]) -> Iterator[PaidCall]:
    for _, group in groupby(rows, key=itemgetter(0)):
        own = list(group)
        _id, session_id, parent_part_id, began, ended, *numbers, parameters = own[0][:10]
        tools = [row[11:13] for row in own if row[10] is not None]
        first, count, unpriced = own[0][13:]
        spent = _spent(numbers, parameters)
        yield PaidCall(
            session_id=session_id,
            is_child=bool(parent_part_id),
            began=time_of(began),
            first=first and time_of(first),
            ended=ended and time_of(ended),
            spent=spent + Spent(unpriced_calls=unpriced),
            tools=tuple((time_of(start), end and time_of(end)) for start, end in tools if start),
            is_open=not ended or not all(end for _, end in tools),
            count=count,
        )


def _spent(numbers: Sequence[int | None], parameters: Any) -> Spent:
    tokens_input, tokens_output, cost_micros, estimated_tokens = numbers
    if tokens_input is not None:
        tokens = tokens_input + (tokens_output or 0)
        return Spent(tokens=tokens, cost_micros=cost_micros or 0, unpriced_calls=int(cost_micros is None))
    # Nobody said what it took, or not yet: the highest that it can have taken was written when it began.
    asked = json.loads(parameters) if isinstance(parameters, str) else parameters
    most = asked.get("most_tokens", (estimated_tokens or 0) + asked.get("max_output_tokens", 0))
    price = asked.get("most_micros")
    return Spent(tokens=most, cost_micros=price or 0, unpriced_calls=int(price is None))
