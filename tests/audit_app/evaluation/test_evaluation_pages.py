"""The pages of evaluations: for staff only, with none, one and many reports, and with files that are none."""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation
from django_q.models import OrmQ

from audit_app.evaluation.charts import draw_report, write_pictures
from audit_app.evaluation.evaluate import MOST_LISTED, keep_report, list_reports, load_report, plan_session
from audit_app.tasks import evaluate_session
from mnesis_core.compaction.evaluation.measures import Measurement, Outcome, Question, Report, Told
from mnesis_core.errors import BudgetExhausted, EvaluationNotFound, ModelNotFoundError
from mnesis_core.llm.interface import LimitSource, ModelSpec, Prices
from sessions_app.llm.model_store import Audience, allow_model, put_model
from sessions_app.llm.spending_store import put_account_limits
from sessions_app.models import SpendingMark
from tests.support.people.cast import make_user
from tests.support.record.talks import HOSTILE, exchange, new_session

pytestmark = pytest.mark.django_db
ID = "20261126T120000-abcdef"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path
    (tmp_path / "evaluations").mkdir()
    return tmp_path / "evaluations"


@pytest.fixture
def staff() -> Client:
    User.objects.create_user("ada", is_staff=True)
    client = Client()
    client.force_login(User.objects.get(username="ada"))
    return client


def report(id: str = ID, **values: Any) -> Report:
    question = Question(kind="planted", text="What?", answer="7F-2K5", evidence=(1,), place=0.9)
    outcomes = (Outcome(question=0, is_present=True, prompt_tokens=1_200, recalled=(1.0, 1.0)),)
    lost = (Outcome(question=0, is_present=False, prompt_tokens=1_500),)
    measured = {"conversation": "harbour", "model": "demo", "window": 4_096, "fits": True}
    made = Report(
        id=id,
        at="2026-11-26T12:00:00+00:00",
        seed=7,
        plant=1,
        is_whole=True,
        conversations=(Told(name="harbour", messages=60, tokens=9_000, questions=(question,)),),
        measurements=(
            Measurement(policy="mnesis", outcomes=outcomes, calls=3, **measured),
            Measurement(policy="truncation", outcomes=lost, **measured),
        ),
    )
    return replace(made, **values)


def test_without_a_report_the_page_says_which_command_makes_one(staff: Client) -> None:
    page = staff.get("/evaluations/").content.decode()
    assert "No evaluations yet." in page
    assert "python manage.py evaluate_memory" in page


def test_the_newest_reports_are_listed_first(staff: Client) -> None:
    for number in range(MOST_LISTED + 2):
        keep_report(report(f"20261126T1200{number:02}-abcdef"))
    page = staff.get("/evaluations/").content.decode()
    assert page.count("/evaluations/2026") == MOST_LISTED
    assert page.index("20261126T120021") < page.index("20261126T120020")
    assert "20261126T120001" not in page
    assert "Mnesis 100 %, truncation 0 %" in page
    assert "incomplete" not in page


def test_a_report_is_shown_with_charts_and_tables(staff: Client) -> None:
    keep_report(report())
    page = staff.get(f"/evaluations/{ID}/").content.decode()
    assert page.count("<figure") == 3
    assert "Planted facts in the prompt" in page
    assert "4,096, Mnesis: 100 %" in page
    assert "truncation 0 %" in page
    assert "9,000" in page
    assert "Answers in the prompt" not in page


def test_of_an_interrupted_evaluation_the_page_says_so(staff: Client) -> None:
    keep_report(report(is_whole=False, measurements=()))
    assert "incomplete" in staff.get("/evaluations/").content.decode()
    page = staff.get(f"/evaluations/{ID}/").content.decode()
    assert "incomplete" in page
    assert "No results." in page


def test_hostile_names_are_shown_as_text(staff: Client) -> None:
    told = replace(report().conversations[0], name=HOSTILE)
    measured = replace(report().measurements[0], conversation=HOSTILE, model=HOSTILE)
    keep_report(report(conversations=(told, told), measurements=(measured,), notes=(HOSTILE,)))
    for address in ("/evaluations/", f"/evaluations/{ID}/"):
        page = staff.get(address).content.decode()
        assert "<script>alert" not in page
        assert "\u202e" not in page


def test_others_find_nothing() -> None:
    keep_report(report())
    client = Client()
    for address in ("/evaluations/", f"/evaluations/{ID}/"):
        assert client.get(address).status_code == 302
    client.force_login(make_user("bob"))
    for address in ("/evaluations/", f"/evaluations/{ID}/"):
        assert client.get(address).status_code == 404


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 3_000,
        b'{"format": "mnesis-evaluation", "version": 1}',
        b'"\\ud800"',
        b"9" * 5_000,
    ],
)
def test_a_file_that_is_no_report_is_left_out_and_not_found(staff: Client, folder: Path, content: bytes) -> None:
    (folder / f"{ID}.json").write_bytes(content)
    assert "No evaluations yet." in staff.get("/evaluations/").content.decode()
    assert staff.get(f"/evaluations/{ID}/").status_code == 404


