"""What a turn has done so far, the answer that it streams, and its transactions.

Each transaction checks that this process still has the turn, and is short. An answer goes to the followers at once, to the
journal in batches, and is written whole at the end.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any, ParamSpec, TypeVar

from psycopg_pool import PoolTimeout

from compaction_app.compact import request_if_due, trigger_after
from compaction_app.context.state import Frame
from files_app.contents import put_content
from files_app.intake import add_file, prepare_file
from mnesis_core.config import StreamConfig
from mnesis_core.context.fitting import OUTPUTS, Size, cap_output, shorten_output
from mnesis_core.errors import FileQuotaExceeded, MnesisError, RequestTooLarge, TurnCancelled
from mnesis_core.events import EventType
from mnesis_core.files.detection import kind_of_text
from mnesis_core.files.pictures import PICTURE_KIND, SentPicture, kind_of, part_of_sent, picture_of
from mnesis_core.llm import interface as llm
from mnesis_core.llm.interface import MadePicture
from mnesis_core.llm.tokens import estimate_part, estimate_text
from mnesis_core.messages import (
    CitationPart,
    ImagePart,
    Part,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    ShownPart,
    StoredMessage,
    StoredPart,
    TextPart,
    ToolPart,
    ToolState,
)
from mnesis_core.records import MessageEnd, TurnRecord, TurnState, UsageRecord, add_usage
from mnesis_core.spending import ONE_TOOL_CALL, LimitUse
from mnesis_core.text import bytes_of_text
from mnesis_core.turns.options import Made, call_made, end_of_reply, first_token_ms, usage_record
from sessions_app.database.outages import log_outage
from sessions_app.database.threads import AWAY, ServerUnreachable, db
from sessions_app.llm import model_store
from sessions_app.llm.calls import RunningCall
from sessions_app.llm.limits import SpendingLimit, TurnSpending, draw, warn
from sessions_app.record import message_queries, message_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.hub import hub
from sessions_app.record.turn_queries import running_calls

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)
LATE_PAUSES = (0.0, 0.1, 0.5, 2.0, 10.0)  # seconds before each look for the place of a late output
StreamedPart = TextPart | ReasoningPart | RefusalPart
SaidPart = StreamedPart | ProviderPart | ProviderToolPart | CitationPart | ShownPart
_STREAMED: Mapping[type[llm.StreamedDelta], type[StreamedPart]] = {
    llm.TextDelta: TextPart,
    llm.ReasoningDelta: ReasoningPart,
    llm.RefusalDelta: RefusalPart,
}
JOURNALLED = (CitationPart, ProviderToolPart)
"""Whole parts that the journal has as JSON. Opaque data of an answer that was cut off serves no one."""
STATE_OF = {
    llm.Outcome.COMPLETE: TurnState.COMPLETED,
    llm.Outcome.INCOMPLETE: TurnState.INCOMPLETE,
    llm.Outcome.BROKEN: TurnState.INTERRUPTED,
    llm.Outcome.FAILED: TurnState.FAILED,
    llm.Outcome.CANCELLED: TurnState.CANCELLED,
}
PATIENCE_SECONDS, RETRY_SECONDS = 60.0, 1.0
CUT_OFF = "The turn was interrupted before this ended."  # the result of a call that an interrupt cut off
MOST_PICTURES = 20  # of one result; no more are shown at once
NO_PICTURE = "The model sent a picture that cannot be shown. The data is kept as received."
Kept = TypeVar("Kept")
AddLong = Callable[[Change, str], str]


@dataclass(slots=True, kw_only=True)
class OpenCall:
    part_id: str
    call: llm.ToolCall
    is_approved: bool = False


@dataclass(slots=True, kw_only=True)
class Progress:
    steps: int = 0
    usage: UsageRecord = field(default_factory=UsageRecord)
    made: list[Made] = field(default_factory=list)
    open_calls: list[OpenCall] = field(default_factory=list)


def load_progress(turn: TurnRecord) -> Progress:
    """Return what a turn has done, from the record alone, in two queries: any process can resume it."""
    messages = message_queries.load_messages_by_ids(turn.message_ids, session_id=turn.session_id)
    answers = [message for message in messages if message.role == "assistant"]
    rows = message_queries.load_message_rows(turn.session_id, [message.id for message in answers])
    tools = [stored for message in answers for stored in tool_parts(message)]
    return Progress(
        steps=len(answers),
        usage=reduce(add_usage, map(message_queries.usage_of, rows.values()), UsageRecord()),
        made=[call_made(part.tool_name, part.input) for _, part in tools],
        open_calls=[
            OpenCall(
                part_id=stored.id,
                call=llm.ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.input),
                is_approved=True,
            )
            for stored, part in tools
            if part.state is ToolState.APPROVED
        ],
    )


def tool_parts(message: StoredMessage) -> list[tuple[StoredPart, ToolPart]]:
    return [(stored, stored.part) for stored in message.parts if isinstance(stored.part, ToolPart)]


@dataclass(slots=True, kw_only=True)
class Answer:
    session_id: str
    message_id: str
    config: StreamConfig
    made_by: Callable[[], Mapping[str, str]]  # provider, model and prompt of a ``ProviderPart``
    owner_id: int
    made: dict[int, llm.MadePicture] = field(default_factory=dict)  # by the places of their parts
    texts: list[list[str]] = field(default_factory=list)  # for each part, the pieces that came
    types: list[str] = field(default_factory=list)
    first_at: float | None = None  # when the first text or reasoning came, by ``time.monotonic``
    lengths: list[int] = field(default_factory=list)
    # By their places among the parts, those that come whole.
    whole: dict[int, ProviderPart | ProviderToolPart | CitationPart | ShownPart] = field(default_factory=dict)
    _unwritten: list[tuple[int, str]] = field(default_factory=list)
    _held_up: list[message_store.Piece] = field(default_factory=list)  # by an outage of the database
    _unwritten_size: int = 0
    _flushing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def stream(self, model: llm.Model, request: llm.Request) -> llm.Reply:
        journal: asyncio.Task[None] | None = None
        try:
            async for item in model.stream(request):
                if isinstance(item, llm.Reply):
                    # A reply that says it gave nothing, after a part was passed on, would else be asked for again.
                    is_begun = self.types and item.outcome is llm.Outcome.FAILED
                    return replace(item, outcome=llm.Outcome.BROKEN) if is_begun else item
                self._take(item)
                if self._unwritten_size >= self.config.journal_bytes:
                    await self.flush()
                elif journal is None or journal.done():
                    if journal is not None:
                        journal.result()  # raises what it met
                    journal = asyncio.create_task(self._flush_regularly())
        finally:
            # What it is writing is either there before the parts are, and deleted with them, or refused.
            if journal is not None and not journal.cancel():
                journal.exception()
        raise AssertionError("a model's stream must end with a Reply")

    async def _flush_regularly(self) -> None:
        """Journal what came each time that it is due, also while the model says nothing more, until nothing waits."""
        while self._unwritten or self._held_up:
            await asyncio.sleep(RETRY_SECONDS if self._held_up else self.config.journal_seconds)
            await self.flush()

    async def flush(self) -> None:
        """Journal everything that came; pieces that an outage keeps from the journal are kept for the next flush."""
        async with self._flushing:
            unwritten, self._unwritten, self._unwritten_size = self._unwritten, [], 0
            is_retry = bool(self._held_up)
            for index in sorted({index for index, _ in unwritten}):
                text = "".join(piece for of, piece in unwritten if of == index)
                piece = message_store.Piece(
                    part_index=index, part_type=self.types[index], offset=self.lengths[index], text=text
                )
                self._held_up.append(piece)
                self.lengths[index] += len(text)
            if not self._held_up:
                return
            place = {"session_id": self.session_id, "message_id": self.message_id}
            try:
                await db(message_store.append_journal, **place, pieces=self._held_up, is_retry=is_retry)
            except AWAY as error:
                log_outage(logger, "What running answers say is kept in memory: the database does not take it", error)
            else:
                self._held_up = []

    @property
    def parts(self) -> list[SaidPart]:
        found = zip(self.types, self.texts, strict=True)
        return [
            self.whole[index] if index in self.whole else _part_of(kind, "".join(pieces))
            for index, (kind, pieces) in enumerate(found)
        ]

    def opaque_part(self, block: llm.OpaqueBlock) -> ProviderPart:
        made = {**self.made_by(), **({"prompt": ""} if block.is_displaced else {})}
        return ProviderPart(kind=block.kind, data=block.data, **made)

    def _take(self, delta: llm.Delta) -> None:
        if not isinstance(delta, llm.StreamedDelta):  # Whole: followers are told of the part at the answer's end.
            part: ProviderPart | ProviderToolPart | CitationPart | ShownPart
            if isinstance(delta, llm.OpaqueBlock):
                part = self.opaque_part(delta)
            elif isinstance(delta, llm.MadePicture):
                self.made[len(self.types)] = delta
                part = made_part(delta)
            else:
                part = delta
            self.whole[len(self.types)] = part
            self._begin(part.type)
            if isinstance(part, JOURNALLED):
                self._keep(json.dumps(asdict(part), ensure_ascii=False))
            return
        if self.first_at is None:
            self.first_at = time.monotonic()
        kind = _STREAMED[type(delta)].type
        if not self.types or self.types[-1] != kind:
            self._begin(kind)
        self.texts[-1].append(delta.text)
        self._keep(delta.text)
        hub.add_text(self.session_id, self.message_id, len(self.types) - 1, kind, delta.text)

    def _begin(self, kind: str) -> None:
        self.types.append(kind)
        self.texts.append([])
        self.lengths.append(0)

    def _keep(self, text: str) -> None:
        self._unwritten.append((len(self.types) - 1, text))
        self._unwritten_size += len(text)


def _part_of(kind: str, text: str) -> StreamedPart | CitationPart | ProviderToolPart:
    """Return a part whose text is what it says, or of one that came whole all that it has, as JSON."""
    whole = next((part for part in JOURNALLED if part.type == kind), None)
    if whole is not None:
        return whole(**json.loads(text))
    return next(part for part in _STREAMED.values() if part.type == kind)(text=text)


@dataclass(slots=True, kw_only=True)
class Step:
    message_id: str
    call: RunningCall
    answer: Answer
    is_counted: bool = False  # whether the turn's usage includes it already

    def used_so_far(self) -> UsageRecord:
        """Estimate what a call that is cut off took: no provider reports what it did not finish."""
        said = sum(estimate_text(part.text) for part in self.answer.parts if isinstance(part, StreamedPart))
        usage = llm.Usage(input_tokens=self.call.planned.prompt_tokens, output_tokens=said)
        return usage_record(usage, cost=llm.cost_micros(self.call.planned.spec, usage))

    def parts_of(self, calls: Sequence[llm.ToolCall]) -> list[ProviderPart | ToolPart]:
        found: list[ProviderPart | ToolPart] = []
        for call in calls:
            found += map(self.answer.opaque_part, call.opaque)
            found.append(ToolPart(tool_name=call.name, tool_call_id=call.id, input=call.arguments))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    state: TurnState
    error_code: str | None = None
    error_message: str | None = None
    exhausted: dict[str, Any] | None = None  # the limit that ended the turn, as spending.event_body has it

    @classmethod
    def of(cls, state: TurnState, error: MnesisError | None) -> TurnEnd:
        if error is None:
            return cls(state=state)
        return cls(state=state, error_code=error.code, error_message=error.message)


CANCELLED = TurnEnd(state=TurnState.CANCELLED)


async def patiently(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function as ``db`` does, and repeat it for a minute while the server cannot be reached.

    This is for what a running turn reads and writes. A call that broke off half way is not repeated: it may have been committed.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await db(call, *args, **kwargs)
        except AWAY as error:
            if not isinstance(error.__cause__, (ServerUnreachable, PoolTimeout)) or time.monotonic() > deadline:
                raise
            log_outage(logger, "Running turns wait for the database", error)
        await asyncio.sleep(RETRY_SECONDS)


@contextmanager
def held(turn: TurnRecord) -> Iterator[Change]:
    """Change the turn's session, if this process still has the turn.

    :raises Conflict: it has ended, or was taken over.
    """
    with change(turn.session_id) as record:
        turn_store.require_turn(record, turn.id, fence=turn.fence)
        yield record


def end_step(turn: TurnRecord, step: Step, reply: llm.Reply) -> list[OpenCall]:
    """Make parts of what was streamed and write every number, once; return the tool calls, which are to be run."""
    end = end_of_reply(reply, step.call.planned.spec, began=step.call.began)
    calls = list(reply.tool_calls) if reply.error is None else []
    tools = step.parts_of(calls)
    parts = message_queries.prepare_parts([*step.answer.parts, *tools])
    pictures = prepare_made(step.answer.parts, step.answer.made, owner_id=step.answer.owner_id)
    with held(turn) as record:
        said = write_made(record, parts, pictures)
        part_ids = message_store.append_parts(record, message_id=step.message_id, parts=said)
        turn_store.end_call(record, step.call.id, end, attempts=step.call.attempts)
        message_store.finalize_message(record, step.message_id, end, call_id=step.call.id)
        if any(step.answer.lengths):  # anything is journalled
            message_store.delete_journal(message_id=step.message_id)
    ids = part_ids[len(part_ids) - len(tools) :]
    made = zip(calls, [id for id, part in zip(ids, tools, strict=True) if isinstance(part, ToolPart)], strict=True)
    return [OpenCall(call=call, part_id=part_id) for call, part_id in made]


def start_tool(
    turn: TurnRecord, part_id: str, *, limits: Sequence[SpendingLimit], repeats: int | None
) -> LimitUse | None:
    """Mark a tool call as running; return the limit of the time that it may take, if there is one.

    :param repeats: set when the model repeats one call in a loop (seed 000 "doom loop")
    :raises BudgetExhausted: no more tool calls may be made; this one still waits.
    """
    with held(turn) as record:
        time_limit = draw(record, limits, ONE_TOOL_CALL)
        message_store.start_tool(record, part_id)
        if repeats is not None:
            record.publish(EventType.DOOM_LOOP_DETECTED, turn_id=turn.id, part_id=part_id, repeats=repeats)
    return time_limit


def finish_tool(
    turn: TurnRecord,
    part_id: str,
    *,
    text: str,
    is_error: bool,
    inline: int,
    owner_id: int,
    pictures: Sequence[SentPicture] = (),
) -> int:
    """Write a tool's result (see ``results``); return the estimated tokens that it adds to the context."""
    result = prepare_result(text, is_error=is_error, inline=inline, owner_id=owner_id, pictures=pictures)
    with held(turn) as record:
        return write_result(record, part_id, result)


