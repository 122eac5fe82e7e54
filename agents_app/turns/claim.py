"""A turn begins, or is recorded whole: the session is claimed and every row written in one transaction."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from django.utils import timezone

from agents_app.turns.transactions import close_open_rows, load_progress
from compaction_app.schedule import find_trigger, request_if_due
from files_app.contents import content_size, read_content
from files_app.intake import explore_file
from files_app.queries import load_file_reference, versions_of
from mnesis_core.config import Config
from mnesis_core.errors import (
    FileContentNotFound,
    IdempotencyMismatch,
    InvalidRequest,
    MnesisError,
    RequestTooLarge,
    TurnInterrupted,
)
from mnesis_core.files.footers import part_of_file
from mnesis_core.llm.interface import Outcome
from mnesis_core.messages import FileRefPart, Message, Part, TextPart, text_of
from mnesis_core.records import FileReference, MessageEnd, SessionRecord, TurnRecord, TurnState
from mnesis_core.text import encode_text, text_of_bytes
from mnesis_core.turns.inbox import Hosting, hosting_after
from mnesis_core.turns.options import (
    RecordedTurn,
    TurnOptions,
    check_options,
    check_recorded,
    request_digest,
    texts_of,
    write_options,
)
from sessions_app.conf import session_config, site_config
from sessions_app.database.threads import db, work
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.rows import prepare_parts
from sessions_app.record.session_queries import launched_by_turn, load_session
from sessions_app.record.turn_queries import expired_turns, find_turn_by_key, load_turn, open_turn

MOST_FILES = 50  # of one message
WORKER_SECONDS = 3.0  # a worker has so long for an exploration before this process makes it: there may be no worker
LOOK_SECONDS = 0.1
KEY_LENGTH = 200  # stored characters of the column
TITLE_FROM_MESSAGE = 60  # characters of the first message that become the title of an untitled session


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTurn:
    turn: TurnRecord
    seq: int  # the turn's first event of this request, to follow it from; 1 when an earlier request started it
    is_new: bool  # False when the idempotency key had started it before, or when it still waits


def change_hosting(record: Change, *, host_mode: bool | None, peer_name: str | None = None) -> None:
    """Turn a session's host mode on or off, or rename it; ``None`` leaves a value as it is.

    :raises InvalidRequest: host mode needs a name, or the name cannot be one.
    :raises PeerNameTaken: another session of the owner in host mode has this name.
    """
    if host_mode is None and peer_name is None:
        return
    session = load_session(record.session_id)
    before = Hosting(is_on=session.host_mode, name=session.peer_name)
    after = hosting_after(before, host_mode=host_mode, peer_name=peer_name, agent=session.agent)
    if after != before:
        session_store.update_session(record, hosting=after)


async def wait_until_explored(session_id: str, file_ids: Sequence[str], *, owner_id: int) -> None:
    """Wait until these files of a session are explored, for ``files.wait_seconds`` at the most.

    :raises FileReferenceNotFoundError: the session has no such file.
    :raises InvalidRequest: there are too many.
    """
    if len(file_ids) > MOST_FILES:
        raise InvalidRequest(f"a message may have {MOST_FILES} files", field="files")

    async def wait(file_id: str) -> None:
        is_explored = False
        while not is_explored:
            for _ in range(int(WORKER_SECONDS / LOOK_SECONDS)):
                if (await db(load_file_reference, file_id, owner_id=owner_id)).is_explored:
                    return
                await asyncio.sleep(LOOK_SECONDS)
            # It returns an unexplored file while a worker asks a model about it.
            is_explored = (await work(explore_file, file_id, owner_id=owner_id)).is_explored

    files = await db(_load_files, session_id, file_ids, owner_id)
    try:
        async with asyncio.timeout(site_config().files.wait_seconds):
            await asyncio.gather(*(wait(file.id) for file in files if not file.is_explored))
    except TimeoutError:
        pass  # the message says that they were not explored yet


def _load_files(session_id: str, file_ids: Sequence[str], owner_id: int) -> list[FileReference]:
    return [load_file_reference(id, session_id=session_id, owner_id=owner_id) for id in dict.fromkeys(file_ids)]


def _part_of_file(file: FileReference, threshold: int) -> Part:
    # A short text goes into the message whole, any other file by reference.
    def read() -> str:
        return text_of_bytes(read_content(file.content_id, 0, content_size(file.content_id)))

    same_path = versions_of(file)
    try:
        return part_of_file(file, read, threshold=threshold, same_path=same_path)
    except FileContentNotFound:
        return part_of_file(file, read, threshold=0, same_path=same_path)


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
    if message is not None or not earlier:
        check_message(message or "", config)
    for text in [text for said in earlier for part in said.parts for text in texts_of(part)]:
        check_length("earlier messages", text, config.limits.message_characters)
    options = options or TurnOptions()
    check_options(options, characters=config.limits.message_characters)
    idempotency_key = stored_key(idempotency_key)
    asked = write_options(options)
    said_with = f"{json.dumps(message)}{json.dumps(list(files))}" if files else json.dumps(message)
    digest = hashlib.sha256((said_with + asked).encode()).hexdigest()
    _close_dead_turn(session, lease_owner)
    threshold = config.files.inline_threshold
    given = [_part_of_file(file, threshold) for file in _load_files(session_id, files, owner_id)]
    question = () if message is None else (Message(role="user", parts=(TextPart(text=message), *given)),)
    parts = [prepare_parts(said.parts) for said in question]
    with change(session_id) as record:
        known = find_turn_by_key(session_id, idempotency_key) if idempotency_key else None
        if known is not None:
            return _replay(session_id, known, digest)
        if earlier:
            _record_earlier(record, session, earlier)
        seq = record.next_seq
        turn = turn_store.claim_turn(
            record,
            model=options.model or session.model,
            lease_owner=lease_owner,
            lease_seconds=config.turn.lease_seconds,
            idempotency_key=idempotency_key,
            request_digest=digest,
            options=asked,
        )
        said_ids = [
            message_store.append_message(record, turn_id=turn.id, message=said, parts=ready)
            for said, ready in zip(question, parts, strict=True)
        ]
        _set_title(record, session, message or "")
        change_hosting(record, host_mode=options.host_mode)
    return StartedTurn(turn=replace(turn, message_ids=tuple(said_ids)), seq=seq, is_new=True)


def _record_earlier(record: Change, session: SessionRecord, earlier: Sequence[Message]) -> None:
    """Write what was said elsewhere as a turn of its own that has ended."""
    turn_id = turn_store.start_turn(record, model=session.model, origin="record")
    ended = MessageEnd(outcome=Outcome.COMPLETE.value)
    for said in earlier:
        end = ended if said.role == "assistant" else None
        message_store.append_message(record, turn_id=turn_id, message=said, end=end)
    turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)


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
    _close_dead_turn(session, lease_owner)
    user_parts, assistant_parts = prepare_parts(turn.user), prepare_parts(turn.assistant)
    model = turn.model or session.model
    user, assistant = Message(role="user", parts=turn.user), Message(role="assistant", parts=turn.assistant)
    end = MessageEnd(finish_reason=turn.finish_reason, outcome=Outcome.COMPLETE.value, usage=turn.usage)
    with change(session_id) as record:
        seq = record.next_seq
        known = find_turn_by_key(session_id, key) if key else None
        if known is not None:
            return _replay(session_id, known, digest)
        turn_id = turn_store.start_turn(
            record, model=model, origin="record", idempotency_key=key, request_digest=digest
        )
        message_store.append_message(record, turn_id=turn_id, message=user, parts=user_parts)
        message_store.append_message(
            record, turn_id=turn_id, message=assistant, parts=assistant_parts, model=model, end=end
        )
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED, usage=turn.usage)
        _set_title(record, session, text_of(turn.user))
    compact_if_due(session_id)
    return StartedTurn(turn=load_turn(turn_id, session_id=session_id), seq=seq, is_new=True)


def check_message(message: str, config: Config) -> None:
    """:raises InvalidRequest: it is empty or too long."""
    if not message.strip():
        raise InvalidRequest("message is empty", field="message")
    check_length("message", message, config.limits.message_characters)


def check_length(name: str, text: str, limit: int) -> None:
    """:raises RequestTooLarge: a text has more characters than are allowed."""
    if len(text) > limit:
        raise RequestTooLarge(
            f"{name} has {len(text):,} characters; {limit:,} are allowed. Upload long texts as files.", field=name
        )


def check_stored(name: str, text: str, limit: int) -> None:
    """:raises InvalidRequest: a short text does not fit its column."""
    # Once NUL and the like are escaped it is longer, and SQLite does not check.
    if len(encode_text(text)) > limit:
        raise InvalidRequest(f"{name} is too long, or has too many characters that must be escaped", field=name)


def compact_if_due(session_id: str) -> None:
    # Unlike at the end of a turn the context is measured after the commit, so that the lock stays short.
    trigger = find_trigger(session_id)
    if trigger is not None:
        with change(session_id) as record:
            request_if_due(record, trigger)


def stored_key(idempotency_key: str | None) -> str | None:
    """Return an idempotency key as it is stored.

    :raises InvalidRequest: it is too long.
    """
    if idempotency_key is None:
        return None
    check_stored("idempotency_key", idempotency_key, KEY_LENGTH)
    return encode_text(idempotency_key)


def _close_dead_turn(session: SessionRecord, lease_owner: str) -> None:
    # A turn whose process died must not keep the session busy.
    if session.running_turn_id is not None:
        recover_turns(lease_owner=lease_owner, session_id=session.id)


def _replay(session_id: str, known: tuple[str, str], digest: str) -> StartedTurn:
    turn_id, earlier = known
    if earlier != digest:
        raise IdempotencyMismatch(turn_id=turn_id)
    return StartedTurn(turn=load_turn(turn_id, session_id=session_id), seq=1, is_new=False)


def _with_files(parts: tuple[Part, ...], owner_id: int) -> tuple[Part, ...]:
    # References carry what the record knows of the files, not what the caller says of them.
    def with_file(part: Part) -> Part:
        if not isinstance(part, FileRefPart):
            return part
        file = load_file_reference(part.file_id, owner_id=owner_id)
        return FileRefPart(
            file_id=file.id,
            path=file.path,
            file_type=file.file_type,
            token_count=file.token_count,
            exploration_summary=file.exploration_summary,
        )

    return tuple(map(with_file, parts))


def _set_title(record: Change, session: SessionRecord, message: str) -> None:
    # The first message becomes the title of a session without one.
    if not message or session.title or session.turn_seq:
        return
    title = " ".join(message.split())
    if len(title) > TITLE_FROM_MESSAGE:
        title = title[: TITLE_FROM_MESSAGE - 1].rstrip() + "…"
    session_store.update_session(record, title=title)


logger = logging.getLogger(__name__)
CLOSING_SECONDS = 30.0


def recover_turns(
    *, lease_owner: str, runs_here: Callable[[str], bool] | None = None, session_id: str | None = None
) -> int:
    """Close every turn that its process left, of one session or of all; return how many were closed.

    :param runs_here: says of a turn that ``lease_owner`` holds itself whether it runs
    """
    left = [
        turn
        for turn in expired_turns(session_id=session_id)
        if (
            not runs_here(turn.turn_id)
            if turn.lease_owner == lease_owner and runs_here is not None
            else turn.is_left(timezone.now())
        )
    ]
    return sum(
        recover_turn(turn.session_id, turn.turn_id, lease_owner=lease_owner, left_by=turn.lease_owner) for turn in left
    )


def recover_turn(session_id: str, turn_id: str, *, lease_owner: str, left_by: str | None = None) -> bool:
    """Close one turn if its lease ran out; return False if it is alive after all, or another process was first.

    :param left_by: the dead process that had it; a process that has it by now keeps it
    """
    with change(session_id) as record:
        fence = turn_store.take_over_turn(
            record, turn_id, lease_owner=lease_owner, lease_seconds=CLOSING_SECONDS, left_by=left_by
        )
        if fence is None:
            return False
        reason = TurnInterrupted()
        close_open_rows(record, turn_id, error_code=reason.code, error_message=reason.message)
        turn_store.finish_turn(
            record,
            turn_id,
            state=TurnState.INTERRUPTED,
            fence=fence,
            error_code=reason.code,
            error_message=reason.message,
        )
    logger.warning("turn %s was left by its process and is closed as interrupted", turn_id)
    for child_id in launched_by_turn(session_id, turn_id):
        end_waiting(child_id, TurnState.INTERRUPTED, reason)  # its answer has no reader any more
    return True


def end_waiting(session_id: str, state: TurnState, reason: MnesisError | None = None) -> str | None:
    """End the turn that a session waits in, at once, for it has no lease; or request the end of one that runs.

    Return its id, or ``None`` where there is none.
    """
    code, message = (reason.code, reason.message) if reason else (None, None)
    with change(session_id) as record:
        found = open_turn(session_id)
        if found is None:
            return None
        turn = load_turn(found[0], session_id=session_id)
        if turn.state != TurnState.SUSPENDED:
            return turn_store.request_interrupt(session_id=session_id)
        close_open_rows(record, turn.id, error_code=code, error_message=message)
        turn_store.finish_turn(
            record,
            turn.id,
            state=state,
            before=TurnState.SUSPENDED,
            fence=turn.fence,
            usage=load_progress(turn).usage,
            error_code=code,
            error_message=message,
        )
    return turn.id
