"""Any past call's payload is rebuilt byte for byte, whatever happened since; where it cannot be, the answer says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from agents_app.tools import registry
from compaction_app.compact import compact_now
from compaction_app.context.state import rebuild_payload
from mnesis_core.llm.interface import Request, ToolCall, read_tools, write_tools
from mnesis_core.providers.scripted import Script
from mnesis_core.records import SessionRecord
from mnesis_core.text import text_digest
from sessions_app.database.threads import db
from sessions_app.models import PromptText
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import say
from tests.support.record.tools import find_tool

SUM = ToolCall(id="c1", name="calculator", arguments='{"expression": "6*7"}')


def add_call(
    session_id: str,
    manifest: Any,
    *,
    texts: dict[str, str] | None = None,
    digest: str = "0" * 64,
    context_seq: int = 1,
) -> str:
    """A call as an import from anybody may hold it."""
    with change(session_id) as record:
        return turn_store.start_call(
            record,
            turn_id=None,
            message_id=None,
            model="demo",
            provider_model="demo",
            parameters={},
            manifest=manifest,
            context_seq=context_seq,
            digest=digest,
            estimated_tokens=1,
            texts=texts,
        )


@pytest.fixture
def read_payload(session: SessionRecord, client: Client, alice: Any) -> Callable[..., dict[str, Any]]:
    """Alice asks for a payload."""
    client.force_login(alice)

    def ask(call_id: str, *, status: int = 200) -> dict[str, Any]:
        answer = client.get(f"/api/calls/{call_id}/payload")
        assert answer.status_code == status, answer.content
        body: dict[str, Any] = answer.json()
        return body

    return ask


@pytest.mark.slow
@pytest.mark.both_databases
async def test_every_past_payload_is_what_was_sent_whatever_happened_since(session, script, read_payload, monkeypatch):
    def reply(request: Request) -> Script:
        if "MNESIS-SUMMARISE" in str(request.payload["messages"][0]["content"]):
            return "## Goal\n- Sums."
        return SUM if request.payload["messages"][-1]["role"] == "user" else "It is 42."

    model = script(reply)
    for number in range(5):
        await say(session, f"How much is it? {number} " + "and why, \x00 \ud800 dear? " * 40)
    await db(compact_now, session.id)
    await say(session, "And now?")
    for name, tool in list(registry._TOOLS.items()):
        spec = replace(tool.spec, description="Another one.", parameters={"type": "object"})
        monkeypatch.setitem(registry._TOOLS, name, replace(tool, spec=spec))
    await say(session, "With other tools?")
    calls = (await db(list_calls, session.id))[::-1]
    sent = [request.payload for request in model.requests]
    assert [call.purpose for call in calls].count("turn") == 14
    for call, payload in zip(calls, sent, strict=True):
        answer = await db(read_payload, call.id)
        assert (answer["payload"], answer["digest_matches"], answer["problems"]) == (payload, True, [])
        assert answer["digest"] == answer["stored_digest"] == call.digest
    assert await db(PromptText.objects.filter(session_id=session.id).count) == 3


def test_a_call_whose_tools_were_not_kept_says_so(session, read_payload):
    manifest = [{"kind": "tools", "id": "", "names": ["calculator"]}]
    answer = read_payload(add_call(session.id, manifest))
    assert answer["payload"] == {"messages": []}
    assert not answer["digest_matches"]
    assert answer["problems"] == ["the descriptions of then are missing of: calculator"]


def test_a_payload_that_reads_differently_today_says_so(session, read_payload):
    answer = read_payload(add_call(session.id, []))
    assert (answer["payload"], answer["digest_matches"], len(answer["problems"])) == ({"messages": []}, False, 1)


MESSAGE = {"id": "msg_x", "seq": 1, "parts": 1, "tombstoned": [], "unanswered": [], "omitted": [], "shortened": []}


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ({}, "not a list"),
        ([7], "row 1"),
        ([[]], "row 1"),
        ([{"kind": []}], "row 1"),
        ([{"kind": "poem"}], "row 1"),
        ([{"kind": "system", "id": "", "head": -1, "tail": 0}], "row 1"),
        ([{"kind": "system", "id": "", "head": 1}], "row 1"),
        ([{"kind": "tools", "names": "all"}], "row 1"),
        ([{"kind": "gap", "messages": 10**400, "summaries": 0, "first_seq": 1, "last_seq": 2}], "row 1"),
        ([{"kind": "system", "id": ""}, {"kind": "message", **MESSAGE, "shortened": [{"part": "p"}]}], "row 2"),
        ([{"kind": "message", **MESSAGE, "naming": 5}], "row 1"),
        ([{"kind": "message", **MESSAGE}], "msg_x"),
        ([{"kind": "message", **MESSAGE, "id": "\x00\ud800"}], "message"),
        ([{"kind": "summary", "id": "sum_x", "first_seq": 1, "last_seq": 2}], "sum_x"),
    ],
)
def test_no_stored_manifest_makes_an_error_of_ours(session, read_payload, manifest, problem):
    answer = read_payload(add_call(session.id, manifest))
    assert (answer["payload"], answer["digest"], answer["digest_matches"]) == (None, "", False)
    assert problem in answer["problems"][0]


@pytest.mark.parametrize(
    "text",
    ["", "{", "7", "{}x", '"abc"', '[{"name": 1}]', '[{"name": "a", "description": "", "parameters": 1}]', "[" * 9_999],
)
def test_no_stored_text_makes_an_error_of_ours(session, read_payload, text):
    answer = read_payload(add_call(session.id, [], texts={"tools": text}))
    assert not answer["digest_matches"]
    assert answer["problems"]


def test_tools_are_read_again_to_the_letter():
    tools = tuple(find_tool(name).spec for name in ("lcm_grep", "calculator"))
    assert read_tools(write_tools(tools)) == tools


def test_payloads_are_their_owners_alone(session, read_payload, client, bob):
    call_id = add_call(session.id, [])
    with change(session.id) as record:
        session_store.archive_session(record)
    assert read_payload(call_id)["payload"] == {"messages": []}
    client.force_login(bob)
    assert read_payload(call_id, status=404)["error"]["code"] == "CALL_NOT_FOUND"
    assert client.get(f"/api/calls/{call_id}").status_code == 404


def test_a_deleted_sessions_payloads_are_gone(session, read_payload):
    call_id = add_call(session.id, [])
    with change(session.id) as record:
        session_store.soft_delete_session(record)
    assert read_payload(call_id, status=404)["error"]["code"] == "CALL_NOT_FOUND"


def test_a_call_says_whether_its_payload_can_be_rebuilt(session, client, alice):
    client.force_login(alice)
    assert client.get(f"/api/calls/{add_call(session.id, [])}").json()["digest_matches"] is False
    right = rebuild_payload(list_calls(session.id)[0]).digest
    assert client.get(f"/api/calls/{add_call(session.id, [], digest=right)}").json()["digest_matches"] is True


def test_another_sessions_summaries_and_texts_are_not_read(session, bob):
    elsewhere = session_store.create_session(owner=bob, model="demo")
    add_call(elsewhere, [], texts={"tools": write_tools([find_tool("calculator").spec])})
    theirs = list_calls(elsewhere)[0]
    add_call(session.id, [{"kind": "tools", "names": ["calculator"]}])
    mine = replace(list_calls(session.id)[0], parameters=theirs.parameters)
    assert rebuild_payload(mine).payload == {"messages": []}
    assert theirs.parameters["texts"]["tools"] == text_digest(write_tools([find_tool("calculator").spec]))


def test_the_inspector_shows_a_payload_and_what_is_wrong_with_it(session, client, admin_user):
    client.force_login(admin_user)
    call_id = add_call(session.id, [])
    page = client.get(reverse("admin:inspect_payload", args=[call_id]), follow=True).content.decode()
    assert "This is not what was sent to the model" in page
    assert "&quot;messages&quot;" in page
    assert client.get(reverse("admin:inspect_payload_file", args=[call_id])).json() == {"messages": []}
    listed = client.get(reverse("admin:sessions_app_modelcall_change", args=[call_id])).content.decode()
    assert reverse("admin:inspect_payload", args=[call_id]) in listed
    broken = add_call(session.id, [7])
    assert "row 1" in client.get(reverse("admin:inspect_payload", args=[broken]), follow=True).content.decode()
    assert client.get(reverse("admin:inspect_payload_file", args=[broken])).status_code == 404
    assert client.get(reverse("admin:inspect_payload", args=["call_x"])).status_code == 404
    assert client.post(reverse("admin:inspect_payload", args=[call_id])).status_code == 403


def test_the_inspector_shows_payloads_to_those_only_who_may_see_messages(session, client, bob):
    bob.is_staff = True
    bob.save()
    client.force_login(bob)
    assert client.get(reverse("admin:inspect_payload", args=[add_call(session.id, [])])).status_code == 403
