"""``manage.py map``: a run from the terminal, its progress, its results, and what a command ends with."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connections

from agents_app.management.commands import map as command
from agents_app.maps.worker import work_for_a_slice
from agents_app.queries import list_runs
from mnesis_core.llm.interface import Request
from mnesis_core.maps.values import OperatorKind
from mnesis_core.providers.scripted import ScriptedModel
from mnesis_core.records import SessionRecord
from tests.support.people.story import alice, bob, script, session
from tests.support.waiting import PATIENCE_SECONDS

__all__ = ["alice", "bob", "script", "session"]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Terminal(io.StringIO):
    """What is printed at a terminal."""

    def isatty(self) -> bool:
        return True


def run(*words: str, user: str = "alice", terminal: bool = False) -> tuple[str, str, int]:
    """A command: its output, its errors, its exit status."""
    output, errors = io.StringIO(), Terminal() if terminal else io.StringIO()
    try:
        call_command("map", *words, "--user", user, stdout=output, stderr=errors)
    except CommandError as error:
        return output.getvalue(), f"{errors.getvalue()}{error}", error.returncode
    except SystemExit as end:
        return output.getvalue(), errors.getvalue(), int(end.code or 0)
    return output.getvalue(), errors.getvalue(), 0


@contextmanager
def working() -> Iterator[None]:
    """A worker beside the test."""
    done = threading.Event()

    def work() -> None:
        try:
            while not done.wait(0.05):
                work_for_a_slice()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(PATIENCE_SECONDS)


def answer(request: Request) -> str:
    asked = request.payload["messages"][1]["content"]
    return "unlucky" if asked.endswith("13") else json.dumps({"n": int(asked)})


@pytest.fixture
def given(tmp_path: Path, script: Callable[..., ScriptedModel]) -> list[str]:
    script(answer)
    (tmp_path / "in.jsonl").write_text("1\n2\n")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "template.txt").write_text("{{ item }}")
    template, lines, schema = (str(tmp_path / name) for name in ("template.txt", "in.jsonl", "schema.json"))
    return ["llm", f"@{template}", "--input", lines, "--schema", schema]


def test_a_run_is_watched_to_its_end_and_its_results_printed(given: list[str], session: SessionRecord):
    with working():
        output, errors, status = run(*given, "--session", session.id, terminal=True)
    assert (status, "completed 2, failed 0" in output) == (0, True)
    assert "2/2  completed" in errors
    [found] = list_runs(session_id=session.id)
    lines = run("output", found.id)[0].strip().split("\n")
    assert [json.loads(line)["output"] for line in lines] == [{"n": 1}, {"n": 2}]
    assert run("output", found.id, "--csv")[0].startswith("item,state,input")
    assert f"{found.id}  llm      completed" in run("list")[0]


def test_an_agentic_run_has_what_is_said_of_its_sub_agents(given: list[str], alice: User):
    more = ["--tools", "calculator", "--may-write", "--max-turns", "3", "--temperature", "0.5", "--concurrency", "2"]
    limits = ["--most-tokens", "900", "--most-micros", "70", "--timeout", "9", "--max-retries", "1"]
    run("agentic", *given[1:], *more, *limits, "--no-wait", "--json")
    [found] = list_runs(owner_id=alice.pk)
    spec = found.spec
    assert (found.kind, spec.tools, spec.read_only, spec.max_turns) == (OperatorKind.AGENTIC, ("calculator",), False, 3)
    assert (spec.temperature, spec.concurrency, spec.timeout_seconds, spec.max_retries) == (0.5, 2, 9, 1)
    assert (spec.limits.tokens, spec.limits.cost_micros, spec.schema) == (900, 70, SCHEMA)


def test_a_run_with_failures_ends_with_1(given: list[str], tmp_path: Path, alice: User):
    (tmp_path / "in.jsonl").write_text("13\n")
    with working():
        output, errors, status = run(*given, "--max-retries", "0", "--json")
    assert (status, errors) == (1, "")
    assert json.loads(output)["failures"][0]["kind"] == "validation"


def test_a_run_is_begun_paused_resumed_and_cancelled(given: list[str], session: SessionRecord):
    begun = json.loads(run(*given, "--session", session.id, "--no-wait", "--json")[0])
    for verb, state in (("pause", "paused"), ("resume", "pending"), ("cancel", "cancelled"), ("show", "cancelled")):
        assert json.loads(run(verb, begun["id"], "--json")[0])["state"] == state
    assert run("watch", begun["id"])[0].startswith(f"llm_map {begun['id']}: cancelled")
    assert run("pause", begun["id"])[2] == 5
    assert run("retry", begun["id"])[2] == 5


@pytest.mark.slow
def test_where_no_worker_runs_it_is_said(given: list[str], alice: User, monkeypatch: pytest.MonkeyPatch):
    def stop(pace: Any, ended: int, *, now: float) -> None:
        looked.append(now)
        if len(looked) == 8:
            raise KeyboardInterrupt

    looked: list[float] = []
    monkeypatch.setattr(command, "QUIET_SECONDS", 0.5)
    monkeypatch.setattr(command.Throughput, "see", stop)
    _output, errors, status = run(*given)
    assert status == 130
    assert "Is a worker running?" in errors
    assert "The run continues." in errors


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["llm", "no item", "--input", "IN"], 2, "INVALID_TEMPLATE"),
        (["llm", "{{ item }}", "--input", "/does/not/exist"], 2, "cannot be read"),
        (["llm", "@/does/not/exist", "--input", "IN"], 2, "cannot be read"),
        (["llm", "{{ item }}", "--input", "IN", "--schema", "IN"], 2, "INVALID_SCHEMA"),
        (["llm", "{{ item }}", "--input", "file_none"], 4, "FILE_NOT_FOUND"),
        (["llm", "{{ item }}", "--input", "IN", "--model", "nobody"], 4, "MODEL_NOT_FOUND"),
        (["show", "map_none"], 4, "OPERATOR_RUN_NOT_FOUND"),
        (["output", "map_none"], 4, "OPERATOR_RUN_NOT_FOUND"),
    ],
)
def test_what_goes_wrong_has_its_status(given: list[str], alice: User, words: list[str], status: int, said: str):
    _output, errors, ended = run(*[given[3] if word == "IN" else word for word in words])
    assert (ended, said in errors) == (status, True)


def test_anothers_run_is_not_there(given: list[str], session: SessionRecord, bob: User):
    begun = json.loads(run(*given, "--session", session.id, "--no-wait", "--json")[0])
    for verb in ("show", "watch", "pause", "cancel", "output"):
        assert "OPERATOR_RUN_NOT_FOUND" in run(verb, begun["id"], user="bob")[1]
