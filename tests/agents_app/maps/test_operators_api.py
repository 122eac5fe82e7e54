"""Operators at the REST endpoint: begun with one call, read, stopped, tried again, downloaded, and only by whose they are."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents_app.maps.output import results_as_they_end
from agents_app.maps.worker import work_for_a_slice
from agents_app.queries import load_run
from files_app.intake import keep_file
from mnesis_core.config import override
from mnesis_core.errors import SessionNotFoundError
from mnesis_core.llm.interface import Request
from mnesis_core.maps.values import RunState
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_core.records import SessionRecord
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.models import LanguageModel
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import alice, bob, script, session
from tests.support.people.streamed import streamed
from tests.support.record.maps import output_of, start, worked

__all__ = ["alice", "bob", "script", "session"]

Call = Callable[..., Any]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def caller_of(user: User) -> Call:
    browser = Client()
    browser.force_login(user)

    def call(method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        text = body if isinstance(body, str) else json.dumps(body)
        sent = {} if body is None else {"data": text, "content_type": "application/json"}
        answer = getattr(browser, method.lower())(f"/api/operators{path}", **sent)
        shown = answer.content if not answer.streaming else streamed(answer)
        assert answer.status_code == status, shown
        return shown.decode() if answer.streaming else json.loads(shown)

    return call


@pytest.fixture
def call(alice: User) -> Call:
    return caller_of(alice)


def number_of(request: Request) -> str:
    """The number that is asked about; of 13 none, and of 2 none at first."""
    messages = request.payload["messages"]
    asked = messages[1]["content"].removeprefix("Number ").removesuffix(".")
    is_first = len(messages) == 2
    return "unlucky" if asked == "13" or (asked == "2" and is_first) else json.dumps({"n": int(asked)})


def body_of(items: list[Any], **more: Any) -> dict[str, Any]:
    return {"template": "Number {{ item }}.", "output_schema": SCHEMA, "items": items, "max_retries": 1} | more


def test_a_run_from_one_call_to_its_results(call: Call, script: Callable[..., ScriptedModel], session: SessionRecord):
    model = script(number_of)
    begun = call("POST", "/llm-map", body_of([1, 2, 13], session_id=session.id), status=202)
    assert (begun["state"], begun["kind"], begun["session_id"]) == ("pending", "llm", session.id)
    assert begun["spec"]["output_schema"] == SCHEMA
    worked(begun["id"])
    ended = call("GET", f"/{begun['id']}")
    assert (ended["state"], ended["counts"]["completed"], ended["counts"]["failed"]) == ("completed", 2, 1)
    assert ended["counts"]["tries"] == len(model.requests) == 5
    [failure] = ended["failures"]
    assert (failure["item"], failure["kind"]) == (3, "validation")
    lines = [json.loads(line) for line in call("GET", f"/{begun['id']}/output.jsonl").splitlines()]
    assert lines[:2] == [{"item": n, "input": n, "output": {"n": n}} for n in (1, 2)]
    assert lines[2]["error"]["kind"] == "validation"
    rows = list(csv.DictReader(io.StringIO(call("GET", f"/{begun['id']}/output.csv"))))
    assert [(row["item"], row["state"], row["output"]) for row in rows] == [
        ("1", "completed", '{"n":1}'),
        ("2", "completed", '{"n":2}'),
        ("3", "failed", ""),
    ]
    assert call("GET", f"?session_id={session.id}")["items"][0]["id"] == begun["id"]


def test_an_item_is_read_with_every_try(call: Call, script: Callable[..., ScriptedModel], session: SessionRecord):
    script(number_of)
    run_id = call("POST", "/llm-map", body_of([2], session_id=session.id), status=202)["id"]
    worked(run_id)
    item = call("GET", f"/{run_id}/items/1")
    assert (item["state"], item["attempts"], item["error_kind"]) == ("completed", 2, "")
    first, second = item["tries"]
    assert (first["output"], first["accepted"], first["error_kind"]) == ("unlucky", False, "validation")
    assert "not JSON" in first["error"]
    assert (second["output"], second["accepted"]) == ('{"n": 2}', True)
    assert {first["call_id"], second["call_id"]} == {made.id for made in list_calls(session.id)}
    assert call("GET", f"/{run_id}/items?state=completed")["items"][0]["item"] == 1
    assert call("GET", f"/{run_id}/items?state=failed&state=running") == {"items": [], "next_cursor": None}
    call("GET", f"/{run_id}/items?state=nonsense", status=422)
    assert call("GET", f"/{run_id}/items/2", status=404)["error"]["code"] == "OPERATOR_ITEM_NOT_FOUND"


def test_a_file_is_an_input_and_its_session_the_runs(call: Call, session: SessionRecord, alice: User):
    file = keep_file(session.id, owner_id=alice.pk, path="in.jsonl", chunks=[b'{"a": 1}\n{"a": 2}\n'])
    run = call("POST", "/llm-map", {"template": "{{ item.a }}", "file_id": file.id}, status=202)
    assert (run["session_id"], run["input_file_id"]) == (session.id, file.id)
    other = call("POST", "/llm-map", {"template": "{{ item.a }}", "items": [{"a": 1}]}, status=202)["session_id"]
    assert other != session.id
    moved = {"template": "{{ item.a }}", "file_id": file.id, "session_id": other}
    assert call("POST", "/llm-map", moved, status=202)["session_id"] == other


@pytest.mark.slow
def test_a_run_is_paused_resumed_cancelled_and_tried_again(
    call: Call, script: Callable[..., ScriptedModel], session: SessionRecord
):
    script(number_of)
    run_id = call("POST", "/llm-map", body_of([1, 13], session_id=session.id), status=202)["id"]
    assert call("POST", f"/{run_id}/pause")["state"] == "paused"
    assert call("POST", f"/{run_id}/pause", status=409)["error"]["code"] == "OPERATOR_RUN_NOT_IN_STATE"
    assert call("POST", f"/{run_id}/cancel")["state"] == "cancelled"
    assert call("POST", f"/{run_id}/resume")["state"] == "pending"
    assert worked(run_id).state is RunState.COMPLETED
    assert call("POST", f"/{run_id}/cancel", status=409)["error"]["code"] == "OPERATOR_RUN_NOT_IN_STATE"
    script("unlucky", '{"n": 13}')
    assert call("POST", f"/{run_id}/retry")["state"] == "running"
    assert worked(run_id).counts.completed == 2
    assert call("POST", f"/{run_id}/retry", status=409)["error"]["message"] == "No item of this run has failed."


def test_the_same_key_is_the_same_run(call: Call, session: SessionRecord):
    asked = body_of([1], session_id=session.id, idempotency_key="k")
    first = call("POST", "/llm-map", asked, status=202)
    assert call("POST", "/llm-map", asked, status=202)["id"] == first["id"]
    assert call("POST", "/llm-map", asked | {"items": [2]}, status=409)["error"]["code"] == "IDEMPOTENCY_MISMATCH"
    assert len(call("GET", f"?session_id={session.id}")["items"]) == 1


def test_a_provider_that_takes_schemas_is_told_unless_somebody_says_otherwise(call: Call, session: SessionRecord):
    sizes = {"context_window": 8_000, "max_output_tokens": 1_000}
    LanguageModel.objects.create(alias="theirs", litellm_model="openai/gpt-4o", **sizes)

    def is_told(model: str, **more: Any) -> bool:
        asked = body_of([1], session_id=session.id, model=model) | more
        return bool(call("POST", "/llm-map", asked, status=202)["spec"]["native_schema"])

    assert [is_told("theirs"), is_told("demo"), is_told("theirs", output_schema={"type": "array"})] == [
        True,
        False,
        False,
    ]
    assert [is_told("theirs", native_schema=False), is_told("demo", native_schema=True)] == [False, True]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"template": "no item"}, "INVALID_TEMPLATE"),
        ({"template": "{{ item.x }}"}, "INVALID_TEMPLATE"),
        ({"output_schema": {"type": "sting"}}, "INVALID_SCHEMA"),
        ({"output_schema": []}, "INVALID_REQUEST"),
        ({"items": []}, "INVALID_INPUT"),
        ({"items": None}, "INVALID_INPUT"),
        ({"file_id": "file_x"}, "INVALID_INPUT"),
        ({"items": None, "file_id": "file_x"}, "FILE_NOT_FOUND"),
        ({"items": None, "file_id": "\0"}, "FILE_NOT_FOUND"),
        ({"session_id": "\0"}, "SESSION_NOT_FOUND"),
        ({"model": "nobody"}, "MODEL_NOT_FOUND"),
        ({"concurrency": 17}, "INVALID_REQUEST"),
        ({"concurrency": 0}, "INVALID_REQUEST"),
        ({"concurrency": True}, "INVALID_REQUEST"),
        ({"max_retries": 11}, "INVALID_REQUEST"),
        ({"timeout_seconds": 0}, "INVALID_REQUEST"),
        ({"temperature": 3}, "INVALID_REQUEST"),
        ({"unknown": 1}, "INVALID_REQUEST"),
    ],
)
def test_what_is_wrong_is_said_before_anything_begins(
    call: Call, session: SessionRecord, change: dict[str, Any], code: str
):
    asked = body_of([1], session_id=session.id) | change
    status = 404 if code.endswith("NOT_FOUND") else 422
    assert call("POST", "/llm-map", asked, status=status)["error"]["code"] == code
    assert call("GET", "")["items"] == []


def test_hostile_texts_go_in_and_come_out(call: Call, script: Callable[..., ScriptedModel], session: SessionRecord):
    script(lambda request: "=cmd()‮\0")
    items = ["\0\ud800", "=1+1", "-5", "é‮😀", ["\u2028"]]
    asked = body_of(items, session_id=session.id, output_schema=None, system_prompt="\0\ud800")
    run_id = call("POST", "/llm-map", asked, status=202)["id"]
    worked(run_id)
    lines = [json.loads(line) for line in call("GET", f"/{run_id}/output.jsonl").strip().split("\n")]
    assert [line["input"] for line in lines] == items
    assert lines[0]["output"] == "=cmd()‮\0"
    rows = list(csv.DictReader(io.StringIO(call("GET", f"/{run_id}/output.csv"))))
    assert all(row["output"].startswith("'=cmd()") for row in rows)
    call("GET", f"/{run_id}")
    call("GET", f"/{run_id}/items/1")


@pytest.mark.parametrize("depth", [101, 400, 900, 3_000])
def test_what_is_deep_is_refused(call: Call, session: SessionRecord, depth: int):
    text = "[" * depth + "]" * depth
    plain = json.dumps(body_of([0], session_id=session.id, output_schema={"const": 0}))
    for body in (plain.replace('"items": [0]', f'"items": [{text}]'), plain.replace('"const": 0', f'"const": {text}')):
        answer = call("POST", "/llm-map", body, status=422)
        assert answer["error"]["code"] in ("INVALID_INPUT", "INVALID_SCHEMA", "INVALID_REQUEST")


def test_an_agentic_map_takes_what_agents_have(call: Call, session: SessionRecord):
    asked = body_of([1], session_id=session.id, tools=["calculator"], max_turns=3, read_only=False)
    spec = call("POST", "/agentic-map", asked, status=202)["spec"]
    assert (spec["tools"], spec["max_turns"], spec["read_only"], spec["concurrency"]) == (["calculator"], 3, False, 4)
    call("POST", "/agentic-map", asked | {"tools": ["no_such_tool"]}, status=422)
    call("POST", "/agentic-map", asked | {"native_schema": True}, status=422)
    call("POST", "/llm-map", asked, status=422)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("GET", "/items"),
        ("GET", "/items/1"),
        ("GET", "/output.jsonl"),
        ("GET", "/output.csv"),
    ],
)
def test_anothers_run_is_not_there(call: Call, bob: User, session: SessionRecord, method: str, path: str):
    run_id = call("POST", "/llm-map", body_of([1], session_id=session.id), status=202)["id"]
    for id in (run_id, "map_none", "%00"):
        assert caller_of(bob)(method, f"/{id}{path}", status=404)["error"]["code"] == "OPERATOR_RUN_NOT_FOUND"


def test_anothers_files_and_sessions_are_not_there(call: Call, bob: User, session: SessionRecord, alice: User):
    file = keep_file(session.id, owner_id=alice.pk, path="in.jsonl", chunks=[b"1\n"])
    by_file = {"template": "{{ item }}", "file_id": file.id}
    assert caller_of(bob)("POST", "/llm-map", by_file, status=404)["error"]["code"] == "FILE_NOT_FOUND"
    by_session = body_of([1], session_id=session.id)
    assert caller_of(bob)("POST", "/llm-map", by_session, status=404)["error"]["code"] == "SESSION_NOT_FOUND"
    caller_of(bob)("GET", f"?session_id={session.id}", status=404)


def test_an_archived_session_begins_nothing(call: Call, session: SessionRecord, alice: User):
    run_id = call("POST", "/llm-map", body_of([1], session_id=session.id), status=202)["id"]
    call("POST", f"/{run_id}/pause")
    browser = Client()
    browser.force_login(alice)
    assert browser.post(f"/api/sessions/{session.id}/archive").status_code == 200
    for path, body in (("/llm-map", body_of([2], session_id=session.id)), (f"/{run_id}/resume", None)):
        assert call("POST", path, body, status=409)["error"]["code"] == "SESSION_ARCHIVED"
    assert call("POST", f"/{run_id}/cancel")["state"] == "cancelled"


@pytest.mark.slow
def test_results_can_be_followed_in_the_order_in_which_items_end(
    call: Call, bob: User, script: Callable[..., ScriptedModel]
):
    script(lambda request: Step(text=number_of(request), delay_seconds=1.5 if "Number 1." in str(request) else 0))
    begun = call("POST", "/llm-map", body_of([1, 3, 4, 13]), status=202)
    worked(begun["id"])
    lines = [json.loads(line) for line in call("GET", f"/{begun['id']}/results.jsonl").splitlines()]
    assert {line["item"] for line in lines} == {1, 2, 3, 4}
    assert [line["item"] for line in output_of(load_run(begun["id"]))] == [1, 2, 3, 4]
    assert [line["item"] for line in lines][-1] == 1
    assert {line["item"]: line.get("output", line.get("error", {}).get("kind")) for line in lines} == {
        **{1: {"n": 1}, 2: {"n": 3}, 3: {"n": 4}, 4: "validation"}
    }
    later = call("GET", f"/{begun['id']}/results.jsonl?after={lines[0]['seq']}").splitlines()
    assert [json.loads(line) for line in later] == [line for line in lines if line["seq"] > lines[0]["seq"]]
    caller_of(bob)("GET", f"/{begun['id']}/results.jsonl", status=404)


@pytest.mark.slow
async def test_who_follows_a_run_gets_each_result_at_once_and_nothing_of_other_runs(
    alice: User, session: SessionRecord, script: Callable[..., ScriptedModel]
):
    script(lambda request: Step(text="ok", delay_seconds=0.3 * int(str(request.payload["messages"][1]["content"])[-1])))
    other = await db(start, session, [1])
    run_id = await db(start, session, [1, 5])
    working = asyncio.create_task(asyncio.to_thread(work_for_a_slice))
    came: list[tuple[int, bool]] = []
    async with asyncio.timeout(60):
        async for lines in results_as_they_end(run_id, after=0, check=never):
            run = await db(load_run, run_id)
            came += [(json.loads(line)["item"], run.state.is_live) for line in lines.splitlines()]
    await working
    assert came[0] == (1, True)
    assert [item for item, _ in came] == [1, 2]
    assert (await db(load_run, other)).state is RunState.COMPLETED


async def test_who_may_not_see_a_run_any_more_is_told_no_more(
    session: SessionRecord, script: Callable[..., ScriptedModel], monkeypatch: pytest.MonkeyPatch
):
    config = override(site_config(), {"stream": {"recheck_seconds": 0.1}})
    run_id = await db(start, session, [1])
    monkeypatch.setattr("sessions_app.live.site_config", lambda: config)
    following = results_as_they_end(run_id, after=0, check=gone)
    with pytest.raises(SessionNotFoundError):
        await asyncio.wait_for(anext(following), 20)


async def never() -> None:
    """The follower may."""


async def gone() -> None:
    """The follower may not any more."""
    raise SessionNotFoundError()
