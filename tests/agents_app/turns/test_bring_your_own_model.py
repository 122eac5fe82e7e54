"""A turn that the caller runs with its own model leaves the same record, and is compacted the same, as one that we run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client

from agents_app.turns import lifecycle
from compaction_app.compact import compact
from compaction_app.context import state
from compaction_app.context.state import build_context, load_meter
from compaction_app.models import CompactionRun, SummaryEdge, SummaryNode, SummaryTry
from compaction_app.queries import list_runs
from mnesis_core.llm.interface import Request, ToolCall
from mnesis_core.providers.scripted import Script, ScriptedModel, Step
from mnesis_core.records import SessionRecord, TurnRecord
from sessions_app.database.threads import db
from sessions_app.models import ContextItem, Message, MessagePart, Turn
from tests.compaction_app.test_compaction import WORDS, is_summary_request
from tests.support.people.story import say

TABLES: list[tuple[type[Model], str, tuple[str, ...]]] = [
    (Turn, "session_id", ("seq",)),
    (Message, "session_id", ("seq",)),
    (MessagePart, "session_id", ("message__seq", "part_index")),
    (CompactionRun, "session_id", ("created_at",)),
    (SummaryNode, "session_id", ("created_at",)),
    (SummaryTry, "session_id", ("created_at",)),
    (ContextItem, "session_id", ("position", "added_seq")),
    (SummaryEdge, "node__session_id", ("node__created_at", "position")),
]
"""Everything that a turn and a compaction leave, but the calls and the events, which tell how it came about."""
TIMES_AND_CHANCE = {
    *("created_at", "ended_at", "finalized_at", "recorded_at", "started_at", "completed_at", "lease_expires_at"),
    *("salt", "lease_owner", "session_id", "duration_ms", "call_id", "row_salt"),
}
WHO_DID_IT = {
    "origin",
    "usage_source",
    "request_digest",
    "fence",
    "context_seq",
    "end_seq",
    "added_seq",
    "removed_seq",
    "actor",
}
"""Who ran the turn and who counted, and numbers of events: ours has those of its calls in between."""


@pytest.fixture
def program(alice: User) -> Client:
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def ours(alice: User) -> SessionRecord:
    return lifecycle.create_session(
        owner=alice, title="A talk", system_prompt="Be brief.", config={"turn": {"tools": []}}
    )


@pytest.fixture
def theirs(alice: User) -> SessionRecord:
    return lifecycle.create_session(
        owner=alice, title="A talk", system_prompt="Be brief.", config={"turn": {"tools": []}}
    )


def answer(request: Request) -> Script:
    """Answer as both models do: the one here and the one at the caller's."""
    if is_summary_request(request):
        return "- Somebody asked for words, and got them."
    asked = request.payload["messages"][-1]["content"]
    return Step(text=f"{len(asked)} characters. {WORDS * 30}", reasoning="Count them.")


async def run_ours(session: SessionRecord, question: str) -> TurnRecord:
    turn = await say(session, question)
    await db(work_off, session.id)
    return turn


def run_theirs(program: Client, session: SessionRecord, question: str, *, counted: TurnRecord) -> dict[str, Any]:
    """One turn with a model of one's own: the context, the call, the record; returns what the model was sent."""
    asked = {"format": "openai_chat", "question": question[:1_000]}
    payload = program.get(f"/api/sessions/{session.id}/context", asked).json()["payload"]
    payload["messages"].append({"role": "user", "content": question})
    said = answer(Request(payload=payload, max_output_tokens=1))
    assert isinstance(said, Step)
    body = {
        "user": question,
        "assistant": [{"type": "reasoning", "text": said.reasoning}, {"type": "text", "text": said.text}],
        "tokens": {
            "input": counted.usage.tokens_input,
            "output": counted.usage.tokens_output,
            "cache_read": counted.usage.tokens_cache_read,
            "cache_write": counted.usage.tokens_cache_write,
        },
        "cost": 0,
        "finish_reason": "stop",
        "model": "demo",
    }
    path = f"/api/sessions/{session.id}/record"
    recorded = program.post(path, data=json.dumps(body), content_type="application/json")
    assert recorded.status_code == 201, recorded.content
    work_off(session.id)
    return dict(payload)