def keep_late_output(turn: TurnRecord, part_id: str, output: str, *, limit: int) -> None:
    """Keep what a tool answered after its time or its turn was over, with the call that asked for it."""
    # The caller that stopped waiting is about to close the call, or has: until then the output has no place.
    for pause in LATE_PAUSES:
        time.sleep(pause)
        with change(turn.session_id) as record:
            if message_store.keep_late_output(record, part_id, cap_output(output, limit)):
                return
    logger.warning("the late output of tool call %s has no place", part_id)


def suspend_turn(
    turn: TurnRecord, *, ratio: float | None = None, context: tuple[Frame, Size] | None = None
) -> TurnState:
    """Let a turn wait for the calls that have no answer; return the state that it is in then.

    ``RUNNING``: every answer has come meanwhile. ``CANCELLED``: its end was requested, and is to be written.
    ``ratio`` and ``context`` are as for ``finish_turn``.
    """
    trigger = trigger_after(*context) if context else None
    with held(turn) as record:
        waiting = message_queries.unanswered_tools(turn.id)
        if not waiting:
            return TurnState.RUNNING
        if not turn_store.suspend_turn(record, turn.id, fence=turn.fence, part_ids=waiting):
            return TurnState.CANCELLED
        if ratio is not None:
            model_store.share_ratio(turn.model, ratio)
        request_if_due(record, trigger)
    return TurnState.SUSPENDED


