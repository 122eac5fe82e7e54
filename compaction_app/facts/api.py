"""Facts of a session at the REST endpoint."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from ninja import Query, Router, Schema, Status
from pydantic import AfterValidator, AwareDatetime, Field

from compaction_app.facts import queries, remember
from mnesis_core.facts import (
    HIGHEST_SALIENCE,
    LONGEST_QUOTE,
    LONGEST_STATEMENT,
    LONGEST_SUBJECT,
    USUAL_SALIENCE,
    FactKind,
    FactState,
    HeldFor,
)
from mnesis_core.search.ranking import LONGEST_QUESTION
from sessions_app.callers import Asker, owner_id
from sessions_app.operations import by_name
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import ErrorOut, Out, Place, Text, page_of

router = Router(tags=["facts"])
ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
WRITE_ERRORS = {**ERRORS, 403: ErrorOut, 409: ErrorOut}
Limit = Annotated[int, Query(ge=1, le=500)]


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("this time is outside of the calendar") from None


Time = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Statement = Annotated[str, Field(min_length=1, max_length=LONGEST_STATEMENT)]
Subject = Annotated[str, Field(max_length=LONGEST_SUBJECT)]
Salience = Annotated[int, Field(ge=0, le=HIGHEST_SALIENCE)]


class FactQuoteIn(Schema):
    """Words that a message has exactly so, in one of its texts."""

    message_id: Annotated[str, Field(max_length=100)]
    text: Annotated[str, Field(min_length=1, max_length=LONGEST_QUOTE)]


class FactIn(Schema):
    """A fact. Without a quotation you are its source."""

    statement: Statement
    kind: FactKind
    subject: Subject = ""
    """A later fact of the same subject and kind supersedes an earlier one."""
    valid_from: Time | None = None
    valid_to: Time | None = None
    salience: Salience = USUAL_SALIENCE
    quote: FactQuoteIn | None = None


class CorrectionIn(Schema):
    """A correction: the new statement. Fields that are left out stay as in the corrected fact."""

    statement: Statement
    kind: FactKind | None = None
    subject: Subject | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    salience: Salience | None = None
    quote: FactQuoteIn | None = None


class FactQuoteOut(Out):
    """Characters of a message's part, counted from 0 as the text is stored."""

    message_id: str
    seq: int
    role: str
    part_id: str
    start: int
    end: int
    text: Text


class FactOut(Out):
    """What was said and holds, until another fact supersedes it or a person withdraws or forbids it."""

    id: str
    session_id: str
    scope: str
    kind: str
    subject: Text
    statement: Text
    state: str
    said_at: datetime
    said_seq: int
    valid_from: datetime | None
    valid_to: datetime | None
    salience: int
    method: str
    model: str
    superseded_by: Annotated[str | None, Field(validation_alias="superseded_by_id")]
    held_for: str
    """The reach of the fact: the prompts of its session, of the person's sessions, of the project's, or of the organisation's."""
    of_fact_id: str
    """The fact of another session that this is a copy of, or empty; ``said_seq`` of a copy is the number of a message there."""
    of_session_id: str
    still_held: bool
    """False for a copy of what does not reach this session any more, which no prompt has."""
    quotes: list[FactQuoteOut]
    created_at: datetime
    created_seq: int


class FactList(Out):
    """Facts, the newest first."""

    items: list[FactOut]
    next_cursor: int | None


class HoldingIn(Schema):
    """The reach that a fact is to have: ``session``, ``person``, ``project`` or ``organisation``."""

    held_for: HeldFor


class HeldFactOut(Out):
    """A fact that reaches the prompts of other sessions. Where it was said is told to the person who said it."""

    id: str
    held_for: str
    kind: str
    subject: Text
    statement: Text
    said_at: datetime
    is_own: bool
    session_id: str | None
    session_title: Text | None
    said_seq: int | None
    project_id: str | None
    """The project that it is held for, if it is."""


class HeldFactList(Out):
    """Facts that are held, the newest first."""

    items: list[HeldFactOut]
    next_cursor: str | None


class LetGoOut(Schema):
    """A fact that reaches no other session any more."""

    id: str
    held_for: HeldFor


@by_name("facts/list")
@router.get("/sessions/{session_id}/facts", response={200: FactList, **ERRORS}, summary="List facts")
def list_facts(
    request: Asker,
    session_id: str,
    q: Annotated[str, Field(max_length=LONGEST_QUESTION)] = "",
    kind: FactKind | None = None,
    subject: Subject = "",
    state: FactState | None = None,
    at: Time | None = None,
    limit: Limit = 50,
    cursor: Place | None = None,
) -> dict[str, Any]:
    """Facts of a session, those that were superseded or withdrawn among them.

    ``q``: words that a fact has. ``at``: those that were true at this time, as far as is known now.
    """
    load_session(session_id, owner_id=owner_id(request))
    chosen = {"query": q, "kind": kind, "subject": subject, "state": state, "at": at}
    found = queries.list_facts(session_id, **chosen, before=cursor, limit=limit + 1)  # type: ignore[arg-type]
    return page_of(found, limit, lambda fact: fact.created_seq)


