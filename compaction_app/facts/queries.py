"""Facts as they are read, each with the words that it quotes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import F, Q, TextField
from django.db.models.functions import Substr
from django.db.models.query import QuerySet
from django.utils.translation import gettext_noop

from compaction_app.models import Fact, FactSource, Reflection
from compaction_app.queries import held_facts, reaches, still_held
from mnesis_core.errors import FactNotFoundError, InvalidRequest
from mnesis_core.facts import FORBIDDEN, FactRecord, FactState, HeldFor, QuoteRecord, plain_subject
from mnesis_core.records import is_id, record_of
from mnesis_core.text import decode_text, encode_text
from sessions_app.ownership import home_of_user, project_of, projects_of
from sessions_app.record.lease import expired
from sessions_app.record.project_store import load_project
from sessions_app.record.session_queries import imported_since

PAGE = 500
MOST_HELD = 500  # facts of other sessions that are looked at for one
_STATES = {
    # A copy is live as long as what it is a copy of reaches its session.
    FactState.LIVE: Q(Q(of_fact_id="") | Q(is_held=True), superseded_seq__isnull=True, withdrawn_seq__isnull=True),
    FactState.SUPERSEDED: Q(superseded_seq__isnull=False, withdrawn_seq__isnull=True),
    FactState.WITHDRAWN: Q(withdrawn_seq__isnull=False, ban=""),
    FactState.FORBIDDEN: Q(ban=FORBIDDEN),
}
_QUOTED = Substr("part__content", F("quote_start") + 1, F("quote_end") - F("quote_start"), output_field=TextField())


def list_facts(
    session_id: str,
    *,
    query: str = "",
    kind: str | None = None,
    subject: str = "",
    state: FactState | None = None,
    at: datetime | None = None,
    before: int | None = None,
    limit: int = 50,
) -> list[FactRecord]:
    """Return facts of a session, the newest first, in two queries.

    :param query: words that a fact has, in its statement or its subject, each of them
    :param at: only facts that were true at this time as far as is known now, whatever superseded them later
    :param before: the ``created_seq`` of a fact: return only older ones
    """
    rows = _facts_of(session_id)
    for word in query.split():
        rows = rows.filter(Q(statement__icontains=encode_text(word)) | Q(subject__icontains=encode_text(word)))
    if kind is not None:
        rows = rows.filter(kind=kind)
    if subject:
        rows = rows.filter(subject=plain_subject(subject))
    if state is not None:
        rows = rows.filter(_STATES[state])
    if at is not None:
        rows = rows.filter(
            Q(valid_from__lte=at) | Q(valid_from__isnull=True, said_at__lte=at),
            Q(valid_to__gt=at) | Q(valid_to__isnull=True),
            Q(superseded_by__isnull=True) | Q(superseded_by__said_at__gt=at),
            Q(of_fact_id="") | Q(is_held=True),
            withdrawn_seq__isnull=True,
        )
    if before is not None:
        rows = rows.filter(created_seq__lt=before)
    return _with_quotes(rows.order_by("-created_seq")[:limit], session_id)


def every_fact(session_id: str, *, state: FactState | None = None) -> list[FactRecord]:
    """Return all facts of a session, or all of one state, the oldest first."""
    found: list[FactRecord] = []
    while page := list_facts(session_id, state=state, before=found[-1].created_seq if found else None, limit=PAGE):
        found += page
    return found[::-1]


def load_fact(fact_id: str, *, session_id: str) -> FactRecord:
    """:raises FactNotFoundError: the session has no such fact."""
    found = _with_quotes(_facts_of(session_id).filter(id=fact_id), session_id)
    if not found:
        raise FactNotFoundError(fact_id=fact_id)
    return found[0]


def count_facts(session_id: str, *, state: FactState | None = None) -> int:
    rows = _facts_of(session_id)
    return (rows if state is None else rows.filter(_STATES[state])).count()


def _facts_of(session_id: str) -> QuerySet[Any]:
    rows: QuerySet[Any] = Fact.objects.filter(session_id=session_id)
    found: QuerySet[Any] = rows.annotate(
        is_held=still_held(project_of(session_id)), is_of_before=imported_since("session_id", "held_seq")
    )
    return found


def _with_quotes(rows: QuerySet[Any], session_id: str) -> list[FactRecord]:
    facts = [
        record_of(
            FactRecord,
            row,
            quotes=(),
            held_for=HeldFor.SESSION if row.is_of_before else HeldFor(row.held_for),
            still_held=not row.of_fact_id or row.is_held,
        )
        for row in rows
    ]
    if not facts:
        return []
    quotes: dict[str, list[QuoteRecord]] = defaultdict(list)
    place = ("part__message_id", "part__message__seq", "part__message__role")
    sources = FactSource.objects.filter(session_id=session_id, part__session_id=session_id).order_by("id")
    found = sources.filter(fact_id__in=[fact.id for fact in facts])
    columns = found.values_list("fact_id", "part_id", "quote_start", "quote_end", *place, _QUOTED)
    for fact_id, part_id, start, end, message_id, seq, role, text in columns:
        quotes[fact_id].append(
            QuoteRecord(
                part_id=part_id, start=start, end=end, message_id=message_id, seq=seq, role=role, text=decode_text(text)
            )
        )
    return [replace(fact, quotes=tuple(quotes[fact.id])) for fact in facts]


def facts_reaching(session_id: str, *, owner_id: int, organisation: str) -> list[FactRecord]:
    """Return the facts of other sessions that reach this one of a person in an organisation, the most salient first."""
    rows = held_facts().filter(reaches(owner_id, organisation, project_of(session_id))).exclude(session_id=session_id)
    rows = rows.order_by("-salience", "-said_at", "id")[:MOST_HELD]
    return [record_of(FactRecord, row, quotes=(), still_held=True) for row in rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFact:
    """A fact that reaches other sessions, as a person sees it whose prompts may include it."""

    id: str
    held_for: str
    kind: str
    subject: str
    statement: str
    said_at: datetime
    is_own: bool  # whether it was said in a session of the reader
    session_id: str | None  # of what is not the reader's own: None, and so the two below
    session_title: str | None
    said_seq: int | None
    project_id: str | None  # of what is held for a project


def list_held_facts(
    owner_id: int, *, project_id: str | None = None, before: str | None = None, limit: int = 50
) -> list[HeldFact]:
    """Return the facts that reach the sessions of a person, the newest first.

    :param project_id: return only those that are held for this project
    :param before: the id of a fact: return only older ones
    :raises InvalidRequest: that is none.
    :raises ProjectNotFoundError: there is no such project, or this person is not a member of it.
    """
    if before and not is_id(before):
        raise InvalidRequest(gettext_noop("The cursor is not one that this list has given."), field="cursor")
    rows = _reaching(owner_id)
    rows = rows.filter(id__lt=before) if before else rows
    if project_id is not None:
        wanted = load_project(project_id, user_id=owner_id)
        rows = rows.filter(held_for=HeldFor.PROJECT.value, session__project_id=wanted.id)
    found = []
    for row in rows.select_related("session").order_by("-id")[:limit]:
        is_own = row.session.owner_id == owner_id
        place = {"session_id": row.session.id, "session_title": row.session.title, "said_seq": row.said_seq}
        project = row.session.project_id if row.held_for == HeldFor.PROJECT else None
        told = place if is_own else dict.fromkeys(place)
        found.append(record_of(HeldFact, row, is_own=is_own, project_id=project, **told))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A fact that reaches a person's sessions: where it was said, whether by the person, and for whom it is held."""

    session_id: str
    is_own: bool
    held_for: HeldFor
    project_id: str


