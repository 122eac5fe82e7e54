"""``manage.py evaluate_memory``: what it measures, what it leaves alone, and how it refuses and ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Model
from django_q.models import OrmQ

from audit_app.evaluation import evaluate as evaluate_module
from audit_app.evaluation.evaluate import list_reports, load_report
from audit_app.evaluation.job import AskedModel
from audit_app.management.commands import evaluate_memory as command_module
from audit_app.tasks import evaluate_session
from mnesis_core.compaction.evaluation.measures import Report, Row, read_report, sum_up
from mnesis_core.llm.interface import ModelSpec, Prices
from sessions_app.conf import DEMO
from sessions_app.llm.limits import budget_out, limits_for_person, look
from sessions_app.llm.model_store import enter_model, put_model
from sessions_app.llm.spending_store import put_account_limits
from tests.core.context.contexts import prose
from tests.support.people.cast import make_user
from tests.support.providers.openai.openai_server import OpenAIServer
from tests.support.record.talks import exchange, new_session
from tests.support.sites.databases import site_database
from tests.support.sites.site import ROOT, environment_for, lay_database, migrated_file
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.django_db, pytest.mark.slow]
ONE_WINDOW = ("--windows", "2048", "--plant", "10")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path / "data"
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def prepared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process finds its database migrated; the first test alone has an empty one, as on a site."""
    if request.function is test_a_conversation_is_lived_elsewhere_and_every_policy_is_measured:
        return
    own_database = evaluate_module._own_database

    @contextmanager
    def migrated(directory: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        with own_database(directory) as (url, notes):
            if url.startswith("sqlite"):
                shutil.copy(migrated_file(), Path(directory) / "evaluation.sqlite3")
            yield url, notes

    monkeypatch.setattr(evaluate_module, "_own_database", migrated)


@pytest.fixture
def chat(tmp_path: Path) -> str:
    """A file with a conversation of about three windows."""
    said = [
        {"role": role, "content": f"{number} {role}: {prose(90)}"}
        for number in range(30)
        for role in ("user", "assistant")
    ]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": said}))
    return str(path)


def evaluate(*arguments: str) -> Report:
    out = StringIO()
    call_command("evaluate_memory", *arguments, "--json", stdout=out, stderr=StringIO())
    return read_report(json.loads(out.getvalue()))


def rows_of_site() -> dict[str, int]:
    models: list[type[Model]] = list(apps.get_models())
    return {model._meta.db_table: model._default_manager.count() for model in models}


def databases_of(process_id: int) -> list[Any]:
    """The databases on the server that a process made for its evaluations, and did not drop."""
    if connection.vendor != "postgresql":
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [f"mnesis_evaluation_{process_id}_"]
        )
        return cursor.fetchall()


def by_policy(report: Report) -> dict[str, Row]:
    return {row.policy: row for row in sum_up(report)}


@pytest.mark.both_databases
def test_a_conversation_is_lived_elsewhere_and_every_policy_is_measured(chat: str, tmp_path: Path) -> None:
    before = rows_of_site()
    report = evaluate(chat, *ONE_WINDOW, "--out", str(tmp_path / "out"))
    assert rows_of_site() == before
    assert not databases_of(os.getpid())
    assert report.is_whole
    [told] = report.conversations
    assert (told.name, told.messages, len(told.questions)) == ("chat", 60, 10)
    rows = by_policy(report)
    assert rows["full"].facts == 1.0
    assert not rows["full"].fits
    assert all(rows[policy].fits for policy in ("mnesis", "truncation", "rolling"))
    assert rows["truncation"].facts is not None
    assert rows["truncation"].facts < (rows["mnesis"].facts or 0)
    assert rows["mnesis"].facts_told[1] > 0.8
    assert rows["truncation"].facts_told == ()
    assert rows["mnesis"].calls > 0
    assert rows["rolling"].calls > 0
    assert rows["truncation"].calls == rows["full"].calls == 0
    assert list(list_reports()) == [report]
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"report.json", "report.md", "planted-facts-in-the-prompt.svg", "tokens-of-a-prompt.svg"} <= written
    assert "| demo | 2,048 | Mnesis |" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.one_database
