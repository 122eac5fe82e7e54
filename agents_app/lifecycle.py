"""The one contract behind every door: create, start or record a turn, interrupt, fork, archive, delete (decision 8).

Doors parse, call one of these, and translate the answer. Rules and error codes are here and below.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from agents_app.recovery import recover_turn
from agents_app.runner import runner
from compaction_app.schedule import act_on, find_trigger
from files_app.queries import load_file_reference
from mnesis_core.config import Config
from mnesis_core.errors import IdempotencyMismatch, InvalidRequest, RequestTooLarge, SessionBusy
from mnesis_core.events import EventType
from mnesis_core.llm import Outcome
from mnesis_core.messages import FileRefPart, Message, Part, TextPart, text_of
from mnesis_core.record import MessageEnd, SessionRecord, TurnRecord, TurnState
from mnesis_core.recording import RecordedTurn, check_recorded, request_digest
from mnesis_core.text import encode_text
from sessions_app import forking, store
from sessions_app.conf import default_model, get_spec, session_config, site_config
from sessions_app.database import db
from sessions_app.ledger import Change, change
from sessions_app.queries import expired_turns, find_turn_by_key, load_session, load_turn, running_turn
from sessions_app.ready import ReadyPart, make_all_ready

TURN_ENDS = {
    EventType.TURN_COMPLETED,
    EventType.TURN_CANCELLED,
    EventType.TURN_INTERRUPTED,
    EventType.TURN_FAILED,
    EventType.TURN_INCOMPLETE,
}
"""The events of which each turn has one, its last."""
TITLE_LENGTH, AGENT_LENGTH, KEY_LENGTH = 400, 100, 200
"""Stored characters of the columns."""
TITLE_FROM_MESSAGE = 60
"""Characters of the first message that name a session nobody has named."""


FORK_SUFFIX = " (fork)"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTurn:
    """A turn, and whether this very request started it."""

    turn: TurnRecord
    seq: int
    """The turn's first event, to follow it from; 1 when it was started before."""
    is_new: bool
    """False when the idempotency key has started it before."""


def create_session(
    *,
    owner: AbstractBaseUser,
    model: str = "",
    title: str = "",
    agent: str = "default",
    system_prompt: str = "",
    labels: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    parent_id: str | None = None,
    first_message: str | None = None,
) -> SessionRecord:
    """Create a session. A ``first_message`` is checked only: when it is refused, no empty session is left behind.

    :raises ModelNotFoundError: there is no such model.
    :raises SessionNotFoundError: the parent is not there, or belongs to somebody else.
    :raises InvalidRequest: a value is out of its bounds.
    """
    alias = model or default_model()
    get_spec(alias)
    configured = session_config(config or {})
    check_title(title, configured.limits.title_characters)
    _check_stored("agent", agent, AGENT_LENGTH)
    _check_length("system_prompt", system_prompt, configured.limits.message_characters)
    if first_message is not None:
        _check_message(first_message, configured)
    if parent_id is not None:
        load_session(parent_id, owner_id=owner.pk)
    session_id = store.create_session(
        owner=owner,
        model=alias,
        title=title,
        agent=agent,
        system_prompt=system_prompt,
        labels=labels,
        config=config,
        parent_id=parent_id,
    )
    return load_session(session_id)


def update_session(
    session_id: str,
    *,
    owner_id: int,
    title: str | None = None,
    labels: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
) -> SessionRecord:
    """Rename, relabel or reconfigure a session.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises InvalidRequest: a value is out of its bounds.
    """
    load_session(session_id, owner_id=owner_id)
    if title is not None:
        check_title(title, site_config().limits.title_characters)
    session_config(config or {})
    with change(session_id) as record:
        store.update_session(record, title=title, labels=labels, config=config)
    return load_session(session_id)


def archive_session(session_id: str, *, owner_id: int) -> SessionRecord:
    """Close a session for new turns; a running turn still ends.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    """
    load_session(session_id, owner_id=owner_id)
    with change(session_id) as record:
        store.archive_session(record)
    return load_session(session_id)


def delete_session(session_id: str, *, owner_id: int) -> None:
    """Take a session out of sight, for good. Every row of it stays (decision 1).

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SessionBusy: a turn is running.
    """
    load_session(session_id, owner_id=owner_id)
    with change(session_id) as record:
        turn_id = running_turn(session_id)
        if turn_id is not None:
            raise SessionBusy(session_id=session_id, turn_id=turn_id)
        store.soft_delete_session(record)


