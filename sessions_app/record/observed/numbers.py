"""How the calls of the sessions that meet a query went over time: counts, sums and percentiles, added up by the database."""

# ruff: noqa: S608 - names in these statements are constants; values are passed as such.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.core.exceptions import EmptyResultSet
from django.db import connection

from mnesis_core.search.observation import Step
from sessions_app.database.tables import fetch
from sessions_app.record.observed.conditions import Observed

MOST_CALLS = 50_000
"""The newest calls that are counted: these take about half a second."""
_COLUMNS = (
    "c.session_id, c.state, c.error_code, c.tokens_input, c.tokens_output, c.cost_micros, c.first_token_ms AS first"
)
_SUMS = (
    "COUNT(DISTINCT session_id), COUNT(*), COUNT(error_code), COALESCE(SUM(COALESCE(tokens_input, 0)"
    " + COALESCE(tokens_output, 0)), 0), COALESCE(SUM(cost_micros), 0)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What the calls that began in an hour or a day came to."""

    sessions: int = 0
    calls: int = 0
    errors: int = 0
    tokens: int = 0
    cost_micros: int = 0
    median_ms: int | None = None  # from the beginning of a completed call to its end
    slow_ms: int | None = None  # 95 % took at most so long
    first_median_ms: int | None = None  # from the beginning of a completed call to its first token, if it was streamed
    first_slow_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    by_time: Mapping[datetime, Numbers]  # the hours or days that had calls
    since: datetime | None = None  # set where calls before it were left out, since there are too many


def load_course(observed: Observed, *, since: datetime, until: datetime, step: Step) -> Course:
    """Return the numbers of calls between two times, by hour or day (UTC); of the newest ``MOST_CALLS`` only."""
    try:
        sessions, of_sessions = observed.rows.order_by().values("id").query.sql_with_params()
    except EmptyResultSet:
        return Course(by_time={})
    adapt = connection.ops.adapt_datetimefield_value
    duration = "ROUND(EXTRACT(EPOCH FROM c.ended_at - c.created_at) * 1000)::bigint"  # in milliseconds
    beginning = f"date_trunc('{step}', c.created_at, 'UTC')"
    if connection.vendor == "sqlite":
        duration = "CAST(ROUND((julianday(c.ended_at) - julianday(c.created_at)) * 86400000) AS integer)"
        beginning = f"substr(c.created_at, 1, {10 if step is Step.DAY else 13})"
    calls = (
        f"SELECT {_COLUMNS}, {duration} AS took, {beginning} AS at FROM model_calls c WHERE c.created_at >= %s AND c.created_at < %s"
        f" AND c.session_id IN ({sessions}) ORDER BY c.created_at DESC LIMIT {MOST_CALLS}"
    )
    values = [adapt(since), adapt(until), *of_sessions]
    sums = fetch(f"SELECT at, {_SUMS} FROM ({calls}) AS c GROUP BY at", values)
    ranked = f"SELECT at, {_ranked('took')}, {_ranked('first')} FROM ({calls}) AS c WHERE state = 'completed'"
    ranks = f"SELECT at, {_ranks_of('took')}, {_ranks_of('first')} FROM ({ranked}) AS ranked GROUP BY at"
    took = {key: [None if time is None else int(time) for time in times] for key, *times in fetch(ranks, values)}
    by_time = {}
    for key, *numbers in sums:
        counted = [*map(int, numbers), *took.get(key, ())]
        at = key
        if isinstance(key, str):  # on SQLite
            at = datetime.fromisoformat(f"{key}{':00' if len(key) > 10 else ' 00:00'}+00:00")
        by_time[at.astimezone(UTC)] = Numbers(**dict(zip(Numbers.__slots__, counted, strict=False)))
    is_cut = sum(numbers.calls for numbers in by_time.values()) == MOST_CALLS
    return Course(by_time=by_time, since=min(by_time) if is_cut else None)


def _ranked(column: str) -> str:
    """Return the values of a column, the place of each in its hour or day, and how many there are, as expressions."""
    return (
        f"{column}, ROW_NUMBER() OVER (PARTITION BY at, {column} IS NULL ORDER BY {column}) AS {column}_place,"
        f" COUNT({column}) OVER (PARTITION BY at) AS {column}_number"
    )


def _ranks_of(column: str) -> str:
    """Return the median and the 95th percentile by the nearest rank: what at least so many percent do not exceed."""
    return ", ".join(
        f"MAX(CASE WHEN {column}_place = ({column}_number * {share} + 99) / 100 THEN {column} END)"
        for share in (50, 95)
    )


def times_between(since: datetime, until: datetime, step: Step) -> list[datetime]:
    """Return the beginnings of all hours or days in a range."""
    length = timedelta(days=1) if step is Step.DAY else timedelta(hours=1)
    first = since.replace(minute=0, second=0, microsecond=0)
    first = first.replace(hour=0) if step is Step.DAY else first
    count = -(-(until - first) // length)
    return [first + number * length for number in range(count)]
