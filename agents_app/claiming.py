"""Story: a turn begins or is recorded whole: the session claimed, what was said and every event, in one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents_app.given_files import parts_of_files
from agents_app.hosting import change_hosting
from agents_app.recovery import recover_turns
from compaction_app.schedule import act_on, find_trigger
from files_app.queries import load_file_reference
from mnesis_core.config import Config
from mnesis_core.errors import IdempotencyMismatch, InvalidRequest, RequestTooLarge
from mnesis_core.llm import Outcome
from mnesis_core.messages import FileRefPart, Message, Part, TextPart, text_of
from mnesis_core.record import MessageEnd, SessionRecord, TurnRecord, TurnState
from mnesis_core.recording import RecordedTurn, check_recorded, request_digest, texts_of
from mnesis_core.text import encode_text
from mnesis_core.turn_options import TurnOptions, check_options, write_options
from sessions_app import store
from sessions_app.conf import session_config
from sessions_app.ledger import Change, change
from sessions_app.queries import find_turn_by_key, load_session, load_turn
from sessions_app.ready import ReadyPart, make_all_ready

KEY_LENGTH = 200
"""Stored characters of the column."""
TITLE_FROM_MESSAGE = 60
"""Characters of the first message that name a session nobody has named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTurn:
    """A turn, and whether this very request started it or set it going again."""

    turn: TurnRecord
    seq: int
    """The turn's first event of this request, to follow it from; 1 when an earlier one started it."""
    is_new: bool
    """False when the idempotency key has started it before, or when it waits on."""


def claim_turn(
    session_id: str,
    *,
    owner_id: int,
    message: str | None,
    idempotency_key: str | None = None,
    lease_owner: str,
    options: TurnOptions | None = None,
    earlier: Sequence[Message] = (),
    files: Sequence[str] = (),
) -> StartedTurn:
    """Claim the session for a new turn and write the user's message, and before it what happened elsewhere.

    :raises MnesisError: see ``lifecycle.start_turn``
    """
    session = load_session(session_id, owner_id=owner_id)
    config = session_config(session.config)
    _check_asked(message, earlier, config)
    options = options or TurnOptions()
    check_options(options, characters=config.limits.message_characters)
    idempotency_key = stored_key(idempotency_key)
    asked = write_options(options)
    said_with = f"{json.dumps(message)}{json.dumps(list(files))}" if files else json.dumps(message)
    digest = hashlib.sha256((said_with + asked).encode()).hexdigest()
    _free_if_dead(session, lease_owner)
    given = parts_of_files(session_id, files, owner_id=owner_id)
    question = () if message is None else (Message(role="user", parts=(TextPart(text=message), *given)),)
    parts = [make_all_ready(said.parts) for said in question]
    with change(session_id) as record:
        known = find_turn_by_key(session_id, idempotency_key) if idempotency_key else None
        if known is not None:
            return _replayed(session_id, known, digest)
        _write_earlier(record, session, earlier)
        seq = record.next_seq
        turn = store.claim_turn(
            record,
            model=options.model or session.model,
            lease_owner=lease_owner,
            lease_seconds=config.turn.lease_seconds,
            idempotency_key=idempotency_key,
            request_digest=digest,
            options=asked,
        )
        said_ids = [
            store.append_message(record, turn_id=turn.id, message=said, parts=ready)
            for said, ready in zip(question, parts, strict=True)
        ]
        _name(record, session, message or "")
        change_hosting(record, host_mode=options.host_mode)
    return StartedTurn(turn=replace(turn, message_ids=tuple(said_ids)), seq=seq, is_new=True)


