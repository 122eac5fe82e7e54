"""What a person does with facts: writes one, corrects one, withdraws or forbids one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from compaction_app.facts import store
from compaction_app.facts.queries import load_fact
from mnesis_core.errors import InvalidRequest, QuoteNotFound
from mnesis_core.facts.quotes import find_quote
from mnesis_core.facts.values import (
    LONGEST_STATEMENT,
    LONGEST_SUBJECT,
    USUAL_SALIENCE,
    FactKind,
    FactRecord,
    NewFact,
    Place,
    plain_subject,
)
from mnesis_core.messages import StoredMessage
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import load_message
from sessions_app.record.session_queries import load_session


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Words that a fact rests on, and the message that they are said to be in."""

    message_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactDraft:
    statement: str
    kind: FactKind
    subject: str = ""
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    salience: int = USUAL_SALIENCE
    said: Said | None = None  # none: the person who writes it is its source

    def check(self) -> None:
        """:raises InvalidRequest: it says nothing, or holds at no time."""
        if not self.statement.strip():
            raise InvalidRequest("A fact says something: the statement is empty.", field="statement")
        if len(self.statement) > LONGEST_STATEMENT:
            raise InvalidRequest(f"A statement has at most {LONGEST_STATEMENT} characters.", field="statement")
        if len(self.subject) > LONGEST_SUBJECT:
            raise InvalidRequest(f"A subject has at most {LONGEST_SUBJECT} characters.", field="subject")
        if self.valid_from is not None and self.valid_to is not None and self.valid_to <= self.valid_from:
            raise InvalidRequest("valid_to must be later than valid_from.", field="valid_to")


def add_fact(session_id: str, draft: FactDraft, *, owner_id: int, corrects: str | None = None) -> FactRecord:
    """Write a person's fact; as a correction it supersedes the fact that it ``corrects``.

    :raises SessionNotFoundError: it is not there, or belongs to another person.
    :raises InvalidRequest: the draft says nothing, or holds at no time.
    :raises MessageNotFoundError: the session has no such message.
    :raises QuoteNotFound: the words were not said in it.
    :raises FactNotFoundError: the session has no fact to correct of this id.
    :raises FactNotLive: that one was superseded or withdrawn before.
    :raises SessionArchived: the session is archived.
    """
    load_session(session_id, owner_id=owner_id)
    draft.check()
    source = _source_of(draft.said, session_id)
    with change(session_id) as record:
        fact_id = store.record_fact(record, _new_fact(record, draft, source), supersedes=[corrects] if corrects else ())
    return load_fact(fact_id, session_id=session_id)


def withdraw_fact(session_id: str, fact_id: str, *, owner_id: int) -> FactRecord:
    """Let a fact hold no longer. It stays readable, and so does every prompt that had it.

    :raises SessionNotFoundError: the session is not there, or belongs to another person.
    :raises FactNotFoundError: the session has no such fact.
    :raises FactNotLive: it was superseded or withdrawn before.
    """
    return _change_fact(store.withdraw_fact, session_id, fact_id, owner_id=owner_id)


def forbid_fact(session_id: str, fact_id: str, *, owner_id: int) -> FactRecord:
    """Withdraw a fact for good: reflections do not find what it says again.

    :raises SessionNotFoundError: the session is not there, or belongs to another person.
    :raises FactNotFoundError: the session has no such fact.
    """
    return _change_fact(store.forbid_fact, session_id, fact_id, owner_id=owner_id)


def allow_fact(session_id: str, fact_id: str, *, owner_id: int) -> FactRecord:
    """Let reflections find again what a forbidden fact says.

    :raises SessionNotFoundError: the session is not there, or belongs to another person.
    :raises FactNotFoundError: the session has no such fact.
    """
    return _change_fact(store.allow_fact, session_id, fact_id, owner_id=owner_id)


def _change_fact(write: Callable[[Change, str], None], session_id: str, fact_id: str, *, owner_id: int) -> FactRecord:
    load_session(session_id, owner_id=owner_id)
    with change(session_id) as record:
        write(record, fact_id)
    return load_fact(fact_id, session_id=session_id)


def _source_of(said: Said | None, session_id: str) -> tuple[StoredMessage, Place] | None:
    if said is None:
        return None
    message = load_message(said.message_id, session_id=session_id)
    place = find_quote([message], said.text)
    if place is None:
        raise QuoteNotFound(message_id=said.message_id)
    return message, place


def _new_fact(record: Change, draft: FactDraft, source: tuple[StoredMessage, Place] | None) -> NewFact:
    return NewFact(
        statement=draft.statement.strip(),
        kind=draft.kind,
        subject=plain_subject(draft.subject),
        valid_from=draft.valid_from,
        valid_to=draft.valid_to,
        salience=draft.salience,
        said_at=source[0].created_at if source else record.now,
        said_seq=source[0].seq if source else record.message_seq,
        places=(source[1],) if source else (),
    )
