"""What a person does with facts: writes one, corrects one, withdraws or forbids one, or holds one for other sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth import get_user_model
from django.utils.translation import gettext_noop

from compaction_app.facts import store
from compaction_app.facts.queries import find_holding, load_fact
from mnesis_core.errors import HoldingNotPermitted, InvalidRequest, QuoteNotFound, SessionTemporary
from mnesis_core.facts import (
    LONGEST_STATEMENT,
    LONGEST_SUBJECT,
    USUAL_SALIENCE,
    FactKind,
    FactRecord,
    HeldFor,
    NewFact,
    find_quote,
    plain_subject,
)
from mnesis_core.records import SessionRecord
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import load_message
from sessions_app.record.project_store import load_own_project
from sessions_app.record.session_queries import load_session

HOLDS_FOR_ORGANISATION = "compaction_app.hold_for_organisation"


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
            raise InvalidRequest(gettext_noop("A fact says something: the statement is empty."), field="statement")
        if len(self.statement) > LONGEST_STATEMENT:
            raise InvalidRequest(
                gettext_noop("A statement has at most %(most)s characters."),
                {"most": LONGEST_STATEMENT},
                field="statement",
            )
        if len(self.subject) > LONGEST_SUBJECT:
            raise InvalidRequest(
                gettext_noop("A subject has at most %(most)s characters."), {"most": LONGEST_SUBJECT}, field="subject"
            )
        if self.valid_from is not None and self.valid_to is not None and self.valid_to <= self.valid_from:
            raise InvalidRequest(gettext_noop("valid_to must be later than valid_from."), field="valid_to")


def add_fact(session_id: str, draft: FactDraft, *, owner_id: int, corrects: str | None = None) -> FactRecord:
    """Write a person's fact; as a correction it supersedes the fact that it ``corrects``, and is held for those for whom that was.

    :raises SessionNotFoundError: it is not there, or belongs to another person.
    :raises InvalidRequest: the draft says nothing, or holds at no time.
    :raises MessageNotFoundError: the session has no such message.
    :raises QuoteNotFound: the words were not said in it.
    :raises FactNotFoundError: the session has no fact to correct of this id.
    :raises FactNotLive: that one was superseded or withdrawn before.
    :raises SessionArchived: the session is archived.
    """
    session = load_session(session_id, owner_id=owner_id)
    draft.check()
    message = place = None
    if draft.said is not None:
        message = load_message(draft.said.message_id, session_id=session_id)
        place = find_quote([message], draft.said.text)
        if place is None:
            raise QuoteNotFound(message_id=draft.said.message_id)
    held_for = HeldFor(load_fact(corrects, session_id=session_id).held_for) if corrects else HeldFor.SESSION
    if not _may_hold(session, held_for):
        held_for = HeldFor.SESSION
    with change(session_id) as record:
        fact = NewFact(
            statement=draft.statement.strip(),
            kind=draft.kind,
            subject=plain_subject(draft.subject),
            valid_from=draft.valid_from,
            valid_to=draft.valid_to,
            salience=draft.salience,
            said_at=message.created_at if message else record.now,
            said_seq=message.seq if message else record.message_seq,
            places=(place,) if place else (),
        )
        fact_id = store.record_fact(record, fact, supersedes=[corrects] if corrects else ())
        if held_for is not HeldFor.SESSION:
            store.hold_fact(record, fact_id, held_for)
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


def hold_fact(session_id: str, fact_id: str, held_for: HeldFor, *, owner_id: int) -> FactRecord:
    """Let a fact reach the prompts of other sessions: the owner's, the project's or the organisation's.

    ``HeldFor.SESSION`` lets it go.

    :raises SessionNotFoundError: the session is not there, or belongs to another person.
    :raises HoldingNotPermitted: the person may not hold facts for the organisation.
    :raises InvalidRequest: it is to be held for a project, and the session is in none.
    :raises FactNotFoundError: the session has no such fact.
    :raises FactIsCopy: it came from another session.
    :raises FactNotLive: it was superseded or withdrawn before.
    :raises SessionTemporary: nothing of a temporary chat reaches other sessions.
    """
    session = load_session(session_id, owner_id=owner_id)
    if session.is_temporary:
        raise SessionTemporary(session_id=session_id)
    if not _may_hold(session, held_for):
        if held_for is HeldFor.PROJECT:
            raise InvalidRequest(gettext_noop("This session is in no project."), field="held_for")
        raise HoldingNotPermitted(fact_id=fact_id)
    if load_fact(fact_id, session_id=session_id).held_for != held_for:
        with change(session_id) as record:
            store.hold_fact(record, fact_id, held_for)
    return load_fact(fact_id, session_id=session_id)


def let_go(fact_id: str, *, owner_id: int) -> None:
    """Let a fact that reaches a person's sessions reach none but its own.

    It was said in one of theirs, or is held for a project that is theirs, or they may act for their organisation.

    :raises FactNotFoundError: no such fact reaches this person.
    :raises ProjectNotYours: it was said in another person's session, and is held for a project of which this one is a member.
    :raises HoldingNotPermitted: it was said in another person's session, and this one may not act for the organisation.
    """
    holding = find_holding(fact_id, owner_id=owner_id)
    if not holding.is_own:
        if holding.held_for is HeldFor.PROJECT:
            load_own_project(holding.project_id, owner_id=owner_id)
        elif not may_hold_for_organisation(owner_id):
            raise HoldingNotPermitted(fact_id=fact_id)
    with change(holding.session_id) as record:
        store.hold_fact(record, fact_id, HeldFor.SESSION)


def _may_hold(session: SessionRecord, held_for: HeldFor) -> bool:
    """Return whether the owner of a session may let its facts reach so far."""
    if held_for is HeldFor.PROJECT:
        return bool(session.project_id)
    return held_for is not HeldFor.ORGANISATION or may_hold_for_organisation(session.owner_id)


def may_hold_for_organisation(user_id: int) -> bool:
    user = get_user_model().objects.filter(pk=user_id).first()
    return user is not None and user.has_perm(HOLDS_FOR_ORGANISATION)


def _change_fact(write: Callable[[Change, str], None], session_id: str, fact_id: str, *, owner_id: int) -> FactRecord:
    load_session(session_id, owner_id=owner_id)
    with change(session_id) as record:
        write(record, fact_id)
    return load_fact(fact_id, session_id=session_id)