def claim_recorded_turn(
    session_id: str, *, owner_id: int, turn: RecordedTurn, idempotency_key: str | None, lease_owner: str
) -> StartedTurn:
    """Write a turn that the caller ran, whole and ended, and ask for a compaction if due.

    :raises MnesisError: see ``lifecycle.record_turn``
    """
    session = load_session(session_id, owner_id=owner_id)
    check_recorded(turn, characters=session_config(session.config).limits.message_characters)
    digest, key = request_digest(turn), stored_key(idempotency_key)
    turn = replace(turn, user=_with_files(turn.user, owner_id), assistant=_with_files(turn.assistant, owner_id))
    _free_if_dead(session, lease_owner)
    parts = make_all_ready(turn.user), make_all_ready(turn.assistant)
    with change(session_id) as record:
        seq = record.next_seq
        known = find_turn_by_key(session_id, key) if key else None
        if known is not None:
            return _replayed(session_id, known, digest)
        turn_id = _write_recorded(record, session, turn, parts, idempotency_key=key, request_digest=digest)
        _name(record, session, text_of(turn.user))
    compact_if_due(session_id)
    return StartedTurn(turn=load_turn(turn_id, session_id=session_id), seq=seq, is_new=True)


def check_message(message: str, config: Config) -> None:
    """:raises InvalidRequest: it is empty or too long."""
    if not message.strip():
        raise InvalidRequest("message is empty", field="message")
    check_length("message", message, config.limits.message_characters)


def _check_asked(message: str | None, earlier: Sequence[Message], config: Config) -> None:
    """:raises InvalidRequest: there is nothing to answer, or a text is too long."""
    if message is not None or not earlier:
        check_message(message or "", config)
    for text in [text for said in earlier for part in said.parts for text in texts_of(part)]:
        check_length("earlier messages", text, config.limits.message_characters)


def check_length(name: str, text: str, limit: int) -> None:
    """:raises RequestTooLarge: a text has more characters than are allowed."""
    if len(text) > limit:
        raise RequestTooLarge(
            f"{name} has {len(text):,} characters; {limit:,} are allowed. Upload long texts as files.", field=name
        )


def check_stored(name: str, text: str, limit: int) -> None:
    """A short text must fit its column also after NUL and the like were escaped; only one database would say so.

    :raises InvalidRequest: it does not.
    """
    if len(encode_text(text)) > limit:
        raise InvalidRequest(f"{name} is too long, or has too many characters that must be escaped", field=name)


def compact_if_due(session_id: str) -> None:
    """As at the end of any turn; here the context is measured after the commit, so that the lock stays short."""
    trigger = find_trigger(session_id)
    if trigger is not None:
        with change(session_id) as record:
            act_on(record, trigger)


def stored_key(idempotency_key: str | None) -> str | None:
    """An idempotency key as it is stored.

    :raises InvalidRequest: it is too long.
    """
    if idempotency_key is None:
        return None
    check_stored("idempotency_key", idempotency_key, KEY_LENGTH)
    return encode_text(idempotency_key)


def _free_if_dead(session: SessionRecord, lease_owner: str) -> None:
    """A turn whose process died does not keep the session busy."""
    if session.running_turn_id is None:
        return
    recover_turns(lease_owner=lease_owner, session_id=session.id)


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


def _write_earlier(record: Change, session: SessionRecord, earlier: Sequence[Message]) -> None:
    """What happened elsewhere, as one turn that has ended."""
    if not earlier:
        return
    turn_id = store.start_turn(record, model=session.model, origin="record")
    ended = MessageEnd(outcome=Outcome.COMPLETE.value)
    for message in earlier:
        end = ended if message.role == "assistant" else None
        store.append_message(record, turn_id=turn_id, message=message, end=end)
    store.finish_turn(record, turn_id, state=TurnState.COMPLETED)


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


def _name(record: Change, session: SessionRecord, message: str) -> None:
    """The first message names a session that nobody has named."""
    if message and not session.title and session.turn_seq == 0:
        store.update_session(record, title=_title_of(message))


def _title_of(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= TITLE_FROM_MESSAGE else line[: TITLE_FROM_MESSAGE - 1].rstrip() + "…"