def finish_turn(
    turn: TurnRecord,
    end: TurnEnd,
    *,
    step: Step | None,
    usage: UsageRecord,
    spending: TurnSpending | None = None,
    ratio: float | None = None,
    context: tuple[Frame, Size] | None = None,
) -> None:
    """End a turn, and request a compaction in the same transaction if the context calls for one.

    :param ratio: the ratio with which new sessions of the model begin to count, if it has changed
    :param context: the frame with which the context is measured, and its size; ``None`` if no model was asked
    """
    trigger = trigger_after(*context) if context else None
    said = step.answer.parts if step else []
    pictures = prepare_made(said, step.answer.made, owner_id=step.answer.owner_id) if step and step.answer.made else {}
    with held(turn) as record:
        # A cancellation may come while the step's own end is being written by another thread.
        if step is not None and step.message_id in message_queries.unfinished_messages(turn.id):
            # What this process holds of the answer is newer than the journal.
            message_end = MessageEnd(
                outcome=(llm.Outcome.CANCELLED if end.state is TurnState.CANCELLED else llm.Outcome.BROKEN).value,
                error_code=end.error_code,
                error_message=end.error_message,
                usage=step.used_so_far(),
                first_token_ms=first_token_ms(step.answer.first_at, began=step.call.began),
            )
            message_store.append_parts(record, message_id=step.message_id, parts=write_made(record, said, pictures))
            turn_store.end_call(record, step.call.id, message_end, attempts=step.call.attempts)
            message_store.finalize_message(record, step.message_id, message_end, call_id=step.call.id)
            message_store.delete_journal(message_id=step.message_id)
        close_turn(record, turn.id, end, fence=turn.fence, usage=usage)
        if ratio is not None:
            model_store.share_ratio(turn.model, ratio)
        if spending is not None:
            warn(record, spending.limits)
        if end.exhausted is not None:
            record.publish(EventType.BUDGET_EXHAUSTED, turn_id=turn.id, **end.exhausted)
        request_if_due(record, trigger)


