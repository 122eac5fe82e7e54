"""The only writer of limits of accounts, kept sums of spending and attempts to sign in; and reads of what calls took.

Nothing that is written here belongs to the record.
"""

# ruff: noqa: S608 - these statements are made of this module's own words.

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, F, Max, Q, QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac

from mnesis_core.config import Config, override
from mnesis_core.errors import InvalidRequest
from mnesis_core.network.rate_limits import Bucket, decide
from mnesis_core.spending import PaidCall, Scope, SpendingSum, Spent
from sessions_app.database.tables import fetch, select_columns, time_of
from sessions_app.models import (
    USAGE_SUMS,
    AccountLimit,
    ApiKey,
    MessagePart,
    ModelCall,
    Session,
    SpendingMark,
    TryBucket,
)
from sessions_app.ownership import HOME, HOME_OF_OWNER

MOST_SESSIONS = 50_000  # sessions told apart in one range, the largest first
IDS_A_QUERY = 1_000
# Rows of attempts deleted at a time: many more than one attempt adds.
MOST_TRIMMED = 100
# Races lost to attempts on the same buckets before the caller must wait a second.
MOST_RACES = 10
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_TREE = (
    "WITH RECURSIVE tree (id) AS (SELECT id FROM sessions WHERE id = %s UNION ALL"
    " SELECT child.id FROM sessions child JOIN tree ON child.parent_id = tree.id WHERE child.forked_message_id = ''"
    " AND child.origin <> 'fork')"
    " SELECT id FROM tree"
)
_TIMES = ("created_at", "ended_at")
_NUMBERS = ("tokens_input", "tokens_output", "cost_micros", "estimated_tokens")
# A session has thousands of calls of operators' runs: once ended, those of a minute come as one row.
_MANY = "c.purpose = 'map' AND c.ended_at IS NOT NULL AND c.tokens_input IS NOT NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    calls: int = 0
    tokens_input: int = 0
    tokens_output: int = 0
    tokens_cached: int = 0  # prompt tokens that came from the provider's cache
    cost_micros: int = 0
    unpriced: int = 0  # calls without a known price, which count as nothing
    uncounted: int = 0  # calls whose tokens are not known (yet)

    @property
    def tokens(self) -> int:
        return self.tokens_input + self.tokens_output

    def __add__(self, other: Taken) -> Taken:
        return Taken(**{name: getattr(self, name) + getattr(other, name) for name in Taken.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOnDay:
    """The usage of the calls of one day (UTC), model and purpose."""

    day: date
    model: str
    purpose: str
    taken: Taken


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBySession:
    session_id: str
    owner_id: int
    launched_by: str | None  # the session that launched it; None for a fork
    taken: Taken


class _OvertakenError(Exception):
    """Another process counted an attempt in between."""


def load_account_limits(owner_id: int) -> dict[str, Any]:
    """Return the limits that an administrator set for a person, as in a configuration."""
    return AccountLimit.objects.filter(owner_id=owner_id).values_list("limits", flat=True).first() or {}


def account_limits_of(owner_ids: Collection[int]) -> dict[int, dict[str, Any]]:
    return dict(AccountLimit.objects.filter(owner_id__in=owner_ids).values_list("owner_id", "limits"))


def list_account_limits() -> list[tuple[str, dict[str, Any]]]:
    """Return (user name, limits) of everybody with limits of their own."""
    return list(AccountLimit.objects.order_by("owner__username").values_list("owner__username", "limits"))


def put_account_limits(owner_id: int, limits: dict[str, Any]) -> None:
    """Set a person's limits, as in a configuration; empty limits leave what the site allows.

    :raises InvalidRequest: a limit is unknown or out of its bounds.
    """
    check_account_limits(limits)
    if limits:
        AccountLimit.objects.update_or_create(owner_id=owner_id, defaults={"limits": limits})
    else:
        AccountLimit.objects.filter(owner_id=owner_id).delete()


def check_account_limits(limits: Any) -> None:
    """:raises InvalidRequest: a limit is unknown, out of its bounds, or not one for a person."""
    override(Config(), {"limits": limits})
    if other := limits.keys() - set(Scope):
        raise InvalidRequest(f"{min(other)} is no limit of a person's; there are {', '.join(Scope)}", field="limits")


def load_kept(ids: Collection[str]) -> dict[str, SpendingSum]:
    return {
        mark.id: SpendingSum(
            until=mark.until,
            spent=Spent(
                tokens=mark.tokens,
                cost_micros=mark.cost_micros,
                seconds=mark.milliseconds / 1000,
                tool_calls=mark.tool_calls,
                unpriced_calls=mark.unpriced_calls,
            ),
            warned=mark.warned,
        )
        for mark in SpendingMark.objects.filter(id__in=ids)
    }


def lock_spending(owner_id: int) -> None:
    """Hold the lock on a person's limits until the transaction ends."""
    id = f"account:{owner_id}"
    row = SpendingMark.objects.select_for_update().filter(id=id)
    if not list(row):
        SpendingMark.objects.bulk_create([SpendingMark(id=id)], ignore_conflicts=True)
        list(row.all())


def keep_sum(mark_id: str, spent: Spent, *, until: datetime) -> None:
    values = {
        "until": until,
        "tokens": spent.tokens,
        "cost_micros": spent.cost_micros,
        "milliseconds": round(spent.seconds * 1000),
        "tool_calls": spent.tool_calls,
        "unpriced_calls": spent.unpriced_calls,
    }
    SpendingMark.objects.update_or_create(id=mark_id, defaults=values)


def add_to_sum(mark_id: str, spent: Spent) -> None:
    """Add what no call of the record tells; with the lock held."""
    SpendingMark.objects.get_or_create(id=mark_id)
    SpendingMark.objects.filter(id=mark_id).update(
        tokens=F("tokens") + spent.tokens,
        cost_micros=F("cost_micros") + spent.cost_micros,
        unpriced_calls=F("unpriced_calls") + spent.unpriced_calls,
    )


def keep_warnings(mark_id: str, warned: Mapping[str, float]) -> None:
    SpendingMark.objects.update_or_create(id=mark_id, defaults={"warned": dict(warned)})


def load_paid_calls(
    *,
    session_id: str | None = None,
    owner_id: int | None = None,
    since: datetime | None = None,
    at_home: bool = False,
) -> list[PaidCall]:
    """Return the calls of a session and those it launched, or of all sessions of a person, that began after ``since``.

    An account's limits count what it has in every organisation; ``at_home`` leaves out those that it is not in.
    Ended calls of operators' runs come as one per session and minute. Forks do not count towards the session they were
    made from: copies cost nothing.
    """
    after = connection.ops.adapt_datetimefield_value(since or BEGINNING)
    whose = [owner_id, after, *([owner_id] if at_home else [])] if session_id is None else [session_id]
    rows = fetch(_paid_calls_sql(of_tree=session_id is not None, at_home=at_home), 2 * [*whose, after])
    calls = []
    for _, group in groupby(rows, key=itemgetter(0)):
        own = list(group)
        _id, called_in, parent_part_id, began, ended, *numbers, parameters = own[0][:10]
        tools = [row[11:13] for row in own if row[10] is not None]
        first, count, unpriced = own[0][13:]
        calls.append(
            PaidCall(
                session_id=called_in,
                is_child=bool(parent_part_id),
                began=time_of(began),
                first=first and time_of(first),
                ended=ended and time_of(ended),
                spent=_spent(numbers, parameters) + Spent(unpriced_calls=unpriced),
                tools=tuple((time_of(start), end and time_of(end)) for start, end in tools if start),
                is_open=not ended or not all(end for _, end in tools),
                count=count,
            )
        )
    return calls


@cache
def _paid_calls_sql(*, of_tree: bool, at_home: bool) -> str:
    call = select_columns(ModelCall, "c", (*_TIMES, *_NUMBERS))
    tool = select_columns(MessagePart, "p", ("started_at", "completed_at"))
    # A session with a call today changed today, so an index finds the few that matter.
    own = "s.owner_id = %s AND s.updated_at > %s" + at_home * f" AND s.organisation_id = {HOME}"
    chosen = f"s.id IN ({_TREE})" if of_tree else own
    source = "FROM sessions s JOIN model_calls c ON c.session_id = s.id"
    is_sqlite = connection.vendor == "sqlite"
    text, whole = ("", "") if is_sqlite else ("::text", "::bigint")
    minute = "substr(c.created_at, 1, 16)" if is_sqlite else "date_trunc('minute', c.created_at)"
    # The columns of many calls as one: when the last began, and third from the end when the first did.
    together = (
        f"MAX(c.created_at){text}, MAX(c.ended_at){text}, SUM(c.tokens_input + COALESCE(c.tokens_output, 0)){whole}, 0,"
        f" SUM(COALESCE(c.cost_micros, 0)){whole}, 0, NULL, NULL, NULL, NULL, MIN(c.created_at){text}, COUNT(*),"
        " COUNT(*) - COUNT(c.cost_micros)"
    )
    return (
        f"SELECT c.id, s.id, s.parent_part_id, {call},"
        f" CASE WHEN c.tokens_input IS NULL THEN c.parameters END, p.id, {tool}, NULL, 1, 0 {source}"
        " LEFT JOIN message_parts p ON p.message_id = c.message_id AND p.part_type = 'tool'"
        f" WHERE {chosen} AND c.created_at > %s AND NOT ({_MANY})"
        f" UNION ALL SELECT MAX(c.id), s.id, s.parent_part_id, {together} {source}"
        f" WHERE {chosen} AND c.created_at > %s AND {_MANY} GROUP BY s.id, s.parent_part_id, {minute}"
        " ORDER BY 4, 1"
    )


def taken_today(owner_ids: Collection[int], *, since: datetime) -> dict[int, Spent]:
    """Return by person what ended calls of the day took, without what the kept sum of their day has already.

    :param since: the moment before the day, which is in the ids of these sums
    """
    if not owner_ids:
        return {}
    after = connection.ops.adapt_datetimefield_value(since)
    whole = "" if connection.vendor == "sqlite" else "::bigint"
    rows = fetch(
        f"SELECT s.owner_id, SUM(c.tokens_input + COALESCE(c.tokens_output, 0)){whole},"
        f" SUM(COALESCE(c.cost_micros, 0)){whole}, COUNT(*) - COUNT(c.cost_micros)"
        " FROM sessions s JOIN model_calls c ON c.session_id = s.id"
        f" LEFT JOIN spending_marks m ON m.id = 'day:' || s.owner_id || ':{since:%Y-%m-%d}'"
        f" WHERE s.owner_id IN ({', '.join(['%s'] * len(owner_ids))}) AND s.updated_at > %s AND c.created_at > %s"
        " AND c.tokens_input IS NOT NULL AND (m.until IS NULL OR c.created_at > m.until) GROUP BY s.owner_id",
        [*owner_ids, after, after],
    )
    return {
        owner: Spent(tokens=tokens, cost_micros=micros, unpriced_calls=unpriced)
        for owner, tokens, micros, unpriced in rows
    }


def _spent(numbers: Sequence[int | None], parameters: Any) -> Spent:
    tokens_input, tokens_output, cost_micros, estimated_tokens = numbers
    if tokens_input is not None:
        tokens = tokens_input + (tokens_output or 0)
        return Spent(tokens=tokens, cost_micros=cost_micros or 0, unpriced_calls=int(cost_micros is None))
    # The usage is not known (yet). The highest that the call can take was written when it began.
    asked = json.loads(parameters) if isinstance(parameters, str) else parameters
    most = asked.get("most_tokens", (estimated_tokens or 0) + asked.get("max_output_tokens", 0))
    price = asked.get("most_micros")
    return Spent(tokens=most, cost_micros=price or 0, unpriced_calls=int(price is None))


# What calls took in a range of days, by day and by session. Each statement reads an index with all columns it adds up
# (``call_of_day``), or a person's own sessions, never the calls' prompts.


def taken_by_day(*, first: date, last: date, owner_id: int | None) -> list[TakenOnDay]:
    """Return sums by day, model and purpose of one person or of everybody; days are UTC, both included."""
    source, values = _source(first, last, owner_id)
    day = "substr(c.created_at, 1, 10)" if connection.vendor == "sqlite" else "(c.created_at AT TIME ZONE 'UTC')::date"
    rows = fetch(f"SELECT {day}, c.model, c.purpose, {_sums()} {source} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3", values)
    return [
        TakenOnDay(day=date.fromisoformat(str(day)), model=model, purpose=purpose, taken=_taken(sums))
        for day, model, purpose, *sums in rows
    ]


def taken_by_session(*, first: date, last: date, owner_id: int | None) -> list[TakenBySession]:
    """Return sums by session of one person or of everybody, the largest first; at most ``MOST_SESSIONS``."""
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
    """Return by session the one that launched it; ``None`` for a fork and for a session without a parent."""
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
    # A session with a call in these days changed since, so an index finds the few that matter.
    own = "FROM sessions o JOIN model_calls c ON c.session_id = o.id WHERE o.owner_id = %s AND o.updated_at >= %s"
    return f"{own} AND o.organisation_id = {HOME} AND {within}", [owner_id, since, owner_id, since, until]


def _sums() -> str:
    whole = "" if connection.vendor == "sqlite" else "::bigint"
    sums = ", ".join(f"COALESCE(SUM(c.{name}), 0){whole}" for name in USAGE_SUMS)
    return f"COUNT(*), {sums}, COUNT(*) - COUNT(c.cost_micros), COUNT(*) - COUNT(c.tokens_input)"


def _taken(sums: Iterable[int]) -> Taken:
    return Taken(**dict(zip(Taken.__slots__, map(int, sums), strict=True)))


# Attempts to sign in, counted for all web processes together.


def seconds_to_wait(buckets: Sequence[Bucket]) -> int:
    """Return the seconds until an attempt may draw on these buckets; 0 means now. Nothing is written."""
    return decide(buckets, _load_times(buckets), timezone.now()).wait_seconds


def count_try(buckets: Sequence[Bucket]) -> int:
    """Count an attempt and return 0, or return the seconds to wait if it is not allowed."""
    for _ in range(MOST_RACES):
        now, before = timezone.now(), _load_times(buckets)
        decision = decide(buckets, before, now)
        if decision.wait_seconds:
            return decision.wait_seconds
        with suppress(_OvertakenError):
            _write(before, decision.empty_at)
            break
    else:
        return 1
    past = TryBucket.objects.filter(empty_at__lt=now)
    if past.exists():
        with transaction.atomic():
            keys = list(past.select_for_update(skip_locked=True).values_list("key", flat=True)[:MOST_TRIMMED])
            past.filter(key__in=keys).delete()
    return 0


def take_back_try(buckets: Sequence[Bucket]) -> None:
    """Undo an attempt with the right password, and empty the owner's own buckets."""
    _rows(bucket.name for bucket in buckets if bucket.is_own).delete()
    for bucket in buckets:
        _rows([bucket.name]).update(empty_at=F("empty_at") - timedelta(seconds=bucket.seconds))


def _load_times(buckets: Sequence[Bucket]) -> dict[tuple[str, ...], datetime]:
    names = {_key(bucket.name): bucket.name for bucket in buckets}
    return {names[row.key]: row.empty_at for row in TryBucket.objects.filter(key__in=names)}


def _write(before: Mapping[tuple[str, ...], datetime], empty_at: Mapping[tuple[str, ...], datetime]) -> None:
    """:raises _OvertakenError: the buckets are not those any more that the decision was based on."""
    with transaction.atomic():
        for name in sorted(empty_at, key=_key):  # one order for all processes, so that no two deadlock
            values = {"empty_at": empty_at[name]}
            if name in before:
                is_written = bool(_rows([name]).filter(empty_at=before[name]).update(**values))
            else:
                _, is_written = TryBucket.objects.get_or_create(key=_key(name), defaults=values)
            if not is_written:
                raise _OvertakenError


def _rows(names: Iterable[tuple[str, ...]]) -> QuerySet[TryBucket]:
    return TryBucket.objects.filter(key__in=map(_key, names))


def _key(name: tuple[str, ...]) -> str:
    return salted_hmac("mnesis.tries", "\0".join(name), algorithm="sha256").hexdigest()


# What people do here, for the staff who look after their accounts: asked for many at once, in one query of each kind.


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    sessions: int = 0  # in the organisation that the person is in, without those that turns launched
    seen_at: datetime | None = None  # when a session of theirs changed last, or a key of theirs was used


def activity_of(owner_ids: Collection[int]) -> dict[int, Activity]:
    """Return by account what these people did; one that did nothing is not in it."""
    own = Session.objects.filter(owner_id__in=owner_ids, organisation_id=HOME_OF_OWNER, deleted_at__isnull=True)
    sessions = own.values("owner_id").annotate(count=Count("pk", filter=Q(parent_part_id="")), last=Max("updated_at"))
    found = {row["owner_id"]: Activity(sessions=row["count"], seen_at=row["last"]) for row in sessions.order_by()}
    used = ApiKey.objects.filter(owner_id__in=owner_ids, last_used_at__isnull=False)
    for owner_id, at in used.values_list("owner_id").annotate(Max("last_used_at")).order_by():
        known = found.get(owner_id, Activity())
        found[owner_id] = Activity(sessions=known.sessions, seen_at=max(filter(None, (known.seen_at, at))))
    return found
