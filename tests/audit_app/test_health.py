"""Health: of a session for who may inspect it, of the site for staff; what is wrong is named, with what to do about it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ

from agents_app.models import OperatorBrake, OperatorItem
from agents_app.store import set_run_state
from audit_app import tasks
from audit_app.health import Check, SessionHealth, State, look_at
from audit_app.proof import verify
from compaction_app.models import CompactionRun
from mnesis_core.events import EventType
from mnesis_core.maps.values import RunState
from mnesis_core.messages import TextPart
from mnesis_core.records import TurnState, first_id, new_id
from mnesis_site import health as site
from sessions_app.models import MessagePart, SearchEntry, Session, StreamJournal, Turn
from sessions_app.pages.permissions import inspected
from sessions_app.record import session_store, turn_store
from sessions_app.record.change import change
from tests.compaction_app.summaries.test_revisions import revise
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.cast import make_user
from tests.support.record.inspected import add_session, add_summary, add_turn, claim
from tests.support.record.operators import add_run, paused_run
from tests.support.record.talks import HOSTILE, exchange, new_session, say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]


@pytest.fixture
def alice(db: None) -> User:
    return make_user("alice")


@pytest.fixture
def browser(alice: User) -> Client:
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    cache.clear()


def found(session_id: str) -> SessionHealth:
    request = RequestFactory().get("/")
    request.user = Session.objects.get(pk=session_id).owner
    return look_at(inspected(request, session_id), now=timezone.now())


def line(session_id: str, name: str) -> Check:
    return next(check for check in found(session_id).checks if check.name == name)


def lost(session_id: str, summary_id: str, *, missing: int) -> None:
    with change(session_id) as record:
        record.publish(EventType.FIDELITY_MEASURED, summary_id=summary_id, counted=10, missing=missing)


def test_a_new_session_and_one_that_was_talked_in_need_nobody(alice: User) -> None:
    session_id = new_session(alice)
    assert found(session_id).is_well
    ids = exchange(session_id, "What about the tides?", "They turn.")
    assert found(session_id).is_well
    assert line(session_id, "Messages").words == "2 in 1 turns."
    assert line(session_id, "Search index").state is State.GOOD
    assert line(session_id, "Summaries").words.startswith("No summaries yet")
    add_summary(session_id, claim(session_id), ids[:1], (1, 1))
    assert line(session_id, "Summaries").words == "Messages up to #1 are summarised. 1 newer ones are not."


def test_what_summaries_lost_is_told_with_the_worst_of_them(alice: User) -> None:
    session_id = new_session(alice)
    run, ids = claim(session_id), [exchange(session_id, f"Question {number}", "So.") for number in range(5)]
    assert line(session_id, "Fidelity").state is State.NOTE
    summaries = [add_summary(session_id, run, pair, (2 * at + 1, 2 * at + 2)) for at, pair in enumerate(ids)]
    for summary_id, missing in zip(summaries, (0, 5, 9, 7, 8), strict=True):
        lost(session_id, summary_id, missing=missing)
    total, *worst = (check for check in found(session_id).checks if check.name == "Fidelity")
    assert "Kept in 5 summaries: 21 of 50 names" in total.words
    assert (total.state, "4 of them keep too little." in total.words) == (State.LOOK, True)
    assert [check.address.split("/")[-2] for check in worst] == [summaries[at] for at in (2, 4, 3)]
    with change(session_id) as record:
        session_store.update_session(record, config={"compaction": {"fidelity_bound": 0.95}})
    assert line(session_id, "Fidelity").state is State.GOOD


def test_a_summary_that_was_revised_is_no_alarm_any_more(alice: User) -> None:
    session_id = new_session(alice)
    ids = exchange(session_id, "What about the tides?", "They turn.")
    summary_id = add_summary(session_id, claim(session_id), ids, (1, 2))
    lost(session_id, summary_id, missing=9)
    assert line(session_id, "Fidelity").state is State.LOOK
    assert [check.state for check in site._fidelity()] == [State.LOOK, State.LOOK]
    lost(session_id, revise(session_id, summary_id), missing=1)
    assert "Kept in 1 summary: 9 of 10 names" in line(session_id, "Fidelity").words
    assert line(session_id, "Fidelity").state is State.GOOD
    assert [check.state for check in site._fidelity()] == [State.GOOD]


@pytest.mark.both_databases
def test_summaries_that_keep_too_little_are_told_for_the_site(staff: Client, alice: User) -> None:
    assert [check.state for check in site._fidelity()] == [State.NOTE]
    sessions = [new_session(alice) for _ in range(4)]
    for session_id, losses in zip(sessions, ((0,), (9,), (9, 8), (9,)), strict=True):
        run, at = claim(session_id), 1
        for missing in losses:
            ids = exchange(session_id, "What about the tides?", "They turn.")
            lost(session_id, add_summary(session_id, run, ids, (at, at + 1)), missing=missing)
            at += 2
    with change(sessions[3]) as record:
        session_store.update_session(record, config={"compaction": {"fidelity_bound": 0.95}})
    page = staff.get("/health/").content.decode()
    assert "3 summaries in 2 sessions keep too little" in page
    for session_id, words in ((sessions[1], "1 summary keeps"), (sessions[2], "2 summaries keep")):
        assert words in page
        assert f"/sessions/{session_id}/inspect/health/" in page
    assert sessions[0] not in page
    assert sessions[3] not in page
    with change(sessions[2]) as record:
        session_store.soft_delete_session(record)
    cache.clear()
    page = staff.get("/health/").content.decode()
    assert "1 summary in 1 session keeps too little" in page
    assert sessions[2] not in page


def test_another_persons_health_is_not_found(browser: Client) -> None:
    session_id = new_session(make_user("bob"))
    assert browser.get(f"/sessions/{session_id}/inspect/health/").status_code == 404
    assert Client().get(f"/sessions/{session_id}/inspect/health/").status_code == 302


@pytest.mark.both_databases
def test_turns_that_stand_still_wait_or_failed_are_told(alice: User) -> None:
    session_id = new_session(alice)
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
    Turn.objects.filter(pk=turn_id).update(lease_expires_at=timezone.now() + timedelta(seconds=30))
    assert line(session_id, "Turns").state is State.GOOD
    Turn.objects.filter(pk=turn_id).update(lease_expires_at=timezone.now() - timedelta(seconds=90))
    stuck = line(session_id, "Turns")
    assert (stuck.state, "silent for 1 min 30 s" in stuck.words) == (State.PROBLEM, True)
    with change(session_id) as record:
        turn_store.finish_turn(
            record, turn_id, state=TurnState.FAILED, error_code="MODEL_UNREACHABLE", error_message="x"
        )
    failed = line(session_id, "Turns")
    assert (failed.state, "failed (MODEL_UNREACHABLE)" in failed.words) == (State.LOOK, True)


@pytest.mark.both_databases
def test_a_compaction_without_a_worker_is_told(alice: User) -> None:
    session_id = add_session(alice)
    add_turn(session_id, "What about the tides?")
    run = claim(session_id)
    CompactionRun.objects.filter(pk=run.id).update(lease_expires_at=timezone.now() + timedelta(seconds=60))
    assert line(session_id, "Compaction").state is State.GOOD
    CompactionRun.objects.filter(pk=run.id).update(lease_expires_at=timezone.now() - timedelta(seconds=60))
    assert line(session_id, "Compaction").state is State.PROBLEM


def test_an_index_that_is_behind_is_told_here_and_for_the_site(alice: User) -> None:
    session_id = new_session(alice)
    exchange(session_id, "What about the tides?", "They turn.")
    SearchEntry.objects.filter(session_id=session_id, last_seq=2).delete()
    behind = line(session_id, "Search index")
    assert (behind.state, behind.words) == (
        State.PROBLEM,
        "It ends at message #1; the newest one with words is #2.",
    )
    assert "rebuild_search" in behind.to_do
    assert [check.label for check in site._index()] == [session_id]


def test_a_context_over_its_window_is_told_here_and_for_the_site(alice: User) -> None:
    session_id = new_session(alice)
    say(session_id, ("user", [TextPart(text="tide " * 40_000)]))
    assert line(session_id, "Context").state is State.PROBLEM
    assert [check.state for check in site._windows()] == [State.GOOD]
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        turn_store.start_call(
            record,
            turn_id=turn_id,
            model="demo",
            provider_model="demo",
            parameters={},
            manifest=[],
            digest="ab" * 32,
            estimated_tokens=40_000,
            message_id=None,
            context_seq=1,
        )
    [over] = site._windows()
    assert (over.state, over.label) == (State.LOOK, session_id)


def test_streamed_pieces_without_a_turn_are_told(alice: User) -> None:
    session_id = new_session(alice)
    [message_id] = say(session_id, ("user", [TextPart(text="What about the tides?")]))
    piece = {"part_index": 0, "part_type": "text", "offset": 0, "text": "They"}
    StreamJournal(message_id=message_id, session_id=session_id, **piece).save()
    assert line(session_id, "Streamed text").state is State.PROBLEM


def test_runs_of_operators_are_told(alice: User) -> None:
    session_id = new_session(alice)
    run_id = paused_run(session_id)
    assert line(session_id, "Runs").state is State.LOOK
    OperatorItem.objects.filter(state="running").update(lease_expires_at=timezone.now() - timedelta(seconds=5))
    left = line(session_id, "Runs")
    assert (left.state, "left by their worker" in left.words) == (State.LOOK, True)
    assert site._operators(timezone.now()).state is State.GOOD
    with change(session_id) as record:
        set_run_state(record, run_id, RunState.RUNNING)
    assert line(session_id, "Runs").state is State.PROBLEM
    assert site._operators(timezone.now()).state is State.PROBLEM


def test_what_the_last_verification_found_is_told(alice: User) -> None:
    session_id = new_session(alice)
    exchange(session_id, "What about the tides?", "They turn.")
    assert line(session_id, "Proof").label == "Verify this session"
    verify.ask(session_id, entries=9)
    tasks.verify()
    assert line(session_id, "Proof").state is State.GOOD
    if connection.vendor == "sqlite":  # its guards are triggers, which this takes away for a moment
        from sessions_app.database.guards.triggers import guarded_models, install_guards, remove_guards

        remove_guards(connection, guarded_models())
        plain(MessagePart).filter(session_id=session_id).update(content="forged")
        install_guards(connection, guarded_models())
        verify.ask(session_id, entries=9)
        tasks.verify()
        assert line(session_id, "Proof").state is State.PROBLEM
        assert [check.label for check in site._proofs() if check.state is State.PROBLEM] == [session_id]


@pytest.mark.both_databases
def test_the_page_costs_the_same_whatever_the_session_holds(browser: Client, alice: User) -> None:
    counts = []
    for exchanges in (2, 40):
        session_id = new_session(alice)
        for number in range(exchanges):
            exchange(session_id, f"question {number}", f"answer {number}")
        with CaptureQueriesContext(connection) as queries:
            assert browser.get(f"/sessions/{session_id}/inspect/health/").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 26


def test_hostile_texts_run_nothing(browser: Client, alice: User) -> None:
    session_id = new_session(alice, title=HOSTILE, model="demo")
    say(session_id, ("user", [TextPart(text=HOSTILE)]), state=TurnState.FAILED, error_code="<script>alert(1)</script>")
    add_run(session_id)
    with change(session_id) as record:
        session_store.update_session(record, title=HOSTILE)
    page = browser.get(f"/sessions/{session_id}/inspect/health/").content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page


# The site


@pytest.fixture
def staff(db: None) -> Client:
    carol = make_user("carol")
    carol.is_staff = True
    carol.save()
    client = Client()
    client.force_login(carol)
    return client


def test_the_health_of_the_site_is_there_for_staff_alone(browser: Client, staff: Client) -> None:
    assert Client().get("/health/").status_code == 302
    assert browser.get("/health/").status_code == 404
    assert b'href="/health/"' not in browser.get("/").content
    page = staff.get("/health/").content.decode()
    for words in (
        "Guards of the record",
        "No worker runs",
        "The queue is empty.",
        "No model has asked",
        "free.",
        "every 10s",
    ):
        assert words in page, words
    assert b'href="/health/"' in staff.get("/").content
    assert staff.post("/health/").status_code == 405


@pytest.mark.both_databases
def test_what_is_wrong_on_the_site_is_named(staff: Client, alice: User) -> None:
    now = timezone.now()
    OrmQ.objects.create(key="mnesis", payload="x", lock=now - timedelta(minutes=10))
    OperatorBrake.objects.create(model="<b>dear</b>", until=now + timedelta(seconds=90), ceiling=4, since=now)
    session_id = new_session(alice)
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
    Turn.objects.filter(pk=turn_id).update(lease_expires_at=now - timedelta(seconds=90))
    other = new_session(alice)
    say(other, ("user", [TextPart(text="x")]), state=TurnState.FAILED, error_code="X")
    page = staff.get("/health/").content.decode()
    for words in (
        "the oldest for 10 min",
        "1 turn without a process",
        f"/sessions/{session_id}/inspect/health/",
        "Failed or interrupted in the last 24 hours: 1.",
        "&lt;b&gt;dear&lt;/b&gt;",
        "then 4 calls at a time",
    ):
        assert words in page, words


@pytest.mark.both_databases
def test_missing_guards_are_named(staff: Client) -> None:
    from sessions_app.database.guards.triggers import guarded_models, install_guards, remove_guards

    remove_guards(connection, guarded_models())
    try:
        page = staff.get("/health/").content.decode()
    finally:
        install_guards(connection, guarded_models())
    assert "manage.py migrate" in page
    assert "problem" in page


def test_the_whole_database_is_verified_for_staff_alone(staff: Client, browser: Client, alice: User) -> None:
    session_id = new_session(alice)
    assert "Not verified from this page yet." in staff.get("/health/").content.decode()
    assert browser.post("/health/verify/").status_code == 404
    assert staff.get("/health/verify/").status_code == 405
    assert staff.post("/health/verify/").status_code == 302
    assert "It waits for a worker." in staff.get("/health/").content.decode()
    tasks.verify()
    cache.clear()
    assert "No differences found" in staff.get("/health/").content.decode()
    assert not [check for check in site._proofs() if check.state is State.PROBLEM]
    exchange(session_id, "What about the tides?", "They turn.")
    SearchEntry.objects.filter(session_id=session_id).delete()
    staff.post("/health/verify/")
    tasks.verify()
    cache.clear()
    page = staff.get("/health/").content.decode()
    assert f"{session_id} search: " in page
    assert "rebuild_search" in page


@pytest.mark.both_databases
def test_many_pages_ask_once_and_many_rows_cost_nothing_more(staff: Client, alice: User) -> None:
    counts = []
    for talks in (1, 12):
        for number in range(talks):
            exchange(new_session(alice), f"question {number}", "answer")
        cache.clear()
        with CaptureQueriesContext(connection) as queries:
            staff.get("/health/")
        counts.append(len(queries))
    assert counts[0] == counts[1]
    with CaptureQueriesContext(connection) as queries:
        staff.get("/health/")
    assert len(queries) <= 4


def test_ids_grow_with_time() -> None:
    now = timezone.now().timestamp()
    assert first_id("turn", now - 60) < new_id("turn") < first_id("turn", now + 60)
