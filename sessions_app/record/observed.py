"""Reads of everybody's sessions, for staff: which ones meet a query, what they took, and how calls went over time."""

# ruff: noqa: S608 - names in these statements are constants; values are passed as such.

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import BigIntegerField, Case, Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import Coalesce

from mnesis_core.records import IMPORTED_SUB_AGENT, SUB_AGENT, record_of
from mnesis_core.search.observation import Name, Step, Term
from mnesis_core.search.words import WordQuery, parse_words
from mnesis_core.text import encode_text
from sessions_app.conf import DEMO
from sessions_app.database.tables import fetch
from sessions_app.models import LanguageModel, MessagePart, ModelCall, Organisation, Session, Turn
from sessions_app.ownership import is_temporary
from sessions_app.record.ratings import current_ratings
from sessions_app.record.session_queries import visible_sessions
from sessions_app.search.index import engine
from sessions_app.search.search import ENTRY, NEWEST, with_texts

MOST_TEXTS = 10_000
"""The newest texts with certain words whose sessions are found."""
MOST_READ = 500
"""The newest texts that are read, where the index alone does not tell whether words stand side by side."""
TEXTS_AT_ONCE = 100
MOST_OWNERS = 2_000  # people whose texts are searched
_COMPARED = {"=": "", ">": "__gt", ">=": "__gte", "<": "__lt", "<=": "__lte"}
_SAID = " AND e.kind IN ('messages', 'tools')"
MOST_CALLS = 50_000
"""The newest calls that are counted: these take about half a second."""
_CALL_COLUMNS = (
    "c.session_id, c.state, c.error_code, c.tokens_input, c.tokens_output, c.cost_micros, c.first_token_ms AS first"
)
_SUMS = (
    "COUNT(DISTINCT session_id), COUNT(*), COUNT(error_code), COALESCE(SUM(COALESCE(tokens_input, 0)"
    " + COALESCE(tokens_output, 0)), 0), COALESCE(SUM(cost_micros), 0)"
)


# The SQL condition for each term of a query about everybody's sessions (``mnesis_core.search.observation``).


class Observed:
    """The sessions that meet all terms, as a query, and what its answer leaves out."""

    def __init__(self, terms: Sequence[Term], *, compactions: Combinable) -> None:
        """:param compactions: the number of a session's completed compactions; its table belongs to another app"""
        self.cut_words: list[str] = []  # of which only the newest texts were looked at
        measures = MEASURES | {"compactions": compactions}
        self.rows: QuerySet[Any] = visible_sessions()
        words = [name.text for term in terms if not term.name and not term.is_negated for name in term.names]
        if words:
            self.rows = self.rows.filter(self._said(" ".join(words), _owners(terms)))
        for term in terms:
            if not term.name and not term.is_negated:
                continue
            compared = {term.name}
            if term.name == "is":
                compared = {name for kind in term.names for name in _NEEDED.get(kind.text, ())}
            for name in compared & measures.keys():
                self.rows = self.rows.alias(**{name: measures[name]})
            if not term.name:
                condition = self._said(term.names[0].text, _owners(()))
            elif term.name in _CONDITIONS:
                condition = _CONDITIONS[term.name](term.names)
            elif term.time is not None:
                condition = Q(updated_at__gte=term.time) if term.name == "after" else Q(updated_at__lt=term.time)
            else:
                column = _COLUMNS.get(term.name, term.name)
                condition = Q(**{f"{column}{_COMPARED[term.sign]}": term.number})
            self.rows = self.rows.filter(~Q(condition) if term.is_negated else Q(condition))

    def _said(self, words: str, owners: Collection[int]) -> Q:
        """Return the condition that one text of a session has all these words."""
        ids, is_cut = sessions_with(parse_words(words), owners)
        if is_cut:
            self.cut_words.append(words)
        # As one value, since a statement takes a limited number of them.
        listed = (
            "json_each(%s)" if connection.vendor == "sqlite" else "jsonb_array_elements_text(%s::jsonb) AS t (value)"
        )
        return Q(id__in=RawSQL(f"SELECT value FROM {listed}", [json.dumps(ids)]))  # noqa: S611 - no text of a person


