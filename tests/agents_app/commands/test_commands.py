"""Commands about sessions: what they print, and with what they end."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command, load_command_class

from agents_app.endpoints.terminal import read_message, watch
from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from files_app.intake import explore_file
from files_app.queries import list_files
from mnesis_core.errors import InvalidRequest, ModelUnreachable
from mnesis_core.llm.interface import ToolCall
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord, TurnRecord
from sessions_app.assistants import assistant_store
from sessions_app.conf import site_config
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_sessions, load_session
from tests.support.material.drawings import document, drawing
from tests.support.people.story import spoken
from tests.support.record.trees import make_tree


@tool(needs_approval=True)
def demolish(context: ToolContext, what: str) -> str:
    """Demolish something."""
    return f"demolished {what}"


DEMOLISH = Step(tool_calls=(ToolCall(id="c1", name="demolish", arguments='{"what": "shed"}'),))


def run(*words: str, user: str = "alice") -> tuple[str, str, int]:
    """A command: its output, its errors, its exit status."""
    output, errors = io.StringIO(), io.StringIO()
    try:
        call_command(*words, "--user", user, stdout=output, stderr=errors)
    except CommandError as error:
        return output.getvalue(), f"{errors.getvalue()}{error}", error.returncode
    return output.getvalue(), errors.getvalue(), 0


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A terminal at which lines are typed."""
    keyboard, line = os.openpty()
    with os.fdopen(line) as source:
        monkeypatch.setattr(sys, "stdin", source)
        yield lambda *lines: os.write(keyboard, "".join(f"{text}\n" for text in lines).encode())
    os.close(keyboard)


@pytest.fixture
def demolisher(alice: User) -> SessionRecord:
    return lifecycle.create_session(owner=alice, config={"turn": {"tools": ["demolish"]}})


def test_an_answer_that_is_there_before_anybody_looks_is_printed_too(alice: User, script: Any) -> None:
    script("Paris.")
    session_id = lifecycle.create_session(owner=alice).id
    printed: list[str] = []

    async def begin() -> TurnRecord:
        turn = (await lifecycle.start_turn(session_id, owner_id=alice.pk, message="What is the capital?")).turn
        await lifecycle.wait_turn(session_id, turn.id, owner_id=alice.pk)
        return turn

    turn = asyncio.run(watch(session_id, alice.pk, begin, text=printed.append, note=print))
    assert (printed, turn.state) == (["Paris."], "completed")


def test_run_prints_the_answer_and_nothing_else(alice: User, script: Any) -> None:
    script("Paris.", "Two million.")
    output, errors, status = run("run", "What is the capital?")
    assert (output, status) == ("Paris.\n", 0)
    assert "completed" in errors
    output, _, status = run("resume", "last", "How many", "live there?")
    assert (output, status) == ("Two million.\n", 0)
    [session] = list_sessions(owner_id=alice.pk, archived=None, limit=10)
    assert spoken(load_messages(session.id)[2]) == "How many live there?"


def test_an_earlier_session_is_gone_on_with(alice: User, script: Any) -> None:
    script("Paris.", "Rome.", "Two million.")
    first, second = (json.loads(run("run", "--json", words)[0]) for words in ("France?", "Italy?"))
    assert json.loads(run("resume", "--json", "~1", "How many live there?")[0])["session_id"] == first["session_id"]
    assert [len(load_messages(turn["session_id"])) for turn in (first, second)] == [4, 2]


def test_run_begins_a_session_with_an_assistant(alice: User, script: Any) -> None:
    model = script("Four metres.", "Five.")
    config = {"parameters": {"effort": "low"}}
    pilot = assistant_store.create_assistant(owner_id=alice.pk, name="Pilot", instructions="Be dry.", config=config)
    words = ("run", "--json", "--assistant", pilot.id, "--system-prompt", "Be brief.", "How high is the tide?")
    session = load_session(json.loads(run(*words)[0])["session_id"])
    assert (session.assistant_version_id, session.config) == (pilot.version_id, config)
    assert model.requests[0].payload["messages"][0]["content"] == "Be dry.\n\nBe brief."


