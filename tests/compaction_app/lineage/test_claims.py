"""What the sentences of summaries rest on: found by a worker, written once, proved, erasable, and told to their owner alone."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import IntegrityError, connection
from django.test import Client
from django_q.models import OrmQ

from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from compaction_app import revise
from compaction_app.compact import compact_now
from compaction_app.lineage import claims as aligning
from compaction_app.lineage.claims import align_summary, load_claims
from compaction_app.models import Claim
from compaction_app.queries import list_summaries, load_summary
from compaction_app.store import record_claims
from compaction_app.tasks import align
from mnesis_core.compaction.lineage import METHOD, Support
from mnesis_core.compaction.lineage import Claim as Alignment
from mnesis_core.records import SessionRecord
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_store import archive_session, soft_delete_session, update_session
from tests.compaction_app.test_compaction import add_turns, model_of
from tests.sessions_app.database.guards.record_rows import NOW
from tests.support.people.cast import make_user
from tests.support.processes.children import run_child
from tests.support.record.inspected import add_session, add_summary, add_turn, claim, finish
from tests.support.record.talks import HOSTILE
from tests.support.sites.site import wait_until

pytestmark = pytest.mark.both_databases
SUMMARY = "## Goal\n- The harbour office moved its ledgers in March.\n- The office paid 4711 euros for it."


def queued() -> list[str]:
    return [task.kwargs()["summary_id"] for task in OrmQ.objects.all() if task.func() == aligning.TASK]


def work_off() -> None:
    for id in queued():
        align(summary_id=id)


def told(session_id: str) -> list[tuple[int, int]]:
    """The numbers of sentences, and of unsupported ones, that entries tell of."""
    bodies = [event.data for event in load_events(session_id, limit=9_999) if event.type == "claims.aligned"]
    return [(body["claims"], body["unsupported"]) for body in bodies]


@pytest.fixture
def talk(owner: User) -> tuple[str, list[str]]:
    """A session with two summaries and one that condenses them, none of them aligned; the ids of the three."""
    session_id = add_session(owner)
    first = add_turn(session_id, "Ana moved to Lisbon with 12 friends.")
    second = add_turn(session_id, "Bo paid 45 euros for the blue bowl.")
    run = claim(session_id)
    leaves = [
        add_summary(
            session_id, run, first, (1, 2), text="- Ana moved to Lisbon with 12 friends.\n- She sold 900 boats."
        ),
        add_summary(session_id, run, second, (3, 4), text="Bo paid 45 euros for a blue bowl, he said."),
    ]
    top = add_summary(
        session_id,
        run,
        leaves,
        (1, 4),
        kind="condensed",
        text="Ana moved to Lisbon with 12 friends. Bo paid 45 euros for a blue bowl, he said. She sold 900 boats.",
    )
    finish(session_id, run)
    return session_id, [*leaves, top]


def supports(summary_id: str) -> list[tuple[str, list[int]]]:
    claims = load_claims(load_summary(summary_id))
    return [(claim.support.value, [message.seq for message in claim.messages]) for claim in claims]


def test_a_worker_aligns_what_a_compaction_wrote_even_where_it_does_not_reflect(
    session: SessionRecord, script: Any
) -> None:
    with change(session.id) as record:
        update_session(record, config={"compaction": {"reflect": False}})
    script(model_of(SUMMARY))
    add_turns(session, 8)
    compact_now(session.id)
    [summary] = list_summaries(session.id)
    assert load_claims(summary) == [] == told(session.id)
    work_off()
    moved, paid = load_claims(summary)
    assert (moved.support, moved.text) == (Support.SUPPORTED, "The harbour office moved its ledgers in March.")
    assert moved.messages[0].message_id in {id for _, id in summary.source_ids}
    assert (paid.support, paid.missing, paid.messages) == (Support.NONE, ("4711",), ())
    assert told(session.id) == [(2, 1)]
    work_off()
    with change(session.id) as record:
        late = Alignment(number=9, start=0, end=1, support=Support.NONE, share=0)
        assert not record_claims(record, summary.id, [late]), "another worker was first"
        update_session(record, title="x")
    assert Claim.objects.count() == 2
    assert verify_session(session.id).problems == []


def test_a_condensed_summary_leads_on_to_messages_and_inherits_what_nobody_said(talk: tuple[str, list[str]]) -> None:
    session_id, [first, second, top] = talk
    for id in (top, second, first):  # in any order
        assert align_summary(load_summary(id))
    assert supports(first) == [("quoted", [1]), ("none", [])]
    assert supports(second) == [("supported", [3])]
    assert supports(top) == [("quoted", [1]), ("supported", [3]), ("none", [])]
    assert [claim.places for claim in load_claims(load_summary(top))] == [
        ((first, 1),),
        ((second, 1),),
        ((first, 2),),
    ]
    assert verify_session(session_id).problems == []


def main(summary_id: str, begun: str) -> int:
    """Align a summary in a process of its own."""
    Path(begun).touch()
    align(summary_id=summary_id)
    return 0


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_two_workers_that_align_a_summary_at_once_write_its_claims_once(
    talk: tuple[str, list[str]], tmp_path: Path
) -> None:
    session_id, [first, *_] = talk
    begun = [tmp_path / "one", tmp_path / "other"]
    with ThreadPoolExecutor() as workers:
        with change(session_id):  # Neither can write before both have seen that there are no claims.
            done = [workers.submit(run_child, __name__, first, file, seconds=60) for file in begun]
            wait_until(lambda: all(file.exists() for file in begun))
            time.sleep(1)
            assert [one.result() for one in done if one.done()] == []
        assert [one.result() for one in done] == ["", ""]
    assert len(told(session_id)) == 1
    assert supports(first) == [("quoted", [1]), ("none", [])]
    assert verify_session(session_id).problems == []


def test_revisions_are_aligned_too(session: SessionRecord, script: Any) -> None:
    script(model_of(SUMMARY))
    add_turns(session, 8)
    compact_now(session.id)
    [summary] = list_summaries(session.id)
    script(model_of("The office moved its ledgers in March."))
    [revision] = revise.apply(revise.preview(summary.id))
    [undone] = revise.undo(revision)
    assert {revision, undone} <= {*queued()}
    work_off()
    assert [support for support, _ in supports(revision)] == ["supported"]
    assert [support for support, _ in supports(undone)] == ["supported", "none"]


def test_nothing_is_written_of_a_session_that_was_closed_or_archived_meanwhile(talk: tuple[str, list[str]]) -> None:
    session_id, [first, *_] = talk
    with change(session_id) as record:
        archive_session(record)
    assert not align_summary(load_summary(first))
    with change(session_id) as record:
        soft_delete_session(record)
    align(summary_id=first)
    assert not Claim.objects.exists()


@pytest.mark.owner
def test_a_claim_never_changes(talk: tuple[str, list[str]]) -> None:
    align_summary(load_summary(talk[1][0]))
    with pytest.raises(IntegrityError, match="claims"), connection.cursor() as cursor:
        cursor.execute("UPDATE claims SET support = 'quoted'")


def test_a_command_queues_what_is_not_aligned(talk: tuple[str, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    session_id, [first, second, top] = talk
    align_summary(load_summary(second))
    call_command("summaries", "align", session_id)
    assert capsys.readouterr().out == f"{session_id}: 2 summaries queued\n"
    assert {*queued()} == {first, top}
    work_off()
    call_command("summaries", "align", "--all", "--json")
    assert json.loads(capsys.readouterr().out) == {session_id: []}


def test_claims_leave_with_an_export(talk: tuple[str, list[str]]) -> None:
    session_id, [first, *_] = talk
    align_summary(load_summary(first))
    rows = [json.loads(line) for line in export_session(session_id) if b'"table":"claims"' in bytes(line)]
    assert {row["row"]["number"]: row["row"]["support"] for row in rows} == {1: "quoted", 2: "none"}


def test_rows_that_another_site_wrote_otherwise_are_read_as_without_places(talk: tuple[str, list[str]]) -> None:
    session_id, [first, *_] = talk
    wrong = [[], {}, 7, "x", [["a"]], [[1, 2]], [[first, 1]], [[first, 2]], [["msg_other", "p"]], [[[], {}]]]
    usual = {
        "method": METHOD,
        "share": 1,
        "support": "so so",
        "text_start": -5,
        "text_end": 10**9,
        "created_at": NOW,
    }
    for number, places in enumerate(wrong, 1):
        ids = {"id": f"claim_{number}", "session_id": session_id, "summary_id": first}
        Claim.objects.create(**ids, number=number, places=places, missing=places, **usual)
    claims = load_claims(load_summary(first))
    assert len(claims) == len(wrong)
    assert all(claim.support is Support.NONE and not claim.messages for claim in claims)


def test_the_owner_asks_for_claims_and_nobody_else(
    talk: tuple[str, list[str]], owner_client: Client, owner: User
) -> None:
    _, [first, _, top] = talk
    for id in (first, top):
        align_summary(load_summary(id))
    answer = owner_client.get(f"/api/summaries/{top}/claims").json()
    assert (answer["total"], answer["unsupported"], answer["next_cursor"]) == (3, 1, None)
    assert answer["items"][0]["messages"][0]["seq"] == 1
    page = owner_client.get(f"/api/summaries/{top}/claims", {"limit": 2}).json()
    rest = owner_client.get(f"/api/summaries/{top}/claims", {"limit": 2, "cursor": page["next_cursor"]}).json()
    assert [item["number"] for item in (*page["items"], *rest["items"])] == [1, 2, 3]
    for wrong in ({"cursor": "x"}, {"limit": 0}, {"cursor": -1}):
        assert owner_client.get(f"/api/summaries/{top}/claims", wrong).status_code == 422
    theirs = add_session(make_user("bob"))
    ids = add_turn(theirs, HOSTILE)
    other = add_summary(theirs, claim(theirs), ids, (1, 2), text=HOSTILE)
    assert owner_client.get(f"/api/summaries/{other}/claims").json()["error"]["code"] == "SUMMARY_NOT_FOUND"


def test_hostile_words_are_aligned_and_told(owner: User, owner_client: Client) -> None:
    session_id = add_session(owner)
    ids = add_turn(session_id, HOSTILE * 3)
    summary = add_summary(session_id, claim(session_id), ids, (1, 2), text=f"- {HOSTILE}\n- \x00\ud800 4711 \u202e")
    align_summary(load_summary(summary))
    assert owner_client.get(f"/api/summaries/{summary}/claims").status_code == 200
    assert verify_session(session_id).problems == []


def test_the_page_marks_each_sentence_and_counts_those_that_rest_on_nothing(
    talk: tuple[str, list[str]], owner_client: Client
) -> None:
    session_id, [first, _, top] = talk
    address = f"/sessions/{session_id}/inspect/summaries/{{}}/"
    assert "data-claim" not in owner_client.get(address.format(first)).content.decode()
    for id in talk[1]:
        align_summary(load_summary(id))
    page = owner_client.get(address.format(first)).content.decode()
    assert "1 of 2 sentences has no source in the conversation." in " ".join(page.split())
    assert page.count('role="button"') == 2
    assert "Quoted from message 1." in page
    assert 'claim-note-none">no source</span>' in page
    page = owner_client.get(address.format(top)).content.decode()
    assert f'data-sources="{first}" data-messages="1"' in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**Bold. Next** thing <script>alert(1)</script> said.", "&lt;script&gt;"),
        ("See [this page](https://a.example/b?x=1&y=2). And `a.b` too.", 'href="https://a.example/b?x=1&amp;y=2"'),
        ("\u2e22 stands here. \u2e23 And there.", '<div class="summary-plain"'),
        ("```py\nx = 1\n```\n\u202e hidden. $x^2$ and more.", "U+202E"),
        ("| a | b |\n|---|---|\n| one | two |\n\n1. First.\n2. Second *thing.* Third.", "<td"),
        ("- [ ] Paint the hull. And the deck.\n- [x] Sail it home.", '<li class="task">\N{BALLOT BOX} <span'),
        ('<b title="\'>">Bold</b> words here. \x00\ud800 <!-- x --> end.', "&lt;b"),
    ],
)
def test_marks_change_nothing_of_what_is_shown(owner: User, owner_client: Client, text: str, shown: str) -> None:
    session_id = add_session(owner)
    summary = add_summary(session_id, claim(session_id), add_turn(session_id, "Hello."), (1, 2), text=text)
    address = f"/sessions/{session_id}/inspect/summaries/{summary}/"
    align_summary(load_summary(summary))
    page = owner_client.get(address).content.decode()
    assert shown in page
    assert "<script>alert" not in page
    assert page.count('role="button"') == Claim.objects.count()