def close_turn(record: Change, turn_id: str, end: TurnEnd, **values: Any) -> None:
    """End a turn, and what it left open: streamed text becomes parts, calls and tools get its error, or that of a cut.

    :param values: as for ``turn_store.finish_turn``
    """
    if message_queries.leaves_open(turn_id):
        code, message = end.error_code or TurnCancelled.code, end.error_message or CUT_OFF
        cut = MessageEnd(outcome=llm.Outcome.BROKEN.value, error_code=code, error_message=message)
        for call_id in running_calls(turn_id):
            turn_store.finish_call(record, call_id, cut)
        for message_id in message_queries.unfinished_messages(turn_id):
            pieces = message_queries.journal_texts(record.session_id, message_id=message_id)
            parts = [_part_of(piece.part_type, piece.text) for piece in pieces]
            message_store.append_parts(record, message_id=message_id, parts=parts)
            message_store.finalize_message(record, message_id, cut)
            message_store.delete_journal(message_id=message_id)
        for part_id in message_queries.unanswered_tools(turn_id):
            message_store.finish_tool(record, part_id, output=None, error=message)
    values |= {"error_code": end.error_code, "error_message": end.error_message}
    turn_store.finish_turn(record, turn_id, state=end.state, **values)


# The result of a tool call as the record keeps it: its text, the file of a long one, and the files of its pictures;
# and the pictures that a model makes itself.
#
# What waits for the disk happens in ``prepare_result``, before the lock of the session is taken; ``write_result``
# writes everything in one change, so that no model is sent a result without its pictures. So it is with
# ``prepare_made``.


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedResult:
    """A result whose contents are on disk: ``text`` is the output, or the error if the call failed."""

    text: str
    is_error: bool
    add_long: AddLong | None
    # Each part, with what ``add_file`` takes of a new file.
    pictures: tuple[tuple[ShownPart, dict[str, Any] | None], ...] = ()


