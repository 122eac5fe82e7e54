"""What calls to models took in a stretch of days, by day and by session; two statements, whatever their number.

Both read an index that has all they add up (``call_of_day``), or a person's own sessions, never the calls' prompts.
"""
# ruff: noqa: S608 - the words in these statements are this module's own, nobody else's.

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db import connection

from sessions_app.models import Session
from sessions_app.statements import fetch

MOST_SESSIONS = 50_000
"""Of a stretch, those that took most; more are not told apart."""
IDS_A_QUERY = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What some calls took together."""

    calls: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    tokens_cached: int = 0
    """Of the prompts', those that the provider had in its cache."""
    cost_micros: int = 0
    unpriced: int = 0
    """Calls whose price nobody knows; they count as nothing."""
    uncounted: int = 0
    """Calls whose tokens nobody has said (yet)."""

    @property
    def tokens(self) -> int:
        """Prompts and answers."""
        return self.tokens_input + self.tokens_output

    def __add__(self, other: Taken) -> Taken:
        return Taken(**{name: getattr(self, name) + getattr(other, name) for name in Taken.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOnDay:
    """What the calls of one day (UTC), model and purpose took."""

    day: date
    model: str
    purpose: str
    taken: Taken


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBySession:
    """What the calls of one session took."""

    session_id: str
    owner_id: int
    launched_by: str | None
    """The session that launched it; a fork was launched by none."""
    taken: Taken


def sum_of_taken(taken: Iterable[Taken]) -> Taken:
    """All of them together."""
    return sum(taken, Taken())


def taken_by_day(*, first: date, last: date, owner_id: int | None) -> list[TakenOnDay]:
    """By day, model and purpose, of one person or of everybody; days are UTC's, both included."""
    source, values = _source(first, last, owner_id)
    rows = fetch(f"SELECT {_day()}, c.model, c.purpose, {_sums()} {source} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3", values)
    return [
        TakenOnDay(day=date.fromisoformat(str(day)), model=model, purpose=purpose, taken=_taken(sums))
        for day, model, purpose, *sums in rows
    ]


def taken_by_session(*, first: date, last: date, owner_id: int | None) -> list[TakenBySession]:
    """By session, of one person or of everybody, those that took most first; at most ``MOST_SESSIONS``."""
    source, values = _source(first, last, owner_id)
    rows = fetch(
        "SELECT t.*, s.owner_id, CASE WHEN s.forked_message_id = '' THEN s.parent_id END FROM ("
        f"SELECT c.session_id AS id, {_sums()} {source} GROUP BY c.session_id"
        f" ORDER BY 6 DESC, 3 DESC LIMIT {MOST_SESSIONS}) t JOIN sessions s ON s.id = t.id",
        values,
    )
    return [
        TakenBySession(session_id=id, owner_id=owner, launched_by=launched_by, taken=_taken(sums))
        for id, *sums, owner, launched_by in rows
    ]


def launchers_of(session_ids: Collection[str]) -> dict[str, str | None]:
    """By session the one that launched it; ``None`` for one that nobody launched, and for a fork."""
    ids, found = list(session_ids), {}
    for start in range(0, len(ids), IDS_A_QUERY):
        rows = Session.objects.filter(id__in=ids[start : start + IDS_A_QUERY])
        for id, parent, forked in rows.values_list("id", "parent_id", "forked_message_id"):
            found[id] = None if forked else parent
    return found


def _source(first: date, last: date, owner_id: int | None) -> tuple[str, list[object]]:
    since, until = (
        connection.ops.adapt_datetimefield_value(datetime(day.year, day.month, day.day, tzinfo=UTC))
        for day in (first, last + timedelta(days=1))
    )
    within = "c.created_at >= %s AND c.created_at < %s"
    if owner_id is None:
        return f"FROM model_calls c WHERE {within}", [since, until]
    # Who has a call in these days has a session that changed since: so only those are looked at, by an index.
    own = "FROM sessions o JOIN model_calls c ON c.session_id = o.id WHERE o.owner_id = %s AND o.updated_at >= %s"
    return f"{own} AND {within}", [owner_id, since, since, until]


def _day() -> str:
    if connection.vendor == "sqlite":
        return "substr(c.created_at, 1, 10)"
    return "(c.created_at AT TIME ZONE 'UTC')::date"


def _sums() -> str:
    whole = "" if connection.vendor == "sqlite" else "::bigint"
    sums = ", ".join(
        f"COALESCE(SUM(c.{name}), 0){whole}"
        for name in ("tokens_input", "tokens_output", "tokens_cache_read", "cost_micros")
    )
    return f"COUNT(*), {sums}, COUNT(*) - COUNT(c.cost_micros), COUNT(*) - COUNT(c.tokens_input)"


def _taken(sums: Iterable[int]) -> Taken:
    return Taken(**dict(zip(Taken.__slots__, map(int, sums), strict=True)))
