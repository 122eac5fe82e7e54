"""The transactions of a turn. Each first checks that this process still has the turn, and is short."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agents_app.turns.answer import Answer
from agents_app.turns.progress import OpenCall
from agents_app.turns.recovery import close_open_rows
from agents_app.turns.results import long_result, write_result
from compaction_app.context import Frame
from compaction_app.schedule import act_on, trigger_after
from mnesis_core.context.budget import Size
from mnesis_core.context.tool_outputs import cap_output
from mnesis_core.events import EventType
from mnesis_core.llm.interface import Outcome, Reply, Usage, cost_micros
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import ToolPart
from mnesis_core.records import MessageEnd, TurnRecord, TurnState, UsageRecord
from mnesis_core.spending import ONE_TOOL_CALL, LimitUse
from mnesis_core.turns.recording import end_of_reply, usage_record
from sessions_app.catalogue import model_store
from sessions_app.model_calls import RunningCall
from sessions_app.record import call_store, message_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import unanswered_tools, unfinished_messages
from sessions_app.record.prepared_parts import make_all_ready
from sessions_app.usage.limits import SpendingLimit, TurnSpending, draw, warn

logger = logging.getLogger(__name__)
LATE_PAUSES = (0.0, 0.1, 0.5, 2.0, 10.0)
"""Seconds before each look for the place of a late output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """How a turn ended."""

    state: TurnState
    error_code: str | None = None
    error_message: str | None = None
    exhausted: dict[str, Any] | None = None
    """The limit that ended it, as ``spending.event_body`` has it."""


@dataclass(slots=True, kw_only=True)
class Step:
    """One model call of a turn and the answer that it streams."""

    message_id: str
    call: RunningCall
    answer: Answer
    is_counted: bool = False
    """Whether the turn's usage has it already."""

    def used_so_far(self) -> UsageRecord:
        """Return what a call that is cut off took, by our estimate: no provider bills what it did not finish."""
        said = sum(estimate_text(part.text) for part in self.answer.parts)
        usage = Usage(input_tokens=self.call.planned.prompt_tokens, output_tokens=said)
        return usage_record(usage, cost=cost_micros(self.call.planned.spec, usage))


@contextmanager
def held(turn: TurnRecord) -> Iterator[Change]:
    """Change the turn's session, if this process still has the turn.

    :raises Conflict: it has ended, or was taken over.
    """
    with change(turn.session_id) as record:
        turn_store.require_turn(record, turn.id, fence=turn.fence)
        yield record


def end_step(turn: TurnRecord, step: Step, reply: Reply) -> list[OpenCall]:
    """Make parts of what was streamed and write every number, once; return the tool calls, which are to be run."""
    end = end_of_reply(reply, step.call.planned.spec)
    calls = list(reply.tool_calls) if reply.error is None else []
    tools = [ToolPart(tool_name=call.name, tool_call_id=call.id, input=call.arguments) for call in calls]
    parts = make_all_ready([*step.answer.parts, *tools])
    with held(turn) as record:
        part_ids = message_store.append_parts(record, message_id=step.message_id, parts=parts)
        message_store.finalize_message(record, step.message_id, end)
        call_store.finish_call(record, step.call.id, end, attempts=step.call.attempts)
        if step.answer.is_journalled:
            message_store.delete_journal(message_id=step.message_id)
    made = zip(calls, part_ids[len(part_ids) - len(tools) :], strict=True)
    return [OpenCall(call=call, part_id=part_id) for call, part_id in made]


def start_tool(
    turn: TurnRecord, part_id: str, *, limits: Sequence[SpendingLimit], repeats: int | None
) -> LimitUse | None:
    """Mark a tool call as running; return the limit of the time that it may take, if there is one.

    :param repeats: set when the model goes round in circles (seed 000 "doom loop")
    :raises BudgetExhausted: no more tool calls may be made; this one still waits.
    """
    with held(turn) as record:
        time_limit = draw(record, limits, ONE_TOOL_CALL)
        message_store.start_tool(record, part_id)
        if repeats is not None:
            record.publish(EventType.DOOM_LOOP_DETECTED, turn_id=turn.id, part_id=part_id, repeats=repeats)
    return time_limit


def finish_tool(turn: TurnRecord, part_id: str, *, output: str | None, error: str | None, inline: int) -> int:
    """Make a tool's result durable; returns the estimated tokens that it adds to the context.

    Of a result longer than ``inline`` characters the whole becomes a file, and its two ends stay.
    """
    long = long_result((output if error is None else error) or "", inline)
    with held(turn) as record:
        kept = write_result(record, part_id, output=output, error=error, long=long)
    return estimate_text(kept)


def keep_late_output(turn: TurnRecord, part_id: str, output: str, *, limit: int) -> None:
    """Keep what a tool answered after its time or its turn was over, with the call that asked for it.

    Whoever stopped waiting is about to close the call, or has: it takes a moment until the answer has its place.
    """
    for pause in LATE_PAUSES:
        time.sleep(pause)
        with change(turn.session_id) as record:
            if message_store.keep_late_output(record, part_id, cap_output(output, limit)):
                return
    logger.warning("the late output of tool call %s has no place", part_id)


def suspend_turn(
    turn: TurnRecord, *, ratio: float | None = None, context: tuple[Frame, Size] | None = None
) -> TurnState:
    """Let a turn wait for the calls that have no answer; returns the state that it is in then.

    ``RUNNING``: every answer came meanwhile. ``CANCELLED``: somebody asked for its end, which is to be written.

    :param ratio: as for ``finish_turn``, and so is ``context``
    """
    trigger = trigger_after(*context) if context else None
    with held(turn) as record:
        waiting = unanswered_tools(turn.id)
        if not waiting:
            return TurnState.RUNNING
        if not turn_store.suspend_turn(record, turn.id, fence=turn.fence, part_ids=waiting):
            return TurnState.CANCELLED
        if ratio is not None:
            model_store.share_ratio(turn.model, ratio)
        act_on(record, trigger)
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

    :param ratio: what new sessions of the model are to begin to count with from now on, if that has changed
    :param context: what the context is measured with, and its size; ``None`` if no model was asked
    """
    trigger = trigger_after(*context) if context else None
    with held(turn) as record:
        if step is not None:
            _close_step(record, turn, step, end)
        close_open_rows(record, turn.id, error_code=end.error_code, error_message=end.error_message)
        turn_store.finish_turn(
            record,
            turn.id,
            state=end.state,
            fence=turn.fence,
            usage=usage,
            error_code=end.error_code,
            error_message=end.error_message,
        )
        if ratio is not None:
            model_store.share_ratio(turn.model, ratio)
        if spending is not None:
            warn(record, spending.limits)
        if end.exhausted is not None:
            record.publish(EventType.BUDGET_EXHAUSTED, turn_id=turn.id, **end.exhausted)
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
        usage=step.used_so_far(),
    )
    message_store.append_parts(record, message_id=step.message_id, parts=step.answer.parts)
    message_store.finalize_message(record, step.message_id, message_end)
    call_store.finish_call(record, step.call.id, message_end, attempts=step.call.attempts)
    message_store.delete_journal(message_id=step.message_id)
