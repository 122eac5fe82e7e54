"""Writes of facts, of the places that they quote, and of reflections: the searches for facts in summarised messages.

A reflection is ``queued``, then ``completed`` or ``failed``. A worker takes it under a lease, and whoever ends it first has done it:
facts are written in the change that ends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q
from django.db.models.query import QuerySet

from compaction_app.models import Fact, FactSource, Reflection
from mnesis_core.errors import FactIsCopy, FactNotFoundError, FactNotLive, SessionArchived
from mnesis_core.events import EventType
from mnesis_core.facts import FORBIDDEN, HeldFor, NewFact, Standing, is_forbidden, superseded_by_new
from mnesis_core.records import new_id
from sessions_app.database.tables import Table
from sessions_app.record.change import Change
from sessions_app.record.lease import Lease, expired

_FACTS, _SOURCES, _REFLECTIONS = Table(Fact), Table(FactSource), Table(Reflection)
LOST_AFTER = timedelta(seconds=60)  # a reflection not claimed by then lost its wake-up, or no worker runs
_LIVE = {"superseded_seq": None, "withdrawn_seq": None}


def record_fact(record: Change, fact: NewFact, *, supersedes: Iterable[str] = ()) -> str:
    """Write a fact with the places that it quotes, let it supersede what it contradicts, and return its id.

    A copy of another session's fact supersedes nothing: which of the two a prompt has is decided there.

    :param supersedes: live facts that it takes the place of, besides those of the same subject and kind
    :raises FactNotLive: one of these is not live.
    :raises SessionArchived: the session is archived.
    """
    if record.archived:
        raise SessionArchived(session_id=record.session_id)
    columns = asdict(fact)
    del columns["places"]
    own, copies = _standing(record, fact)
    earlier, later = superseded_by_new(own, said_seq=fact.said_seq)
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
        **({"of_fact_id": fact.of_fact_id} if fact.is_copy else {}),
    )
    for id in dict.fromkeys([*supersedes, *earlier, *copies]):
        _supersede(record, id, by=row.id)
    if later is not None:
        _supersede(record, row.id, by=later)
    return str(row.id)


def is_known(record: Change, fact: NewFact) -> bool:
    """Return whether a live fact of this kind and subject says the very same."""
    return _live_about(record, fact).filter(of_fact_id="", statement=fact.statement).exists()


def withdraw_fact(record: Change, fact_id: str) -> None:
    """Let a fact hold no longer; it stays readable.

    :raises FactNotFoundError: the session has no such fact.
    :raises FactNotLive: it was superseded or withdrawn before.
    """
    if not record.update(_FACTS, {"withdrawn_seq": record.next_seq}, id=fact_id, session_id=record.session_id, **_LIVE):
        _refuse(record, fact_id)
    record.publish(EventType.FACT_WITHDRAWN, fact_id=fact_id)


def forbid_fact(record: Change, fact_id: str) -> None:
    """Withdraw a fact if nobody has, and keep reflections from finding what it says again; a forbidden one stays as it is.

    :raises FactNotFoundError: the session has no such fact.
    """
    ban, withdrawn_seq = _find(record, fact_id)
    if ban == FORBIDDEN:
        return
    withdrawn = {"withdrawn_seq": record.next_seq} if withdrawn_seq is None else {}
    record.update(_FACTS, {"ban": FORBIDDEN, **withdrawn}, id=fact_id)
    record.publish(EventType.FACT_FORBIDDEN, fact_id=fact_id)


def allow_fact(record: Change, fact_id: str) -> None:
    """Let what a forbidden fact says be found again. It stays withdrawn itself; one that is not forbidden stays as it is.

    :raises FactNotFoundError: the session has no such fact.
    """
    ban, _ = _find(record, fact_id)
    if ban != FORBIDDEN:
        return
    record.update(_FACTS, {"ban": ""}, id=fact_id)
    record.publish(EventType.FACT_ALLOWED, fact_id=fact_id)


def hold_fact(record: Change, fact_id: str, held_for: HeldFor) -> None:
    """Let a fact reach the prompts of other sessions, or with ``HeldFor.SESSION`` no longer.

    :raises FactNotFoundError: the session has no such fact.
    :raises FactIsCopy: it is a copy of another session's.
    :raises FactNotLive: it was superseded or withdrawn before, and can only be let go.
    """
    found = record.find(
        _FACTS, "of_fact_id", "held_for", "superseded_seq", "withdrawn_seq", id=fact_id, session_id=record.session_id
    )
    if found is None:
        raise FactNotFoundError(fact_id=fact_id)
    of_fact_id, before, superseded_seq, withdrawn_seq = found
    if of_fact_id:
        raise FactIsCopy(fact_id=fact_id)
    if held_for is HeldFor.SESSION:
        if before == HeldFor.SESSION:
            return
    elif superseded_seq is not None or withdrawn_seq is not None:
        raise FactNotLive(fact_id=fact_id)
    held_seq = None if held_for is HeldFor.SESSION else record.next_seq
    record.update(_FACTS, {"held_for": held_for.value, "held_seq": held_seq}, id=fact_id)
    record.publish(EventType.FACT_HELD, fact_id=fact_id, held_for=held_for.value)


def without_stated(record: Change, facts: Iterable[NewFact]) -> list[NewFact]:
    """Return the facts that no fact said in the session has said before, whether it holds or was superseded or withdrawn."""
    found = list(facts)
    own = Fact.objects.filter(session_id=record.session_id, of_fact_id="")
    rows = own.filter(statement__in=[fact.statement for fact in found])
    stated = set(rows.values_list("statement", flat=True))
    return [fact for fact in found if fact.statement not in stated]


def without_forbidden(record: Change, facts: Iterable[NewFact]) -> list[NewFact]:
    """Return the facts that say nothing forbidden."""
    rows = Fact.objects.filter(session_id=record.session_id, ban=FORBIDDEN)
    forbidden = list(rows.values_list("statement", flat=True))
    return [fact for fact in facts if not is_forbidden(fact.statement, forbidden)]


def _find(record: Change, fact_id: str) -> tuple[Any, ...]:
    found = record.find(_FACTS, "ban", "withdrawn_seq", id=fact_id, session_id=record.session_id)
    if found is None:
        raise FactNotFoundError(fact_id=fact_id)
    return found


def _standing(record: Change, fact: NewFact) -> tuple[list[Standing], list[str]]:
    """Return the live facts of the same subject and kind, the session's own and the copies that were said before this fact.

    A fact without a subject contradicts none. Copies go by the clock: numbers are a session's own.
    """
    if not fact.subject or fact.is_copy:
        return [], []
    rows = _live_about(record, fact)
    own = [Standing(id=id, said_seq=seq) for id, seq in rows.filter(of_fact_id="").values_list("id", "said_seq")]
    copies = rows.filter(said_at__lte=fact.said_at).exclude(of_fact_id="")
    return own, list(copies.values_list("id", flat=True))


def _live_about(record: Change, fact: NewFact) -> QuerySet[Fact]:
    return Fact.objects.filter(session_id=record.session_id, kind=fact.kind, subject=fact.subject, **_LIVE)


def _supersede(record: Change, fact_id: str, *, by: str) -> None:
    values = {"superseded_by_id": by, "superseded_seq": record.next_seq}
    if not record.update(_FACTS, values, id=fact_id, session_id=record.session_id, **_LIVE):
        _refuse(record, fact_id)
    record.publish(EventType.FACT_SUPERSEDED, fact_id=fact_id, by=by)


def _refuse(record: Change, fact_id: str) -> None:
    if Fact.objects.filter(id=fact_id, session_id=record.session_id).exists():
        raise FactNotLive(fact_id=fact_id)
    raise FactNotFoundError(fact_id=fact_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What the questions of a reflection took."""

    model: str | None = None
    tokens_input: int = 0
    tokens_output: int = 0
    cost_micros: int = 0


