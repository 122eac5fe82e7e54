"""A pruned output leaves the prompt and nothing else: the model sees the seed's marker, everybody else the original."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents_app.tools.registry import ToolContext
from agents_app.turns import lifecycle
from audit_app.transfer.export import export_session
from compaction_app.compact import compact_session, request_compaction
from compaction_app.context.state import build_context, load_state, size_of
from mnesis_core.messages import StoredMessage, ToolPart
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.message_queries import load_messages
from tests.compaction_app.test_compaction import add_turns, model_of
from tests.support.record.tools import find_tool

END = "END-OF-THE-LEDGER"
OUTPUT = "row of the ledger " * 400 + END
CONFIG = {
    "context_window": 64_000,
    "prune": {"protect_tokens": 0, "minimum_tokens": 0},
    "budget": {"target_fraction": 0.05, "soft_threshold_fraction": 0.15},
}


@pytest.fixture
def pruned(alice: User, script) -> str:
    """A session of six outputs of which the four oldest were pruned, and nothing was summarised."""
    script(model_of("- A summary."))
    session = lifecycle.create_session(owner=alice, config=CONFIG)
    add_turns(session, 6, text="Read it.", output=OUTPUT)
    size = size_of(load_state(session.id))
    with change(session.id) as record:
        run_id = request_compaction(record, trigger="soft", size=size)
    assert run_id
    run = compact_session(session.id, run_id=run_id)
    assert (run.outcome, run.pruned_parts, run.summary_ids) == ("target_met", 4, [])
    assert run.tokens_after < size.tokens / 2
    return session.id


def outputs(messages: list[StoredMessage]) -> list[ToolPart]:
    return [stored.part for message in messages for stored in message.parts if isinstance(stored.part, ToolPart)]


def shown_results(payload: dict[str, object]) -> list[str]:
    messages = payload["messages"]
    assert isinstance(messages, list)
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_the_model_sees_the_seeds_marker_in_its_place(pruned: str) -> None:
    parts = outputs(load_messages(pruned))
    assert [part.output for part in parts] == [OUTPUT] * 6
    stamps = [round(part.compacted_at.timestamp() * 1000) for part in parts if part.compacted_at]
    markers = [f"[Tool 'read' output compacted at {stamp}]" for stamp in stamps]
    assert shown_results(build_context(pruned).payload) == [*markers, OUTPUT, OUTPUT]


def test_a_context_of_before_shows_the_originals(pruned: str) -> None:
    requested = next(event.seq for event in load_events(pruned, limit=1_000) if event.type == "compaction.requested")
    assert shown_results(build_context(pruned, at=requested).payload) == [OUTPUT] * 6


def test_everybody_else_sees_the_original(pruned: str, alice: User) -> None:
    caller = Client()
    caller.force_login(alice)
    oldest = load_messages(pruned)[1].id
    listed = caller.get(f"/api/sessions/{pruned}/messages", {"limit": 100}).json()["items"]
    assert [part["output"] for item in listed for part in item["parts"] if part.get("output")] == [OUTPUT] * 6
    found = caller.get(f"/api/sessions/{pruned}/search", {"q": "ledger", "scope": "tools"}).json()
    assert oldest in {hit["message_id"] for hit in found["items"]}
    assert b"".join(export_session(pruned)).count(END.encode()) == 6
    assert caller.get(f"/sessions/{pruned}/").content.decode().count("row of the ledger row") >= 6


def test_the_model_reaches_the_original_by_its_tools(pruned: str, alice: User) -> None:
    context = ToolContext(session_id=pruned, owner_id=alice.pk)
    oldest = load_messages(pruned)[1].id
    assert END in find_tool("lcm_read").call(context, json.dumps({"id": oldest}))
    assert find_tool("lcm_grep").call(context, json.dumps({"pattern": END, "mode": "text"})).startswith("6 hits")