def test_run_as_json_is_one_value(alice: User, script: Any) -> None:
    script("Paris.")
    output, _, status = run("run", "--json", "What is the capital?")
    answer = json.loads(output)
    assert (answer["state"], answer["text"], status) == ("completed", "Paris.", 0)


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("run", "--model", "none", "Hello"), 4, "MODEL_NOT_FOUND"),
        (("run", "--assistant", "asst_nobody", "Hello"), 4, "ASSISTANT_NOT_FOUND"),
        (("run", "--assistant", "\ud800\0", "Hello"), 4, "ASSISTANT_NOT_FOUND"),
        (("run", " "), 2, "INVALID_REQUEST"),
        (("resume", "~3", "Hello"), 4, "SESSION_NOT_FOUND"),
        (("resume", "~x", "Hello"), 4, "SESSION_NOT_FOUND"),
        (("sessions", "read", "sess_nobody"), 4, "SESSION_NOT_FOUND"),
        (("sessions", "interrupt", "last"), 7, "SESSION_NOT_RUNNING"),
        (("sessions", "approve", "last", "part_x"), 4, "PART_NOT_FOUND"),
        (("sessions", "answer", "last", "part_x", "yes"), 7, "SESSION_NOT_RUNNING"),
        (("sessions", "fork", "last", "--at", "msg_x"), 4, "MESSAGE_NOT_FOUND"),
        (("sessions", "list", "--label", "x"), 2, "INVALID_REQUEST"),
    ],
)
def test_a_fault_has_the_exit_status_of_the_registry(
    alice: User, session: SessionRecord, words: tuple[str, ...], status: int, code: str
) -> None:
    output, errors, found = run(*words)
    assert (output, found) == ("", status)
    assert f"{code}: " in errors
    output, _, found = run(*words, "--json")
    assert (json.loads(output)["error"]["code"], found) == (code, status)


@pytest.mark.slow
def test_files_go_with_a_message(alice: User, script: Any, tmp_path: Path) -> None:
    script("A gradient.", "A page and a table.")
    picture, page, table = (tmp_path / name for name in ("a.png", "a.pdf", "a.csv"))
    picture.write_bytes(drawing())
    page.write_bytes(document("A page"))
    table.write_text("time,metres\n03:10,4.1\n")
    assert run("run", "What is this?", "--file", str(picture))[2] == 0
    assert run("resume", "last", "And these?", "--file", str(page), "--file", str(table))[2] == 0
    [session] = list_sessions(owner_id=alice.pk, archived=None, limit=10)
    first, _, second, _ = load_messages(session.id)
    assert [stored.part.type for stored in first.parts] == ["text", "file_ref"]
    assert [stored.part.type for stored in second.parts] == ["text", "file_ref", "text"]
    assert "03:10,4.1" in spoken(second)
    assert [file.path for file in list_files(owner_id=alice.pk)] == [str(table), str(page), str(picture)]


@pytest.fixture
def small_files(settings: Any, tmp_path: Path) -> Iterator[None]:
    config = tmp_path / "mnesis.toml"
    config.write_text("[files]\nlargest_bytes = 50\n")
    settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(config)}
    site_config.cache_clear()
    yield
    site_config.cache_clear()


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("words", [("run", "Look"), ("resume", "last", "Look")])
def test_a_file_that_cannot_go_with_a_message_is_refused(
    alice: User, session: SessionRecord, words: tuple[str, ...], tmp_path: Path, subtests: Any
) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "large.txt").write_text("x" * 51)
    (tmp_path / "good.txt").write_text("x")
    faults = dict.fromkeys(("none.png", ".", "a\0", "\ud800"), "cannot be read")
    for name, told in {**faults, "empty.png": "is empty", "large.txt": "larger than the 50 bytes"}.items():
        with subtests.test(ascii(name)):
            paths = ("--file", f"{tmp_path}/good.txt", "--file", f"{tmp_path}/{name}")
            output, errors, status = run(*words, *paths)
            code = "REQUEST_TOO_LARGE" if name == "large.txt" else "INVALID_REQUEST"
            assert (output, status) == ("", 2)
            assert f"{code}: " in errors
            assert told in errors
            assert json.loads(run(*words, "--json", *paths)[0])["error"]["code"] == code
            assert [found.id for found in list_sessions(owner_id=alice.pk, archived=None)] == [session.id]
            assert load_messages(session.id) == []


