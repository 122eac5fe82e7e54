"""How far a turn had come when it was suspended, from the record alone: any process can go on with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from mnesis_core.llm.interface import ToolCall
from mnesis_core.messages import StoredMessage, StoredPart, ToolPart, ToolState
from mnesis_core.records import TurnRecord, UsageRecord, add_usage
from mnesis_core.turns.recording import Made, call_made
from sessions_app.record.call_queries import usage_of
from sessions_app.record.message_queries import load_message_rows, load_messages_by_ids


@dataclass(slots=True, kw_only=True)
class OpenCall:
    """A tool call that has no result yet."""

    part_id: str
    call: ToolCall
    is_approved: bool = False
    """Whether a person said yes to it."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a turn has done so far; of a new one, nothing."""

    steps: int = 0
    """Calls to the model."""
    usage: UsageRecord = field(default_factory=UsageRecord)
    made: list[Made] = field(default_factory=list)
    """Every tool call, in order."""
    open_calls: list[OpenCall] = field(default_factory=list)


def load_progress(turn: TurnRecord) -> Progress:
    """What a turn has done, in two queries."""
    messages = load_messages_by_ids(turn.message_ids, session_id=turn.session_id)
    answers = [message for message in messages if message.role == "assistant"]
    rows = load_message_rows(turn.session_id, [message.id for message in answers])
    tools = [stored for message in answers for stored in tool_parts(message)]
    return Progress(
        steps=len(answers),
        usage=reduce(add_usage, map(usage_of, rows.values()), UsageRecord()),
        made=[call_made(part.tool_name, part.input) for _, part in tools],
        open_calls=[_open_call(stored, part) for stored, part in tools if part.state is ToolState.APPROVED],
    )


def tool_parts(message: StoredMessage) -> list[tuple[StoredPart, ToolPart]]:
    """The tool calls of a message, in order."""
    return [(stored, stored.part) for stored in message.parts if isinstance(stored.part, ToolPart)]


def _open_call(stored: StoredPart, part: ToolPart) -> OpenCall:
    call = ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.input)
    return OpenCall(part_id=stored.id, call=call, is_approved=True)
