"""How a process gets a turn: one begins, resumes with the last answer that it waited for, or was left by a dead process.

What is claimed is written in one transaction with the claim, and so are the messages of an inbox that a turn takes: any
process may take them, one does, and none is lost or read twice. No process holds a suspended turn: it is its state and its
calls in the record. A turn whose process died is closed as interrupted, with all that was streamed, and never run again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_noop

from agents_app import store
from agents_app.queries import count_waiting, find_sent, list_inbox, load_inbox_message, load_taken, spoken_at
from agents_app.turns import transactions
from agents_app.turns.branches import continue_after
from agents_app.turns.parameters import check_parameters
from agents_app.turns.transactions import PreparedResult, prepare_result, write_result
from compaction_app.compact import find_trigger, request_if_due
from compaction_app.context.retrieval import size_of_prompt
from compaction_app.context.state import load_frame
from files_app.contents import content_size, read_content
from files_app.intake import explore_file
from files_app.queries import load_file_reference, versions_of
from mnesis_core import errors
from mnesis_core.actor import read_actor
from mnesis_core.config import Config
from mnesis_core.files.pictures import SentPicture
from mnesis_core.files.references import part_of_file
from mnesis_core.llm.interface import Outcome, Usage, cost_micros
from mnesis_core.llm.parameters import NO_PARAMETERS
from mnesis_core.messages import Message, Part, StoredPart, TextPart, ToolPart, ToolState
from mnesis_core.records import FileReference, MessageEnd, SessionRecord, TurnRecord, TurnState, WaitsFor
from mnesis_core.spending import highest_of, passed_by
from mnesis_core.text import encode_text, text_of_bytes
from mnesis_core.turns import inbox
from mnesis_core.turns.gateway import own_words
from mnesis_core.turns.options import TurnOptions, check_options, read_options, texts_of, write_options
from mnesis_core.turns.questions import ASK_USER, answers_as_text, read_questions
from sessions_app.conf import get_spec_to_read, session_config, site_config
from sessions_app.database.threads import db, work
from sessions_app.llm.limits import limits_for, look
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.actor import acting_as
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import PreparedPart, find_tool_part, load_messages_by_ids, prepare_parts
from sessions_app.record.organisation_store import ref_of
from sessions_app.record.session_queries import launched_by_turn, load_session, peer_names
from sessions_app.record.turn_queries import expired_turns, find_turn_by_key, list_turns, load_turn, open_turn

logger = logging.getLogger(__name__)
MOST_FILES = 50
MOST_RESULTS = 1_000
MOST_TAKEN = 100
NOTE_CHARACTERS = 2_000
KEY_LENGTH = 200  # stored characters of the column
TITLE_FROM_MESSAGE = 60  # characters of the first message that become the title of an untitled session
WORKER_SECONDS = 3.0  # a worker has so long for an exploration before this process makes it: there may be no worker
LOOK_SECONDS = 0.1
CLOSING_SECONDS = 30.0  # the lease under which a dead process's turn is closed
LATE_ERROR = "Error: "
ANSWERED = MessageEnd(outcome=Outcome.COMPLETE.value)
ToolCall = tuple[StoredPart, ToolPart]
PLAIN = TurnOptions()  # everything as the session's configuration has it


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedTurn:
    turn: TurnRecord
    seq: int  # the turn's first event of this request, to follow it from; 1 when an earlier request started it
    is_new: bool  # False when the idempotency key had started it before, or when it still waits


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The result of a tool that the caller runs: ``output``, or ``error`` if it failed.

    Of ``ask_user`` it may be ``answers``, one entry for each question.
    """

    tool_call_id: str  # as the turn's ``waits_for`` has it; the id of the part is understood too
    output: str | None = None
    error: str | None = None
    pictures: tuple[SentPicture, ...] = ()  # which the output has beside its text
    answers: Sequence[Sequence[str]] | None = None


