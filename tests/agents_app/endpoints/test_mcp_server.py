"""The MCP server as its official client sees it, without a transport between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from agents_app.endpoints.mcp_server import always, make_server
from compaction_app.queries import list_summaries
from files_app.intake import explore_file, keep_file
from files_app.queries import find_file_by_path
from mnesis_core.messages import FileRefPart
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord
from mnesis_core.text import printable
from sessions_app.assistants import assistant_store
from sessions_app.database.threads import db
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from tests.support.material.drawings import document, drawing, file_part, image_part
from tests.support.people.cast import caller_of
from tests.support.people.story import say, spoken
from tests.support.record.inspected import add_session, add_turn, tool_part
from tests.support.record.sample_record import HOSTILE, Sample, make_sample
from tests.support.record.trees import make_tree

TOOLS = (
    "mnesis_run mnesis_resume mnesis_interrupt mnesis_send mnesis_llm_map mnesis_agentic_map mnesis_sessions lcm_grep lcm_grep_file lcm_describe lcm_expand "
    "lcm_facts lcm_read"
)


@asynccontextmanager
async def agent(user: User, *, may_write: bool = True, mode: Any = "auto") -> AsyncIterator[Client]:
    """A foreign agent that acts for a user."""
    caller = caller_of(user, may_write=may_write)
    async with Client(make_server(always(caller)), mode=mode) as client:
        yield client


async def use(client: Client, tool: str, **arguments: Any) -> Any:
    """What a tool gives: a value, or a text."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content or result.content[0].text  # type: ignore[union-attr]


async def error(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The error of a tool."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    found: dict[str, Any] = result.structured_content["error"]
    assert result.content[0].text.startswith(f"{found['code']}: ")  # type: ignore[union-attr]
    return found


@pytest.fixture
def sample(transactional_db: None) -> Sample:
    return make_sample()


async def test_a_person_whose_account_was_closed_is_served_no_longer(alice: User) -> None:
    async with agent(alice) as client:
        assert (await use(client, "mnesis_sessions"))["items"] == []
        alice.is_active = False
        await db(alice.save)
        with pytest.raises(MCPError, match="was closed"):
            await client.call_tool("mnesis_sessions", {})


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_offers_its_tools_and_resources(alice: User, mode: str) -> None:
    async with agent(alice, mode=mode) as client:
        tools = (await client.list_tools()).tools
        templates = (await client.list_resource_templates()).resource_templates
    assert [tool.name for tool in tools] == TOOLS.split()
    assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
    assert {tool.name for tool in tools if tool.annotations and not tool.annotations.read_only_hint} == {
        "mnesis_run",
        "mnesis_resume",
        "mnesis_interrupt",
        "mnesis_send",
        "mnesis_llm_map",
        "mnesis_agentic_map",
    }
    assert [template.uri_template for template in templates] == [
        "mnesis://sessions/{id}",
        "mnesis://summaries/{id}",
        "mnesis://files/{id}",
    ]


async def test_it_runs_and_resumes_a_session(alice: User, script: Any) -> None:
    script("Paris.", "Two million.")
    async with agent(alice) as client:
        first = await use(client, "mnesis_run", message="What is the capital of France?")
        assert (first["state"], first["text"]) == ("completed", "Paris.")
        second = await use(client, "mnesis_resume", session_id=first["session_id"], message="How many live there?")
        assert second["text"] == "Two million."
        listed = await use(client, "mnesis_sessions")
    assert [item["id"] for item in listed["items"]] == [first["session_id"]]


async def test_it_runs_a_session_with_an_assistant_which_the_session_keeps(alice: User, script: Any) -> None:
    model = script("Four metres.")
    assistant = await db(
        assistant_store.create_assistant, owner_id=alice.pk, name="Pilot", instructions="Speak of boats."
    )
    async with agent(alice) as client:
        turn = await use(client, "mnesis_run", message="How high is the tide?", assistant=assistant.id)
        other = {"session_id": turn["session_id"], "message": "And now?", "assistant": assistant.id}
        refused = [await error(client, tool, **other) for tool in ("mnesis_resume", "mnesis_run")]
    assert (await db(load_session, turn["session_id"])).assistant_version_id == assistant.version_id
    assert model.requests[0].payload["messages"][0]["content"] == "Speak of boats."
    assert [found["code"] for found in refused] == ["INVALID_REQUEST", "INVALID_REQUEST"]
    assert "assistant: " in refused[0]["message"]


@pytest.mark.slow
async def test_pictures_documents_and_files_go_with_a_message(alice: User, script: Any) -> None:
    script("A gradient.", "A page.", "A table.")
    ask = {"type": "text", "text": "What is this?"}
    async with agent(alice) as client:
        first = await use(client, "mnesis_run", parts=[ask, image_part(drawing())])
        session_id = first["session_id"]
        table = await db(
            keep_file, session_id, owner_id=alice.pk, path="tides.csv", chunks=[b"time,metres\n03:10,4.1\n"]
        )
        await use(client, "mnesis_resume", session_id=session_id, message="", parts=[file_part(document("A page"))])
        await use(client, "mnesis_resume", session_id=session_id, message="And this?", files=[table.id])
    asked = [said for said in await db(load_messages, session_id) if said.role == "user"]
    given = [[stored.part.file_type for stored in said.parts if isinstance(stored.part, FileRefPart)] for said in asked]
    assert given == [["image"], ["pdf"], []]
    assert [spoken(said) for said in asked[:2]] == ["What is this?", ""]
    assert spoken(asked[2]).startswith("And this?\n[FILE: tides.csv]")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"parts": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}, "INVALID_PICTURE"),
        ({"parts": [image_part(drawing(400, 300)[:300])]}, "INVALID_PICTURE"),
        ({"parts": [{"type": "\ud800\0"}]}, "INVALID_REQUEST"),
        ({"parts": []}, "INVALID_REQUEST"),
        ({"parts": [], "message": "Hello"}, "INVALID_REQUEST"),
        ({}, "INVALID_REQUEST"),
    ],
)
async def test_a_first_message_that_cannot_be_read_leaves_no_session(alice: User, said: Any, code: str) -> None:
    async with agent(alice) as client:
        assert (await error(client, "mnesis_run", **said))["code"] == code
        assert (await use(client, "mnesis_sessions", archived=None))["items"] == []


