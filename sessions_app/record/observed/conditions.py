"""The SQL condition for each term of a query about everybody's sessions (``mnesis_core.search.observation``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import BigIntegerField, Case, Count, Exists, F, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.expressions import Combinable, RawSQL
from django.db.models.functions import Coalesce

from mnesis_core.records import IMPORTED_SUB_AGENT, SUB_AGENT
from mnesis_core.search.observation import Name, Term
from mnesis_core.search.words import WordQuery, parse_words
from mnesis_core.text import encode_text
from sessions_app.conf import DEMO
from sessions_app.models import LanguageModel, MessagePart, ModelCall, Organisation, Turn
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
        return Q(id__in=RawSQL(f"SELECT value FROM {listed}", [json.dumps(ids)]))  # noqa: S608, S611 - no text of a person


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
