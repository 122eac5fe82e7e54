"""Talks that a compaction has something to do with, and a model that answers and summarises."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compaction_app.compact import compact_now
from mnesis_core.llm.interface import Request
from mnesis_core.messages import Message, Part, TextPart
from mnesis_core.providers.scripted import Script
from mnesis_core.records import RunRecord, SessionRecord, TurnState
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change

WORDS = "The harbour office moved its ledgers to the new building in March, and Ines checked every one of them. "


def is_summary_request(request: Request) -> bool:
    """Whether a summary is asked for."""
    return any("MNESIS-SUMMARISE" in str(message["content"]) for message in request.payload["messages"])


def model_of(summary: Script = "- They moved the ledgers.", answer: Script = "Noted.") -> Callable[[Request], Script]:
    """A script for any number of calls."""
    return lambda request: summary if is_summary_request(request) else answer


def prompts_of(requests: Sequence[Request]) -> str:
    """All that a summarising model was shown."""
    asked = [request.payload["messages"] for request in requests if is_summary_request(request)]
    return "\n".join(str(message["content"]) for messages in asked for message in messages)


def add_turn(session: SessionRecord, question: str | Sequence[Part], *answer: Part) -> None:
    """A finished turn, as an import writes it."""
    said = (TextPart(text=question),) if isinstance(question, str) else tuple(question)
    with change(session.id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        message_store.append_message(record, turn_id=turn_id, message=Message(role="user", parts=said))
        parts = answer or (TextPart(text="Noted."),)
        message_store.append_message(record, turn_id=turn_id, message=Message(role="assistant", parts=parts))
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)


def compact_all(session: SessionRecord) -> list[RunRecord]:
    """Compact until there is nothing more to do; returns each run."""
    runs = [compact_now(session.id)]
    while runs[-1].summary_ids:
        runs.append(compact_now(session.id))
    return runs
