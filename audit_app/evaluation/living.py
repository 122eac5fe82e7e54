"""Replays a real conversation turn by turn: the session grows and is compacted as if the models answered just now."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain, takewhile

from agents_app.turns.transactions import TurnEnd, finish_turn
from compaction_app.compact import compact, compact_before_call, request_during_turn
from compaction_app.context.state import load_state, size_of
from compaction_app.queries import live_run
from files_app.store import store_file_reference
from mnesis_core.context.fitting import Pressure, pressure
from mnesis_core.messages import FileRefPart, Message, Part, ToolPart
from mnesis_core.records import MessageEnd, TurnState, UsageRecord
from mnesis_core.transcripts.values import Transcript, TranscriptMessage, TranscriptTurn
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import prepare_parts
from sessions_app.record.turn_queries import load_turn

Progress = Callable[[int], None]
"""Turns done."""
BeforeAnswer = Callable[[str, str], None]
"""Called with the session and the id of its newest question, when the prompt of an answer would be built."""


@dataclass(slots=True, kw_only=True)
class Life:
    """A session, and the ids that its transcript gives to its messages."""

    session_id: str
    message_ids: dict[str, str] = field(default_factory=dict)
    """External id -> id."""
    files: dict[str, str] = field(default_factory=dict)
    """Path -> id of the file reference that stands for it."""


def live(
    session_id: str,
    transcript: Transcript,
    progress: Progress = lambda done: None,
    before_answer: BeforeAnswer = lambda session_id, question_id: None,
) -> Life:
    """Replay every turn, compacting where a turn would: before a call that does not fit, and by a worker between two steps.

    Files passed to tools become file references where they first appear.
    """
    life = Life(session_id=session_id)
    for done, turn in enumerate(transcript.turns, start=1):
        _live_turn(life, turn, before_answer)
        progress(done)
    return life


def _live_turn(life: Life, lived: TranscriptTurn, before_answer: BeforeAnswer) -> None:
    asked = list(takewhile(lambda message: message.role != "assistant", lived.messages))
    with change(life.session_id) as record:
        turn_id = turn_store.start_turn(record, model="", lease_owner="evaluation", lease_seconds=3_600)
        for message in asked:
            _say(life, record, turn_id, message)
    question = life.message_ids[asked[-1].external_id] if asked else ""
    for message in lived.messages[len(asked) :]:
        _compact_before_answer(life.session_id)
        before_answer(life.session_id, question)
        with change(life.session_id) as record:
            _say(life, record, turn_id, message)
    turn = load_turn(turn_id, session_id=life.session_id)
    state = load_state(life.session_id)
    context = (state, size_of(state))
    finish_turn(turn, TurnEnd(state=TurnState.COMPLETED), step=None, usage=UsageRecord(), context=context)
    if run_id := live_run(life.session_id):
        compact(run_id=run_id)


def _compact_before_answer(session_id: str) -> None:
    """Compact as a turn does before a model call."""
    state = load_state(session_id)
    size = size_of(state)
    if pressure(size.tokens, state.budget) is Pressure.HARD:
        asyncio.run(compact_before_call(session_id, size=size))
    else:
        request_during_turn(state, size)
        if run_id := live_run(session_id):
            compact(run_id=run_id)


def _say(life: Life, record: Change, turn_id: str, message: TranscriptMessage) -> None:
    parts = list(message.parts)
    for path in chain.from_iterable(map(_paths, message.parts)):
        if path not in life.files:
            content_id = hashlib.sha256(path.encode()).hexdigest()
            life.files[path] = store_file_reference(record, content_id=content_id, path=path)
            parts.append(FileRefPart(file_id=life.files[path], path=path))
    life.message_ids[message.external_id] = message_store.append_message(
        record,
        turn_id=turn_id,
        message=Message(role=message.role, parts=tuple(parts), is_summary=message.is_summary),
        parts=prepare_parts(parts),
        external_id=message.external_id,
        end=MessageEnd(outcome="complete"),
    )


def _paths(part: Part) -> list[str]:
    """Return the files passed to a tool."""
    try:
        given = json.loads(part.input) if isinstance(part, ToolPart) else {}
    except (ValueError, RecursionError):
        return []
    path = given.get("file_path") if isinstance(given, dict) else None
    return [path] if isinstance(path, str) and path else []