async def start_turn(
    session_id: str, *, owner_id: int, message: str, idempotency_key: str | None = None
) -> StartedTurn:
    """Write the user's message, claim the session and set the turn going in this process; returns at once.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SessionBusy: another turn is running.
    :raises SessionArchived: the session takes no more turns.
    :raises IdempotencyMismatch: the key was used for another message.
    :raises InvalidRequest: the message is empty or too long.
    :raises AtCapacity: this process runs as many turns as it may.
    """
    runner.check_capacity()
    started = await db(
        claim_turn,
        session_id,
        owner_id=owner_id,
        message=message,
        idempotency_key=idempotency_key,
        lease_owner=runner.owner,
    )
    if started.is_new:
        runner.start(started.turn)
    return started


def claim_turn(
    session_id: str, *, owner_id: int, message: str, idempotency_key: str | None, lease_owner: str
) -> StartedTurn:
    """The part of ``start_turn`` that is one transaction: claim, user message, context item, events."""
    session = load_session(session_id, owner_id=owner_id)
    config = session_config(session.config)
    _check_message(message, config)
    idempotency_key = _stored_key(idempotency_key)
    digest = hashlib.sha256(json.dumps(message).encode()).hexdigest()
    _free_if_dead(session, lease_owner)
    question = Message(role="user", parts=(TextPart(text=message),))
    parts = make_all_ready(question.parts)
    with change(session_id) as record:
        seq = record.next_seq
        known = find_turn_by_key(session_id, idempotency_key) if idempotency_key else None
        if known is not None:
            return _replayed(session_id, known, digest)
        turn_id = store.start_turn(
            record,
            model=session.model,
            lease_owner=lease_owner,
            lease_seconds=config.turn.lease_seconds,
            idempotency_key=idempotency_key,
            request_digest=digest,
        )
        store.append_message(record, turn_id=turn_id, message=question, parts=parts)
        _name(record, session, message)
    return StartedTurn(turn=load_turn(turn_id, session_id=session_id), seq=seq, is_new=True)


def record_turn(
    session_id: str, *, owner_id: int, turn: RecordedTurn, idempotency_key: str | None = None
) -> StartedTurn:
    """Write a turn that the caller ran with its own model client, whole and ended, and ask for a compaction if due.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SessionBusy: a turn is running.
    :raises SessionArchived: the session takes no more turns.
    :raises IdempotencyMismatch: the key was used for another request.
    :raises InvalidRequest: a value is missing or out of its bounds.
    :raises FileReferenceNotFoundError: a part names a file that the owner does not have.
    """
    session = load_session(session_id, owner_id=owner_id)
    check_recorded(turn, characters=session_config(session.config).limits.message_characters)
    digest, key = request_digest(turn), _stored_key(idempotency_key)
    turn = replace(turn, user=_with_files(turn.user, owner_id), assistant=_with_files(turn.assistant, owner_id))
    _free_if_dead(session, runner.owner)
    parts = make_all_ready(turn.user), make_all_ready(turn.assistant)
    with change(session_id) as record:
        seq = record.next_seq
        known = find_turn_by_key(session_id, key) if key else None
        if known is not None:
            return _replayed(session_id, known, digest)
        turn_id = _write_recorded(record, session, turn, parts, idempotency_key=key, request_digest=digest)
        _name(record, session, text_of(turn.user))
    _compact_if_due(session_id)
    return StartedTurn(turn=load_turn(turn_id, session_id=session_id), seq=seq, is_new=True)


def fork_session(session_id: str, *, owner: AbstractBaseUser, at_message_id: str) -> SessionRecord:
    """A new session with everything up to and including one message; also of an archived or running one.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises MessageNotFoundError: the session has no such message.
    :raises Conflict: the message is still being written.
    """
    source = load_session(session_id, owner_id=owner.pk)
    title = _title_of_fork(source.title)
    fork_id = forking.fork_session(source, owner=owner, at_message_id=at_message_id, title=title)
    _compact_if_due(fork_id)
    return load_session(fork_id)


