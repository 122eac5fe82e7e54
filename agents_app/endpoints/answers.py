"""Answers of a request that carries a history: it becomes one turn, started or resumed, whose answer is followed.

With a session the server holds the history and records what is new. Without one the request is a session of its own, of
one turn, whose model sees what the caller sent and is offered the caller's tools only. The turn belongs to the runner,
so it ends whether or not the client stays.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Self, TypeVar

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from pydantic import BaseModel, ModelWrapValidatorHandler, ValidationInfo, model_validator

from agents_app.turns import lifecycle
from agents_app.turns.claim import StartedTurn, ToolResult
from agents_app.turns.defaults import assistant_named, model_in_session
from files_app.fetching import fetch_pictures
from files_app.queries import load_file_references, read_of_session
from mnesis_core import errors
from mnesis_core.config import layered
from mnesis_core.events import EventType
from mnesis_core.files.detection import MARK_BYTES, media_type_of
from mnesis_core.llm.interface import ToolCall
from mnesis_core.llm.parameters import NO_PARAMETERS, is_json_format
from mnesis_core.messages import (
    ImagePart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StoredMessage,
    TextPart,
    ToolPart,
)
from mnesis_core.providers.answer import STOP_SEQUENCE
from mnesis_core.providers.litellm_parameters import settle_parameters
from mnesis_core.records import SessionRecord, TurnRecord, TurnState, UsageRecord, WaitsFor, add_usage
from mnesis_core.text import read_json, text_digest
from mnesis_core.turns.options import TurnOptions
from mnesis_core.turns.requests import (
    NEW,
    Answered,
    CodedPicture,
    CompletionRequest,
    Head,
    Known,
    RequestDiff,
    Speech,
    Thought,
    diff_request,
    finish_reason,
    joined,
    known_from,
    pieces_of,
    sources_in,
    with_pictures,
)
from mnesis_core.turns.responses import encrypted_in
from sessions_app.assistants.assistant_store import PREFIX
from sessions_app.conf import get_spec, users_are_sessions
from sessions_app.database.threads import db, work
from sessions_app.live import STREAMED, Frame, Viewer, follow, make_check
from sessions_app.record import message_queries
from sessions_app.record.branch_queries import path_in
from sessions_app.record.session_queries import find_imported, load_session
from sessions_app.record.turn_queries import count_kept_for_an_hour, find_turn_of_part, load_turn, stop_sequence_of

B = TypeVar("B", bound="Unread")
READ = "read"
MOST_PICTURE_BYTES = 32 * 1024 * 1024  # of all that a model made in one answer; more are files of the session only
SESSION, TURN, UNUSED = "X-Mnesis-Session", "X-Mnesis-Turn", "X-Mnesis-Unused"
# Messages of the record that a request is compared with; the newest exchange is nearly always the one that matches.
RECENT = 40
# For one call: only the caller's tools, nothing to compact, and no facts of other sessions beside what the caller sent.
ONE_TURN = {"turn": {"tools": []}, "compaction": {"auto": False}, "retrieval": {"max_held_facts": 0}}
Piece = str | Thought | Answered  # of an answer: text and thinking as they come, then the whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAnswer:
    """A request whose turn runs, or has run.

    ``answered_part`` is the call whose result the request brings: what was said up to it is no part of the answer. Of an
    answer in JSON (``is_json``) only the last message counts, once it is whole and checked.
    """

    session: SessionRecord
    started: StartedTurn
    viewer: Viewer
    answered_part: str = ""
    is_json: bool = False


async def ask(
    request: CompletionRequest,
    *,
    owner: AbstractBaseUser,
    viewer: Viewer,
    idempotency_key: str | None = None,
) -> RunningAnswer:
    """Find the session, record what is new, and start the turn, without waiting for it.

    :raises MnesisError: as ``lifecycle.create_session``, ``start_turn`` and ``answer_tools`` do.
    :raises InvalidRequest: nothing in the request can be answered, or the session has another model.
    """
    found, request, diff = await db(_find_place, request, owner, idempotency_key)
    # A session is made only for pictures that can be fetched; where there is one, a repeated request fetches none again.
    sent = diff.sent if found is None else diff.earlier_pictures
    if any(picture.url for picture in sent):
        diff = with_pictures(diff, dict(zip(sent, await fetch_pictures(sent), strict=True)))
    session = await db(_make_session, request, diff, owner, idempotency_key) if found is None else found
    request = replace(request, model=session.model if request.model.startswith(PREFIX) else request.model)
    # A nameless session was made for this very request, and no later one finds it without its id.
    is_nameless = found is None and not _name_of(request, idempotency_key)
    if diff.results:
        return replace(await _answer_tools(session, diff, viewer), is_json=is_json_format(request.parameters))
    try:
        earlier = diff.earlier
        if diff.earlier_pictures:
            earlier = await work(lifecycle.with_pictures_kept, session, earlier, diff.earlier_pictures)
        started = await lifecycle.start_turn(
            session.id,
            owner_id=session.owner_id,
            message=diff.message,
            pictures=diff.pictures,
            earlier=earlier,
            idempotency_key=idempotency_key,
            options=TurnOptions(
                tools=request.tools,
                system_prompt=None if diff.system_prompt == session.system_prompt else diff.system_prompt,
                parameters=request.parameters,
                model=request.model if request.model != session.model else "",
                repeated=request.repeated,
            ),
            parent_id=request.after or None,
        )
    except errors.MnesisError:
        if is_nameless:
            await db(lifecycle.discard_session, session.id, owner_id=owner.pk)
        raise
    return RunningAnswer(session=session, started=started, viewer=viewer, is_json=is_json_format(request.parameters))


async def follow_thinking(asked: RunningAnswer) -> AsyncIterator[Piece]:
    """Yield the answer's text as it comes, with the model's thinking in its places, then the whole answer.

    :raises MnesisError: the turn failed, or the caller's key ended; what was said is in the record.
    """
    sent, has_begun = 0, False
    if asked.started.is_new or not await db(_is_answered, asked):
        async for piece in _pieces(asked):
            if isinstance(piece, Thought) or not asked.is_json:
                has_begun = True
                sent += len(piece) if isinstance(piece, str) else 0
                yield piece
    answered = await db(_read_answer, asked)
    if not has_begun:
        for piece in pieces_of(answered.parts):
            yield piece
    elif rest := answered.text[sent:]:
        yield rest
    yield answered


def _find_place(
    request: CompletionRequest, owner: AbstractBaseUser, key: str | None
) -> tuple[SessionRecord | None, CompletionRequest, RequestDiff]:
    """Return the session of a request if there is one, the request with its model, and what of it is new there."""
    session = _find_session(request, owner, key)
    if session is not None:
        request = replace(request, model=model_in_session(request.model, session))
        if request.model != session.model and not request.may_change_model:
            raise errors.InvalidRequest(f"this session's model is {session.model!r}; send that name", field="model")
        if any(said.role == "assistant" for said in request.messages):
            recent = message_queries.load_messages(session.id, limit=RECENT, newest=True, path=path_in(session))
            known = known_from(recent)
        else:  # a request without answers is new whatever the record says
            known = Known(is_empty=session.message_seq == 0)
        return session, request, diff_request(request.messages, known)
    diff = diff_request(request.messages, Known())
    if diff.results:
        raise errors.ToolCallNotFoundError("nothing waits for this result", tool_call_id=diff.results[0].tool_call_id)
    return None, request, diff


def _make_session(
    request: CompletionRequest, diff: RequestDiff, owner: AbstractBaseUser, key: str | None
) -> SessionRecord:
    assistant = assistant_named(request.model, user_id=owner.pk)
    name, is_one_turn = _name_of(request, key), not request.session and not _is_users(request)
    try:
        return lifecycle.create_session(
            owner=owner,
            model="" if assistant else request.model,
            assistant_id=assistant.id if assistant else "",
            system_prompt=diff.system_prompt or "",
            labels={"door": request.origin, **({"one_turn": "yes"} if is_one_turn else {})},
            # An assistant has its own tools in a single call, too.
            config=layered(ONE_TURN, assistant.config if assistant else {}) if is_one_turn else {},
            first_message=diff.message or None,
            origin=request.origin,
            external_id=name,
        )
    except errors.DuplicateIDError:
        # Another request of the same name was faster.
        found = _find_session(request, owner, key)
        if found is None:
            raise
        return found


def _find_session(request: CompletionRequest, owner: AbstractBaseUser, key: str | None) -> SessionRecord | None:
    if request.session not in ("", NEW):
        return load_session(request.session, owner_id=owner.pk)
    # Ids of calls are ids of parts.
    part_id = request.messages[-1].tool_call_id if request.messages and not request.session else ""
    if part_id and (place := find_turn_of_part(part_id, owner_id=owner.pk)):
        session = load_session(place[0], owner_id=owner.pk)
        if session.running_turn_id == place[1]:
            return session
    name = _name_of(request, key)
    return find_imported(owner_id=owner.pk, origin=request.origin, external_id=name) if name else None


def _name_of(request: CompletionRequest, key: str | None) -> str:
    """Return the name by which later requests find a session, of its user or the idempotency key, or an empty text."""
    if _is_users(request):
        return f"user:{text_digest(request.user)}"
    return f"key:{text_digest(key)}" if key else ""


def _is_users(request: CompletionRequest) -> bool:
    return bool(not request.session and request.user and users_are_sessions())


async def _answer_tools(session: SessionRecord, diff: RequestDiff, viewer: Viewer) -> RunningAnswer:
    """Give the caller's results to the turn that made the calls; results that it has already change nothing."""
    part_id = diff.results[0].tool_call_id
    found = await db(find_turn_of_part, part_id, owner_id=session.owner_id)
    if found is None or found[0] != session.id:
        raise errors.ToolCallNotFoundError("no call of this session has this id", tool_call_id=part_id)
    results = [
        ToolResult(
            tool_call_id=said.tool_call_id,
            output=None if said.is_error else said.text,
            error=said.text if said.is_error else None,
            pictures=said.pictures,
        )
        for said in diff.results
    ]
    try:
        started = await lifecycle.answer_tools(session.id, found[1], owner_id=session.owner_id, results=results)
    except errors.ToolCallAnswered:
        # A client that lost its connection sends them again.
        turn = await db(load_turn, found[1], session_id=session.id)
        messages = await db(message_queries.load_messages_by_ids, turn.message_ids, session_id=session.id)
        parts = {stored.id: stored.part for message in messages for stored in message.parts}
        kept = {id: (part.output, part.error) for id, part in parts.items() if isinstance(part, ToolPart)}
        different = next(
            (result for result in results if kept.get(result.tool_call_id) != (result.output, result.error)), None
        )
        if different is not None:
            raise errors.ToolCallAnswered(tool_call_id=different.tool_call_id) from None
        started = StartedTurn(turn=turn, seq=1, is_new=False)
    return RunningAnswer(session=session, started=started, viewer=viewer, answered_part=part_id)