def sessions_with(query: WordQuery, owners: Collection[int]) -> tuple[list[str], bool]:
    """Return the sessions with a text that has all words, and whether older texts were left out."""
    if not owners:
        return [], False
    index = engine()
    asked = index.or_.join(f"({index.query(query.words, owner_id=owner, session_id=None)})" for owner in owners)
    is_read = any(term.needs_proof for term in query.terms)
    most = MOST_READ if is_read else MOST_TEXTS
    with connection.cursor() as cursor:
        found = index.fetch(cursor, index.select(ENTRY, _SAID, limit=most + 1), [asked, NEWEST])
        is_cut = len(found) > most
        if is_read:
            some = (found[start : start + TEXTS_AT_ONCE] for start in range(0, len(found), TEXTS_AT_ONCE))
            found = [text for entries in some for text in with_texts(cursor, entries) if query.rate(text.text)]
    return list(dict.fromkeys(entry[1] for entry in found[:most])), is_cut


def _owners(terms: Sequence[Term]) -> list[int]:
    people = User.objects.order_by("-pk")
    for term in terms:
        if term.name in ("person", "group") and not term.is_negated:
            column = "username" if term.name == "person" else "groups__name"
            people = people.filter(named(column, term.names))
    return list(people.values_list("pk", flat=True).distinct()[:MOST_OWNERS])


def named(column: str, names: Sequence[Name]) -> Q:
    """Return that a column has one of these names, or begins with it; a beginning is compared without regard to case."""
    condition = Q()
    for name in names:
        kind = "__istartswith" if name.is_beginning else ""
        condition |= Q(**{f"{column}{kind}": encode_text(name.text)})
    return condition


def _of_owner(column: str) -> Callable[[Sequence[Name]], Any]:
    return lambda names: Q(owner_id__in=User.objects.filter(named(column, names)).values("pk"))


def _has_error(names: Sequence[Name]) -> Any:
    codes = named("error_code", [Name(name.text.upper(), name.is_beginning) for name in names])
    failed = Q(codes, error_code__isnull=False)
    turns, calls = Turn.objects.filter(failed), ModelCall.objects.filter(failed)
    return Q(id__in=turns.values("session").union(calls.values("session")))


def _sum(*columns: str) -> Combinable:
    """Return a sum over all calls of a session, from the index that has these columns."""
    total: Any = Value(0)
    for column in columns:
        total = total + Coalesce(F(column), 0)
    calls = ModelCall.objects.filter(session=OuterRef("pk")).order_by().values("session")
    return Coalesce(Subquery(calls.annotate(total=Sum(total, output_field=BigIntegerField())).values("total")), 0)


_CALLS = ModelCall.objects.filter(session=OuterRef("pk")).order_by().values("session").annotate(total=Count("*"))
_STATE = Turn.objects.filter(session=OuterRef("pk")).order_by("-seq").values("state")[:1]
_WINDOW = LanguageModel.objects.filter(alias=OuterRef("model")).values("context_window")[:1]
_TOKENS = Sum(F("token_estimate") + Coalesce(F("output_token_estimate"), 0), output_field=BigIntegerField())
_SIZE = MessagePart.objects.filter(session=OuterRef("pk")).order_by().values("session").annotate(total=_TOKENS)
MEASURES: dict[str, Combinable] = {
    "calls": Coalesce(Subquery(_CALLS.values("total")), 0),
    "tokens": _sum("tokens_input", "tokens_output"),
    "cost": _sum("cost_micros"),
    "state": Coalesce(Subquery(_STATE), Value("")),
    # How far the record is longer than the window of its model; 0 where no such model is known.
    "over_window": Coalesce(
        Subquery(_SIZE.values("total"))
        - Case(
            When(model=DEMO.alias, then=Value(DEMO.context_window)),
            default=Subquery(_WINDOW),
            output_field=BigIntegerField(),
        ),
        0,
    ),
}
KINDS = {
    "archived": Q(archived_at__isnull=False),
    "compacted": Q(compactions__gt=0),
    "imported": Q(origin__startswith="import:"),
    "over-window": Q(over_window__gt=0),
    "temporary": is_temporary(),
    "sub-agent": Q(origin=SUB_AGENT) | Q(origin__startswith="import:", agent=IMPORTED_SUB_AGENT),
}
_NEEDED = {"compacted": ("compactions",), "over-window": ("over_window",)}
_COLUMNS = {"messages": "message_seq", "turns": "turn_seq"}
_CONDITIONS: dict[str, Callable[[Sequence[Name]], Any]] = {
    "person": _of_owner("username"),
    "group": _of_owner("groups__name"),
    "organisation": lambda names: Q(organisation__in=Organisation.objects.filter(named("slug", names)).values("pk")),
    "model": lambda names: (
        named("model", names) | Q(Exists(Turn.objects.filter(named("model", names), session=OuterRef("pk"))))
    ),
    "tool": lambda names: Exists(
        MessagePart.objects.filter(named("tool_name", names), session=OuterRef("pk"), part_type="tool")
    ),
    "error": _has_error,
    "state": lambda names: named("state", names),
    "origin": lambda names: named("origin", names),
    "title": lambda names: reduce(or_, (Q(title__icontains=encode_text(name.text)) for name in names), Q()),
    "is": lambda names: reduce(or_, (KINDS[name.text] for name in names), Q()),
    "feedback": lambda names: Exists(
        current_ratings().filter(session=OuterRef("pk"), thumb__in=[name.text for name in names])
    ),
}