def prepare_result(
    text: str, *, is_error: bool, inline: int, owner_id: int, pictures: Sequence[SentPicture] = ()
) -> PreparedResult:
    """Store the contents of a result. A picture that cannot be kept is named in its text, with the reason.

    :param inline: the characters above which a text becomes a file, whose two ends stay in the conversation
    """
    kept: list[tuple[ShownPart, dict[str, Any] | None]] = []
    problems: list[str] = []
    for number, sent in enumerate({sent.name: sent for sent in pictures}.values()):
        if number == MOST_PICTURES:
            problems.append(f"[The other pictures were not kept: a result may have {MOST_PICTURES}.]")
            break
        part = part_of_sent(sent, size=sent.size or len(sent.data), name=sent.name, file_id=sent.file_id)
        if part.file_id:
            kept.append((part, None))
            continue
        try:
            kept.append((part, prepare_file(sent.data, owner_id=owner_id, path=f"{OUTPUTS}{sent.name}")))
        except (FileQuotaExceeded, RequestTooLarge) as problem:
            problems.append(f"[{sent.name} was not kept: {problem.code}: {problem.message}]")
    said = "\n".join(filter(None, (text, *problems)))
    return PreparedResult(text=said, is_error=is_error, add_long=_keep_long_result(said, inline), pictures=tuple(kept))