async def test_a_file_of_another_session_goes_with_no_message(alice: User, session: SessionRecord) -> None:
    other = await db(keep_file, None, owner_id=alice.pk, path="a.csv", chunks=[b"a,b\n1,2\n"])
    async with agent(alice) as client:
        found = await error(client, "mnesis_resume", session_id=session.id, message="And this?", files=[other.id])
    assert found["code"] == "FILE_NOT_FOUND"


async def test_who_does_not_want_to_wait_comes_back_for_the_answer(alice: User, script: Any) -> None:
    gate = asyncio.Event()
    model = script(Step(text="A long story", gate=gate))
    async with agent(alice) as client:
        turn = await use(client, "mnesis_run", message="Tell me", wait_seconds=0)
        assert turn["state"] == "running"
        await model.at_gate.wait()
        assert (await error(client, "mnesis_resume", session_id=turn["session_id"], message="x"))[
            "code"
        ] == "SESSION_BUSY"
        gate.set()
        ended = await use(client, "mnesis_resume", session_id=turn["session_id"])
        assert (ended["id"], ended["state"], ended["text"]) == (turn["id"], "completed", "A long story")


async def test_there_is_nothing_to_wait_for_in_an_empty_session(alice: User, session: SessionRecord) -> None:
    async with agent(alice) as client:
        assert (await error(client, "mnesis_resume", session_id=session.id))["code"] == "INVALID_REQUEST"


async def test_it_interrupts(alice: User, script: Any) -> None:
    model = script(Step(text="A long story", gate=asyncio.Event()))
    async with agent(alice) as client:
        turn = await use(client, "mnesis_run", message="Tell me", wait_seconds=0)
        await model.at_gate.wait()
        await use(client, "mnesis_interrupt", session_id=turn["session_id"])
        ended = await use(client, "mnesis_resume", session_id=turn["session_id"])
        assert (ended["state"], ended["text"]) == ("cancelled", "A")
        code = (await error(client, "mnesis_interrupt", session_id=turn["session_id"]))["code"]
        assert code == "SESSION_NOT_RUNNING"


