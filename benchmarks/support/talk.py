"""Typical turns: a question of 200 tokens, an answer of 400, and two tool calls with results of 1,000 tokens each."""

from __future__ import annotations

from random import Random

from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import Message, TextPart, ToolPart, ToolState
from mnesis_core.records import MessageEnd, TurnState, UsageRecord
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import Change
from sessions_app.record.message_queries import PreparedPart, prepare_parts

Ready = tuple[list[PreparedPart], list[PreparedPart]]

_SENTENCE = (
    "the record of a session is kept in one table and read from there by its number, every change writes an event "
    "while nothing that was said before may be lost, so the answer names the file, the line and the reason why"
)
_END = MessageEnd(
    finish_reason="stop",
    outcome="complete",
    usage=UsageRecord(
        tokens_input=12_000, tokens_output=420, tokens_cache_read=0, tokens_cache_write=0, usage_source="provider"
    ),
)


def make_turns(count: int, *, seed: int = 1) -> list[tuple[Message, Message]]:
    """Make the user's and the assistant's messages of so many turns, no two alike."""
    random = Random(seed)
    return [(_user(random), _assistant(random, turn)) for turn in range(count)]


def make_turn_ready(user: Message, assistant: Message) -> Ready:
    """Prepare a turn as an endpoint does before it takes the session's lock."""
    return prepare_parts(user.parts), prepare_parts(assistant.parts)


def write_turn(record: Change, user: Message, assistant: Message, ready: Ready | None = None) -> str:
    """Write one turn from start to end, as one change. Return its id."""
    asked, answered = ready or make_turn_ready(user, assistant)
    turn_id = turn_store.start_turn(record, model="demo", lease_owner="benchmark", lease_seconds=30)
    message_store.append_message(record, turn_id=turn_id, message=user, parts=asked)
    message_id = message_store.append_message(record, turn_id=turn_id, message=assistant, parts=answered, model="demo")
    message_store.finalize_message(record, message_id, _END)
    turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED, usage=_END.usage)
    return turn_id


def _user(random: Random) -> Message:
    return Message(role="user", parts=(TextPart(text=make_text(random, 200)),))


def _assistant(random: Random, turn: int) -> Message:
    tools = [
        ToolPart(
            tool_name="read_file",
            tool_call_id=f"call_{turn}_{index}",
            input='{"path": "docs/architecture.md"}',
            output=make_text(random, 1000),
            state=ToolState.COMPLETED,
        )
        for index in range(2)
    ]
    return Message(role="assistant", parts=(TextPart(text=make_text(random, 400)), *tools))


def make_text(random: Random, tokens: int) -> str:
    """Make a text of so many tokens."""
    text = " ".join(random.choices(_SENTENCE.split(), k=tokens))
    return text[: len(text) * tokens // estimate_text(text)]