def _keep_long_result(text: str, characters: int) -> AddLong | None:
    """Store the content of a result longer than ``characters``.

    Return what makes it a file of the session, for a part, and returns the two ends that stay in the conversation.
    """
    if len(text) <= characters:
        return None
    data = bytes_of_text(text)
    content_id, kind, size, tokens = put_content(data), kind_of_text(data), len(data), estimate_text(text)

    def add(record: Change, part_id: str) -> str:
        path = f"{OUTPUTS}{part_id}{kind.suffixes[0]}"
        file_id = add_file(record, content_id=content_id, path=path, file_type=kind.name, token_count=tokens, size=size)
        return shorten_output(text, characters, file_id=file_id)

    return add


def write_result(record: Change, part_id: str, result: PreparedResult) -> int:
    """Write the result of a tool call, once; return the estimated tokens that it adds to the context."""
    kept = result.add_long(record, part_id) if result.add_long else result.text
    said = {"output": None, "error": kept} if result.is_error else {"output": kept, "error": None}
    message_store.finish_tool(record, part_id, **said)
    pictures = [
        message_store.add_to_result(record, part_id, part, add_file(record, **about) if about else part.file_id)
        for part, about in result.pictures
    ]
    return estimate_text(kept) + sum(map(estimate_part, pictures))


# Pictures that a model makes


def made_part(made: MadePicture) -> ShownPart:
    """Return the part of what a model gave for a picture, whatever it is, before it is a file."""
    sent = picture_of(made.data)
    if sent is not None and kind_of(sent.media_type) == PICTURE_KIND:
        return part_of_sent(sent, name=sent.name, size=len(made.data))
    name = f"picture-{hashlib.sha256(made.data).hexdigest()[:12]}.bin" if made.data else "picture"
    said = made.problem or NO_PICTURE
    return ImagePart(name=name, size=len(made.data), source=made.source, caption=said)


def prepare_made(
    parts: Sequence[Part], made: Mapping[int, MadePicture], *, owner_id: int
) -> dict[int, tuple[ShownPart, dict[str, Any] | None]]:
    """Store the contents of pictures; return each part, by its place, with what ``add_file`` takes. One that cannot be kept
    says so."""
    kept: dict[int, tuple[ShownPart, dict[str, Any] | None]] = {}
    for place, picture in made.items():
        part = parts[place]
        if not picture.data or not isinstance(part, ShownPart):
            continue
        try:
            kept[place] = (part, prepare_file(picture.data, owner_id=owner_id, path=f"{OUTPUTS}{part.name}"))
        except (FileQuotaExceeded, RequestTooLarge) as problem:
            said = f"The picture was not kept: {problem.code}: {problem.message}"
            kept[place] = (replace(part, caption=said), None)
    return kept


def write_made(
    record: Change, parts: Sequence[Kept], pictures: Mapping[int, tuple[ShownPart, dict[str, Any] | None]]
) -> list[Kept | ShownPart]:
    """Make files of pictures; return the parts of the answer with them."""
    found: list[Kept | ShownPart] = list(parts)
    for place, (part, about) in pictures.items():
        found[place] = replace(part, file_id=add_file(record, **about)) if about else part
    return found