async def _pieces(asked: RunningAnswer) -> AsyncIterator[str | Thought]:
    """Yield a new turn's text and thinking as they come; return when the turn can be answered, whichever request started it."""
    speech, is_live, is_new = Speech(), False, asked.started.is_new
    after = asked.started.seq - 1 if is_new else asked.session.event_seq
    check = make_check(asked.viewer, asked.session.id)
    async with aclosing(follow(asked.session.id, after=after, check=check)) as frames:  # type: ignore[type-var]
        async for frame in frames:
            for piece in speech.take(frame) if is_new else ():
                yield piece
            is_live = is_live or frame["type"] == "caught_up"
            is_part = frame["type"] == EventType.PART_CREATED and frame["data"]["part_type"] in STREAMED
            if is_part and is_new and not is_live:
                # No delta comes of a text that was whole before the stream began.
                whole = await db(message_queries.load_part_text, frame["data"]["part_id"])
                place = {"message_id": whole.message_id, "part_index": whole.part_index, "part_type": whole.part_type}
                for piece in speech.take(Frame(type="delta", **place, offset=0, text=whole.text)):
                    yield piece
            stops = frame["type"] in lifecycle.TURN_STOPS and frame["data"]["turn_id"] == asked.started.turn.id
            if stops and await db(_is_answered, asked):
                return


