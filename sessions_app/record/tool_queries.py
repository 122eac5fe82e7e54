"""Tool calls of a session, each with its result."""

from __future__ import annotations

from typing import Any

from django.db.models import F, Q

from mnesis_core.turns.interactions import STATES, InteractionStatus, ToolInteraction
from sessions_app.models import MessagePart

_COLUMNS = {
    "arguments": F("tool_input"),
    "result": F("output"),
    "error": F("error_message"),
    "state": F("tool_state"),
    "part_id": F("id"),
    "seq": F("message__seq"),
    "turn_id": F("message__turn_id"),
}
_OWN = ("tool_call_id", "tool_name", "part_index", "message_id", "started_at", "completed_at")


def list_interactions(
    session_id: str,
    *,
    turn_id: str | None = None,
    tool: str | None = None,
    status: InteractionStatus | None = None,
    after: tuple[int, int] | None = None,
    limit: int = 100,
) -> list[ToolInteraction]:
    """Return tool calls with their results in the order of the record, in one query.

    :param after: number of the message and place in it of a call: return only later ones
    """
    rows = MessagePart.objects.filter(session_id=session_id, message__session_id=session_id, part_type="tool")
    if turn_id is not None:
        rows = rows.filter(message__turn_id=turn_id)
    if tool is not None:
        rows = rows.filter(tool_name=tool)
    if status is not None:
        rows = rows.filter(tool_state__in=STATES[status])
    if after is not None:
        seq, index = after
        rows = rows.filter(Q(message__seq__gt=seq) | Q(message__seq=seq, part_index__gt=index))
    found = rows.order_by("message__seq", "part_index").values(*_OWN, "late_output", **_COLUMNS)
    return [_interaction(**row) for row in found[:limit]]


def _interaction(*, late_output: str | None, result: str | None, **columns: Any) -> ToolInteraction:
    return ToolInteraction(result=late_output if result is None else result, **columns)
