"""Histories of other systems come in, compact to fit, and go on from there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.journeys.conftest import Caller

OPENAI_CHAT = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How deep is the harbour?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "depth", "arguments": '{"at": "quay"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "14 metres"},
        {"role": "assistant", "content": "Fourteen metres at the quay."},
    ]
}


def imported(caller: Caller, *options: Path | str) -> list[dict[str, object]]:
    done = caller.site.manage("import_transcript", "--json", *map(str, options))
    assert done.returncode == 0, done.stderr
    reports: list[dict[str, object]] = json.loads(done.stdout)
    return reports


def test_a_chat_comes_in_whole_and_repeating_it_adds_nothing(caller: Caller, tmp_path: Path):
    path = tmp_path / "chat.json.gz"
    path.write_bytes(gzip.compress(json.dumps(OPENAI_CHAT).encode()))
    [first] = imported(caller, path)
    [again] = imported(caller, path)
    assert (first["sessions_created"], first["turns_stored"], first["turns_known"]) == (1, 1, 0)
    assert (again["sessions_created"], again["turns_stored"], again["turns_known"]) == (0, 0, 1)
    assert first["sessions"] == again["sessions"]
    [session] = first["sessions"].values()  # type: ignore[attr-defined]
    read = caller.call("GET", f"/api/sessions/{session}")
    assert (read["system_prompt"], read["model"], read["state"]) == ("Be brief.", "demo", "idle")
    _, called, answer = caller.messages(session)
    tool = next(part for part in called["parts"] if part["type"] == "tool")
    assert (tool["tool_name"], tool["output"], tool["state"]) == ("depth", "14 metres", "completed")
    assert "Fourteen" in caller.texts(session)[2]
    assert answer["outcome"] == "complete"
    assert caller.say(session, "What did I ask about the harbour?")["state"] == "completed"
    assert "deep" in caller.texts(session)[-1]


def test_a_file_of_no_known_kind_is_refused_in_words(caller: Caller, tmp_path: Path):
    path = tmp_path / "nonsense.json"
    path.write_text("nonsense")
    done = caller.site.manage("import_transcript", str(path))
    assert done.returncode == 2
    assert "INVALID_REQUEST" in done.stderr


def test_a_file_that_is_not_there_is_named(caller: Caller, tmp_path: Path):
    missing = caller.site.manage("import_transcript", str(tmp_path / "nosuch.json"))
    assert missing.returncode == 2
    assert "cannot be read" in missing.stderr


def test_every_sample_file_comes_in_with_every_record_accounted_for(caller: Caller, real_data: Path):
    files = sorted((real_data / "claude_code").glob("*.jsonl*"))
    reports = imported(caller, *files)
    assert len(reports) == len(files)
    for report in reports:
        assert sum(report["read"].values()) == sum(report["stored"].values()) > 0  # type: ignore[attr-defined]
        assert report["skipped"] == []
    children = [item for item in caller.call("GET", "/api/sessions?limit=500")["items"] if item["parent_id"]]
    assert {item["agent"] for item in children} >= {"sub-agent"}


def test_a_long_agent_session_fits_a_small_window_and_goes_on(caller: Caller, stranger: Caller, real_data: Path):
    added = caller.site.manage("model", "add", "--alias=demo32", "--litellm=demo/chat", "--context=32000")
    assert added.returncode == 0, added.stderr
    # The administrator may have it from the samples already.
    [report] = imported(caller, real_data / "claude_code" / "long.jsonl.gz", "--model=demo32", "--user=eve")
    importer = stranger
    session = next(iter(report["sessions"].values()))  # type: ignore[attr-defined]
    before = importer.call("GET", f"/api/sessions/{session}")
    assert before["context"]["used_tokens"] > 3 * before["context"]["hard_tokens"]
    turn = importer.wait(importer.start(session, "What did I ask you to do first?"), seconds=120)
    assert turn["state"] == "completed"
    after = importer.call("GET", f"/api/sessions/{session}")
    assert after["context"]["window"] == 32_000
    assert after["context"]["used_tokens"] < after["context"]["hard_tokens"]
    assert after["message_count"] >= before["message_count"] + 2
    [run] = importer.call("GET", f"/api/sessions/{session}/compactions")["items"]
    assert (run["state"], run["trigger"]) == ("completed", "hard")
    tools = [
        part
        for page in (0, 100)
        for message in importer.call("GET", f"/api/sessions/{session}/messages?after={page}&limit=100")["items"]
        for part in message["parts"]
        if part["type"] == "tool"
    ]
    assert len(tools) == 186
    assert all(part["output"] is not None or part["error"] for part in tools)
