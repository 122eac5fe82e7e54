"""Sessions with something said in them, written through the store."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from mnesis_core.messages import Message, Part, Role, TextPart, ToolPart, ToolState
from mnesis_core.records import MessageEnd, TurnState, UsageRecord
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change

HOSTILE = "<script>alert(1)</script> [x](javascript:alert(1)) ![i](https://e.example/i.png) a\u202eb \x00 \ud800"
"""What must be shown, and must do nothing."""


def new_session(owner: User, **values: Any) -> str:
    """An empty session; returns its id."""
    return session_store.create_session(owner=owner, **{"model": "demo", "title": "A talk"} | values)


def say(
    session_id: str, *messages: tuple[Role, list[Part]], state: TurnState = TurnState.COMPLETED, **end: Any
) -> list[str]:
    """One turn with these messages; returns their ids."""
    usage = UsageRecord(tokens_input=1_200, tokens_output=34, usage_source="provider", cost_micros=1_500)
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        ids = [
            message_store.append_message(
                record,
                turn_id=turn_id,
                model="demo" if role == "assistant" else "",
                message=Message(role=role, parts=tuple(parts)),
                end=MessageEnd(usage=usage, **end) if role == "assistant" else None,
            )
            for role, parts in messages
        ]
        problem = {name: end[name] for name in ("error_code", "error_message") if name in end}
        turn_store.finish_turn(record, turn_id, state=state, **problem)
    return ids


def exchange(session_id: str, question: str, answer: str) -> list[str]:
    """One turn of a question and its answer; returns their ids."""
    return say(session_id, ("user", [TextPart(text=question)]), ("assistant", [TextPart(text=answer)]))


def tool(**values: Any) -> ToolPart:
    """A completed tool call, or another one."""
    return ToolPart(**{"tool_name": "bash", "tool_call_id": "1", "state": ToolState.COMPLETED} | values)
