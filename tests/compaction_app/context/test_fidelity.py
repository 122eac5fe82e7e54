"""The fidelity alarm: a draft that loses much is asked for again, what stays lost is carried as facts, and both are recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from audit_app.proof.verify import verify_session
from compaction_app import revise
from compaction_app.compact import compact_now
from compaction_app.context.fidelity import load_alarms, load_fidelity, load_measured
from compaction_app.context.state import rebuild_payload
from compaction_app.facts.queries import list_facts
from compaction_app.facts.store import forbid_fact, record_fact, withdraw_fact
from compaction_app.models import Reflection
from compaction_app.queries import list_runs, list_summaries
from mnesis_core.compaction.requests import KEEPS_NO_MORE, LOSSY
from mnesis_core.errors import ModelUnreachable
from mnesis_core.events import EventType
from mnesis_core.facts import FactKind, NewFact
from mnesis_core.llm.interface import Request, Source, Usage
from mnesis_core.providers.scripted import Script, ScriptedModel, Step
from mnesis_core.records import SessionRecord
from sessions_app.record.change import Change, change
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_store import archive_session, update_session
from sessions_app.record.turn_queries import list_calls
from tests.compaction_app.facts.test_reflection import queued, work_off
from tests.compaction_app.summaries.test_tries import priced
from tests.compaction_app.test_compaction import WORDS, add_turns
from tests.support.record.inspected import add_summary, claim, finish
from tests.support.record.talks import exchange, new_session

__all__ = ["priced"]
ORDER = "Never deploy on Fridays."
CHOICE = "We decided to paint the crane green."
SAID = f"{ORDER} {CHOICE} The fog came from Harwich. {WORDS * 8}"
POOR = "## Goal\n- Ines moved the ledgers of the harbour office in March."
GOOD = f"{POOR}\n- They never deploy on Fridays.\n- Decided: paint the crane green."


def drafts(first: Script, second: Script = "", facts: Script = "{}") -> Callable[[Request], Script]:
    def reply(request: Request) -> Script:
        system, user = (str(message["content"]) for message in request.payload["messages"])
        if "MNESIS-FACTS" in system:
            return facts
        return second if "[missing]" in user else first

    return reply


def configure(session: SessionRecord, **values: Any) -> None:
    with change(session.id) as record:
        update_session(record, config={"compaction": values, "turn": {"max_retries": 0}})


def compacted(session: SessionRecord) -> list[tuple[bool, str]]:
    add_turns(session, 8, text=SAID)
    run = compact_now(session.id)
    assert run.state == "completed"
    return [(attempt.accepted, attempt.reason) for attempt in run.tries]


def measured(session: SessionRecord) -> list[tuple[int, int]]:
    return [(row.counted, row.missing) for row in load_measured(session.id).values()]


def test_a_draft_that_loses_an_instruction_is_asked_for_again_with_it_named(
    session: SessionRecord, script: Any
) -> None:
    model = script(drafts(POOR, GOOD))
    assert compacted(session) == [(True, LOSSY), (True, "")]
    [summary] = list_summaries(session.id)
    assert summary.text == GOOD
    assert f"[missing] {ORDER}\n" in str(model.requests[1].payload["messages"][1]["content"])
    assert all(rebuild_payload(call).digest_matches for call in list_calls(session.id))
    assert verify_session(session.id).problems == []


@pytest.mark.parametrize(
    ("second", "reason"),
    [("- It rained.", KEEPS_NO_MORE), ("", "empty"), (Step(error=ModelUnreachable("away")), "MODEL_UNREACHABLE")],
)
def test_a_second_draft_that_is_worse_leaves_the_first(
    session: SessionRecord, script: Any, second: Script, reason: str
) -> None:
    configure(session)
    script(drafts(POOR, second))
    assert compacted(session) == [(True, LOSSY), (False, reason)]
    [summary] = list_summaries(session.id)
    assert (summary.text, summary.level) == (POOR, 1)


def test_no_second_draft_is_asked_for_where_the_limits_are_reached(
    session: SessionRecord, priced: Callable[..., ScriptedModel]
) -> None:
    configure(session, spend_limit_session_micros=8_000)
    spent = Usage(input_tokens=7_000, output_tokens=900, source=Source.PROVIDER)
    model = priced(drafts(Step(text=POOR, usage=spent), GOOD))
    assert compacted(session) == [(True, LOSSY), (False, "spend_limit_session")]
    assert (list_summaries(session.id)[0].text, len(model.requests)) == (POOR, 1)


def test_a_bound_of_1_asks_once_measures_nothing_and_carries_nothing(session: SessionRecord, script: Any) -> None:
    configure(session, fidelity_bound=1, reflect=False)
    script(drafts(POOR, GOOD))
    assert compacted(session) == [(True, "")]
    assert (queued(), measured(session)) == ([], [])
    [summary] = list_summaries(session.id)
    assert load_fidelity(summary).measured is None


@pytest.mark.parametrize("facts", ["{}", '{"facts": []}', Step(error=ModelUnreachable("away"))])
def test_what_stays_lost_is_carried_as_facts_whatever_the_model_does(
    session: SessionRecord, script: Any, facts: Script
) -> None:
    configure(session)
    script(drafts(POOR, POOR, facts))
    compacted(session)
    work_off()
    carried = {(fact.kind, fact.statement, fact.method, fact.quotes[0].text) for fact in list_facts(session.id)}
    assert carried == {("instruction", ORDER, "rule", ORDER), ("decision", CHOICE, "rule", CHOICE)}
    [(counted, missing)] = measured(session)
    assert counted > missing
    # As of then: what is said later changes no count of the ledger, and so no list.
    with change(session.id) as record:
        record_fact(record, NewFact(statement="Harwich is far.", kind=FactKind.ENTITY, said_at=record.now, said_seq=1))
    found = load_fidelity(list_summaries(session.id)[0])
    assert [one.item.text for one in found.missing] == ["Harwich"]
    assert missing == 1
    assert verify_session(session.id).problems == []


def test_without_reflection_no_model_is_asked_and_the_lost_is_carried_all_the_same(
    session: SessionRecord, script: Any
) -> None:
    configure(session, reflect=False)
    model = script(drafts(POOR, POOR))
    compacted(session)
    asked = len(model.requests)
    [reflection] = work_off()
    assert (reflection.state, reflection.model, reflection.prompt_version) == ("completed", None, "rule.1")
    assert len(model.requests) == asked
    assert {fact.statement for fact in list_facts(session.id)} == {ORDER, CHOICE}


def test_it_is_measured_once_after_the_facts_and_what_a_fact_has_is_not_carried_again(
    session: SessionRecord, script: Any
) -> None:
    script(drafts(POOR, POOR))
    compacted(session)
    for _ in range(2):
        work_off()
    types = [event.type for event in load_events(session.id, limit=9_999)]
    assert types.count("fidelity.measured") == 1
    assert types[-3:] == ["fact.created", "fact.created", "fidelity.measured"]
    add_turns(session, 8, text=SAID)
    compact_now(session.id)
    work_off()
    assert len(list_facts(session.id)) == 2
    assert len(measured(session)) == len(list_summaries(session.id))


@pytest.mark.parametrize("end", [withdraw_fact, forbid_fact])
def test_what_a_person_withdrew_or_forbade_is_not_carried_again(
    session: SessionRecord, script: Any, end: Callable[[Change, str], None]
) -> None:
    configure(session, reflect=False)
    script(drafts(POOR, POOR))
    compacted(session)
    work_off()
    for fact in list_facts(session.id):
        with change(session.id) as record:
            end(record, fact.id)
    add_turns(session, 8, text=SAID)
    compact_now(session.id)
    work_off()
    assert [fact for fact in list_facts(session.id) if fact.state.value == "live"] == []
    newest = list_summaries(session.id)[-1]
    measured_last, found = load_measured(session.id)[newest.id], load_fidelity(newest)
    assert {ORDER, CHOICE} <= {one.item.text for one in found.missing}
    assert len(found.missing) == measured_last.missing


def test_an_archived_session_is_measured_and_gets_no_facts(session: SessionRecord, script: Any) -> None:
    script(drafts(POOR, POOR, Step(error=ModelUnreachable("away"))))
    configure(session)
    compacted(session)
    with change(session.id) as record:
        archive_session(record)
    work_off()
    assert list_facts(session.id) == []
    assert Reflection.objects.get().state == "failed"
    assert len(measured(session)) == 1


@pytest.mark.slow
def test_summaries_of_summaries_are_measured_too(session: SessionRecord) -> None:
    configure(session, leaf_chunk_tokens=300, condense_min_fan_in=2)
    add_turns(session, 24, text=f"Remember: the mooring code is K7-4711. {WORDS * 4}")
    for _ in range(3):
        compact_now(session.id)
    work_off()
    kinds = {summary.id: summary.kind for summary in list_summaries(session.id)}
    assert set(kinds.values()) == {"leaf", "condensed"}
    assert load_measured(session.id).keys() == kinds.keys()
    assert list_runs(session.id)
    assert verify_session(session.id).problems == []


def test_revisions_are_measured_too_and_what_they_lose_is_carried_without_a_model(
    session: SessionRecord, script: Any
) -> None:
    model = script(lambda request: GOOD if "MNESIS-FACTS" not in str(request.payload) else "{}")
    compacted(session)
    work_off()
    [summary] = list_summaries(session.id)
    assert list_facts(session.id) == []
    model = script(drafts(POOR, POOR))
    previewed = revise.preview(summary.id)
    asked = len(model.requests)
    [revision] = revise.apply(previewed)
    work_off()
    measured = load_measured(session.id)
    assert measured.keys() == {summary.id, revision}
    assert measured[revision].counted == measured[summary.id].counted
    carried = {(fact.statement, fact.method) for fact in list_facts(session.id)}
    assert (carried, len(model.requests)) == ({(ORDER, "rule"), (CHOICE, "rule")}, asked)
    [undone] = revise.undo(revision)
    work_off()
    assert load_measured(session.id)[undone].missing == measured[summary.id].missing
    assert verify_session(session.id).problems == []


def test_a_bound_of_1_leaves_revisions_unmeasured(session: SessionRecord, script: Any) -> None:
    configure(session, fidelity_bound=1, reflect=False)
    script(drafts(POOR))
    compacted(session)
    [summary] = list_summaries(session.id)
    revise.apply(revise.preview(summary.id))
    assert (queued(), measured(session)) == ([], [])


# What is said of it: at REST and JSON-RPC, in the divider, on the summary's page


def measure_one(session_id: str, summary_id: str, *, counted: int, missing: int) -> None:
    with change(session_id) as record:
        record.publish(EventType.FIDELITY_MEASURED, summary_id=summary_id, counted=counted, missing=missing)


def said(owner: User, text: str) -> tuple[str, str]:
    """A session whose first message says this, and a summary of it that says nothing."""
    session_id = new_session(owner)
    ids = exchange(session_id, text, "Noted.")
    return session_id, add_summary(session_id, claim(session_id), ids, (1, 2), text="Nothing.")


BOATS = " ".join(f"There are {number} boats." for number in range(10, 30))


def test_rest_lists_what_is_missing_with_its_place_a_page_at_a_time(owner_client: Client, owner: User) -> None:
    session_id, summary_id = said(owner, f"{ORDER} {BOATS}")
    assert owner_client.get(f"/api/summaries/{summary_id}/fidelity").json() == {
        "id": summary_id, "counted": None, "missing": None, "alarm": False, "items": [], "next_cursor": None,
    }  # fmt: skip
    measure_one(session_id, summary_id, counted=21, missing=21)
    first = owner_client.get(f"/api/summaries/{summary_id}/fidelity?limit=20").json()
    assert (first["counted"], first["missing"], first["alarm"], len(first["items"])) == (21, 21, True, 20)
    item = first["items"][0]
    assert (item["kind"], item["text"], item["seq"], item["start"]) == ("instruction", ORDER, 1, 0)
    rest = owner_client.get(f"/api/summaries/{summary_id}/fidelity?cursor={first['next_cursor']}").json()
    assert ([one["text"] for one in rest["items"]], rest["next_cursor"]) == (["29 boats"], None)
    assert owner_client.get(f"/api/summaries/{summary_id}/fidelity?cursor=x").status_code == 422
    assert owner_client.get("/api/summaries/sum_1/fidelity").status_code == 404


def test_the_divider_says_what_was_kept_and_an_alarm_in_words(owner_client: Client, owner: User) -> None:
    session_id = new_session(owner)
    ids = exchange(session_id, BOATS, "Noted.")
    run = claim(session_id)
    summary_id = add_summary(session_id, run, ids, (1, 2), text="Nothing.")
    finish(session_id, run)
    address = f"/sessions/{session_id}/compactions/"
    assert "has not been measured" in owner_client.get(address).content.decode()
    measure_one(session_id, summary_id, counted=48, missing=2)
    page = owner_client.get(address).content.decode()
    assert "keeps 46 of 48 names, numbers, dates and decisions" in page
    assert "keeps only" not in page
    measure_one(session_id, summary_id, counted=48, missing=30)
    page = owner_client.get(address).content.decode()
    assert "keeps only 18 of 48" in page
    assert f"/inspect/summaries/{summary_id}/#missing" in page


@pytest.mark.parametrize(
    ("counted", "missing", "words"),
    [(None, None, "Not measured."), (0, 0, "contain no names"), (48, 2, "46 of 48 names"), (48, 30, "Only 18 of 48 names")],
)  # fmt: skip
def test_the_summarys_page_says_how_much_it_kept(
    owner_client: Client, owner: User, counted: int | None, missing: int, words: str
) -> None:
    session_id, summary_id = said(owner, "x")
    if counted is not None:
        measure_one(session_id, summary_id, counted=counted, missing=missing)
    page = owner_client.get(f"/sessions/{session_id}/inspect/summaries/{summary_id}/").content.decode()
    assert words in page
    assert ('id="missing"' in page, f"{missing} missing" in page) == (True, bool(missing))


def test_the_list_is_by_kind_with_the_messages_and_shows_hostile_text_as_text(
    owner_client: Client, owner: User
) -> None:
    session_id, summary_id = said(owner, f"Never run <script>alert(1)</script>\u202e here. {BOATS}")
    measure_one(session_id, summary_id, counted=21, missing=21)
    address = f"/sessions/{session_id}/inspect/summaries/{summary_id}/missing/"
    page = owner_client.get(address).content.decode()
    assert page.index("Instructions") < page.index("Numbers") < page.index("29 boats")
    assert "<script>" not in page
    assert "\u202e" not in page
    assert "/inspect/messages/" in page
    other, another = said(User.objects.create_user("eve"), BOATS)
    measure_one(other, another, counted=20, missing=20)
    for theirs in (
        f"/sessions/{other}/inspect/summaries/{another}/missing/",
        f"/sessions/{session_id}/inspect/summaries/{another}/missing/",
    ):
        assert owner_client.get(theirs).status_code == 404
    assert owner_client.get(f"/api/summaries/{another}/fidelity").status_code == 404


def test_what_is_measured_is_read_by_its_own_index(session: SessionRecord) -> None:
    measure_one(session.id, "sum_1", counted=9, missing=1)
    add_turns(session, 3)
    with CaptureQueriesContext(connection) as queries:
        [row] = load_measured(session.id).values()
    assert (row.kept, len(queries)) == (8, 1)
    with CaptureQueriesContext(connection) as of_all:
        assert load_alarms(most=9) == (1, {})
    assert len(of_all) == 3
    if connection.vendor == "sqlite":
        for sql in (queries.captured_queries[0]["sql"], of_all.captured_queries[0]["sql"]):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
                plan = str(cursor.fetchall())
            assert "event_of_fidelity" in plan
            assert "TEMP B-TREE" not in plan