def test_a_session_of_the_site_is_read_with_its_parent_and_stays_as_it_was() -> None:
    ada = make_user("ada")
    parent = new_session(ada)
    exchange(parent, "Ask another one.", "I do.")
    session = new_session(ada, parent_id=parent)
    for number in range(12):
        exchange(session, f"{number}: {prose(100)}", f"answer {number}: {prose(100)}")
    before = rows_of_site()
    report = evaluate(session, *ONE_WINDOW, "--policies", "mnesis,truncation")
    assert rows_of_site() == before
    assert [(told.name, told.messages) for told in report.conversations] == [(session, 24)]
    assert by_policy(report).keys() == {"mnesis", "truncation"}


@pytest.mark.both_databases
def test_a_worker_evaluates_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate_module, "WINDOWS", (2_048,))
    session = new_session(ada := make_user("ada"))
    for number in range(12):
        exchange(session, f"{number}: {prose(100)}", f"answer {number}: {prose(100)}")
    asked = evaluate_module.ask_worker(session, user_id=ada.pk)
    before = rows_of_site()
    evaluate_session(report_id=asked.id, session_id=session)
    assert rows_of_site() == before
    [report] = list_reports()
    assert (report.id, report.is_whole, report.progress, report.problem) == (asked.id, True, "", "")
    assert by_policy(report).keys() == {"mnesis", "truncation", "rolling", "full"}