def test_a_message_may_have_so_many_files(alice: User, session: SessionRecord) -> None:
    _, errors, status = run("run", "Look", *(["--file", os.devnull] * 51))
    assert (status, "a message may have 50 files" in errors) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("sessions", "burn"),
        ("sessions",),
        ("sessions", "fork", "last"),
        ("run", "--no-such"),
        ("resume",),
        ("resume", "last", "--assistant", "asst_x", "Hello"),
    ],
)
def test_wrong_arguments_end_with_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    command = load_command_class("agents_app", words[0])
    with pytest.raises(SystemExit) as ended:
        command.run_from_argv(["manage.py", *words])
    assert ended.value.code == 2
    assert "usage: manage.py" in capsys.readouterr().err


def test_a_turn_that_fails_ends_with_its_own_status(alice: User, script: Any) -> None:
    script(*[ModelUnreachable()] * 9)
    _, errors, status = run("run", "Hello")
    assert status == 10
    assert "MODEL_UNREACHABLE: " in errors


def test_a_first_turn_that_fails_leaves_a_session_and_says_its_id(alice: User, script: Any) -> None:
    script(*[ModelUnreachable()] * 9)
    output, _, status = run("run", "--json", "Hello")
    turn = json.loads(output)
    assert (turn["state"], turn["error"]["code"], status) == ("failed", "MODEL_UNREACHABLE", 10)
    assert [found.id for found in list_sessions(owner_id=alice.pk, archived=None)] == [turn["session_id"]]


def test_an_archived_session_takes_no_message(alice: User, session: SessionRecord) -> None:
    assert run("sessions", "archive", "last")[2] == 0
    assert run("sessions", "reopen", "last")[2] == 0
    assert run("sessions", "archive", "last")[2] == 0
    assert run("resume", session.id, "Hello")[2] == 8


def test_a_session_goes_to_the_trash_and_comes_back(alice: User, session: SessionRecord) -> None:
    assert run("sessions", "trash", "last")[2] == 0
    assert run("sessions", "read", session.id)[2] == 4
    assert session.id in run("sessions", "list", "--trashed")[0]
    assert run("sessions", "restore", session.id)[2] == 0
    assert session.id not in run("sessions", "list", "--trashed")[0]
    assert run("sessions", "trash", session.id)[2] == 0
    assert run("sessions", "delete", session.id)[2] == 0
    assert run("sessions", "restore", session.id)[2] == 4


def test_somebody_elses_session_is_not_found(bob: User, session: SessionRecord) -> None:
    for verb in ("read", "interrupt", "archive", "reopen", "compact", "trash", "restore", "delete"):
        assert run("sessions", verb, session.id, user="bob")[2] == 4


def test_sessions_are_listed_read_forked_and_compacted(alice: User, script: Any) -> None:
    script("Paris.")
    turn = json.loads(run("run", "--json", "What is the capital?")[0])
    assert turn["session_id"] in run("sessions", "list", "--q", "capital")[0]
    assert json.loads(run("sessions", "list", "--json", "--archived", "yes")[0]) == []
    assert "[2] assistant: Paris." in run("sessions", "read", "last")[0]
    read = json.loads(run("sessions", "read", "last", "--json")[0])
    assert [message["role"] for message in read["messages"]] == ["user", "assistant"]
    fork = json.loads(run("sessions", "fork", "last", "--at", turn["message_ids"][0], "--json")[0])
    assert fork["parent_id"] == turn["session_id"]
    earlier = json.loads(run("sessions", "fork", turn["session_id"], "--before", turn["message_ids"][1], "--json")[0])
    assert [spoken(message) for message in load_messages(earlier["id"])] == ["What is the capital?"]
    assert "completed" in run("sessions", "compact", turn["session_id"])[0]


