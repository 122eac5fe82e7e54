"""The tools of operators: a model starts runs, and what comes into its conversation is of one size."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from agents_app.maps.worker import work_for_a_slice
from agents_app.queries import list_runs
from agents_app.tools.registry import ToolContext, call_tool
from agents_app.turns import lifecycle
from files_app.intake import keep_file
from mnesis_core.errors import MnesisError
from mnesis_core.llm.interface import Request
from mnesis_core.maps.values import OperatorKind, RunState
from mnesis_core.messages import ToolPart, ToolState
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.database.threads import db, work
from sessions_app.record.message_queries import load_messages
from tests.support.people.story import alice, bob, quiet_runner, script, session, tool_call
from tests.support.record.maps import lines_of, output_of, worked
from tests.support.record.tools import find_tool

__all__ = ["alice", "bob", "quiet_runner", "script", "session"]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def answer(request: Request) -> str:
    """The number that is asked about; of 13 none."""
    asked = request.payload["messages"][1]["content"]
    return "unlucky" if asked.endswith("13") else json.dumps({"n": int(asked)})


async def call(session: SessionRecord, name: str = "llm_map", **arguments: Any) -> str:
    """What a tool says, while a worker works."""
    context = ToolContext(session_id=session.id, owner_id=session.owner_id)
    tool = await db(find_tool, name)
    telling = asyncio.create_task(call_tool(tool, context, json.dumps(arguments), longest_seconds=60))
    while not telling.done():
        await asyncio.sleep(0.05)
        await work(work_for_a_slice)
    return telling.result()


@pytest.mark.slow
async def test_a_map_gives_its_handle_counts_and_first_failures(
    script: Callable[..., ScriptedModel], session: SessionRecord
):
    script(answer)
    said = await call(session, prompt_template="{{ item }}", output_schema=SCHEMA, items=[1, 13, 3], concurrency=3)
    [run] = await db(list_runs, session_id=session.id)
    assert f"llm_map {run.id}: completed" in said
    assert "items: 3, completed 2, failed 1" in said
    assert f"results: {run.output_file_id}" in said
    assert "item 2, validation: The answer is not JSON" in said
    assert [line.get("output") for line in await db(output_of, run)] == [{"n": 1}, None, {"n": 3}]


@pytest.mark.slow
async def test_what_it_says_does_not_grow_with_the_items(script: Callable[..., ScriptedModel], session: SessionRecord):
    script(answer)
    sizes = []
    for count in (10, 200):
        file = await db(
            keep_file,
            session.id,
            owner_id=session.owner_id,
            path=f"{count}.jsonl",
            chunks=[lines_of([13] * count).encode()],
        )
        said = await call(
            session, prompt_template="{{ item }}", output_schema=SCHEMA, input_file=file.id, concurrency=16
        )
        assert f"failed {count}" in said
        sizes.append(len(said))
    assert sizes[1] - sizes[0] < 30


async def test_a_run_goes_on_where_the_model_does_not_wait(
    script: Callable[..., ScriptedModel], session: SessionRecord
):
    script(answer)
    said = await call(session, prompt_template="{{ item }}", output_schema=SCHEMA, items=[1], wait_seconds=0)
    [run] = await db(list_runs, session_id=session.id)
    assert "It goes on by itself" in said or "completed 1" in said
    assert (await db(worked, run.id)).state is RunState.COMPLETED
    assert "completed 1, failed 0" in await call(session, "lcm_describe", id=run.id)


async def test_an_agentic_map_has_all_that_a_model_says(script: Callable[..., ScriptedModel], session: SessionRecord):
    script(lambda request: '{"n": 1}')
    file = await db(keep_file, session.id, owner_id=session.owner_id, path="in.jsonl", chunks=[b"1\n2\n"])
    asked = {"prompt_template": "Of {{ item }}", "output_schema": SCHEMA, "input_file": file.id, "concurrency": 2}
    said = await call(session, "agentic_map", **asked, read_only=False, tools=["calculator"], max_turns=3, model="demo")
    [run] = await db(list_runs, session_id=session.id)
    assert f"agentic_map {run.id}: completed" in said
    assert (run.kind, run.input_file_id, run.spec.template) == (OperatorKind.AGENTIC, file.id, "Of {{ item }}")
    spec = run.spec
    assert (spec.schema, spec.concurrency, spec.read_only, spec.tools, spec.max_turns, spec.model) == (
        *(SCHEMA, 2, False, ("calculator",), 3, "demo"),
    )


async def test_a_model_calls_it_in_a_turn(script: Callable[..., ScriptedModel], alice: User):
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": ["llm_map"]}})
    asked = tool_call("llm_map", prompt_template="{{ item }}", output_schema=SCHEMA, items=[1, 2])

    def reply(request: Request) -> Any:
        is_map = request.payload["messages"][0]["content"].startswith("MNESIS-MAP")
        if is_map:
            return answer(request)
        return "Done." if request.payload["messages"][-1]["role"] == "tool" else asked

    script(reply)
    started = await lifecycle.start_turn(session.id, owner_id=session.owner_id, message="Map it.")
    waiting = asyncio.create_task(lifecycle.wait_turn(session.id, started.turn.id, owner_id=session.owner_id))
    while not waiting.done():
        await asyncio.sleep(0.05)
        await work(work_for_a_slice)
    assert waiting.result().state == TurnState.COMPLETED
    parts = [stored.part for message in await db(load_messages, session.id) for stored in message.parts]
    [part] = [part for part in parts if isinstance(part, ToolPart)]
    assert part.state is ToolState.COMPLETED
    assert "completed 2, failed 0" in (part.output or "")
    [run] = await db(list_runs, session_id=session.id)
    assert (run.turn_id, run.part_id != "") == (started.turn.id, True)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"prompt_template": "none", "items": [1]}, "INVALID_TEMPLATE"),
        ({"prompt_template": "{{ item }}"}, "INVALID_INPUT"),
        ({"prompt_template": "{{ item }}", "items": []}, "INVALID_INPUT"),
        ({"prompt_template": "{{ item }}", "items": [1], "output_schema": {"type": 1}}, "INVALID_SCHEMA"),
        ({"prompt_template": "{{ item }}", "items": [1], "wait_seconds": -1}, "INVALID_REQUEST"),
        ({"prompt_template": "{{ item }}", "items": [1], "wait_seconds": 1e9}, "INVALID_REQUEST"),
        ({"prompt_template": "{{ item }}", "input_file": "\0"}, "NOT_FOUND"),
        ({"prompt_template": "{{ item }}", "input_file": "file_none"}, "FILE_NOT_FOUND"),
    ],
)
async def test_what_a_model_gets_wrong_it_is_told(session: SessionRecord, arguments: dict[str, Any], code: str):
    with pytest.raises(MnesisError) as refused:
        await call(session, **arguments)
    assert refused.value.code == code


@pytest.mark.slow
async def test_files_and_runs_outside_of_the_conversation_are_not_there(session: SessionRecord, alice: User, bob: User):
    for owner in (alice, bob):
        other = await db(lifecycle.create_session, owner=owner)
        file = await db(keep_file, other.id, owner_id=owner.pk, path="in.jsonl", chunks=[b"1\n"])
        await call(other, prompt_template="{{ item }}", items=[1], wait_seconds=0)
        [run] = await db(list_runs, session_id=other.id)
        for name, arguments in (
            ("llm_map", {"prompt_template": "{{ item }}", "input_file": file.id}),
            ("lcm_describe", {"id": run.id}),
        ):
            with pytest.raises(MnesisError, match="Nothing of this conversation"):
                await call(session, name, **arguments)