def _is_answered(asked: RunningAnswer) -> bool:
    # A turn that waits for a person's approval goes on by itself later.
    turn = load_turn(asked.started.turn.id, session_id=asked.session.id)
    return TurnState(turn.state).is_end or any(call.reason is WaitsFor.CALLER for call in turn.waits_for)


def _read_answer(asked: RunningAnswer) -> Answered:
    turn = load_turn(asked.started.turn.id, session_id=asked.session.id)
    messages = message_queries.load_messages_by_ids(turn.message_ids, session_id=turn.session_id)
    # The answer is what came after the last message of the request.
    if asked.answered_part:
        asking = [any(stored.id == asked.answered_part for stored in message.parts) for message in messages]
    else:
        told = asked.started.turn.message_ids if asked.started.is_new else ()
        asking = [message.role != "assistant" or message.id in told for message in messages]
    messages = messages[max((at for at, is_asking in enumerate(asking) if is_asking), default=-1) + 1 :]
    calls = tuple(
        ToolCall(id=call.part_id, name=call.tool_name, arguments=call.input)
        for call in turn.waits_for
        if call.reason is WaitsFor.CALLER
    )
    answered = answer_of(head_of(asked), turn, messages, calls, is_json=asked.is_json)
    is_answer = answered.text or not turn.error_code or turn.error_code == errors.AnswerRefused.code
    if turn.state in (TurnState.FAILED, TurnState.INTERRUPTED) or not is_answer:
        raise errors.error_of(
            turn.error_code or "", turn.error_message or "", turn_id=turn.id, session_id=turn.session_id
        )
    return answered