def test_a_report_with_what_nobody_wrote_is_shown_all_the_same(staff: Client, folder: Path) -> None:
    values = json.loads(json.dumps(report().as_dict()))
    values["at"] = "yesterday"
    values["conversations"][0]["questions"][0]["place"] = 3.5
    values["measurements"][0]["outcomes"][0] |= {"question": 99, "recalled": []}
    values["measurements"][1]["conversation"] = "another"
    (folder / f"{ID}.json").write_text(json.dumps(values))
    assert staff.get("/evaluations/").status_code == 200
    assert staff.get(f"/evaluations/{ID}/").status_code == 200


@pytest.mark.parametrize(
    "id", ["..", "x", "20261126T120000-abcdeg", "20261126T120000-abcdef\n", "../secret", "..%2Fsecret", "\0"]
)
def test_what_is_no_id_of_a_report_is_not_found(staff: Client, folder: Path, id: str) -> None:
    (folder.parent / "secret.json").write_text(json.dumps(report().as_dict()))
    with pytest.raises(EvaluationNotFound):
        load_report(id)
    assert staff.get(f"/evaluations/{id}/").status_code in (400, 404)


def test_a_report_that_is_being_written_is_never_seen_half(folder: Path) -> None:
    keep_report(report())
    keep_report(report(seed=8))
    assert [one.seed for one in list_reports()] == [8]
    assert [path.name for path in folder.iterdir()] == [f"{ID}.json"]


def test_a_worker_is_asked_for_a_session_of_ones_own(staff: Client) -> None:
    session = new_session(User.objects.get(username="ada"))
    answer = staff.post("/evaluations/start/", {"session": f" {session} "})
    [made] = list_reports()
    assert answer.headers["Location"] == f"/evaluations/{made.id}/"
    assert OrmQ.objects.count() == 1
    page = staff.get(f"/evaluations/{made.id}/").content.decode()
    assert "Waiting for a worker." in page
    assert 'hx-trigger="every 3s"' in page
    assert "running" in staff.get("/evaluations/").content.decode()


DEAR = ModelSpec(
    alias="dear",
    litellm_model="openai/x",
    context_window=8_000,
    max_output_tokens=900,
    prices=Prices(input=1_000_000, output=4_000_000),
)


def test_what_another_model_would_cost_is_shown_and_agreed_to_first(staff: Client) -> None:
    put_model(DEAR)
    ada = User.objects.get(username="ada")
    exchange(session := new_session(ada), "tide " * 20_000, "They turn.")
    assert '<option value="dear"' in staff.get("/evaluations/").content.decode()
    answer = staff.post("/evaluations/start/", {"session": session, "model": "dear"})
    assert answer.headers["Location"] == f"/evaluations/?session={session}&model=dear"
    page = staff.get(answer.headers["Location"]).content.decode()
    [price] = set(re.findall(r"about (\$\d+\.\d+)", page))
    [agreed] = re.findall(r'name="agreed" value="(\d+)"', page)
    assert float(price[1:]) == pytest.approx(int(agreed) / 1_000_000, rel=0.05)
    assert not OrmQ.objects.exists()
    exchange(session, "tide " * 20_000, "They turn.")
    asked = {"session": session, "model": "dear", "agreed": agreed}
    assert "?session=" in staff.post("/evaluations/start/", asked).headers["Location"], "it costs more now"
    page = staff.get(f"/evaluations/?session={session}&model=dear").content.decode()
    [agreed] = re.findall(r'name="agreed" value="(\d+)"', page)
    assert (
        staff.post("/evaluations/start/", asked | {"agreed": agreed}).headers["Location"].startswith("/evaluations/2")
    )
    [task] = OrmQ.objects.all()
    assert (task.kwargs()["asked"]["alias"], task.kwargs()["asked"]["user_id"]) == ("dear", ada.pk)
    assert [mark.cost_micros for mark in SpendingMark.objects.exclude(id__startswith="account")] == [int(agreed)] * 2


def test_a_price_that_is_not_known_is_called_so(staff: Client) -> None:
    put_model(replace(DEAR, prices_source=LimitSource.DEFAULT))
    exchange(session := new_session(User.objects.get(username="ada")), "tide " * 20_000, "They turn.")
    assert "an unknown sum" in staff.get(f"/evaluations/?session={session}&model=dear").content.decode()