def test_branches_are_listed_chosen_and_read(alice: User) -> None:
    session_id = make_tree(alice)
    listed = run("sessions", "branches", session_id)[0].splitlines()
    assert [line[:4] for line in listed] == ["  0 ", "  1 ", "* 2 ", "  3 ", "  4 "]
    assert re.fullmatch(r"  1  8 messages after msg_\w+, to msg_\w+", listed[1])
    assert re.fullmatch(r"  3  2 messages with the session, to msg_\w+", listed[3])
    assert re.fullmatch(r"  4  0 messages after msg_\w+", listed[4])
    output, errors, _ = run("sessions", "read", session_id)
    assert re.findall(r"^\[(\d+)\]", output, re.MULTILINE) == ["1", "2", "3", "4", "13", "14", "21", "22"]
    assert f"branch 2; all of them: manage.py sessions branches {session_id}" in errors
    assert re.findall(r"^\[(\d+)\]", run("sessions", "read", session_id, "--branch", "3")[0], re.M) == ["23", "24"]
    whole = json.loads(run("sessions", "read", session_id, "--json")[0])["messages"]
    assert len(whole) == 24
    [first, second] = json.loads(run("sessions", "read", session_id, "--json", "--branch", "3")[0])["messages"]
    assert (first["branch"], first["parent_id"], second["parent_id"]) == (3, None, first["id"])
    chosen = json.loads(run("sessions", "choose", session_id, "3", "--json")[0])
    assert [branch["number"] for branch in chosen if branch["is_chosen"]] == [3]
    assert run("sessions", "choose", session_id, "0")[0].startswith("* 0  12 messages with the session")


def test_a_branch_that_is_not_there_is_named_by_its_code(alice: User, bob: User, session: SessionRecord) -> None:
    for words in (("choose", session.id, "1"), ("choose", session.id, "-1"), ("read", session.id, "--branch", "9")):
        _, errors, status = run("sessions", *words)
        assert ("BRANCH_NOT_FOUND" in errors, status) == (True, 4)
    for words in (("choose", session.id, "0"), ("branches", session.id)):
        assert run("sessions", *words, user="bob")[2] == 4


def test_a_message_may_be_piped_in(alice: User) -> None:
    assert read_message(["two", "words"]) == "two words"
    assert read_message([], io.StringIO("piped")) == "piped"
    assert read_message(["Review this:", "-"], io.StringIO("diff")) == "Review this:\n\ndiff"


def test_nothing_said_at_a_terminal_is_a_mistake(typing: Any) -> None:
    with pytest.raises(InvalidRequest, match="Say something"):
        read_message([])
    assert read_message([], may_be_silent=True) == ""


def test_a_person_is_asked_at_the_terminal(demolisher: SessionRecord, script: Any, typing: Any) -> None:
    script(DEMOLISH, "It is gone.")
    typing("y")
    output, errors, status = run("resume", "last", "Away with the shed")
    assert (output.endswith("It is gone.\n"), status) == (True, 0)
    assert '[demolish {"what": "shed"}]' in errors


def test_what_a_person_is_asked_about_cannot_hide_or_paint_over_anything(
    demolisher: SessionRecord, script: Any, typing: Any
) -> None:
    arguments = '{"what": "shed\x1b[2K\u202egniht"}'
    script(Step(tool_calls=(ToolCall(id="c1", name="demolish", arguments=arguments),)), "I leave it.")
    typing("n")
    _, errors, _ = run("resume", "last", "Away with the shed")
    assert not {"\x1b", "\u202e"} & {*errors}
    assert "shed\u27e8\u241b\u27e9[2K\u27e8U+202E\u27e9gniht" in errors


def test_a_person_may_say_why_not(demolisher: SessionRecord, script: Any, typing: Any) -> None:
    model = script(DEMOLISH, "I leave it.")
    typing("My bicycle is in it")
    assert run("resume", "last", "Away with the shed")[2] == 0
    assert "My bicycle is in it" in str(model.requests[-1].payload)