def claim_turn(
    session_id: str,
    *,
    owner_id: int,
    message: str | None,
    idempotency_key: str | None = None,
    lease_owner: str,
    options: TurnOptions = PLAIN,
    earlier: Sequence[Message] = (),
    files: Sequence[str] = (),
    pictures: Sequence[SentPicture] = (),
    more_files: Sequence[str] = (),
    parent_id: str | None = None,
) -> StartedTurn:
    """Claim the session for a new turn and write the user's message, and before it what happened elsewhere.

    :param more_files: go with the message too, and are no part of the request; the ``pictures`` as they are kept are among them
    :param parent_id: the message that it continues, on a branch of its own where others do so already
    """
    session = load_session(session_id, owner_id=owner_id)
    config = session_config(session.config)
    # Pictures may ask without a word.
    may_be_silent = bool(message == "" and (files or pictures)) or (message is None and bool(earlier or parent_id))
    model = options.model or session.model
    _check_request(message, earlier, options, config, model=model, may_be_silent=may_be_silent)
    idempotency_key = stored_key(idempotency_key)
    digest = _request_digest(message, files, pictures, options, parent_id)
    close_dead_turn(session, lease_owner)
    gone_with = _load_files(session_id, [*files, *more_files], owner_id)
    given = [_part_of_file(file, config.files.inline_threshold) for file in gone_with]
    said = _message_with(message, given)
    parts = None if said is None else prepare_parts(said.parts)
    lease = {"lease_owner": lease_owner, "lease_seconds": config.turn.lease_seconds}
    claimed: dict[str, Any] = {"model": model, "options": write_options(options), **lease}
    with change(session_id) as record:
        if known := find_started(session_id, idempotency_key, digest):
            return known
        if parent_id is not None:
            continue_after(record, parent_id, says_nothing=message is None and not earlier)
        if earlier:
            write_ended_turn(record, session.model, [(before, None) for before in earlier])
        seq = record.next_seq
        turn = turn_store.claim_turn(record, idempotency_key=idempotency_key, request_digest=digest, **claimed)
        if said is not None:
            said_id = message_store.append_message(record, turn_id=turn.id, message=said, parts=parts)
            turn = replace(turn, message_ids=(said_id,))
        title_from_message(record, session, message or "")
        change_hosting(record, host_mode=options.host_mode)
    return StartedTurn(turn=turn, seq=seq, is_new=True)


def _message_with(text: str | None, files: Sequence[Part]) -> Message | None:
    """Return what the user says and the files beside it; ``None`` where the user says nothing, not even without words."""
    if text is None:
        return None
    return Message(role="user", parts=(*([TextPart(text=text)] if text else []), *files))


def _check_request(
    message: str | None,
    earlier: Sequence[Message],
    options: TurnOptions,
    config: Config,
    *,
    model: str,
    may_be_silent: bool,
) -> None:
    """:raises InvalidRequest: the message is empty, or an option cannot be met.
    :raises ParameterNotSupported: the model does not take a parameter, and such turns are refused.
    :raises RequestTooLarge: a text has more characters than are allowed.
    """
    limit = config.limits.message_characters
    if not may_be_silent:
        check_message(message or "", config)
    check_earlier(earlier, limit)
    check_options(options, characters=limit)
    if options.parameters != NO_PARAMETERS or config.parameters:
        check_parameters(get_spec_to_read(model), config, options)


def check_earlier(messages: Sequence[Message], limit: int) -> None:
    """:raises RequestTooLarge: a text has more characters than are allowed."""
    for text in [text for said in messages for part in said.parts for text in texts_of(part)]:
        check_length("earlier messages", text, limit)


def _request_digest(
    message: str | None,
    files: Sequence[str],
    pictures: Sequence[SentPicture],
    options: TurnOptions,
    parent_id: str | None,
) -> str:
    named = [*files, *(sent.url or sent.name for sent in pictures)]  # whatever is at an address by now
    of_files = json.dumps(named) if named else ""
    of_parent = json.dumps(parent_id) if parent_id else ""
    return hashlib.sha256(f"{json.dumps(message)}{of_files}{write_options(options)}{of_parent}".encode()).hexdigest()


def find_repeated(
    session_id: str,
    *,
    owner_id: int,
    message: str | None,
    idempotency_key: str,
    options: TurnOptions,
    files: Sequence[str],
    pictures: Sequence[SentPicture],
    parent_id: str | None,
) -> StartedTurn | None:
    """Return the turn that the same request has started already, before its pictures are fetched again.

    :raises IdempotencyMismatch: the key was used for another request.
    """
    load_session(session_id, owner_id=owner_id)
    digest = _request_digest(message, files, pictures, options, parent_id)
    return find_started(session_id, stored_key(idempotency_key), digest)


