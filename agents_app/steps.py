"""The transactions of a turn. Each first makes sure that the turn is still ours, and is short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from agents_app.answer import Answer
from agents_app.recovery import close_open_rows
from compaction_app.context import BuiltContext, Frame
from compaction_app.schedule import act_on, trigger_after
from mnesis_core.events import EventType
from mnesis_core.llm import ModelSpec, Outcome, Reply, Request, ToolCall, write_tools
from mnesis_core.measure import Size
from mnesis_core.messages import Message, ToolPart
from mnesis_core.record import MessageEnd, TurnRecord, TurnState, UsageRecord
from mnesis_core.recording import end_of_reply
from sessions_app import store
from sessions_app.ledger import Change, change
from sessions_app.queries import unfinished_messages
from sessions_app.ready import make_all_ready


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """How a turn ended."""

    state: TurnState
    error_code: str | None = None
    error_message: str | None = None


@dataclass(slots=True, kw_only=True)
class Step:
    """One model call of a turn."""

    message_id: str
    call_id: str
    answer: Answer
    attempts: int = 1


@contextmanager
def held(turn: TurnRecord) -> Iterator[Change]:
    """A change of the turn's session, if this process still holds the turn.

    :raises Conflict: it has ended, or was taken over.
    """
    with change(turn.session_id) as record:
        store.require_turn(record, turn.id, fence=turn.fence)
        yield record


def begin_step(turn: TurnRecord, spec: ModelSpec, context: BuiltContext, request: Request) -> tuple[str, str]:
    """Write the assistant's stub and the call before the model is asked; returns their ids."""
    tools = context.assembled.tools
    with held(turn) as record:
        stub = Message(role="assistant", parts=())
        message_id = store.append_message(record, turn_id=turn.id, message=stub, model=turn.model)
        call_id = store.start_call(
            record,
            turn_id=turn.id,
            message_id=message_id,
            model=turn.model,
            provider_model=spec.litellm_model,
            parameters={
                "max_output_tokens": request.max_output_tokens,
                "tool_tokens": context.assembled.breakdown.tools,
                "calibration": asdict(context.calibration),
            },
            manifest=list(context.assembled.manifest),
            context_seq=context.context_seq,
            digest=context.digest,
            estimated_tokens=context.estimated_tokens,
            texts={"tools": write_tools(tools)} if tools else {},
        )
    return message_id, call_id


def end_step(turn: TurnRecord, spec: ModelSpec, step: Step, reply: Reply) -> list[tuple[ToolCall, str]]:
    """Fold what was streamed into parts and write every number, once; returns the tool calls with their part ids."""
    end = end_of_reply(reply, spec)
    calls = list(reply.tool_calls) if reply.error is None else []
    tools = [ToolPart(tool_name=call.name, tool_call_id=call.id, input=call.arguments) for call in calls]
    parts = make_all_ready([*step.answer.parts, *tools])
    with held(turn) as record:
        part_ids = store.append_parts(record, message_id=step.message_id, parts=parts)
        store.finalize_message(record, step.message_id, end)
        store.finish_call(record, step.call_id, end, attempts=step.attempts)
        store.delete_journal(message_id=step.message_id)
    return list(zip(calls, part_ids[len(part_ids) - len(tools) :], strict=True))


def note_retry(turn: TurnRecord, step: Step, error_code: str) -> None:
    """Tell followers that the call is tried again."""
    with held(turn) as record:
        record.publish(EventType.CALL_RETRIED, call_id=step.call_id, attempt=step.attempts, error_code=error_code)


def start_tool(turn: TurnRecord, part_id: str, *, repeats: int | None) -> None:
    """Mark a tool call as running; ``repeats`` is set when the model goes round in circles (seed 000 "doom loop")."""
    with held(turn) as record:
        store.start_tool(record, part_id)
        if repeats is not None:
            record.publish(EventType.DOOM_LOOP_DETECTED, turn_id=turn.id, part_id=part_id, repeats=repeats)


def finish_tool(turn: TurnRecord, part_id: str, *, output: str | None, error: str | None) -> None:
    """Make a tool's result durable."""
    with held(turn) as record:
        store.finish_tool(record, part_id, output=output, error=error)


def finish_turn(
    turn: TurnRecord,
    end: TurnEnd,
    *,
    step: Step | None,
    usage: UsageRecord,
    ratio: float | None = None,
    context: tuple[Frame, Size] | None = None,
) -> None:
    """End a turn, and request a compaction in the same transaction if the context calls for one.

    :param ratio: what new sessions of the model are to begin to count with from now on, if that has changed
    :param context: what the context is measured with, and its size; ``None`` if no model was asked
    """
    trigger = trigger_after(*context) if context else None
    with held(turn) as record:
        if step is not None:
            _close_step(record, turn, step, end)
        close_open_rows(
            record,
            turn.id,
            error_code=end.error_code or "TURN_CANCELLED",
            error_message=end.error_message or "The turn was interrupted before this ended.",
        )
        store.finish_turn(
            record,
            turn.id,
            state=end.state,
            fence=turn.fence,
            usage=usage,
            error_code=end.error_code,
            error_message=end.error_message,
        )
        if ratio is not None:
            store.share_ratio(turn.model, ratio)
        act_on(record, trigger)


def _close_step(record: Change, turn: TurnRecord, step: Step, end: TurnEnd) -> None:
    """Keep what a step had said when it was cut off: what this process holds is newer than the journal."""
    # A cancellation may come while the step's own end is being written by another thread.
    if step.message_id not in unfinished_messages(turn.id):
        return
    message_end = MessageEnd(
        outcome=(Outcome.CANCELLED if end.state is TurnState.CANCELLED else Outcome.BROKEN).value,
        error_code=end.error_code,
        error_message=end.error_message,
    )
    store.append_parts(record, message_id=step.message_id, parts=step.answer.parts)
    store.finalize_message(record, step.message_id, message_end)
    store.finish_call(record, step.call_id, message_end, attempts=step.attempts)
    store.delete_journal(message_id=step.message_id)
