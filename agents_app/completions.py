"""Story: a request of OpenAI's Chat Completions becomes one turn, started or gone on with, and its answer is followed.

With a session the server holds the history and writes down what is new; without one the request is a session of its
own, of one turn, whose model sees what the caller sent and is offered the caller's tools only. The turn belongs to the
runner, so it ends whether or not the client stays.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import reduce

from django.contrib.auth.models import AbstractBaseUser

from agents_app import lifecycle
from agents_app.lifecycle import StartedTurn, ToolResult
from mnesis_core.completions import (
    Answered,
    CompletionRequest,
    Head,
    Known,
    News,
    Speech,
    find_news,
    finish_reason,
    joined,
    known_of,
)
from mnesis_core.endings import error_of
from mnesis_core.errors import DuplicateIDError, InvalidRequest, MnesisError, ToolCallAnswered, ToolCallNotFoundError
from mnesis_core.events import EventType
from mnesis_core.llm import ToolCall
from mnesis_core.messages import StoredMessage, TextPart
from mnesis_core.record import SessionRecord, TurnState, UsageRecord, WaitsFor, add_usage
from mnesis_core.text import text_digest
from mnesis_core.turn_options import TurnOptions
from sessions_app.conf import users_are_sessions
from sessions_app.database import db
from sessions_app.follow import Frame, follow
from sessions_app.queries import (
    find_imported,
    find_turn_of_part,
    load_message_rows,
    load_messages,
    load_messages_by_ids,
    load_part_text,
    load_session,
    load_turn,
    usage_of,
)
from sessions_app.viewing import Viewer, check_of

ORIGIN = "openai"
NEW = "new"
RECENT = 40
"""Messages of the record that a request is compared with; the newest exchange is nearly always the one that matches."""
ONE_TURN = {"turn": {"tools": []}, "compaction": {"auto": False}}
"""The configuration of a session that holds one call: only the caller's tools, and nothing to compact."""
NO_ANSWER = (TurnState.FAILED, TurnState.INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a request belongs, and what of it is new there."""

    session: SessionRecord
    news: News
    is_nameless: bool = False
    """It was made for this very request, and no later one finds it unless it is told its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request whose turn runs, or has run."""

    session: SessionRecord
    started: StartedTurn
    viewer: Viewer
    answered_part: str = ""
    """The call that the request brings a result of: what was said up to it is no part of the answer."""


async def ask(
    request: CompletionRequest, *, owner: AbstractBaseUser, viewer: Viewer, idempotency_key: str | None = None
) -> Asked:
    """Find the session, write down what is new, and set the turn going; returns at once.

    :raises MnesisError: as ``lifecycle.create_session``, ``start_turn`` and ``answer_tools`` do
    :raises InvalidRequest: nothing in the request can be answered, or the session has another model
    """
    place = await db(_find_place, request, owner, idempotency_key)
    if place.news.results:
        return await _answer_tools(place.session, place.news, viewer)
    try:
        started = await _start(request, place, idempotency_key)
    except MnesisError:
        if place.is_nameless:
            await db(lifecycle.delete_session, place.session.id, owner_id=owner.pk)
        raise
    return Asked(session=place.session, started=started, viewer=viewer)


async def _start(request: CompletionRequest, place: Place, key: str | None) -> StartedTurn:
    session, news = place.session, place.news
    return await lifecycle.start_turn(
        session.id,
        owner_id=session.owner_id,
        message=news.message,
        earlier=news.earlier,
        idempotency_key=key,
        options=TurnOptions(
            tools=request.tools,
            system_prompt=None if news.system_prompt == session.system_prompt else news.system_prompt,
        ),
    )


async def follow_answer(asked: Asked) -> AsyncIterator[str | Answered]:
    """The answer's text as it comes, then the whole of it.

    :raises MnesisError: the turn failed, or the caller's key ended; what was said is in the record.
    """
    sent = 0
    if asked.started.is_new or not await db(_is_answered, asked):
        async for text in _texts(asked):
            sent += len(text)
            yield text
    answered = await db(_read_answer, asked)
    if rest := answered.text[sent:]:
        yield rest
    yield answered


def _find_place(request: CompletionRequest, owner: AbstractBaseUser, key: str | None) -> Place:
    """The session of a request, made if need be, and what is new to it."""
    session = _find_session(request, owner, key)
    if session is None:
        news = find_news(request.messages, Known())
        if news.results:
            raise ToolCallNotFoundError("nothing waits for this result", tool_call_id=news.results[0].tool_call_id)
        made = _create_or_find(request, news, owner, key)
        return Place(session=made, news=news, is_nameless=not _name_of(request, key))
    if request.model != session.model:
        raise InvalidRequest(f"this session's model is {session.model!r}; send that name", field="model")
    return Place(session=session, news=find_news(request.messages, _known(request, session)))


def _known(request: CompletionRequest, session: SessionRecord) -> Known:
    """What to compare a request with; one without answers of the assistant is new whatever the record says."""
    if any(said.role == "assistant" for said in request.messages):
        return known_of(load_messages(session.id, limit=RECENT, newest=True))
    return Known(is_empty=session.message_seq == 0)


def _find_session(request: CompletionRequest, owner: AbstractBaseUser, key: str | None) -> SessionRecord | None:
    if request.session not in ("", NEW):
        return load_session(request.session, owner_id=owner.pk)
    if not request.session and (waiting := _find_waiting(request, owner)):
        return waiting
    name = _name_of(request, key)
    return find_imported(owner_id=owner.pk, origin=ORIGIN, external_id=name) if name else None


def _find_waiting(request: CompletionRequest, owner: AbstractBaseUser) -> SessionRecord | None:
    """The session whose turn waits for the results that a request ends with: ids of calls are ids of parts."""
    newest = request.messages[-1] if request.messages else None
    found = find_turn_of_part(newest.tool_call_id, owner_id=owner.pk) if newest and newest.tool_call_id else None
    if found is None:
        return None
    session = load_session(found[0], owner_id=owner.pk)
    return session if session.running_turn_id == found[1] else None


def _name_of(request: CompletionRequest, key: str | None) -> str:
    """What makes a session that a request creates findable again, until it is deleted: its user's name, or the idempotency key."""
    if _is_users(request):
        return f"user:{text_digest(request.user)}"
    return f"key:{text_digest(key)}" if key else ""


def _is_users(request: CompletionRequest) -> bool:
    return bool(not request.session and request.user and users_are_sessions())


def _create_or_find(request: CompletionRequest, news: News, owner: AbstractBaseUser, key: str | None) -> SessionRecord:
    try:
        return _create(request, news, owner, key)
    except DuplicateIDError:
        # Another request of the same name was faster.
        found = _find_session(request, owner, key)
        if found is None:
            raise
        return found


def _create(request: CompletionRequest, news: News, owner: AbstractBaseUser, key: str | None) -> SessionRecord:
    is_one_turn = not request.session and not _is_users(request)
    return lifecycle.create_session(
        owner=owner,
        model=request.model,
        system_prompt=news.system_prompt or "",
        labels={"door": ORIGIN, **({"one_turn": "yes"} if is_one_turn else {})},
        config={**ONE_TURN, "max_output_tokens": request.max_output_tokens} if is_one_turn else {},
        first_message=news.message,
        origin=ORIGIN,
        external_id=_name_of(request, key),
    )


async def _answer_tools(session: SessionRecord, news: News, viewer: Viewer) -> Asked:
    """Give the caller's results to the turn that made the calls; those that it has already change nothing."""
    part_id = news.results[0].tool_call_id
    found = await db(find_turn_of_part, part_id, owner_id=session.owner_id)
    if found is None or found[0] != session.id:
        raise ToolCallNotFoundError("no call of this session has this id", tool_call_id=part_id)
    results = [ToolResult(tool_call_id=said.tool_call_id, output=said.text) for said in news.results]
    try:
        started = await lifecycle.answer_tools(session.id, found[1], owner_id=session.owner_id, results=results)
    except ToolCallAnswered:
        # A client that lost its connection sends them again.
        started = await db(_answered_before, found, results)
    return Asked(session=session, started=started, viewer=viewer, answered_part=part_id)


def _answered_before(place: tuple[str, str], results: list[ToolResult]) -> StartedTurn:
    turn = load_turn(place[1], session_id=place[0])
    messages = load_messages_by_ids(turn.message_ids, session_id=turn.session_id)
    outputs = {stored.id: getattr(stored.part, "output", None) for message in messages for stored in message.parts}
    different = next((result for result in results if outputs.get(result.tool_call_id) != result.output), None)
    if different is not None:
        raise ToolCallAnswered(tool_call_id=different.tool_call_id)
    return StartedTurn(turn=turn, seq=1, is_new=False)


async def _texts(asked: Asked) -> AsyncIterator[str]:
    """What the turn says as it comes, until it stops; of one that an earlier request began, nothing until then."""
    speech, is_live, is_new = Speech(), False, asked.started.is_new
    after = asked.started.seq - 1 if is_new else asked.session.event_seq
    check = check_of(asked.viewer, asked.session.id)
    async with aclosing(follow(asked.session.id, after=after, check=check)) as frames:  # type: ignore[type-var]
        async for frame in frames:
            if is_new and (text := speech.take(frame)):
                yield text
            is_live = is_live or frame["type"] == "caught_up"
            # Of what was whole before the stream began, no delta comes.
            if is_new and not is_live and (written := await _written(frame)) and (text := speech.take(written)):
                yield text
            if _stops(frame, asked) and await db(_is_answered, asked):
                return


async def _written(frame: Frame) -> Frame | None:
    if frame["type"] != EventType.PART_CREATED or frame["data"]["part_type"] != TextPart.type:
        return None
    whole = await db(load_part_text, frame["data"]["part_id"])
    place = {"message_id": whole.message_id, "part_index": whole.part_index, "part_type": whole.part_type}
    return Frame(type="delta", **place, offset=0, text=whole.text)


def _stops(frame: Frame, asked: Asked) -> bool:
    return frame["type"] in lifecycle.TURN_STOPS and frame["data"]["turn_id"] == asked.started.turn.id


def _is_answered(asked: Asked) -> bool:
    """Whether there is something to answer with; a turn that waits for a person's approval goes on by itself later."""
    turn = load_turn(asked.started.turn.id, session_id=asked.session.id)
    return TurnState(turn.state).is_end or any(call.reason is WaitsFor.CALLER for call in turn.waits_for)


def _read_answer(asked: Asked) -> Answered:
    turn = load_turn(asked.started.turn.id, session_id=asked.session.id)
    messages = _said_since(asked, load_messages_by_ids(turn.message_ids, session_id=turn.session_id))
    text = joined(part.part.text for message in messages for part in message.parts if isinstance(part.part, TextPart))
    if turn.state in NO_ANSWER or (turn.error_code and not text):
        raise error_of(turn.error_code or "", turn.error_message or "", turn_id=turn.id, session_id=turn.session_id)
    rows = load_message_rows(turn.session_id, [message.id for message in messages])
    calls = tuple(
        ToolCall(id=call.part_id, name=call.tool_name, arguments=call.input)
        for call in turn.waits_for
        if call.reason is WaitsFor.CALLER
    )
    said = rows[messages[-1].id].finish_reason if messages else None
    return Answered(
        head=head_of(asked),
        text=text,
        tool_calls=calls,
        finish_reason=finish_reason(turn.state, said or "", has_calls=bool(calls)),
        state=turn.state,
        usage=reduce(add_usage, map(usage_of, rows.values()), UsageRecord()),
    )


def _said_since(asked: Asked, messages: list[StoredMessage]) -> list[StoredMessage]:
    """The answers of a turn that came after what the request said."""
    asking = max((index for index, message in enumerate(messages) if _is_asking(asked, message)), default=-1)
    return messages[asking + 1 :]


def _is_asking(asked: Asked, message: StoredMessage) -> bool:
    if asked.answered_part:
        return any(stored.id == asked.answered_part for stored in message.parts)
    told = asked.started.turn.message_ids if asked.started.is_new else ()
    return message.role != "assistant" or message.id in told


def head_of(asked: Asked) -> Head:
    """What every piece of the answer begins with."""
    turn = asked.started.turn
    created = int(turn.created_at.timestamp())
    return Head(turn_id=turn.id, session_id=asked.session.id, model=asked.session.model, created=created)