def test_questions_of_a_model_are_asked_at_the_terminal(session: SessionRecord, script: Any, typing: Any) -> None:
    lifecycle.update_session(session.id, owner_id=session.owner_id, config={"turn": {"tools": ["ask_user"]}})
    asked = [{"question": "Which\u202e?", "options": ["shed", "barn"], "several": True}, {"question": "When?"}]
    call = ToolCall(id="c1", name="ask_user", arguments=json.dumps({"questions": asked}))
    model = script(Step(tool_calls=(call,)), "Done.", Step(tool_calls=(call,)), "Again.")
    typing("2, 1", "at noon")
    _, errors, status = run("resume", "last", "Away with it")
    assert status == 0
    assert ("  1. shed" in errors, "\u202e" in errors) == (True, False)
    assert "> barn\\n> shed\\n\\nWhen?\\n> at noon" in json.dumps(model.requests[1].payload)
    turn = json.loads(run("resume", "last", "And now?", "--json")[0])
    [waiting] = turn["waits_for"]
    assert waiting["reason"] == "answer"
    output, _, status = run("sessions", "answer", "last", waiting["part_id"], "the fence", "")
    assert (output, status) == ("Again.\n", 0)
    assert "> the fence\\n\\nWhen?\\n> (no answer)" in json.dumps(model.requests[3].payload)


def test_where_nobody_can_be_asked_the_turn_waits_and_the_command_says_so(
    demolisher: SessionRecord, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(DEMOLISH, "It is gone.")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    output, errors, status = run("resume", "last", "Away with the shed", "--json")
    turn = json.loads(output)
    assert (turn["state"], status) == ("suspended", 13)
    assert "TURN_SUSPENDED: " in errors
    part_id = turn["waits_for"][0]["part_id"]
    assert part_id in errors
    output, _, status = run("sessions", "approve", "last", part_id)
    assert (output, status) == ("It is gone.\n", 0)
    assert run("sessions", "approve", "last", part_id)[2] == 5


def test_a_file_is_given_to_a_session_listed_and_shown(session: SessionRecord, tmp_path: Any) -> None:
    place = tmp_path / "tides.csv"
    place.write_bytes(b"hour,height\n3,4.1\n")
    added = json.loads(run("files", "add", session.id, str(place), "--as", "data/tides.csv", "--json")[0])
    assert (added["path"], added["file_type"], added["size"], added["state"]) == (
        "data/tides.csv",
        "csv",
        18,
        "waiting",
    )
    explore_file(added["id"], owner_id=session.owner_id)
    assert f"{added['id']}  explored csv" in run("files", "list", "last")[0]
    shown, _, status = run("files", "show", added["id"])
    assert (status, "height" in shown) == (0, True)
    assert json.loads(run("files", "show", added["id"], "--json")[0])["exploration"]["problem"] == ""
    place.write_bytes(b"hour,height\n3,4.2\n")
    again = json.loads(run("files", "add", "last", str(place), "--as", "data/tides.csv", "--json")[0])
    assert [item["id"] for item in json.loads(run("files", "list", "--json")[0])] == [again["id"], added["id"]]


@pytest.mark.parametrize(
    ("words", "code", "status"),
    [
        (("files", "add", "last", "/nowhere/at/all"), "INVALID_REQUEST", 2),
        (("files", "add", "last", "/"), "INVALID_REQUEST", 2),
        (("files", "add", "sess_none", "/etc/hostname"), "SESSION_NOT_FOUND", 4),
        (("files", "list", "sess_none"), "SESSION_NOT_FOUND", 4),
        (("files", "show", "file_none"), "FILE_NOT_FOUND", 4),
    ],
)
def test_a_file_that_is_not_there_ends_with_the_exit_status_of_the_registry(
    session: SessionRecord, words: tuple[str, ...], code: str, status: int
) -> None:
    _, errors, ended = run(*words)
    assert (ended, errors.startswith(f"{code}: ")) == (status, True)


def test_somebody_elses_files_are_not_shown(session: SessionRecord, bob: User, tmp_path: Any) -> None:
    place = tmp_path / "a.txt"
    place.write_bytes(b"words")
    file_id = json.loads(run("files", "add", session.id, str(place), "--json")[0])["id"]
    assert run("files", "show", file_id, user="bob")[2] == 4
    assert run("files", "list", user="bob")[0] == ""
    assert run("files", "add", session.id, str(place), user="bob")[2] == 4
