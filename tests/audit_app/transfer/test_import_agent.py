"""An agent's memory in Autobyteus' layout becomes a session, and that one's export is the layout again."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from audit_app.proof.verify import verify_session
from audit_app.transfer import imports
from audit_app.transfer.readable import memory_files
from compaction_app.facts import store
from compaction_app.facts.queries import every_fact
from mnesis_core.facts import FactState
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_sessions
from tests.audit_app.transfer.test_import_page import bring, folder, limit  # noqa: F401
from tests.core.transcripts.test_transcripts_autobyteus import SEED, call, result, semantic, trace
from tests.support.record.facts import new_fact, place_of
from tests.support.record.talks import HOSTILE, exchange, new_session, say, tool

pytestmark = pytest.mark.django_db
NAMES = ("raw_traces.jsonl", "raw_traces_archive.jsonl", "episodic.jsonl", "semantic.jsonl")
EPISODE = {
    "id": "ep_1",
    "ts": 1738100500.0,
    "turn_ids": ["turn_0001"],
    "summary": "They spoke.",
    "tags": ["x"],
    "salience": 0.7,
}
TEA = semantic("prefer tea", salience=0.9)
AGENT = {
    "raw_traces_archive.jsonl": [
        trace(1, "user", "I prefer tea."),
        call(2, "a"),
        result(3, "a"),
        trace(4, "assistant", "Noted."),
    ],
    "raw_traces.jsonl": [
        trace(5, "user", "\ud800 \x00 and?", turn=2),
        call(6, "b", turn=2),
        result(7, "b", {"x": [1]}, turn=2),
    ],
    "episodic.jsonl": [EPISODE],
    "semantic.jsonl": [TEA, semantic("Lives in Oslo.")],
}


def lines(records: list[Any]) -> bytes:
    return "".join(f"{json.dumps(record)}\n" for record in records).encode()


def layout(session_id: str) -> dict[str, list[Any]]:
    """The files of a session's export, each line as a value."""
    files = {name.rpartition("/")[2]: b"".join(content) for name, content in memory_files(session_id)}
    return {name: [json.loads(line) for line in files[name].splitlines()] for name in NAMES}


def memory(session_id: str) -> list[Any]:
    """What is in the layout of a session but the ids of its facts, whichever of two files a trace stands in."""
    files = layout(session_id)
    traces = sorted(map(json.dumps, files["raw_traces.jsonl"] + files["raw_traces_archive.jsonl"]))
    return [traces, files["episodic.jsonl"], [fact | {"id": ""} for fact in files["semantic.jsonl"]]]


def test_an_agents_memory_becomes_a_session_and_comes_again_only_with_what_is_new(
    bring: Callable[..., Any],  # noqa: F811
) -> None:
    files = [(name, lines(records)) for name, records in AGENT.items()]
    told = bring(*files)
    assert (told["state"], told["error"]) == ("done", None)
    [session] = told["sessions"]
    assert [message.role for message in load_messages(session["id"])] == [
        "user",
        "assistant",
        "assistant",
        "user",
        "assistant",
        "system",
    ]
    assert "Skipped 1 semantic: these words were not said, and a fact is what was said word for word" in told["notes"]
    [fact] = every_fact(session["id"])
    assert (fact.statement, fact.subject, fact.quotes[0].seq, fact.said_seq) == ("prefer tea", "drinks", 1, 1)
    assert verify_session(session["id"]).problems == []

    with change(session["id"]) as record:
        store.withdraw_fact(record, fact.id)
    more = [trace(8, "user", "And Oslo?", turn=3), trace(9, "assistant", "Oslo.", turn=3)]
    grown = AGENT | {
        "raw_traces.jsonl": AGENT["raw_traces.jsonl"] + more,
        "episodic.jsonl": [EPISODE, EPISODE | {"id": "ep_2"}],
        "semantic.jsonl": [TEA, semantic("And Oslo?")],
    }
    for _ in range(2):
        again = bring(*((name, lines(records)) for name, records in grown.items()))
        assert [one["id"] for one in again["sessions"]] == [session["id"]]
        assert len(load_messages(session["id"])) == 9
        assert [(one.statement, one.state.value) for one in every_fact(session["id"])] == [
            ("prefer tea", "withdrawn"),
            ("And Oslo?", "live"),
        ]
    assert verify_session(session["id"]).problems == []