async def test_it_searches_expands_and_reads(sample: Sample) -> None:
    summaries = await db(list_summaries, sample.talk)
    message = (await db(load_messages, sample.talk, limit=1))[0]
    async with agent(sample.ada) as client:
        hits = (await use(client, "lcm_grep", q="quay"))["items"]
        assert {hit["session_id"] for hit in hits} >= {sample.talk}
        line = next(line for hit in hits for line in hit["passage"] if hit["session_id"] == sample.talk)
        by_handle = await use(client, "lcm_read", id=f"{sample.talk}{line['handle']}")
        assert by_handle == await use(client, "lcm_read", id=line["message_id"])
        assert len((await use(client, "lcm_grep", pattern="quay", max_tokens=1))["items"]) == 1
        for summary in summaries:
            assert summary.id in await use(client, "lcm_describe", id=summary.id)
            sources = await use(client, "lcm_expand", summary_id=summary.id)
            assert any(id in sources for _, id in summary.source_ids)
        assert "halves" in await use(client, "lcm_read", id=message.id)


async def test_it_reads_and_searches_a_file_by_line_and_reads_it_as_a_resource(
    alice: User, session: SessionRecord
) -> None:
    file = await db(keep_file, session.id, owner_id=alice.pk, path="tides.log", chunks=[b"low\nhigh tide\nlow\n"])
    await db(explore_file, file.id, owner_id=alice.pk)
    async with agent(alice) as client:
        found = await use(client, "lcm_grep_file", file_id=file.id, pattern="tide")
        assert [(hit["number"], hit["text"]) for hit in found["items"]] == [(2, "high tide")]
        read = await use(client, "lcm_read", id=file.id, first_line=2)
        assert read.startswith("2: high tide\n3: low\n[lines 2 to 3 of 3]")
        assert "explored: by " in await use(client, "lcm_describe", id=file.id)
        [content] = (await client.read_resource(f"mnesis://files/{file.id}")).contents
        assert content.text == "low\nhigh tide\nlow\n\n[bytes 0 to 18 of 18]"
        refused = await error(client, "lcm_grep_file", file_id=file.id, q="(", mode="regex")
        assert refused["code"] == "INVALID_REQUEST"


async def test_it_reads_resources_with_hostile_text_in_them(sample: Sample) -> None:
    summary = (await db(list_summaries, sample.talk))[-1]
    session_id = await db(add_session, sample.ada, title=HOSTILE[:150])
    await db(add_turn, session_id, HOSTILE, tool_part(HOSTILE))
    async with agent(sample.ada) as client:
        listed = (await client.list_resources()).resources
        assert f"mnesis://sessions/{session_id}" in [resource.uri for resource in listed]
        read = await client.read_resource(f"mnesis://sessions/{session_id}")
        messages = json.loads(read.contents[0].text)["messages"]  # type: ignore[union-attr]
        assert messages[0]["parts"][0]["text"] == printable(HOSTILE)
        file = await db(find_file_by_path, HOSTILE, session_id=sample.talk)
        assert file is not None
        read = await client.read_resource(f"mnesis://files/{file.id}")
        assert "a tide table" in read.contents[0].text  # type: ignore[union-attr]
        read = await client.read_resource(f"mnesis://summaries/{summary.id}")
        assert summary.id in read.contents[0].text  # type: ignore[union-attr]


async def test_a_session_is_read_with_the_newest_messages_of_its_chosen_branch(alice: User) -> None:
    session_id = await db(make_tree, alice)
    async with agent(alice) as client:
        read = await client.read_resource(f"mnesis://sessions/{session_id}")
    messages = json.loads(read.contents[0].text)["messages"]  # type: ignore[union-attr]
    assert [message["seq"] for message in messages] == [1, 2, 3, 4, 13, 14, 21, 22]
    assert messages[4]["parent_id"] == messages[3]["id"]


