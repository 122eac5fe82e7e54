"""Writes of facts and of the places that they quote."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from compaction_app.models import Fact, FactSource
from mnesis_core.errors import FactNotFoundError, FactNotLive, SessionArchived
from mnesis_core.events import EventType
from mnesis_core.facts.values import NewFact, Standing, superseded_by_new
from mnesis_core.records import new_id
from sessions_app.database.tables import Table
from sessions_app.record.change import Change

_FACTS, _SOURCES = Table(Fact), Table(FactSource)
_LIVE = {"superseded_seq": None, "withdrawn_seq": None}


def record_fact(record: Change, fact: NewFact, *, supersedes: Iterable[str] = ()) -> str:
    """Write a fact with the places that it quotes, let it supersede what it contradicts, and return its id.

    :param supersedes: live facts that it takes the place of, besides those of the same subject and kind
    :raises FactNotLive: one of these is not live.
    :raises SessionArchived: the session is archived.
    """
    if record.archived:
        raise SessionArchived(session_id=record.session_id)
    columns = asdict(fact)
    del columns["places"]
    earlier, later = superseded_by_new(_standing(record, fact), said_seq=fact.said_seq)
    row = _FACTS.row(
        id=new_id("fact"),
        session_id=record.session_id,
        created_at=record.now,
        created_seq=record.next_seq,
        **columns,
    )
    sources = [
        _SOURCES.row(
            id=new_id("source"),
            session_id=record.session_id,
            fact_id=row.id,
            part_id=place.part_id,
            quote_start=place.start,
            quote_end=place.end,
        )
        for place in fact.places
    ]
    record.insert(_FACTS, row)
    record.insert(_SOURCES, *sources)
    record.publish(
        EventType.FACT_CREATED,
        fact_id=row.id,
        kind=fact.kind.value,
        scope=fact.scope.value,
        source_ids=[source.id for source in sources],
    )
    for id in dict.fromkeys([*supersedes, *earlier]):
        _supersede(record, id, by=row.id)
    if later is not None:
        _supersede(record, row.id, by=later)
    return str(row.id)


def withdraw_fact(record: Change, fact_id: str) -> None:
    """Let a fact hold no longer; it stays readable.

    :raises FactNotFoundError: the session has no such fact.
    :raises FactNotLive: it was superseded or withdrawn before.
    """
    if not record.update(_FACTS, {"withdrawn_seq": record.next_seq}, id=fact_id, session_id=record.session_id, **_LIVE):
        _refuse(record, fact_id)
    record.publish(EventType.FACT_WITHDRAWN, fact_id=fact_id)


def _standing(record: Change, fact: NewFact) -> list[Standing]:
    """Return the live facts of the same subject and kind; a fact without a subject contradicts none."""
    if not fact.subject:
        return []
    rows = Fact.objects.filter(session_id=record.session_id, kind=fact.kind, subject=fact.subject, **_LIVE)
    return [Standing(id=id, said_seq=seq) for id, seq in rows.values_list("id", "said_seq")]


def _supersede(record: Change, fact_id: str, *, by: str) -> None:
    values = {"superseded_by_id": by, "superseded_seq": record.next_seq}
    if not record.update(_FACTS, values, id=fact_id, session_id=record.session_id, **_LIVE):
        _refuse(record, fact_id)
    record.publish(EventType.FACT_SUPERSEDED, fact_id=fact_id, by=by)


def _refuse(record: Change, fact_id: str) -> None:
    if Fact.objects.filter(id=fact_id, session_id=record.session_id).exists():
        raise FactNotLive(fact_id=fact_id)
    raise FactNotFoundError(fact_id=fact_id)