def test_what_came_from_the_layout_goes_back_as_it_came(bring: Callable[..., Any]) -> None:  # noqa: F811
    [session] = bring(*((name, lines(records)) for name, records in AGENT.items()))["sessions"]
    out = layout(session["id"])
    came = AGENT["raw_traces_archive.jsonl"] + AGENT["raw_traces.jsonl"]
    assert out["raw_traces.jsonl"] == came
    assert [list(trace) for trace in out["raw_traces.jsonl"]] == [list(trace) for trace in came]
    assert (out["raw_traces_archive.jsonl"], out["episodic.jsonl"]) == ([], [EPISODE])
    [fact] = out["semantic.jsonl"]
    assert (fact["fact"], fact["tags"], fact["salience"]) == ("prefer tea", ["preference", "drinks"], 0.9)


def test_an_export_comes_in_and_goes_out_the_same(bring: Callable[..., Any], reader: User) -> None:  # noqa: F811
    session_id = new_session(reader)
    exchange(session_id, f"I prefer tea {HOSTILE}", HOSTILE)
    say(session_id, ("user", []), ("assistant", [tool(output="x"), tool(tool_call_id="call_2", output=HOSTILE)]))
    message = load_messages(session_id)[0]
    with change(session_id) as record:
        place = place_of(message, "prefer tea")
        store.record_fact(record, new_fact("prefer tea", said_at=message.created_at, places=(place,)))
    first = layout(session_id)
    [copy] = bring(*((name, lines(records)) for name, records in first.items()))["sessions"]
    assert copy["id"] != session_id
    assert memory(copy["id"]) == memory(session_id)
    [once_more] = bring(*((name, lines(records)) for name, records in layout(copy["id"]).items()))["sessions"]
    assert once_more["id"] == copy["id"]


def test_a_forbidden_fact_does_not_come_in(bring: Callable[..., Any]) -> None:  # noqa: F811
    traces = ("raw_traces.jsonl", lines([trace(1, "user", "I prefer tea.")]))
    [session] = bring(traces)["sessions"]
    with change(session["id"]) as record:
        store.forbid_fact(record, store.record_fact(record, new_fact("Prefer tea!")))
    bring(traces, ("semantic.jsonl", lines([TEA])))
    assert [fact.state for fact in every_fact(session["id"])] == [FactState.FORBIDDEN]


def test_what_cannot_be_read_is_a_clear_error(bring: Callable[..., Any], reader: User) -> None:  # noqa: F811
    traces = lines(AGENT["raw_traces.jsonl"])
    for files in (
        [("raw_traces.jsonl", b"")],
        [("semantic.jsonl", lines([TEA]))],
        [("raw_traces.jsonl", b"\x1f\x8bnonsense")],
        [("raw_traces.jsonl", traces), ("raw_traces.jsonl", traces)],
        [("raw_traces.jsonl", b"\x00\xff{" * 500)],
    ):
        told = bring(*files)
        assert (told["state"], told["error"]["code"]) == ("failed", "INVALID_REQUEST"), files
    assert list_sessions(owner_id=reader.pk) == []


def test_a_folder_of_agents_is_imported_whole(reader: User, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, records in AGENT.items():
        for agent in ("agent_1", "agent_2"):
            file = tmp_path / "memory" / "agents" / agent / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(lines([trace | {"agent": agent} for trace in records]))
    call_command("import_transcript", str(tmp_path / "memory"), user=reader.username, json=True)
    reports = json.loads(capsys.readouterr().out)
    assert [(report["format"], report["facts_stored"], report["turns_stored"]) for report in reports] == [
        ("autobyteus", 1, 3)
    ] * 2
    assert len(list_sessions(owner_id=reader.pk)) == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(CommandError, match=r"raw_traces\.jsonl"):
        call_command("import_transcript", str(tmp_path / "empty"), user=reader.username)


def packed(files: dict[str, bytes] | list[tuple[str, bytes]], **options: Any) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED, **options) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a name is there twice
        for name, content in files.items() if isinstance(files, dict) else files:
            archive.writestr(name, content)
    return whole.getvalue()