def find_started(session_id: str, idempotency_key: str | None, digest: str) -> StartedTurn | None:
    """Return the turn that an earlier request with this key started.

    :raises IdempotencyMismatch: that was another request.
    """
    known = find_turn_by_key(session_id, idempotency_key) if idempotency_key else None
    if known is None:
        return None
    turn_id, earlier = known
    if earlier != digest:
        raise errors.IdempotencyMismatch(turn_id=turn_id)
    return StartedTurn(turn=load_turn(turn_id, session_id=session_id), seq=1, is_new=False)


def write_ended_turn(
    record: Change,
    model: str,
    messages: Iterable[tuple[Message, Sequence[PreparedPart] | None]],
    *,
    end: MessageEnd = ANSWERED,
    answerer: str = "",
    **request: Any,
) -> str:
    """Write what was said elsewhere as a turn of its own that has ended, and return its id.

    :param messages: each with its parts if they were prepared before
    :param end: how each answer ended, and what the turn has used
    :param answerer: the model that the answers name
    """
    turn_id = turn_store.start_turn(record, model=model, origin="record", **request)
    for message, parts in messages:
        of_answer: dict[str, Any] = {"end": end, "model": answerer} if message.role == "assistant" else {}
        message_store.append_message(record, turn_id=turn_id, message=message, parts=parts, **of_answer)
    turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED, usage=end.usage)
    return turn_id


def title_from_message(record: Change, session: SessionRecord, message: str) -> None:
    if session.title or session.turn_seq or not (said := own_words(message)):
        return
    title = " ".join(said.split())
    if len(title) > TITLE_FROM_MESSAGE:
        title = title[: TITLE_FROM_MESSAGE - 1].rstrip() + "…"
    session_store.update_session(record, title=title)


def change_hosting(record: Change, *, host_mode: bool | None, peer_name: str | None = None) -> None:
    """Turn a session's host mode on or off, or rename it; ``None`` leaves a value as it is.

    :raises InvalidRequest: host mode needs a name, or the name cannot be one.
    :raises PeerNameTaken: another session of the owner in host mode has this name.
    :raises SessionTemporary: a temporary chat takes no messages of peers.
    """
    if host_mode is None and peer_name is None:
        return
    session = load_session(record.session_id)
    before = inbox.Hosting(is_on=session.host_mode, name=session.peer_name)
    after = inbox.hosting_after(before, host_mode=host_mode, peer_name=peer_name, agent=session.agent)
    if after.is_on and session.is_temporary:
        raise errors.SessionTemporary(session_id=session.id)
    if after != before:
        session_store.update_session(record, hosting=after)


def compact_if_due(session_id: str) -> None:
    # Unlike at the end of a turn the context is measured after the commit, so that the lock stays short.
    trigger = find_trigger(session_id)
    if trigger is not None:
        with change(session_id) as record:
            request_if_due(record, trigger)


async def wait_until_explored(session_id: str, file_ids: Sequence[str], *, owner_id: int) -> None:
    """Wait until these files of a session are explored, for ``files.wait_seconds`` at the most.

    :raises FileReferenceNotFoundError: the session has no such file.
    """

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
    except errors.FileContentNotFound:
        return part_of_file(file, read, threshold=0, same_path=same_path)


def check_message(message: str, config: Config) -> None:
    """:raises InvalidRequest: it is empty or too long."""
    if not message.strip():
        raise errors.InvalidRequest(gettext_noop("message is empty"), field="message")
    check_length("message", message, config.limits.message_characters)


def check_length(name: str, text: str, limit: int) -> None:
    """:raises RequestTooLarge: a text has more characters than are allowed."""
    if len(text) > limit:
        raise errors.RequestTooLarge(
            gettext_noop("%(name)s has %(count)s characters; %(most)s are allowed. Upload long texts as files."),
            {"name": name, "count": len(text), "most": limit},
            field=name,
        )


def check_stored(name: str, text: str, limit: int) -> None:
    """:raises InvalidRequest: a short text does not fit its column."""
    # Once NUL and the like are escaped it is longer, and SQLite does not check.
    if len(encode_text(text)) > limit:
        raise errors.InvalidRequest(
            gettext_noop("%(name)s is too long, or has too many characters that must be escaped"),
            {"name": name},
            field=name,
        )


def stored_key(idempotency_key: str | None) -> str | None:
    """:raises InvalidRequest: it is too long."""
    if idempotency_key is None:
        return None
    check_stored("idempotency_key", idempotency_key, KEY_LENGTH)
    return encode_text(idempotency_key)