def request_reflection(record: Change, summary_id: str, *, prompt_version: str) -> str | None:
    """Queue the search for facts in a summary's messages and return its id; ``None`` if it was queued before."""
    if Reflection.objects.filter(summary_id=summary_id, prompt_version=prompt_version).exists():
        return None
    row = _REFLECTIONS.row(
        id=new_id("reflection"),
        session_id=record.session_id,
        summary_id=summary_id,
        prompt_version=prompt_version,
        state="queued",
        created_at=record.now,
        lease_expires_at=record.now + LOST_AFTER,
    )
    record.insert(_REFLECTIONS, row)
    record.publish(EventType.REFLECTION_REQUESTED, reflection_id=row.id, summary_id=summary_id)
    return str(row.id)


def claim_reflection(reflection_id: str, *, lease: Lease, now: datetime) -> bool:
    """Return whether this process has the reflection now: nobody had it, or its worker died."""
    free = Q(lease_owner="") | Q(expired(now))
    rows = Reflection.objects.filter(free, id=reflection_id, state="queued")
    return bool(rows.update(attempts=F("attempts") + 1, **lease.columns(now)))


def end_reflection(
    record: Change, reflection_id: str, spent: Spending, *, found: int, refused: int, error_code: str | None = None
) -> bool:
    """End a reflection; return whether it had not ended yet, so that its facts may be written in this change."""
    values = asdict(spent) | {
        "state": "completed" if error_code is None else "failed",
        "ended_at": record.now,
        "found": found,
        "refused": refused,
        "error_code": error_code,
    }
    if not record.update(_REFLECTIONS, values, id=reflection_id, session_id=record.session_id, state="queued"):
        return False
    summary_id = Reflection.objects.values_list("summary_id", flat=True).get(id=reflection_id)
    body = {"reflection_id": reflection_id, "summary_id": summary_id}
    if error_code is None:
        record.publish(EventType.REFLECTION_COMPLETED, **body)
    else:
        record.publish(EventType.REFLECTION_FAILED, **body, error_code=error_code)
    return True


def put_off_reflection(reflection_id: str, *, until: datetime) -> None:
    """Leave a forgotten reflection alone for a while after its worker was woken again."""
    Reflection.objects.filter(id=reflection_id, state="queued").update(lease_owner="", lease_expires_at=until)
