"""The ledger's page: whose it is, what is found in it, what one entry proves, and how a verification is asked for and told."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ

from audit_app import ledger, store, tasks
from audit_app.ledger import PAGE, Wanted, actor_of, find_entries
from audit_app.models import Verification
from audit_app.proof import verify
from audit_app.store import find_verification
from mnesis_core.errors import Conflict
from mnesis_core.events import EventType
from sessions_app.models import Event, MessagePart, Session
from sessions_app.pages.permissions import SEES_RECORDS
from sessions_app.record.change import change
from sessions_app.record.organisation_store import ref_of
from sessions_app.record.session_store import update_session
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.cast import make_user
from tests.support.record.talks import HOSTILE, exchange, new_session
from tests.support.record.tampered import write_body

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]
Ask = Callable[..., str]
ROW = '<th class="numbers" scope="row" role="rowheader">'


@pytest.fixture
def alice(session_id: str) -> Client:
    client = Client()
    client.force_login(User.objects.get(username="alice"))
    return client


@pytest.fixture
def ask(alice: Client, session_id: str) -> Ask:
    def get(end: str = "", **parameters: object) -> str:
        answer = alice.get(f"/sessions/{session_id}/inspect/ledger/{end}", parameters)
        assert answer.status_code == 200, answer.content
        return answer.content.decode()

    return get


def long_session(owner: User, events: int) -> str:
    session_id = new_session(owner)
    with change(session_id) as record:
        for number in range(events - 1):
            update_session(record, title=f"Tides {number}")
    return session_id


# Who sees what


@pytest.mark.parametrize("end", ["", "?seq=3", "verification/", "3/body/"])
def test_another_persons_ledger_is_not_found(end: str, session_id: str) -> None:
    bob, address = Client(), f"/sessions/{session_id}/inspect/ledger/{end}"
    assert bob.get(address).status_code == 302
    bob.force_login(make_user("bob"))
    assert bob.get(address).status_code == 404
    assert bob.post(f"/sessions/{session_id}/inspect/ledger/verify/").status_code == 404
    assert not Verification.objects.exists()


def test_staff_who_may_see_records_read_it_without_links_to_the_chat(session_id: str) -> None:
    carol = make_user("carol")
    carol.is_staff = True
    carol.save()
    client = Client()
    client.force_login(carol)
    address = f"/sessions/{session_id}/inspect/ledger/"
    assert client.get(address).status_code == 404
    codes = [name.partition(".")[2] for name in SEES_RECORDS]
    carol.user_permissions.set(Permission.objects.filter(codename__in=codes))
    page = client.get(address).content.decode()
    assert "message.created" in page or "map." in page
    assert "?at=" not in page


# What is found


def test_entries_come_newest_first_page_by_page_with_links(ask: Ask, session_id: str) -> None:
    newest = Session.objects.get(pk=session_id).event_seq
    page = ask()
    assert page.count(ROW) == min(PAGE, newest)
    assert page.index(f'id="entry-{newest}"') < page.index(f'id="entry-{newest - 1}"')
    older = ask(before=4)
    assert older.count(ROW) == 3
    part = MessagePart.objects.filter(part_type="text", session_id=session_id).earliest("message__seq")
    assert f"?at={part.message.seq}#msg-{part.message.seq}" in older
    assert "Newer" in older
    assert "Older" not in older
    assert ask(after=3).count(ROW) == min(PAGE, newest - 3)


def test_filters_find_by_type_actor_id_and_hash(ask: Ask, session_id: str) -> None:
    of_type = ask(type="compaction.started")
    assert of_type.count(ROW) == Event.objects.filter(session_id=session_id, type="compaction.started").count() > 0
    people = find_entries(session_id, Wanted(actor="person"), limit=500).lines
    assert {line.type for line in people} >= {"session.created", "message.created", "session.archived"}
    assert all('"role":"user"' in line.head for line in people if line.type == "message.created")
    message = MessagePart.objects.filter(part_type="text", session_id=session_id).first().message_id
    told = {event.seq for event in Event.objects.filter(session_id=session_id, body__contains=message)}
    assert {line.seq for line in find_entries(session_id, Wanted(text=message), limit=500).lines} == told
    third = Event.objects.get(session_id=session_id, seq=3)
    assert 3 in {line.seq for line in find_entries(session_id, Wanted(text=third.hash[:12]), limit=9).lines}
    assert "No matching entries" in ask(q="msg_nowhere")
    assert "type=compaction.started" in ask(type="compaction.started", seq=3)


def test_every_type_has_an_actor() -> None:
    assert [type.value for type in EventType if not actor_of(type.value)] == []


def test_a_rare_entry_is_looked_for_a_window_at_a_time(session_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "WINDOW", 10)
    newest, wanted = Session.objects.get(pk=session_id).event_seq, Wanted(type="session.created")
    page, pages = find_entries(session_id, wanted, limit=5), 1
    assert (page.lines, page.looked_to) == ([], newest - 9)
    while page.before is not None and not page.lines:
        page, pages = find_entries(session_id, wanted, before=page.before, limit=5), pages + 1
    assert [line.seq for line in page.lines] == [1]
    assert pages == -(-newest // 10)


def test_an_entry_that_somebody_put_far_behind_the_others_hides_none_of_them(
    ask: Ask, session_id: str, unguarded: None
) -> None:
    newest = Session.objects.get(pk=session_id).event_seq
    for place, seq in ((newest, 2**62), (newest - 1, 2**63 - 1), (newest - 2, -4)):
        plain(Event).filter(session_id=session_id, seq=place).update(seq=seq)
    page = ask()
    assert page.count(ROW) == min(PAGE, newest - 1)
    assert f'id="entry-{newest - 3}"' in page
    assert "Older" in page or newest <= PAGE
    assert 'id="entry-1"' in ask(type="session.created")
    assert 'id="entry-1"' in ask(after=0)
    assert "does not match" in ask(seq=2**62)
    assert "does not match" in ask(seq=2**63 - 1)


def test_what_cannot_be_asked_is_refused_or_empty(alice: Client, session_id: str) -> None:
    address = f"/sessions/{session_id}/inspect/ledger/"
    for query in ("seq=x", "before=-1", "after=1.5", "seq=%00"):
        assert alice.get(f"{address}?{query}").status_code == 422, query
    for query in (
        "seq=0",
        "seq=" + "9" * 30,
        "before=0",
        "before=" + "9" * 30,
        "after=0",
        "after=" + "9" * 30,
        "type=no.such",
        "actor=%00",
        "q=%00%ED%A0%80",
        "q=" + "x" * 9_000,
        "q=%25_'%22<script>",
    ):
        answer = alice.get(f"{address}?{query}")
        assert answer.status_code == 200, query
        assert b"<script>alert" not in answer.content
    assert alice.get(f"{address}{'9' * 30}/body/").status_code == 404
    assert alice.get(f"{address}x/body/").status_code == 422
    assert alice.get("/sessions/%00/inspect/ledger/").status_code == 404


def test_a_long_ledger_costs_the_same_few_queries(alice: Client, session_id: str) -> None:
    owner = User.objects.get(username="alice")
    counts = []
    ref_of(owner.pk)  # which is read once by each process
    for events in (3, 300):
        address = f"/sessions/{long_session(owner, events)}/inspect/ledger/"
        with CaptureQueriesContext(
            connection,
        ) as found:
            assert alice.get(address, {"seq": 2}).status_code == 200
        counts.append(len(found))
    assert counts[0] == counts[1] <= 16, found.captured_queries


# One entry


def test_an_entry_shows_its_body_its_hashes_and_what_it_binds(ask: Ask, session_id: str, alice: Client) -> None:
    told = Event.objects.filter(session_id=session_id, type="message.created").first()
    page = ask(seq=told.seq)
    for words in (
        f"Entry #{told.seq}",
        "chain and hash match",
        told.hash,
        told.prev_hash,
        "message_parts",
        ">matches<",
    ):
        assert words in page
    assert "does not match" not in page
    assert ">differs<" not in page
    assert '<tr role="row" aria-current="true">' in page
    body = alice.get(f"/sessions/{session_id}/inspect/ledger/{told.seq}/body/")
    assert body.content.decode() == told.body
    assert body["Content-Type"].startswith("text/plain")
    assert "There is no entry with this number" in ask(seq=10**9)


def test_every_entry_of_the_record_holds(session_id: str) -> None:
    for seq in range(1, Session.objects.get(pk=session_id).event_seq + 1):
        entry = ledger.load_entry(session_id, seq)
        assert entry is not None
        assert entry.problem == ""
        assert {one.state for one in entry.bound} <= {"fits", "last"}, seq


def test_what_was_changed_shows_at_its_entry(ask: Ask, session_id: str, unguarded: None) -> None:
    part = MessagePart.objects.filter(part_type="text", session_id=session_id).first()
    plain(MessagePart).filter(pk=part.pk).update(content="forged")
    told = Event.objects.get(type="message.created", body__contains=part.id)
    assert ">differs<" in ask(seq=told.seq)
    write_body(told, json.loads(told.body) | {"role": HOSTILE.replace("\x00", "").replace("\ud800", "")})
    page = ask(seq=told.seq)
    assert "does not match" in page
    assert f"entry {told.seq} is not what was hashed" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page
    assert "⟨U+202E⟩" in page


@pytest.mark.parametrize(
    "body", ["[1]", "{", "[" * 50_000, '{"rows":7}', '{"rows":[["messages",7,"0"]]}', '{"rows":[[[]]]}']
)
def test_a_body_that_says_nothing_is_shown_as_it_is(ask: Ask, session_id: str, unguarded: None, body: str) -> None:
    plain(Event).filter(session_id=session_id, seq=3).update(body=body, type="<b>" * 3)
    page = ask(seq=3)
    assert "does not match" in page
    assert "<b><b>" not in page


# Verification


def test_a_verification_is_asked_for_waits_runs_and_is_told(alice: Client, ask: Ask, session_id: str) -> None:
    assert "This session has not been verified here" in ask()
    verify = f"/sessions/{session_id}/inspect/ledger/verify/"
    assert alice.post(verify).status_code == 302
    assert "Waiting for a worker" in ask()
    assert "every 700ms" in ask("verification/")
    assert alice.post(verify, headers={"HX-Request": "true"}).status_code == 200
    assert Verification.objects.count() == 1
    tasks.verify()
    events = Session.objects.get(pk=session_id).event_seq
    page = ask()
    assert f"{events} entries" in page
    assert "verified. No differences found" in page
    assert "Verify again" in page
    assert Session.objects.get(pk=session_id).head_hash in page
    assert "every 700ms" not in ask("verification/")
    assert alice.get(verify).status_code == 405


def test_what_is_not_as_it_was_written_is_named_with_its_entry(
    alice: Client, ask: Ask, session_id: str, unguarded: None
) -> None:
    part = MessagePart.objects.filter(part_type="text", session_id=session_id).first()
    plain(MessagePart).filter(pk=part.pk).update(content="forged", output=HOSTILE[:20])
    told = Event.objects.get(type="message.created", body__contains=part.id)
    alice.post(f"/sessions/{session_id}/inspect/ledger/verify/")
    tasks.verify()
    page = ask("verification/")
    for words in (
        "2 problems",
        f"ledger/?seq={told.seq}",
        f"message_parts {part.id}",
        f"ledger/?q={part.id}",
        "A row or a value was edited.",
    ):
        assert words in page, words
    assert "No differences found" not in page


def test_one_runs_at_a_time_and_the_others_wait_their_turn(session_id: str) -> None:
    other = new_session(User.objects.get(username="alice"))
    assert verify.ask(session_id, entries=9)
    assert not verify.ask(session_id, entries=9)
    assert verify.ask(other, entries=1)
    assert store.claim(worker="a") == session_id
    assert store.claim(worker="b") is None
    assert not verify.ask(session_id, entries=9)
    assert not verify.verify_next()
    store.fail(session_id, worker="b")
    assert find_verification(session_id).state == "running"
    store.fail(session_id, worker="a")
    assert store.claim(worker="b") == other


def test_one_whose_worker_died_is_told_and_may_be_asked_for_again(
    ask: Ask, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify.ask(session_id, entries=9)
    monkeypatch.setattr(store, "LEASE_SECONDS", -1)
    assert store.claim(worker="a") == session_id
    assert "stopped without a result" in ask("verification/")
    monkeypatch.undo()
    assert verify.ask(session_id, entries=9)
    assert verify.verify_next()
    assert not store.finish(session_id, worker="a", seq=0)
    assert find_verification(session_id).found.problem_count == 0


def test_one_that_nobody_takes_up_may_be_asked_for_again(ask: Ask, alice: Client, session_id: str) -> None:
    verify.ask(session_id, entries=9)
    assert "Try again" not in ask("verification/")
    Verification.objects.update(asked_at=timezone.now() - timedelta(seconds=90))
    assert "It has been waiting for 1 min 30 s" in ask("verification/")
    OrmQ.objects.all().delete()
    alice.post(f"/sessions/{session_id}/inspect/ledger/verify/")
    assert OrmQ.objects.count() == 1
    tasks.verify()
    assert "No differences found" in ask("verification/")


def test_how_far_it_is_is_told(ask: Ask, session_id: str) -> None:
    verify.ask(session_id, entries=200_000)
    store.claim(worker="a")
    store.renew(session_id, worker="a", done=48_000)
    Verification.objects.update(started_at=timezone.now() - timedelta(seconds=2))
    page = ask("verification/")
    assert "48,000 of 200,000 entries" in page
    assert "entries a second" in page
    assert 'max="200000"' in page
    store.renew(session_id, worker="another", done=1)
    assert find_verification(session_id).entries_done == 48_000


def test_one_that_breaks_off_lets_the_next_one_go(session_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verify.ask(session_id, entries=9)
    monkeypatch.setattr(verify, "verify_session", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        verify.verify_next()
    assert find_verification(session_id).state == "failed"


def test_the_rest_endpoint_waits_for_its_turn_and_says_when_that_takes_too_long(
    alice: Client, session_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_session(User.objects.get(username="alice"))
    verify.ask(other, entries=1)
    store.claim(worker="a")
    monkeypatch.setattr(verify, "PATIENCE_SECONDS", 0.1)
    answer = alice.post(f"/api/sessions/{session_id}/verify")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, Conflict.code)
    store.fail(other, worker="a")
    assert alice.post(f"/api/sessions/{session_id}/verify").json()["ok"] is True
    assert find_verification(session_id).found.problem_count == 0


def test_hostile_titles_and_ids_run_nothing(session_id: str) -> None:
    owner = User.objects.get(username="alice")
    hostile = new_session(owner, title=HOSTILE)
    exchange(hostile, HOSTILE, HOSTILE)
    client = Client()
    client.force_login(owner)
    page = client.get(f"/sessions/{hostile}/inspect/ledger/", {"q": "<img src=x onerror=alert(1)>", "seq": 2}).content
    assert b"<script>alert" not in page
    assert b"<img src=x" not in page