# Messages come into a session's inbox, and an idle session in host mode takes them as a turn.


def deliver(
    session_id: str, *, owner_id: int, draft: inbox.Draft, idempotency_key: str | None = None
) -> inbox.InboxMessage:
    """Put a message into a session's inbox; a repeated request with its key returns the message that is there."""
    session = load_session(session_id, owner_id=owner_id)
    config = session_config(session.config)
    idempotency_key = stored_key(idempotency_key)
    if draft.sender_turn:
        load_session(draft.sender, owner_id=owner_id)
        draft = replace(draft, hops=inbox.hops_after(load_taken(draft.sender, draft.sender_turn)))
    inbox.check_draft(draft, config.inbox)
    if draft.in_reply_to:
        load_inbox_message(draft.in_reply_to, owner_id=owner_id)
    with change(session_id) as record:
        known = find_sent(session_id, idempotency_key) if idempotency_key else None
        if known is not None:
            before = (known.text, known.kind, known.sender, known.in_reply_to)
            if before != (draft.text, draft.kind, draft.sender, draft.in_reply_to):
                raise errors.IdempotencyMismatch(inbox_id=known.id)
            return known
        if record.archived:
            raise errors.SessionArchived(session_id=session_id)
        if not load_session(session_id).host_mode:
            raise errors.NotInHostMode(session_id=session_id)
        if count_waiting(session_id) >= config.inbox.waiting:
            raise errors.InboxFull(session_id=session_id, waiting=config.inbox.waiting)
        message_id = store.receive_message(record, draft, idempotency_key=idempotency_key)
    return load_inbox_message(message_id, owner_id=owner_id)


def claim_waiting(session_id: str, *, lease_owner: str) -> TurnRecord | None:
    """Claim an idle session in host mode for a turn that reads what waits; return ``None`` if no turn is to begin.

    :raises SessionNotFoundError: it was deleted meanwhile.
    """
    session = load_session(session_id)
    config = session_config(session.config)
    if not session.host_mode or not session.is_at_home or session.archived_at or session.running_turn_id:
        return None
    last = next(iter(list_turns(session.id, limit=1)), None)
    # Read before what waits: a message that ends the rest is then among those that the turn reads.
    if inbox.is_resting(last, spoken_at=spoken_at(session.id)):
        return None
    waiting = list_inbox(session.id, waiting=True, limit=MOST_TAKEN)
    messages = list(inbox.fitting(waiting, characters=config.inbox.message_characters))
    if not messages:
        return None
    text = inbox.joined(messages, peer_names({message.sender for message in messages}, owner_id=session.owner_id))
    # A message that no limit leaves room for waits until the day is over, or until a limit is raised.
    said = Message(role="user", parts=(TextPart(text=text),))
    if limits := limits_for(session):
        frame = load_frame(session.id)
        most = Usage(input_tokens=size_of_prompt(frame, said), output_tokens=frame.budget.reserved_output)
        if passed_by(highest_of(most.total_tokens, cost_micros(frame.spec, most)), look(limits)) is not None:
            return None
    parts = prepare_parts(said.parts)
    lease = {"lease_owner": lease_owner, "lease_seconds": config.turn.lease_seconds}
    actor = inbox.actor_of(messages, for_ref=ref_of(session.owner_id))
    with acting_as(actor), change(session.id) as record:
        # Another process may have begun a turn since the session was read.
        if record.turn_seq != session.turn_seq or record.archived or not load_session(session.id).host_mode:
            return None
        turn_id = turn_store.start_turn(record, model=session.model, origin=inbox.INBOX, **lease)
        message_store.append_message(record, turn_id=turn_id, message=said, parts=parts)
        store.take_messages(record, [message.id for message in messages], turn_id=turn_id)
    return load_turn(turn_id, session_id=session.id)


# A suspended turn is answered by its caller, decided by a person, and resumed.