@pytest.mark.one_database
@pytest.mark.parametrize("is_stored", [False, True])
def test_a_worker_asks_the_chosen_model_and_its_cost_counts_towards_the_limits(
    monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    monkeypatch.setattr(evaluate_module, "WINDOWS", (2_048,))
    monkeypatch.setenv("LOOPBACK_KEY", "key")
    session = new_session(ada := make_user("ada"))
    for number in range(12):
        exchange(session, f"{number}: {prose(100)}", f"answer {number}: {prose(100)}")
    put_account_limits(ada.pk, {"day": {"cost_micros": 10**9}})
    with OpenAIServer() as server:
        spec = ModelSpec(
            alias="dear",
            litellm_model="openai/ok",
            api_base=server.base_url,
            entered_on_host=True,
            context_window=8_000,
            max_output_tokens=900,
            prices=Prices(input=1_000_000, output=4_000_000),
        )
        put_model(spec, api_key_env="" if is_stored else "LOOPBACK_KEY")
        if is_stored:
            enter_model(spec, api_key_env="", key="key", audience=None)
        asked = evaluate_module.ask_worker(session, "dear", user_id=ada.pk)
        [most] = [line["spent"] for line in budget_out(look(limits_for_person(ada.pk)))]
        [task] = OrmQ.objects.all()
        for _ in range(2):
            evaluate_session(**task.kwargs())
        assert {request.model for request in server.requests} == {"ok"}
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer key"}
    report = load_report(asked.id)
    assert (report.is_whole, report.problem) == (True, "")
    took = sum(one.cost_micros or 0 for one in report.measurements)
    [spent] = [line["spent"] for line in budget_out(look(limits_for_person(ada.pk)))]
    assert 0 < took == spent < most


@pytest.mark.one_database
def test_a_model_answers_from_each_prompt_that_fits_and_its_price_counts(chat: str) -> None:
    put_model(replace(DEMO, alias="dear", prices=Prices(input=1_000_000, output=4_000_000)))
    report = evaluate(chat, *ONE_WINDOW, "--policies", "mnesis,full", "--answers", "--models", "dear")
    rows = by_policy(report)
    assert rows["mnesis"].answered is not None
    assert rows["mnesis"].calls > 10
    assert (rows["mnesis"].cost_micros or 0) > 10_000
    assert (rows["full"].answered, rows["full"].cost_micros) == (None, 0)


@pytest.mark.one_database
def test_the_sites_own_summarising_model_summarises(chat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "site.toml"
    config.write_text('[compaction]\nmodel = "brief"\n')
    monkeypatch.setenv("MNESIS_CONFIG", str(config))
    brief = replace(DEMO, alias="brief", prices=Prices(input=1_000_000, output=4_000_000))
    put_model(brief)
    monkeypatch.setattr(command_module, "find_helpers", lambda: (AskedModel(spec=brief),))
    report = evaluate(chat, *ONE_WINDOW, "--policies", "mnesis,rolling")
    assert all((row.cost_micros or 0) > 1_000 for row in by_policy(report).values())


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (("CHAT", "--plant", "0"), "INVALID_REQUEST: No fact is to be planted", 2),
        (("missing.json",), "INVALID_REQUEST: .*missing.json cannot be read", 2),
        (("BROKEN",), "INVALID_REQUEST: 'broken.json'", 2),
        (("sess_01ARZ3NDEKTSV4RRFFQ69G5FAV",), "SESSION_NOT_FOUND", 4),
        (("CHAT", "--models", "nobody"), "MODEL_NOT_FOUND", 4),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_words(
    chat: str, tmp_path: Path, arguments: tuple[str, ...], words: str, status: int
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(b'{"meeting_transcripts": [')
    named = {"CHAT": chat, "BROKEN": str(broken)}
    with pytest.raises(CommandError, match=words) as refused:
        evaluate(*ONE_WINDOW, *(named.get(one, one) for one in arguments))
    assert refused.value.returncode == status
    assert not list(list_reports())


@pytest.mark.one_database
@pytest.mark.parametrize(
    "arguments",
    [
        *(("--windows", text) for text in ("", "1", "x", "4096,-1", "9" * 30)),
        *(("--policies", text) for text in ("best", ",")),
        *(("--plant", text) for text in ("-1", "1000", "٣")),
        ("--conversations", "0"),
    ],
)
def test_a_wrong_argument_is_named(chat: str, arguments: tuple[str, str]) -> None:
    with pytest.raises(CommandError, match=arguments[0]):
        evaluate(chat, *arguments)


@pytest.mark.one_database
def test_a_model_that_costs_money_is_not_asked_before_someone_agrees(chat: str) -> None:
    prices = Prices(input=1_000_000, output=4_000_000)
    put_model(
        ModelSpec(alias="dear", litellm_model="openai/x", context_window=8_000, max_output_tokens=900, prices=prices)
    )
    with pytest.raises(CommandError, match=r"dear: this will cost about \$0\.\d+\. Agree with --yes\."):
        evaluate(chat, *ONE_WINDOW, "--models", "dear")
    assert not list(list_reports())


@pytest.mark.both_databases
def test_ctrl_c_keeps_what_was_measured(chat: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    lay_database(site)
    with site_database("evaluated", is_prepared=True) as database:
        environment = environment_for(site, **database)
        with subprocess.Popen(
            [sys.executable, "manage.py", "evaluate_memory", chat, "--windows", "2048,1024", "--plant", "50"],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A test run in the background of a shell ignores Ctrl-C, and so would what it starts.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        ) as process:
            assert process.stderr is not None
            assert any("truncation: " in line and "answers present" in line for line in process.stderr)
            os.kill(process.pid, signal.SIGINT)
            said, problem = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, problem
    assert "Interrupted" in problem
    assert "truncation" in said
    [file] = (site / "evaluations").iterdir()
    report = read_report(json.loads(file.read_text()))
    assert (report.is_whole, report.progress, report.problem) == (False, "", "It was interrupted.")
    assert {one.policy for one in report.measurements} >= {"mnesis", "truncation"}
    assert not databases_of(process.pid)