@by_name("facts/add")
@router.post("/sessions/{session_id}/facts", response={201: FactOut, **WRITE_ERRORS}, summary="Add a fact")
def add_fact(request: Asker, session_id: str, body: FactIn) -> Any:
    """Write a fact. With a ``quote`` it is refused unless exactly these words were said in that message."""
    draft = remember.FactDraft(said=_said(body.quote), **body.dict(exclude={"quote"}))
    return Status(201, remember.add_fact(session_id, draft, owner_id=owner_id(request)))


@by_name("facts/correct")
@router.post(
    "/sessions/{session_id}/facts/{fact_id}/correct", response={201: FactOut, **WRITE_ERRORS}, summary="Correct a fact"
)
def correct_fact(request: Asker, session_id: str, fact_id: str, body: CorrectionIn) -> Any:
    """Write another fact that supersedes this one; the old one stays readable."""
    caller = owner_id(request)
    load_session(session_id, owner_id=caller)
    old = queries.load_fact(fact_id, session_id=session_id)
    kept = {name: getattr(old, name) for name in ("kind", "subject", "valid_from", "valid_to", "salience")}
    said = {name: value for name, value in body.dict(exclude={"quote"}).items() if value is not None}
    values = kept | said
    draft = remember.FactDraft(said=_said(body.quote), **values | {"kind": FactKind(values["kind"])})
    return Status(201, remember.add_fact(session_id, draft, owner_id=caller, corrects=fact_id))


@by_name("facts/withdraw")
@router.post(
    "/sessions/{session_id}/facts/{fact_id}/withdraw",
    response={200: FactOut, **WRITE_ERRORS},
    summary="Withdraw a fact",
)
def withdraw_fact(request: Asker, session_id: str, fact_id: str) -> Any:
    """Say that a fact does not hold. It stays readable, but no model is told it any more."""
    return remember.withdraw_fact(session_id, fact_id, owner_id=owner_id(request))


@by_name("facts/forbid")
@router.post(
    "/sessions/{session_id}/facts/{fact_id}/forbid", response={200: FactOut, **WRITE_ERRORS}, summary="Forbid a fact"
)
def forbid_fact(request: Asker, session_id: str, fact_id: str) -> Any:
    """Withdraw a fact, if it is not withdrawn yet, and keep reflections from finding what it says again.

    That goes for statements that have the same words, contain them or are contained in them. You may still add it yourself.
    """
    return remember.forbid_fact(session_id, fact_id, owner_id=owner_id(request))


@by_name("facts/allow")
@router.post(
    "/sessions/{session_id}/facts/{fact_id}/allow",
    response={200: FactOut, **WRITE_ERRORS},
    summary="Allow a forbidden fact",
)
def allow_fact(request: Asker, session_id: str, fact_id: str) -> Any:
    """Let reflections find again what a forbidden fact says. The fact itself stays withdrawn."""
    return remember.allow_fact(session_id, fact_id, owner_id=owner_id(request))


@by_name("facts/hold")
@router.post(
    "/sessions/{session_id}/facts/{fact_id}/hold",
    response={200: FactOut, **WRITE_ERRORS},
    summary="Hold a fact for other sessions",
)
def hold_fact(request: Asker, session_id: str, fact_id: str, body: HoldingIn) -> Any:
    """Let a fact reach the prompts of all your sessions, of the project's that its session is in, or of the organisation's if you may act for it.

    ``session`` lets it go.

    A session takes it before its first call of a model, and when a compaction ends.
    """
    return remember.hold_fact(session_id, fact_id, body.held_for, owner_id=owner_id(request))


@by_name("facts/held")
@router.get("/memory", response={200: HeldFactList, **ERRORS}, summary="List held facts")
def list_held_facts(
    request: Asker,
    limit: Limit = 50,
    cursor: Annotated[str | None, Field(max_length=100)] = None,
    project_id: Annotated[str | None, Field(max_length=100)] = None,
) -> dict[str, Any]:
    """The facts that reach your sessions: those that you hold, and those that are held for your projects and your organisation."""
    found = queries.list_held_facts(owner_id(request), project_id=project_id, before=cursor, limit=limit + 1)
    return page_of(found, limit, lambda fact: fact.id)


@by_name("facts/let_go")
@router.post("/memory/{fact_id}/let-go", response={200: LetGoOut, **WRITE_ERRORS}, summary="Let a held fact go")
def let_go(request: Asker, fact_id: str) -> Any:
    """Let a fact reach no session but its own: one of yours, one held for a project that you own, or any if you may act for the organisation."""
    remember.let_go(fact_id, owner_id=owner_id(request))
    return LetGoOut(id=fact_id, held_for=HeldFor.SESSION)


def _said(quote: FactQuoteIn | None) -> remember.Said | None:
    return None if quote is None else remember.Said(message_id=quote.message_id, text=quote.text)