def answer_tools(
    session_id: str, turn_id: str, *, owner_id: int, results: Sequence[ToolResult], lease_owner: str
) -> StartedTurn:
    """Write results of the caller's tools and answers of a person, and claim the turn if it waits for nothing more."""
    session = load_session(session_id, owner_id=owner_id)
    config = session_config(session.config)
    if any(result.answers is not None for result in results):
        turn = load_turn(turn_id, session_id=session_id)
        results = [_in_words(turn, _calls_of(turn), result) for result in results]
    if not 1 <= len(results) <= MOST_RESULTS:
        raise errors.InvalidRequest(gettext_noop("send 1 to %(most)s results"), {"most": MOST_RESULTS}, field="results")
    known: set[str] = set()
    for place, result in enumerate(results):
        field, characters = f"results.{place}", config.limits.message_characters
        if (result.output is None) == (result.error is None):
            raise errors.InvalidRequest(
                gettext_noop("%(field)s needs either its output or its error"), {"field": field}, field=field
            )
        if len(result.output or result.error or "") > characters:
            raise errors.RequestTooLarge(
                gettext_noop("%(field)s may have %(characters)s characters"),
                {"field": field, "characters": characters},
                field=field,
            )
        if result.tool_call_id in known:
            field = f"{field}.tool_call_id"
            raise errors.InvalidRequest(
                gettext_noop("%(field)s has a result already in this request"), {"field": field}, field=field
            )
        known.add(result.tool_call_id)
    prepared = [
        prepare_result(
            result.output or result.error or "",
            is_error=result.error is not None,
            inline=config.turn.tool_output_inline,
            owner_id=owner_id,
            pictures=result.pictures,
        )
        for result in results
    ]
    with change(session_id) as record:
        seq = record.next_seq
        turn = load_turn(turn_id, session_id=session_id)
        calls = _calls_of(turn)
        callers = read_options(turn.options).tool_names
        answered = {
            _write_answer(record, turn, calls, callers, *given) for given in zip(results, prepared, strict=True)
        }
        is_resumed = _resume_if_answered(record, turn, answered, lease_owner, config)
    return StartedTurn(turn=load_turn(turn_id, session_id=session_id), seq=seq, is_new=is_resumed)


def _calls_of(turn: TurnRecord) -> list[ToolCall]:
    """Return the tool calls of a turn, the newest first: models begin to count their calls anew with each step."""
    messages = load_messages_by_ids(turn.message_ids, session_id=turn.session_id)
    return [call for message in reversed(messages) for call in transactions.tool_parts(message)]


def _find_call(turn: TurnRecord, calls: Sequence[ToolCall], call_id: str) -> ToolCall:
    """Return the call of this id that waits for its result, else the newest.

    :raises ToolCallNotFoundError: the turn made none.
    """
    found = [(stored, part) for stored, part in calls if call_id in (part.tool_call_id, stored.id)]
    if not found:
        raise errors.ToolCallNotFoundError(turn_id=turn.id, tool_call_id=call_id)
    return next((call for call in found if call[1].state is ToolState.PENDING), found[0])


def _in_words(turn: TurnRecord, calls: Sequence[ToolCall], result: ToolResult) -> ToolResult:
    """Return a result whose answers to questions are its output, as the model reads them."""
    if result.answers is None:
        return result
    _, part = _find_call(turn, calls, result.tool_call_id)
    questions = read_questions(part.input) if part.tool_name == ASK_USER else ()
    return replace(result, output=answers_as_text(questions, result.answers), answers=None)


def _write_answer(
    record: Change,
    turn: TurnRecord,
    calls: Sequence[ToolCall],
    callers: frozenset[str],
    result: ToolResult,
    prepared: PreparedResult,
) -> str:
    """Write one result, or keep one that comes late with its closed call; return the id of the call's part."""
    call_id = result.tool_call_id
    stored, part = _find_call(turn, calls, call_id)
    if part.tool_name not in callers and part.tool_name != ASK_USER:
        raise errors.ToolCallNotCallers(tool_call_id=call_id, tool_name=part.tool_name)
    if part.state is ToolState.PENDING:
        write_result(record, stored.id, prepared)
        return stored.id
    late = result.output if result.error is None else f"{LATE_ERROR}{result.error}"
    # The end of a turn and the errors of its open calls are written in one transaction, at one time.
    is_closed = turn.ended_at is not None and part.state is ToolState.ERROR and part.completed_at == turn.ended_at
    if not is_closed or not message_store.keep_late_output(record, stored.id, late or ""):
        raise errors.ToolCallAnswered(tool_call_id=call_id)
    return stored.id


