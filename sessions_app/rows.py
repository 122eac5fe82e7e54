"""Between the core's parts and the columns of ``message_parts``: the one place that knows both."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from mnesis_core.messages import (
    CompactionMarkerPart,
    DataPart,
    FileRefPart,
    Part,
    PatchPart,
    ReasoningPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    ToolPart,
    ToolState,
)
from mnesis_core.record import UsageRecord
from mnesis_core.text import decode_text, encode_text
from mnesis_core.tokens import estimate_call, estimate_part, estimate_text
from sessions_app.models import USAGE_COLUMNS

_AS_JSON: dict[str, type[Part]] = {
    part.type: part for part in (FileRefPart, CompactionMarkerPart, StepStartPart, StepFinishPart)
}

_UNANSWERED = (ToolState.PENDING, ToolState.RUNNING)


def columns_of(part: Part) -> dict[str, Any]:
    """The columns that hold a part; text is encoded."""
    # A tool's result is counted in a column of its own: it comes later, and may become a tombstone.
    tokens = estimate_call(part) if isinstance(part, ToolPart) else estimate_part(part)
    values: dict[str, Any] = {"part_type": part.type, "token_estimate": tokens}
    if isinstance(part, TextPart | ReasoningPart):
        values["content"] = encode_text(part.text)
    elif isinstance(part, DataPart):
        values |= {"content": encode_text(part.text), "label": encode_text(part.label)[:200]}
    elif isinstance(part, PatchPart):
        values |= {"content": encode_text(part.unified_diff), "label": encode_text(",".join(part.files_changed))[:200]}
    elif isinstance(part, ToolPart):
        values |= _columns_of_tool(part)
    else:
        values["content"] = encode_text(json.dumps(asdict(part), ensure_ascii=False))
    return values


def _columns_of_tool(part: ToolPart) -> dict[str, Any]:
    return {
        "tool_name": encode_text(part.tool_name)[:200],
        "tool_call_id": encode_text(part.tool_call_id)[:200],
        "tool_input": encode_text(part.input),
        "tool_state": part.state.value,
        "output": None if part.output is None else encode_text(part.output),
        "error_message": None if part.error is None else encode_text(part.error),
        "started_at": part.started_at,
        "completed_at": part.completed_at,
        "compacted_at": part.compacted_at,
        "output_token_estimate": None if part.state in _UNANSWERED else estimate_text(part.output or part.error or ""),
    }


def part_of(row: Any) -> Part:
    """The part that a row of ``message_parts`` holds."""
    if row.part_type == TextPart.type:
        return TextPart(text=decode_text(row.content))
    if row.part_type == ReasoningPart.type:
        return ReasoningPart(text=decode_text(row.content))
    if row.part_type == DataPart.type:
        return DataPart(label=decode_text(row.label), text=decode_text(row.content))
    if row.part_type == PatchPart.type:
        files = tuple(name for name in decode_text(row.label).split(",") if name)
        return PatchPart(unified_diff=decode_text(row.content), files_changed=files)
    if row.part_type == ToolPart.type:
        return _tool_part_of(row)
    return _AS_JSON[row.part_type](**json.loads(decode_text(row.content)))


def _tool_part_of(row: Any) -> ToolPart:
    return ToolPart(
        tool_name=decode_text(row.tool_name),
        tool_call_id=decode_text(row.tool_call_id),
        input=decode_text(row.tool_input),
        output=None if row.output is None else decode_text(row.output),
        error=None if row.error_message is None else decode_text(row.error_message),
        state=ToolState(row.tool_state),
        compacted_at=row.compacted_at,
        started_at=row.started_at,
        completed_at=row.completed_at,
    )


def usage_columns(usage: UsageRecord) -> dict[str, Any]:
    """The columns that hold what was used."""
    return {column: getattr(usage, column) for column in USAGE_COLUMNS}