# The list of everybody's sessions: the newest first, with what each of them took.


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSession:
    id: str
    title: str
    person: str
    organisation: str  # its slug
    model: str
    origin: str
    state: str  # of the newest turn; empty without one
    messages: int
    turns: int
    calls: int
    tokens: int
    cost_micros: int
    errors: int  # turns with an error of their own or of a call, and failed calls of no turn
    compactions: int
    created_at: datetime
    updated_at: datetime
    is_archived: bool
    is_temporary: bool


def list_observed(
    observed: Observed, *, before: tuple[datetime, str] | None = None, limit: int, compactions: Combinable
) -> list[ObservedSession]:
    """Return sessions that meet a query, the last active first, after the cursor ``before`` (time and id).

    Four statements for any number of sessions: their ids, themselves, sums of their calls, and their errors.
    """
    rows = observed.rows
    if before is not None:
        rows = rows.filter(Q(updated_at__lt=before[0]) | Q(updated_at=before[0], id__lt=before[1]))
    ids = list(rows.order_by("-updated_at", "-id").values_list("id", flat=True)[:limit])
    return load_observed(ids, compactions=compactions)


def observed_in_pages(observed: Observed, *, size: int, compactions: Combinable) -> Iterator[list[ObservedSession]]:
    """Yield all sessions that meet a query, the newest first, each page in statements of its own.

    By their ids, so that a session that becomes active meanwhile is neither missed nor there twice.
    """
    last = None
    while True:
        rows = observed.rows if last is None else observed.rows.filter(id__lt=last)
        ids = list(rows.order_by("-id").values_list("id", flat=True)[:size])
        if not ids:
            return
        last = ids[-1]
        yield load_observed(ids, compactions=compactions)


def load_observed(ids: Sequence[str], *, compactions: Combinable) -> list[ObservedSession]:
    """Return these sessions in this order."""
    if not ids:
        return []
    found = Session.objects.filter(id__in=ids).annotate(
        person=F("owner__username"),
        slug=F("organisation__slug"),
        state=MEASURES["state"],
        compactions=compactions,
    )
    both = Coalesce(Sum(Coalesce(F("tokens_input"), 0) + Coalesce(F("tokens_output"), 0)), 0)
    made = ModelCall.objects.filter(session__in=ids).order_by().values_list("session_id")
    taken = made.annotate(calls=Count("*"), taken=both, cost=Coalesce(Sum("cost_micros"), 0))
    sums = {id: numbers for id, *numbers in taken}
    places = ", ".join(["%s"] * len(ids))
    # A turn that failed because its call did is one error.
    failed = (
        f"SELECT session_id, id FROM turns WHERE error_code IS NOT NULL AND session_id IN ({places}) UNION"
        " SELECT session_id, COALESCE(turn_id, id) FROM model_calls"
        f" WHERE error_code IS NOT NULL AND session_id IN ({places})"
    )
    counted = fetch(f"SELECT session_id, COUNT(*) FROM ({failed}) AS failed GROUP BY session_id", [*ids, *ids])
    errors: dict[str, int] = dict(counted)
    rows = {row.id: row for row in found.defer("system_prompt", "assistant_instructions", "labels", "config")}
    sessions = []
    for row in [rows[id] for id in ids if id in rows]:
        calls, tokens, cost = sums.get(row.id, (0, 0, 0))
        session = record_of(
            ObservedSession,
            row,
            organisation=row.slug,
            messages=row.message_seq,
            turns=row.turn_seq,
            calls=calls,
            tokens=tokens,
            cost_micros=cost,
            errors=errors.get(row.id, 0),
            is_archived=row.archived_at is not None,
            is_temporary=row.began_temporary and row.kept_at is None,
        )
        sessions.append(session)
    return sessions


# How the calls of the sessions that meet a query went over time: counts, sums and percentiles, added up by the
# database.


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
        f"SELECT {_CALL_COLUMNS}, {duration} AS took, {beginning} AS at FROM model_calls c WHERE c.created_at >= %s AND c.created_at < %s"
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