@pytest.mark.parametrize("limits", [{"day": {"cost_micros": 100}}, {"user": {"tokens": 100}}])
def test_no_worker_is_asked_where_a_limit_leaves_too_little(staff: Client, limits: dict[str, Any]) -> None:
    put_model(DEAR)
    ada = User.objects.get(username="ada")
    exchange(session := new_session(ada), "tide " * 20_000, "They turn.")
    put_account_limits(ada.pk, limits)
    page = staff.get(f"/evaluations/?session={session}&model=dear").content.decode()
    [agreed] = re.findall(r'name="agreed" value="(\d+)"', page)
    answer = staff.post("/evaluations/start/", {"session": session, "model": "dear", "agreed": agreed})
    assert answer.status_code == BudgetExhausted.status
    assert "A limit leaves too little for this" in answer.content.decode()
    assert not OrmQ.objects.exists()
    assert not list(list_reports())
    assert not SpendingMark.objects.exclude(id__startswith="account").exists()


def test_a_model_that_the_person_or_the_sessions_owner_may_not_use_is_not_found(staff: Client) -> None:
    put_model(DEAR)
    ada, bob = User.objects.get(username="ada"), make_user("bob")
    allow_model("dear", Audience(users=(bob,)))
    assert "dear" not in staff.get("/evaluations/").content.decode()
    for alias in ("dear", "nobody", "<script>alert(1)</script>", "\0"):
        for answer in (
            staff.get("/evaluations/", {"session": new_session(ada), "model": alias}),
            staff.post("/evaluations/start/", {"session": new_session(ada), "model": alias}),
        ):
            assert answer.status_code == 404
            assert "<script>alert" not in answer.content.decode()
    allow_model("dear", Audience(users=(ada,)))
    with pytest.raises(ModelNotFoundError):
        plan_session(new_session(bob), "dear", user_id=ada.pk)
    assert not OrmQ.objects.exists()


def test_of_an_ended_evaluation_the_page_asks_nothing_more(staff: Client) -> None:
    keep_report(report(is_whole=False, problem=f"SESSION_NOT_FOUND: {HOSTILE}"))
    page = staff.get(f"/evaluations/{ID}/").content.decode()
    assert "It ended early. SESSION_NOT_FOUND" in page
    assert "hx-trigger" not in page.partition("<main")[2]
    assert "<script>alert" not in page


def test_a_page_says_when_nothing_was_heard_of_it_for_minutes(staff: Client, folder: Path) -> None:
    keep_report(report(is_whole=False, progress="harbour, demo, 4,096: 3 of 9 turns"))
    assert "No progress for some minutes" not in staff.get(f"/evaluations/{ID}/").content.decode()
    assert ">running<" in staff.get("/evaluations/").content.decode()
    os.utime(folder / f"{ID}.json", (1, 1))
    assert ">running<" not in staff.get("/evaluations/").content.decode()
    assert "No progress for some minutes" in staff.get(f"/evaluations/{ID}/").content.decode()


def test_nobody_is_asked_for_a_session_that_this_person_may_not_read(staff: Client) -> None:
    session = new_session(make_user("bob"))
    for id in (session, "", "x", "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV", "\0", "sess_" + "9" * 5_000):
        assert staff.post("/evaluations/start/", {"session": id}).status_code == 404
    client = Client()
    client.force_login(User.objects.get(username="bob"))
    assert client.post("/evaluations/start/", {"session": session}).status_code == 404
    assert not list(list_reports())
    assert not OrmQ.objects.exists()


def test_one_worker_evaluates_at_a_time(staff: Client, folder: Path) -> None:
    session = new_session(User.objects.get(username="ada"))
    keep_report(report(is_whole=False, measurements=(), progress="Waiting for a worker."))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert staff.post("/evaluations/start/", {"session": session}).status_code == 409
        evaluate_session(report_id=ID, session_id=session)
    assert load_report(ID).problem.startswith("A worker is evaluating a session already.")


def test_a_worker_says_what_went_wrong_and_takes_nothing_up_twice() -> None:
    keep_report(report(is_whole=False, measurements=(), progress="Waiting for a worker."))
    evaluate_session(report_id=ID, session_id="sess_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert load_report(ID).problem == "There is no such session, or it is not yours."
    keep_report(report())
    evaluate_session(report_id=ID, session_id="sess_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert load_report(ID) == report()
    evaluate_session(report_id="20261126T120000-000000", session_id="x")


def test_drawings_have_numbers_as_svg_reads_them_in_every_language(staff: Client, tmp_path: Path) -> None:
    keep_report(report())
    with translation.override("de"):
        write_pictures(draw_report(report()), tmp_path)
    pictures = [path.read_text() for path in tmp_path.glob("*.svg")]
    page = staff.get(f"/evaluations/{ID}/", headers={"Accept-Language": "de"})
    assert page["Content-Language"] == "de"
    drawn = re.findall(r' (?:x|y|width|height)="([^"]*)"', "".join([*pictures, page.content.decode()]))
    assert any("." in number for number in drawn)
    assert [number for number in drawn if not re.fullmatch(r"-?\d+(?:\.\d+)?", number)] == []
