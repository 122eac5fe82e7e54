"""A program that uses the client against a running site."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mnesis_client import AsyncClient, Client, ConnectionFailed, MnesisError
from mnesis_client.requests import Quote, Tool, ToolResult
from tests.journeys.conftest import Caller
from tests.support.failures.cutting_proxy import CuttingProxy
from tests.support.material.drawings import audio_part, drawing, image_part, recording
from tests.support.sites.site import wait_until


def raises(code: str) -> pytest.RaisesExc[MnesisError]:
    return pytest.raises(MnesisError, check=lambda error: error.code == code)


@pytest.fixture
def client(caller: Caller) -> Iterator[Client]:
    with Client(caller.site.url, key=caller.key) as client:
        yield client


def test_a_session_from_its_beginning_to_its_proof(client: Client):
    session = client.create_session(title="Harbour", labels={"test": "client"})
    answer = client.say(session["id"], "Remember: the harbour code is Tern-4471.")
    assert (answer.turn["state"], bool(answer.text)) == ("completed", True)
    assert "Tern-4471" in client.say(session["id"], "What is the harbour code?").text
    assert [turn["id"] for turn in client.turns(session["id"])][1] == answer.turn["id"]
    assert client.wait(answer.turn).text == answer.text
    messages = list(client.messages(session["id"]))
    assert [message["seq"] for message in messages] == [1, 2, 3, 4]
    assert session["id"] in [item["id"] for item in client.sessions(label="test=client")]
    assert client.search("harbour", session_id=session["id"])["items"]
    assert client.context(session["id"], format="anthropic").get("payload")
    call = next(client.calls(session["id"]))
    assert client.call_payload(call["id"])["digest_matches"]
    fork = client.fork_session(session["id"], at_message_id=messages[1]["id"])
    assert fork["parent_id"] == session["id"]
    recorded = client.record_turn(session["id"], user="And now?", assistant="Low tide.", tokens={"input": 5})
    assert (recorded["state"], recorded["usage"]["source"]) == ("completed", "caller")
    assert client.update_session(session["id"], title="Port")["title"] == "Port"
    assert client.compact(session["id"], wait=True)
    assert isinstance(client.compactions(session["id"]), list)
    assert client.verify(session["id"])["ok"]
    assert client.archive_session(session["id"])["archived"]
    events = [event["seq"] for event in client.events(session["id"])]
    assert events == list(range(1, len(events) + 1))
    assert "demo" in [model["alias"] for model in client.models()]


def test_saved_prompts(client: Client):
    prompt = client.create_prompt(name="explain-tides", text="Explain {{topic}}.", title="Tides")
    assert client.update_prompt(prompt["id"], is_shared=True)["is_shared"]
    assert [item["name"] for item in client.prompts(q="tide")] == ["explain-tides"]
    assert client.read_prompt(prompt["id"])["text"] == "Explain {{topic}}."
    client.delete_prompt(prompt["id"])
    with raises("SAVED_PROMPT_NOT_FOUND"):
        client.read_prompt(prompt["id"])


def test_an_assistant_with_its_versions(client: Client, tmp_path: Path):
    assistant = client.create_assistant(name="Pilot", instructions="Speak of boats.", starters=["Which tide?"])
    session = client.create_session(assistant_id=assistant["id"])
    assert session["assistant_version_id"] == assistant["version_id"]
    assert client.update_assistant(assistant["id"], name="Harbour pilot")["version"] == 2
    assert [version["name"] for version in client.assistant_versions(assistant["id"])] == ["Harbour pilot", "Pilot"]
    assert assistant["id"] in [item["id"] for item in client.assistants()]
    tides = tmp_path / "tides.txt"
    tides.write_text("4.2 m")
    assert [file["path"] for file in client.add_assistant_file(assistant["id"], tides)["files"]] == ["tides.txt"]
    [file] = client.add_assistant_file(assistant["id"], tides, name="tides.txt")["files"]
    changed = client.remove_assistant_file(assistant["id"], file["id"])
    assert (changed["version"], changed["files"]) == (4, [])
    picture = tmp_path / "pilot.png"
    picture.write_bytes(drawing())
    assert client.set_assistant_picture(assistant["id"], picture)["picture"]
    assert client.remove_assistant_picture(assistant["id"])["picture"] is None
    client.delete_assistant(assistant["id"])
    with raises("ASSISTANT_NOT_FOUND"):
        client.read_assistant(assistant["id"])
    assert client.read_session(session["id"])["assistant_version_id"] == assistant["version_id"]


def test_a_project_with_its_sessions_and_members(client: Client):
    project = client.create_project(name="Harbour", instructions="Speak of boats.")
    config = {"max_output_tokens": 50}
    assert client.update_project(project["id"], config=config)["config"] == config
    session = client.create_session(project_id=project["id"])
    assert session["config"] == config
    assert (session["project_id"], project["is_owner"]) == (project["id"], True)
    assert [item["id"] for item in client.sessions(project_id=project["id"])] == [session["id"]]
    assert client.update_project(project["id"], name="Quay")["name"] == "Quay"
    [owner] = client.project_members(project["id"])
    assert list(client.project_files(project["id"])) == []
    with raises("INVALID_REQUEST"):
        client.add_project_member(project["id"], "nobody")
    with raises("INVALID_REQUEST"):
        client.remove_project_member(project["id"], owner["id"])
    with raises("INVALID_REQUEST"):
        client.leave_project(project["id"])
    assert project["id"] in [item["id"] for item in client.projects()]
    assert client.update_session(session["id"], project_id="")["project_id"] is None
    client.delete_project(project["id"])
    with raises("PROJECT_NOT_FOUND"):
        client.read_project(project["id"])


def test_a_message_of_parts_brings_its_picture_and_its_audio(client: Client):
    session_id = client.create_session()["id"]
    parts = [{"type": "text", "text": "What is this?"}, image_part(drawing()), audio_part(recording())]
    assert client.say(session_id, None, parts=parts).turn["state"] == "completed"
    asked = next(client.messages(session_id))
    assert [part["type"] for part in asked["parts"]] == ["text", "file_ref", "file_ref"]


def test_facts_are_remembered_corrected_withdrawn_and_forbidden(client: Client):
    session_id = client.create_session()["id"]
    client.record_turn(session_id, user="I prefer tea.", assistant="Noted.")
    message = next(client.messages(session_id))
    quote: Quote = {"message_id": message["id"], "text": "prefer tea"}
    fact = client.remember(session_id, "Prefers tea.", kind="preference", subject="Drinks", salience=80, quote=quote)
    assert (fact["subject"], fact["quotes"][0]["text"]) == ("drinks", "prefer tea")
    better = client.correct_fact(session_id, fact["id"], "Prefers green tea.")
    assert (better["salience"], better["kind"]) == (80, "preference")
    assert [one["superseded_by"] for one in client.facts(session_id, state="superseded")] == [better["id"]]
    assert [one["id"] for one in client.facts(session_id, q="green", kind="preference")] == [better["id"]]
    assert client.forbid_fact(session_id, better["id"])["state"] == "forbidden"
    assert client.allow_fact(session_id, better["id"])["state"] == "withdrawn"
    other = client.remember(session_id, "Lives in Oslo.", kind="entity")
    assert client.hold_fact(session_id, other["id"], "person")["held_for"] == "person"
    assert [(one["id"], one["session_id"]) for one in client.held_facts()] == [(other["id"], session_id)]
    assert client.let_go(other["id"]) == {"id": other["id"], "held_for": "session"}
    assert client.hold_fact(session_id, other["id"], "organisation")["held_for"] == "organisation"
    assert client.withdraw_fact(session_id, other["id"])["state"] == "withdrawn"
    assert list(client.facts(session_id, state="live")) == []
    with raises("QUOTE_NOT_FOUND"):
        client.remember(session_id, "Prefers coffee.", kind="preference", quote={**quote, "text": "coffee"})
    assert "Prefers" not in str(client.context(session_id, question="What do I drink?"))


def test_each_sentence_of_a_summary_leads_to_the_messages_that_it_rests_on(caller: Caller, client: Client):
    session_id = client.create_session()["id"]
    for number in range(1, 5):
        said = f"Ines counted {number}47 crates in Harwich. {'The fog came in from the sea. ' * 40}"
        client.record_turn(session_id, user=said, assistant="Noted.")
    assert client.compact(session_id, wait=True)["state"] == "completed"
    [summary] = client.summaries(session_id)
    wait_until(lambda: any(client.claims(summary["id"])))
    claims = list(client.claims(summary["id"]))
    assert [claim["number"] for claim in claims] == list(range(1, len(claims) + 1))
    assert all(summary["text"][claim["start"] : claim["end"]] == claim["text"] for claim in claims)
    first = next(claim for claim in claims if "147 crates" in claim["text"])
    ids = {message["id"]: message["seq"] for message in client.messages(session_id)}
    assert (first["support"], [ids[said["message_id"]] for said in first["messages"]]) == ("quoted", [1])
    with raises("SUMMARY_NOT_FOUND"):
        list(client.claims("sum_none"))

    async def ask() -> list[str]:
        async with AsyncClient(caller.site.url, key=caller.key) as other:
            return [claim["id"] async for claim in other.claims(summary["id"])]

    assert asyncio.run(ask()) == [claim["id"] for claim in claims]


def test_tool_calls_are_told_with_their_results(client: Client):
    session_id = client.create_session()["id"]
    calls = [
        {"type": "tool", "tool_name": "ls", "tool_call_id": "a", "input": "{}", "output": "app.py"},
        {"type": "tool", "tool_name": "run", "tool_call_id": "b", "input": "{}", "error": "no"},
    ]
    client.record_turn(session_id, user="Look.", assistant=calls)
    found = list(client.tool_interactions(session_id))
    assert [(call["tool_name"], call["status"], call["result"]) for call in found] == [
        ("ls", "SUCCESS", "app.py"),
        ("run", "ERROR", None),
    ]
    assert [call["tool_call_id"] for call in client.tool_interactions(session_id, status="ERROR")] == ["b"]


def test_a_question_is_edited_answered_again_and_its_branch_chosen(client: Client):
    session_id = client.create_session()["id"]
    client.say(session_id, "Remember: the harbour code is Tern-4471.")
    client.say(session_id, "Remember: the harbour code is Gull-12.", parent_id="root")
    edited = list(client.messages(session_id, branch=1))
    assert [(message["branch"], message["parent_id"]) for message in edited] == [(1, None), (1, edited[0]["id"])]
    again = client.say(session_id, None, parent_id=edited[0]["id"])
    assert (again.turn["state"], len(again.turn["message_ids"])) == ("completed", 1)
    assert [branch["messages"] for branch in client.branches(session_id)] == [2, 2, 1]
    assert [branch["is_chosen"] for branch in client.choose_branch(session_id, 0)] == [True, False, False]
    assert "Tern-4471" in client.say(session_id, "What is the harbour code?").text
    assert [message["seq"] for message in client.messages(session_id, branch=0)] == [1, 2, 6, 7]
    with raises("BRANCH_NOT_FOUND"):
        client.choose_branch(session_id, 3)
    with raises("MESSAGE_NOT_FOUND"):
        client.say(session_id, "Hm", parent_id="msg_none")


def test_a_session_goes_to_a_file_and_comes_back(client: Client, tmp_path: Path):
    session = client.create_session(title="Tides")
    client.say(session["id"], "Remember: the harbour code is Tern-4471.")
    client.archive_session(session["id"])
    file = client.export_session(session["id"], tmp_path / "tides.jsonl")
    assert client.export_session(session["id"], tmp_path / "tides.md", format="markdown").read_text().count("Tern-4471")
    assert file.read_bytes() in client.export_all(tmp_path / "all.jsonl").read_bytes()
    again = client.wait_import(client.import_files(file))
    assert (again["state"], [found["id"] for found in again["sessions"]]) == ("done", [session["id"]])
    talk = tmp_path / "talk.jsonl"
    talk.write_text('{"messages": [{"role": "user", "content": "Ahoy"}, {"role": "assistant", "content": "Hello"}]}')
    [made] = client.wait_import(client.import_files(talk, model="demo"))["sessions"]
    assert [message["parts"][0].get("text") for message in client.messages(made["id"])] == ["Ahoy", "Hello"]
    assert client.reopen_session(session["id"])["archived"] is False
    answer = [message for message in client.messages(session["id"]) if message["role"] == "assistant"][-1]
    assert client.rate_answer(session["id"], answer["id"], "up", comment="Just so")["thumb"] == "up"
    assert [found["comment"] for found in client.ratings(session["id"])] == ["Just so"]
    share = client.share_session(session["id"], audience="site")
    assert client.revoke_share(session["id"], share["id"])["state"] == "revoked"
    assert [found["path"] for found in client.shares(session["id"])] == [share["path"]]
    assert client.trash_session(session["id"])["trashed"] is True
    assert [found["id"] for found in client.sessions(trashed=True)] == [session["id"]]
    assert client.restore_session(session["id"])["trashed"] is False
    client.delete_session(made["id"])
    assert made["id"] not in [found["id"] for found in (*client.sessions(), *client.sessions(trashed=True))]
    assert "Tern-4471" in client.say(session["id"], "What is the harbour code?").text


def test_an_export_that_breaks_off_leaves_no_file(caller: Caller, client: Client, tmp_path: Path):
    session = client.create_session()
    client.say(session["id"], "!long 20000")
    place = tmp_path / "talk.jsonl"
    with CuttingProxy(caller.site.port) as proxy, Client(proxy.url, key=caller.key) as other:
        proxy.bytes_left = [20_000]
        with pytest.raises(ConnectionFailed):
            other.export_session(session["id"], place)
    with raises("SESSION_NOT_FOUND"):
        client.export_session("sess_none", place)
    assert list(tmp_path.iterdir()) == []


def test_a_session_in_host_mode_reads_a_message_by_itself(client: Client):
    session = client.create_session(host_mode=True, peer_name="harbour")
    sent = client.send_message(session["id"], "Which ship came in last?", kind="request")
    assert any(frame["type"] == "turn.completed" for frame in client.follow(session["id"]))
    [read] = client.inbox(session["id"], waiting=False)
    assert (read["id"], read["kind"], list(client.inbox(session["id"], waiting=True))) == (sent["id"], "request", [])
    [turn] = client.turns(session["id"])
    assert (turn["id"], turn["state"]) == (read["turn_id"], "completed")
    client.archive_session(session["id"])


def test_the_callers_tools_suspend_a_turn_until_they_answer(client: Client):
    session = client.create_session()
    tool: Tool = {"name": "weather", "description": "The weather.", "parameters": {"type": "object", "properties": {}}}
    frames = list(client.stream(session["id"], "!tool weather {}", tools=[tool]))
    assert frames[-1]["type"] == "turn.suspended"
    turn = next(client.turns(session["id"]))
    [waiting] = turn["waits_for"]
    assert (waiting["tool_name"], waiting["reason"]) == ("weather", "caller")
    with raises("SESSION_BUSY") as busy:
        client.start_turn(session["id"], "Never mind")
    assert busy.value.details["turn_id"] == turn["id"]
    with raises("APPROVAL_NOT_PENDING"):
        client.decide_approval(session["id"], waiting["part_id"], approved=True)
    results: list[ToolResult] = [{"tool_call_id": waiting["tool_call_id"], "output": "Rain in Kiel"}]
    answer = client.wait(client.answer_tools(session["id"], turn["id"], results))
    assert (answer.turn["state"], "Rain in Kiel" in answer.text) == ("completed", True)
    with raises("TOOL_CALL_ANSWERED"):
        client.answer_tools(session["id"], turn["id"], results)
    with raises("SESSION_NOT_RUNNING"):
        client.interrupt(session["id"])


def test_a_file_is_given_read_by_line_searched_and_goes_with_a_message(client: Client, tmp_path: Path):
    session = client.create_session()
    place = tmp_path / "tides.csv"
    place.write_bytes(b"hour,height\n03:10,4.1\n09:20,0.8\n")
    file = client.upload_file(session["id"], place)
    assert (file["path"], file["size"], client.upload_file(session["id"], place)["id"]) == ("tides.csv", 32, file["id"])
    lines = client.file_lines(file["id"], first=2)
    assert ([line["text"] for line in lines["items"]], lines["total"]) == (["03:10,4.1", "09:20,0.8"], 3)
    found = client.search_file(file["id"], r"4\.1$", mode="regex")
    assert ([hit["number"] for hit in found["items"]], found["next_cursor"]) == ([2], None)
    client.say(session["id"], "When is high tide?", files=[file["id"]])
    [first, *_] = client.messages(session["id"])
    assert "03:10,4.1" in str(first["parts"])
    assert client.read_file(file["id"])["state"] == "explored"
    assert [one["id"] for one in client.files(session["id"])] == [file["id"]]
    assert file["id"] in [one["id"] for one in client.files()]
    with raises("FILE_NOT_FOUND"):
        client.read_file("file_none")


def test_a_large_file_arrives_whole_however_the_line_breaks(caller: Caller, tmp_path: Path):
    session = caller.new_session()
    place = tmp_path / "large.log"
    place.write_bytes(b"".join(b"a line of the log, number %d\n" % number for number in range(300_000)))
    with CuttingProxy(caller.site.port) as proxy, Client(proxy.url, key=caller.key) as client:
        proxy.sent_left = [1_000_000, 3_000_000]
        file = client.upload_file(session, place, name="log.log")
        assert proxy.cuts == 2
    assert (file["path"], file["size"]) == ("log.log", place.stat().st_size)
    assert file["content_id"] == hashlib.sha256(place.read_bytes()).hexdigest()


async def test_a_large_file_goes_up_without_waiting(caller: Caller, tmp_path: Path):
    place = tmp_path / "large.bin"
    place.write_bytes(bytes(range(256)) * 20_000)
    async with AsyncClient(caller.site.url, key=caller.key) as client:
        session = await client.create_session()
        file = await client.upload_file(session["id"], place)
        assert (file["size"], [one["id"] async for one in client.files(session["id"])]) == (5_120_000, [file["id"]])
        await client.archive_session(session["id"])
        with raises("SESSION_ARCHIVED"):
            await client.upload_file(session["id"], place)


def test_errors_are_raised_by_their_code(caller: Caller, client: Client):
    with raises("SESSION_NOT_FOUND") as missing:
        client.read_session("sess_none")
    assert (missing.value.status, missing.value.code) == (404, "SESSION_NOT_FOUND")
    with raises("SESSION_NOT_FOUND"):
        next(client.follow("sess_none"))
    with raises("INVALID_REQUEST"):
        client.create_session(title="x" * 500)
    with Client(caller.site.url, key="mns_wrong") as nobody, raises("NOT_SIGNED_IN"):
        nobody.models()
    with Client("http://127.0.0.1:1", key="") as lost, pytest.raises(ConnectionFailed):
        lost.models()


def test_a_stream_loses_no_word_however_the_line_breaks(caller: Caller):
    session = caller.new_session()
    with CuttingProxy(caller.site.port) as proxy, Client(proxy.url, key=caller.key) as client:
        proxy.bytes_left = [2_500, 700, 900]
        frames = list(client.stream(session, "!slow 10 !long 60"))
        assert proxy.cuts == 3
    seqs = [frame["seq"] for frame in frames if "data" in frame]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
    text = "".join(frame["text"] for frame in frames if frame["type"] == "delta")
    assert text == caller.texts(session)[1]
    assert frames[-1]["type"] == "turn.completed"


def test_a_turn_that_ends_before_it_is_followed_says_all_it_said(client: Client):
    session = client.create_session()
    for _ in range(5):
        frames = list(client.stream(session["id"], "What is 6 * 7?"))
        assert "42" in "".join(frame.get("text", "") for frame in frames)


async def test_the_same_with_async_and_await(caller: Caller):
    async with AsyncClient(caller.site.url, key=caller.key) as client:
        session = await client.create_session(system_prompt="Be brief.")
        frames = [frame async for frame in client.stream(session["id"], "!long 30")]
        text = "".join(frame.get("text", "") for frame in frames)
        [turn] = [turn async for turn in client.turns(session["id"])]
        assert (await client.wait(turn)).text == text
        with raises("SESSION_NOT_FOUND"):
            await client.read_turn("sess_none", "turn_none")


def test_a_map_from_its_items_to_its_results(client: Client):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    begun = client.llm_map("Number {{ item }}", items=[3, 5, "!fail 401"], output_schema=schema, max_retries=0)
    run = client.wait_map(begun)
    assert (run["state"], run["counts"]["completed"], run["counts"]["failed"]) == ("completed", 2, 1)
    followed = list(client.follow_map(run["id"]))
    results = list(client.map_results(run["id"]))
    assert all(line.pop("seq") for line in followed)
    assert sorted(followed, key=lambda line: line["item"]) == results
    assert [line.get("output") for line in results] == [{"n": 3}, {"n": 5}, None]
    assert results[2]["error"]["kind"] == "llm_error"
    [failed] = client.map_items(run["id"], state="failed")
    assert client.read_map_item(run["id"], failed["item"])["tries"][0]["accepted"] is False
    assert [known["id"] for known in client.maps(run["session_id"])] == [run["id"]]
    assert client.wait_map(client.retry_map(run["id"]))["counts"]["failed"] == 1
    with raises("OPERATOR_RUN_NOT_IN_STATE"):
        client.pause_map(run["id"])
    with raises("OPERATOR_RUN_NOT_FOUND"):
        list(client.map_results("map_none"))
    assert client.verify(run["session_id"])["ok"]