def decide_approval(
    session_id: str, part_id: str, *, owner_id: int, approved: bool, note: str, lease_owner: str
) -> StartedTurn:
    """Write a person's yes or no, and claim the turn if it waits for nothing more."""
    session = load_session(session_id, owner_id=owner_id)
    if len(note) > NOTE_CHARACTERS:
        raise errors.RequestTooLarge(
            gettext_noop("note may have %(most)s characters, not more"),
            {"most": NOTE_CHARACTERS},
            field="note",
        )
    with change(session_id) as record:
        seq = record.next_seq
        found = open_turn(session_id)
        turn = load_turn(found[0], session_id=session_id) if found else None
        asking = [waiting.part_id for waiting in turn.waits_for if waiting.reason is WaitsFor.APPROVAL] if turn else []
        if turn is None or part_id not in asking:
            raise errors.ApprovalNotPending(part_id=part_id, state=find_tool_part(part_id, session_id=session_id))
        comment = f" They said: {note}" if note.strip() else ""
        refusal = f"A person refused this call, so it was not run.{comment}"
        message_store.decide_approval(record, part_id, turn_id=turn.id, approved=approved, note=note, refusal=refusal)
        is_resumed = _resume_if_answered(record, turn, {part_id}, lease_owner, session_config(session.config))
    return StartedTurn(turn=load_turn(turn.id, session_id=session_id), seq=seq, is_new=is_resumed)


def _resume_if_answered(record: Change, turn: TurnRecord, answered: set[str], lease_owner: str, config: Config) -> bool:
    if turn.state != TurnState.SUSPENDED or any(call.part_id not in answered for call in turn.waits_for):
        return False
    seconds = config.turn.lease_seconds
    turn_store.resume_turn(record, turn.id, fence=turn.fence, lease_owner=lease_owner, lease_seconds=seconds)
    return True


# A turn is taken from a process that died, or ended without one.


def close_dead_turn(session: SessionRecord, lease_owner: str) -> None:
    """Close the turn that a session read as running if its process died: it must not keep the session busy."""
    if session.running_turn_id is not None:
        recover_turns(lease_owner=lease_owner, session_id=session.id)


def recover_turns(
    *, lease_owner: str, runs_here: Callable[[str], bool] | None = None, session_id: str | None = None
) -> int:
    """Close every turn that its process left, of one session or of all; return how many were closed.

    :param runs_here: says of a turn that ``lease_owner`` holds itself whether it runs
    """
    closed = 0
    for turn in expired_turns(session_id=session_id):
        if turn.lease_owner == lease_owner and runs_here is not None:
            is_left = not runs_here(turn.turn_id)
        else:
            is_left = turn.is_left(timezone.now())
        if is_left:
            left = {"left_by": turn.lease_owner, "actor": turn.actor}
            closed += recover_turn(turn.session_id, turn.turn_id, lease_owner=lease_owner, **left)
    return closed


def recover_turn(
    session_id: str, turn_id: str, *, lease_owner: str, left_by: str | None = None, actor: str = ""
) -> bool:
    """Close one turn if its lease ran out; return False if it is alive after all, or another process was first.

    :param left_by: the dead process that had it; a process that has it by now keeps it
    :param actor: who asked for the turn
    """
    end = transactions.TurnEnd.of(TurnState.INTERRUPTED, errors.TurnInterrupted())
    with acting_as(read_actor(actor).unasked()):
        with change(session_id) as record:
            fence = turn_store.take_over_turn(
                record, turn_id, lease_owner=lease_owner, lease_seconds=CLOSING_SECONDS, left_by=left_by
            )
            if fence is None:
                return False
            transactions.close_turn(record, turn_id, end, fence=fence)
        logger.warning("turn %s was left by its process and is closed as interrupted", turn_id)
        for child_id in launched_by_turn(session_id, turn_id):
            end_waiting(child_id, end)  # its answer has no reader any more
    return True


def end_waiting(session_id: str, end: transactions.TurnEnd, *, or_running: bool = True) -> str | None:
    """End the turn that a session waits in, at once, for it has no lease; or request the end of one that runs.

    Return its id, or ``None`` where there is none.

    :param or_running: false leaves a turn that runs alone
    """
    with change(session_id) as record:
        found = open_turn(session_id)
        if found is None:
            return None
        turn = load_turn(found[0], session_id=session_id)
        if turn.state != TurnState.SUSPENDED:
            if or_running:
                turn_store.request_interrupt(record, turn.id)
            return turn.id
        usage = transactions.load_progress(turn).usage
        transactions.close_turn(record, turn.id, end, before=TurnState.SUSPENDED, fence=turn.fence, usage=usage)
    return turn.id