async def test_somebody_elses_things_are_not_found(sample: Sample) -> None:
    summary = (await db(list_summaries, sample.talk))[-1].id
    message = (await db(load_messages, sample.talk, limit=1))[0].id
    async with agent(sample.bob) as client:
        assert (await use(client, "lcm_grep", q="quay"))["items"] == []
        assert (await use(client, "mnesis_sessions"))["items"] == []
        assert (await error(client, "lcm_grep", q="quay", session_id=sample.talk))["code"] == "SESSION_NOT_FOUND"
        assert (await error(client, "mnesis_resume", session_id=sample.talk, message="x"))[
            "code"
        ] == "SESSION_NOT_FOUND"
        assert (await error(client, "mnesis_interrupt", session_id=sample.talk))["code"] == "SESSION_NOT_FOUND"
        assert (await error(client, "lcm_expand", summary_id=summary))["code"] == "SUMMARY_NOT_FOUND"
        assert (await error(client, "lcm_describe", id=summary))["code"] == "SUMMARY_NOT_FOUND"
        assert (await error(client, "lcm_describe", id=sample.talk))["code"] == "SESSION_NOT_FOUND"
        assert (await error(client, "lcm_read", id=message))["code"] == "MESSAGE_NOT_FOUND"
        for uri in (f"sessions/{sample.talk}", f"summaries/{summary}", f"sessions/{sample.deleted}"):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(f"mnesis://{uri}")
            assert refused.value.code == -32004
            assert refused.value.data["code"].endswith("_NOT_FOUND")


async def test_a_reading_key_may_not_run(alice: User, session: SessionRecord) -> None:
    async with agent(alice, may_write=False) as client:
        assert len((await use(client, "mnesis_sessions"))["items"]) == 1
        for tool in ("mnesis_run", "mnesis_resume", "mnesis_interrupt"):
            refused = await error(client, tool, message="x", session_id=session.id)
            assert refused["code"] == "PERMISSION_DENIED"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_hostile_arguments_are_errors_of_the_registry(alice: User, session: SessionRecord, mode: str) -> None:
    async with agent(alice, mode=mode) as client:
        for tool in TOOLS.split():
            for text in ("\0", "x" * 3_000, "␛", "sum_\0", "msg_"):
                result = await client.call_tool(
                    tool, dict.fromkeys(("id", "summary_id", "session_id", "q", "model", "cursor", "message"), text)
                )
                assert not result.is_error or result.structured_content["error"]["code"] != "INTERNAL_ERROR", (
                    tool,
                    text,
                )
        with pytest.raises(MCPError) as refused:
            await client.call_tool("lcm_forget", {})
        assert refused.value.data["code"] == "TOOL_NOT_FOUND"
        for uri in (
            "mnesis://sessions/",
            "mnesis://nothing/x",
            "file:///etc/passwd",
            "mnesis://files/../x",
            "mnesis://summaries/sum_\0",
        ):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            assert refused.value.code in (-32004, -32602)


async def test_a_talk_of_its_own_is_found_again(alice: User, session: SessionRecord, script: Any) -> None:
    script("The number is 4711.")
    await say(session, "Which number?")
    async with agent(alice) as client:
        hit = (await use(client, "lcm_grep", pattern="4711"))["items"][0]
        assert "4711" in await use(client, "lcm_read", id=hit["message_id"])


async def test_it_begins_a_map_and_is_told_how_far_it_is(alice: User, session: SessionRecord) -> None:
    asked = {"template": "{{ item }}", "items": [1, 2], "session_id": session.id, "wait_seconds": 0}
    async with agent(alice) as client:
        told = await use(client, "mnesis_llm_map", **asked)
        assert told.startswith("llm_map map_")
        id = told.split()[1].rstrip(":")
        assert id in await use(client, "lcm_describe", id=id)
        assert (await error(client, "mnesis_agentic_map", **asked, tools=["none"]))["code"] == "INVALID_REQUEST"
    async with agent(alice, may_write=False) as client:
        assert (await error(client, "mnesis_llm_map", **asked))["code"] == "PERMISSION_DENIED"