def interrupt(session_id: str, *, owner_id: int) -> TurnRecord:
    """Ask for the end of the running turn, from any process; what was said is kept.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SessionNotRunning: no turn is running.
    """
    load_session(session_id, owner_id=owner_id)
    turn_id = store.request_interrupt(session_id=session_id)
    return load_turn(turn_id, session_id=session_id)


def check_title(title: str, limit: int) -> None:
    """:raises InvalidRequest: the title is too long."""
    if len(title) > limit:
        raise InvalidRequest(f"title has {len(title)} characters; {limit} are allowed", field="title")
    _check_stored("title", title, TITLE_LENGTH)


def _check_stored(name: str, text: str, limit: int) -> None:
    """A short text must fit its column also after NUL and the like were escaped; only one database would say so."""
    if len(encode_text(text)) > limit:
        raise InvalidRequest(f"{name} is too long, or has too many characters that must be escaped", field=name)


def _stored_key(idempotency_key: str | None) -> str | None:
    if idempotency_key is None:
        return None
    _check_stored("idempotency_key", idempotency_key, KEY_LENGTH)
    return encode_text(idempotency_key)


def _check_message(message: str, config: Config) -> None:
    if not message.strip():
        raise InvalidRequest("message is empty", field="message")
    _check_length("message", message, config.limits.message_characters)


def _check_length(name: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise RequestTooLarge(
            f"{name} has {len(text):,} characters; {limit:,} are allowed. Upload long texts as files.", field=name
        )


def _free_if_dead(session: SessionRecord, lease_owner: str) -> None:
    """A turn whose process died does not keep the session busy."""
    if session.running_turn_id is None:
        return
    if (session.id, session.running_turn_id) in expired_turns(session_id=session.id):
        recover_turn(session.id, session.running_turn_id, lease_owner=lease_owner)


def _replayed(session_id: str, known: tuple[str, str], digest: str) -> StartedTurn:
    turn_id, earlier = known
    if earlier != digest:
        raise IdempotencyMismatch(turn_id=turn_id)
    return StartedTurn(turn=load_turn(turn_id, session_id=session_id), seq=1, is_new=False)


def _write_recorded(
    record: Change,
    session: SessionRecord,
    turn: RecordedTurn,
    parts: tuple[list[ReadyPart], list[ReadyPart]],
    **key: Any,
) -> str:
    model = turn.model or session.model
    turn_id = store.start_turn(record, model=encode_text(model), origin="record", **key)
    store.append_message(record, turn_id=turn_id, message=Message(role="user", parts=turn.user), parts=parts[0])
    store.append_message(
        record,
        turn_id=turn_id,
        message=Message(role="assistant", parts=turn.assistant),
        parts=parts[1],
        model=model,
        end=MessageEnd(finish_reason=turn.finish_reason, outcome=Outcome.COMPLETE.value, usage=turn.usage),
    )
    store.finish_turn(record, turn_id, state=TurnState.COMPLETED, usage=turn.usage)
    return turn_id


def _with_files(parts: tuple[Part, ...], owner_id: int) -> tuple[Part, ...]:
    return tuple(_known_file(part, owner_id) if isinstance(part, FileRefPart) else part for part in parts)


def _known_file(part: FileRefPart, owner_id: int) -> FileRefPart:
    file = load_file_reference(part.file_id, owner_id=owner_id)
    return FileRefPart(
        file_id=file.id,
        path=file.path,
        file_type=file.file_type,
        token_count=file.token_count,
        exploration_summary=file.exploration_summary,
    )


def _compact_if_due(session_id: str) -> None:
    """As at the end of any turn; here the context is measured after the commit, so that the lock stays short."""
    trigger = find_trigger(session_id)
    if trigger is not None:
        with change(session_id) as record:
            act_on(record, trigger)


def _name(record: Change, session: SessionRecord, message: str) -> None:
    """The first message names a session that nobody has named."""
    if not session.title and session.turn_seq == 0:
        store.update_session(record, title=_title_of(message))


def _title_of(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= TITLE_FROM_MESSAGE else line[: TITLE_FROM_MESSAGE - 1].rstrip() + "…"


def _title_of_fork(title: str) -> str:
    # A character may be stored as five.
    fits = len(encode_text(title)) <= TITLE_LENGTH - len(FORK_SUFFIX)
    return f"{title if fits else title[:TITLE_FROM_MESSAGE]}{FORK_SUFFIX}".strip()