def answer_of(
    head: Head, turn: TurnRecord, messages: Sequence[StoredMessage], calls: tuple[ToolCall, ...], *, is_json: bool
) -> Answered:
    """Return the answer that messages of a turn give, up to its end or to the calls that the caller runs.

    :param is_json: whether only the last text counts
    """
    rows = message_queries.load_message_rows(turn.session_id, [message.id for message in messages])
    said = rows[messages[-1].id].finish_reason if messages else None
    parts = [stored.part for message in messages for stored in message.parts]
    last = max((at for at, part in enumerate(parts) if isinstance(part, TextPart)), default=0) if is_json else 0
    spoken = tuple(
        part
        for at, part in enumerate(parts)
        if isinstance(part, ReasoningPart) or (isinstance(part, TextPart) and at >= last)
    )
    made = [part.file_id for part in parts if isinstance(part, ImagePart) and part.file_id and not part.tool_call_id]
    refusal = joined(part.text for part in parts if isinstance(part, RefusalPart))
    code = turn.error_code or ""
    usage = reduce(add_usage, map(message_queries.usage_of, rows.values()), UsageRecord())
    return Answered(
        head=head,
        text=joined(part.text for part in spoken if isinstance(part, TextPart)),
        parts=spoken,
        citations=sources_in(part for at, part in enumerate(parts) if at >= last),
        pictures=tuple(_pictures(turn.session_id, made)),
        ran=tuple(part for part in parts if isinstance(part, ProviderToolPart)),
        refusal=refusal,
        encrypted=tuple(filter(None, (encrypted_in(stored.part) for stored in messages[-1].parts))) if messages else (),
        tool_calls=calls,
        finish_reason=finish_reason(turn.state, said or "", has_calls=bool(calls), error_code=code, refusal=refusal),
        stop_sequence=stop_sequence_of(turn.session_id, messages[-1].id) if said == STOP_SEQUENCE else None,
        state=turn.state,
        error_code=code,
        usage=usage,
        cache_write_1h=count_kept_for_an_hour(turn.session_id, list(rows)) if usage.tokens_cache_write else 0,
    )


def _pictures(session_id: str, file_ids: Sequence[str]) -> Iterator[CodedPicture]:
    """Yield pictures of a session in their order, as long as they take no more room than an answer may."""
    files = load_file_references(file_ids, session_ids=[session_id]) if file_ids else {}
    room = MOST_PICTURE_BYTES
    for file in (files[id] for id in file_ids if id in files):
        with suppress(errors.FileContentNotFound):
            data = read_of_session(session_id, file.content_id, 0, room + 1)
            room -= len(data)
            if room < 0:
                return
            yield CodedPicture(media_type_of(data[:MARK_BYTES], file.path), base64.b64encode(data).decode())


class Unread(BaseModel):
    """A body that may have to go on as it is: it is documented by its parameter, and the view reads it (``read_body``)."""

    @model_validator(mode="wrap")
    @classmethod
    def _leave(cls, value: Any, read: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        return read(value) if info.context is READ else cls.model_construct()


def read_body(request: HttpRequest, schema: type[B]) -> B:
    """Return the body of a request whose parameter for it is ``Unread``.

    :raises InvalidRequest: it is no JSON object, or a field is wrong; names it
    """
    body = read_json(request.body)
    if not isinstance(body, dict):
        raise errors.InvalidRequest("The body cannot be read: it must be an object.")
    return schema.model_validate(body, context=READ)


def head_of(asked: RunningAnswer) -> Head:
    turn = asked.started.turn
    created = int(turn.created_at.timestamp())
    return Head(turn_id=turn.id, session_id=asked.session.id, model=turn.model, created=created)


def headers_of(
    asked: RunningAnswer, request: CompletionRequest, *, owner: int, called: Mapping[str, str]
) -> dict[str, str]:
    """Return the headers of an answer.

    :param called: the names of our parameters in the caller's protocol
    """
    not_taken: Mapping[str, str] = {}
    if request.parameters != NO_PARAMETERS:
        spec = get_spec(asked.started.turn.model, user_id=owner)
        not_taken = settle_parameters(spec, request.parameters, has_tools=bool(request.tools)).not_taken
    return {
        SESSION: asked.session.id,
        TURN: asked.started.turn.id,
        UNUSED: ", ".join(sorted({*request.unused, *(called[name] for name in not_taken)})),
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
