"""Sessions, inboxes and answers as JSON: state, context meter, and usage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from ninja import Field, Schema
from pydantic import BeforeValidator

from agents_app.queries import list_inbox, usage_of_maps
from compaction_app.context.state import Meter, load_meter
from compaction_app.queries import usage_of_compaction
from mnesis_core.messages import text_of
from mnesis_core.records import SessionRecord, TurnRecord, UsageRecord, total_usage
from mnesis_core.turns.inbox import MessageKind
from sessions_app.llm.limits import LimitOut, budget_of
from sessions_app.record.message_queries import load_messages_by_ids
from sessions_app.record.session_queries import load_launched, load_session
from sessions_app.record.turn_queries import usage_of_files, usage_of_session
from sessions_app.schemas import Out, SessionOut, Text, TurnOut, UsageOut, page_of


def used_by(session_ids: Sequence[str]) -> UsageRecord:
    """Return the total usage of sessions, without those that they launched."""
    if not session_ids:
        return total_usage()
    turns, compaction = usage_of_session(*session_ids), usage_of_compaction(*session_ids)
    return total_usage(turns, compaction, usage_of_files(*session_ids), usage_of_maps(*session_ids))


def used_by_tree(session_id: str) -> UsageRecord:
    return used_by([session_id, *load_launched(session_id)])


class ContextOut(Out):
    """How full the context is, and of what, in tokens.

    ``source`` says what corrects our estimate: the ``provider``'s reports in this session, those in other sessions
    of the ``model``, or nothing (``estimated``); ``error`` by what share corrected estimates missed the reports.
    ``used_tokens`` has messages that a compaction shows again, ``context_tokens`` does not: it is what the thresholds are for.
    """

    used_tokens: int
    context_tokens: int
    usable_tokens: int
    soft_tokens: int
    hard_tokens: int
    window: int
    window_source: str
    breakdown: dict[str, int]
    source: str
    ratio: float
    samples: int
    error: float | None


class BillingOut(UsageOut):
    """What a session has used: all of it, and apart what its turns, its summaries, what describes its files
    and its sub-agents (with theirs) took."""

    turns: UsageOut
    compaction: UsageOut
    files: UsageOut
    sub_agents: UsageOut


class SessionRead(SessionOut, Schema):
    """A session with its context meter and what it has cost."""

    system_prompt: str
    assistant_instructions: str  # of the version that it began with
    context: ContextOut
    billing: BillingOut
    budget: list[LimitOut] = []  # what its next call may still take; empty where nothing is limited
    turn_id: str | None = None

    @staticmethod
    def resolve_context(session: SessionRecord) -> Meter:
        return load_meter(session.id)

    @staticmethod
    def resolve_billing(session: SessionRecord) -> dict[str, Any]:
        parts = {
            "turns": usage_of_session(session.id),
            "compaction": usage_of_compaction(session.id),
            "files": usage_of_files(session.id),
            "sub_agents": used_by(load_launched(session.id)),
        }
        return {**asdict(total_usage(*parts.values(), usage_of_maps(session.id))), **parts}

    @staticmethod
    def resolve_budget(session: SessionRecord) -> list[dict[str, Any]]:
        return budget_of(session)


class ForkingOut(Out):
    """A fork on its way: so many of its messages are copied."""

    id: str
    source_id: str
    copied: int
    messages: int


class InboxMessageOut(Out):
    """A message in an inbox. ``sender_id`` is the session that sent it; null: its owner, or a program of theirs.

    ``turn_id`` is the turn that took it; null while it waits. ``hops``: so many messages of agents stand before it.
    """

    id: str
    session_id: str
    seq: int
    sender_id: Annotated[str | None, Field(validation_alias="sender"), BeforeValidator(lambda sender: sender or None)]
    kind: MessageKind
    in_reply_to: Annotated[str | None, BeforeValidator(lambda answered: answered or None)]
    text: Text
    hops: int
    turn_id: str | None
    created_at: datetime


class InboxList(Out):
    """A page of an inbox."""

    items: list[InboxMessageOut]
    next_cursor: int | None


class AnswerOut(TurnOut, Schema):
    """A turn, and what its last answer says; empty where there is none yet."""

    text: Text

    @staticmethod
    def resolve_text(turn: TurnRecord) -> str:
        messages = load_messages_by_ids(list(turn.message_ids), session_id=turn.session_id)
        answers = [message for message in messages if message.role == "assistant"]
        return text_of(tuple(stored.part for stored in answers[-1].parts)) if answers else ""


def inbox_page(session_id: str, *, owner_id: int, waiting: bool | None, after: int, limit: int) -> dict[str, Any]:
    """Return messages of an inbox, oldest first: those that wait, those that were taken (False), or all (None).

    :raises SessionNotFoundError: it is not there, or belongs to another person.
    """
    load_session(session_id, owner_id=owner_id)
    messages = list_inbox(session_id, waiting=waiting, after=after, limit=limit + 1)
    return page_of(messages, limit, attrgetter("seq"))


def session_begun(session_id: str, turn_id: str) -> SessionRead:
    read: SessionRead = SessionRead.model_validate(load_session(session_id))
    return read.model_copy(update={"turn_id": turn_id})