def find_holding(fact_id: str, *, owner_id: int) -> Holding:
    """:raises FactNotFoundError: no such fact reaches this person."""
    row = _reaching(owner_id).filter(id=fact_id).select_related("session").first()
    if row is None:
        raise FactNotFoundError(fact_id=fact_id)
    return Holding(
        session_id=row.session.id,
        is_own=row.session.owner_id == owner_id,
        held_for=HeldFor(row.held_for),
        project_id=row.session.project_id,
    )


def _reaching(owner_id: int) -> QuerySet[Fact]:
    return held_facts().filter(reaches(owner_id, home_of_user(owner_id), projects_of(owner_id)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectionRecord:
    id: str
    session_id: str
    summary_id: str
    prompt_version: str
    state: str
    attempts: int
    model: str | None
    found: int | None
    refused: int | None
    cost_micros: int | None
    error_code: str | None


def find_reflection(reflection_id: str) -> ReflectionRecord | None:
    row = Reflection.objects.filter(id=reflection_id).first()
    return None if row is None else record_of(ReflectionRecord, row)


def forgotten_reflections(now: datetime, *, limit: int = 100) -> list[tuple[str, int]]:
    """Return the ids and attempts of reflections that wait although no living worker has them, the longest first."""
    rows = Reflection.objects.filter(expired(now), state="queued", session__deleted_at__isnull=True)
    return list(rows.order_by("lease_expires_at").values_list("id", "attempts")[:limit])