def work_off(session_id: str) -> None:
    """What the worker does."""
    for run in list_runs(session_id):
        if run.state == "queued":
            compact(run_id=run.id)


def rows(session: SessionRecord) -> dict[str, list[dict[str, Any]]]:
    """Every row with ids as places, without times."""
    found = {
        table: list(table.objects.filter(**{where: session.id}).order_by(*order).values())  # type: ignore[attr-defined]
        for table, where, order in TABLES
    }
    places = {
        row["id"]: f"{table.__name__} {place}"
        for table, values in found.items()
        for place, row in enumerate(values)
        if "id" in row
    }
    return {table.__name__: [dict(_neutral(row, places)) for row in values] for table, values in found.items()}


def _neutral(row: dict[str, Any], places: dict[Any, str]) -> Iterator[tuple[str, Any]]:
    for column, value in row.items():
        is_number_of_row = column == "id" and isinstance(value, int)
        if is_number_of_row or column in TIMES_AND_CHANCE | WHO_DID_IT:
            continue
        if isinstance(value, list):
            yield column, [places.get(item, item) for item in value]
        else:
            yield column, places.get(value, value) if isinstance(value, str) else value


def nameless(payload: dict[str, Any]) -> str:
    """A payload without the ids of summaries."""
    return re.sub(r"sum_[0-9A-Z]{26}", "sum", json.dumps(payload, sort_keys=True))


@pytest.mark.slow
async def test_the_same_turns_leave_the_same_rows_and_compactions(script, program, ours, theirs, monkeypatch):
    # The record does not know what a caller's model was sent, so that prompt cannot begin with the one before.
    monkeypatch.setattr(state, "_load_sent", lambda *_, **__: None)
    model: ScriptedModel = script(answer)
    for number in range(6):
        question = f"Question {number}: {WORDS * 20}"
        before = len(model.requests)
        turn = await run_ours(ours, question)
        sent = await db(run_theirs, program, theirs, question, counted=turn)
        assert nameless(sent) == nameless(model.requests[before].payload)
    recorded_rows, our_rows = await db(rows, theirs), await db(rows, ours)
    for table, values in our_rows.items():
        assert recorded_rows[table] == values, table
    assert len(our_rows["SummaryNode"]) >= 2
    ran, recorded = await db(build_context, ours.id), await db(build_context, theirs.id)
    assert nameless(recorded.payload) == nameless(ran.payload)
    assert await db(load_meter, theirs.id) == await db(load_meter, ours.id)


async def test_a_recorded_tool_call_is_seen_by_the_model_like_one_of_ours(script, alice, program, theirs):
    ours = await db(lifecycle.create_session, owner=alice, system_prompt="Be brief.")
    call = ToolCall(id="c1", name="calculator", arguments='{"expression": "6 * 7"}')
    script(Step(text="I calculate.", tool_calls=(call,)), "It is 42.")
    await say(ours, "What is 6 * 7?")
    tool = {"type": "tool", "tool_name": "calculator", "tool_call_id": "c1", "input": call.arguments, "output": "42"}
    body = {
        "user": "What is 6 * 7?",
        "assistant": [{"type": "text", "text": "I calculate."}, tool, {"type": "text", "text": "It is 42."}],
    }
    path = f"/api/sessions/{theirs.id}/record"
    assert (await db(program.post, path, data=json.dumps(body), content_type="application/json")).status_code == 201
    ran, recorded = await db(build_context, ours.id), await db(build_context, theirs.id)
    assert (recorded.payload, recorded.digest) == (ran.payload, ran.digest)