def agents(*names: str) -> dict[str, bytes]:
    return {
        f"memory/agents/{agent}/{name}": lines([record | {"agent": agent} for record in records])
        for agent in names
        for name, records in AGENT.items()
    }


def test_a_zip_of_agents_is_imported_like_the_folder(
    bring: Callable[..., Any],  # noqa: F811
    reader: User,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = packed(
        {**agents("agent_1", "agent_2"), "memory/README.md": b"Mine.", "memory/agents/empty/semantic.jsonl": b""}
    )
    told = bring(("memory.zip", whole))
    assert (told["state"], len(told["sessions"])) == ("done", 2)
    again = bring(("renamed", whole))
    assert {session["id"] for session in again["sessions"]} == {session["id"] for session in told["sessions"]}
    path = tmp_path / "memory.zip"
    path.write_bytes(whole)
    call_command("import_transcript", str(path), user=reader.username, json=True)
    reports = json.loads(capsys.readouterr().out)
    assert [(report["format"], report["turns_stored"], report["turns_known"]) for report in reports] == [
        ("autobyteus", 0, 3)
    ] * 2
    assert len(list_sessions(owner_id=reader.pk)) == 2


def test_what_an_export_writes_as_a_zip_comes_in_as_it_was(
    bring: Callable[..., Any],  # noqa: F811
    reader: User,
    tmp_path: Path,
) -> None:
    [first] = bring(*((name, lines(records)) for name, records in AGENT.items()))["sessions"]
    call_command("export", first["id"], out=str(tmp_path / "memory.zip"), format="autobyteus")
    [second] = bring(("memory.zip", (tmp_path / "memory.zip").read_bytes()))["sessions"]
    assert memory(second["id"]) == memory(first["id"])


def test_a_zip_that_is_damaged_or_not_safe_ends_in_words(
    bring: Callable[..., Any],  # noqa: F811
    reader: User,
    subtests: pytest.Subtests,
) -> None:
    one = agents("agent_1")
    good, [name, *_] = packed(one), one
    broken = bytearray(good)
    broken[60:90] = bytes(30)  # within the first file
    locked = bytearray(good)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = -1
        while (at := locked.find(signature, at + 1)) >= 0:
            locked[at + offset] |= 1
    for content, words in (
        (good[:-30], "no readable zip archive"),
        (bytes(broken), "cannot be read"),
        (bytes(locked), "encrypted"),
        (packed({}), "holds no raw_traces.jsonl"),
        (packed({"conversations.json": b"[]"}), "holds no raw_traces.jsonl"),
        (packed([*one.items(), (name, b"{}")]), "twice"),
        (packed({"../../agents/a/raw_traces.jsonl": one[name]}), "leaves its folder"),
        (packed({"/etc/raw_traces.jsonl": one[name]}), "absolute path"),
        (packed({"a/raw_traces.jsonl": b"\x00\xff{" * 500}), ""),
    ):
        with subtests.test(words):
            told = bring(("memory.zip", content))
            assert (told["state"], told["error"]["code"]) == ("failed", "INVALID_REQUEST")
            assert words in told["error"]["message"]
    assert list_sessions(owner_id=reader.pk) == []


def test_a_zip_may_not_unpack_to_more_than_an_import_may_have(
    bring: Callable[..., Any],  # noqa: F811
    reader: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = packed(
        {f"agents/{number}/raw_traces.jsonl": lines([trace(number, "user", "a" * 900_000)]) for number in range(3)}
    )
    assert len(whole) < 10_000
    limit(monkeypatch, imports, import_unpacked_bytes=2_000_000)
    told = bring(("memory.zip", whole))
    assert (told["state"], told["error"]["code"]) == ("failed", "REQUEST_TOO_LARGE")
    assert len(list_sessions(owner_id=reader.pk)) == 2, "it counts what is unpacked, not what the list claims"


def test_the_seeds_example_is_told_to_a_model(bring: Callable[..., Any], browser: Client) -> None:  # noqa: F811
    [session] = bring(("raw_traces.jsonl", "\n".join(SEED).encode()), ("episodic.jsonl", lines([EPISODE])))["sessions"]
    payload = browser.get(f"/api/sessions/{session['id']}/context?format=openai_chat").json()["payload"]
    assert [message["role"] for message in payload["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert "They spoke." not in json.dumps(payload)
