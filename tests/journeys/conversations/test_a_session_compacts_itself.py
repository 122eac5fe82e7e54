"""A long session: its worker compacts it in another process, nothing is lost, and the talk goes on."""

from __future__ import annotations

from tests.journeys.conftest import Caller
from tests.support.sites.site import wait_until

STORY = (
    "The harbour office moved its ledgers to the new building in March. Ines checked every one of them twice. "
    "The keeper of the lighthouse asked for a copy of the tide tables, and nobody knew where they were kept. "
)


def test_a_worker_compacts_in_another_process_and_the_facts_stay_reachable(caller: Caller):
    session = caller.new_session()
    caller.say(session, "Remember: the vault opens with the word marigold.")
    runs = f"/api/sessions/{session}/compactions"
    for index in range(14):
        caller.say(session, f"Chapter {index}. {STORY * 4}")
        if caller.call("GET", runs)["items"]:
            break
    wait_until(lambda: caller.call("GET", runs)["items"][0]["state"] == "completed")
    [run] = caller.call("GET", runs)["items"]
    assert (run["trigger"], run["level"]) == ("soft", 1)
    assert run["tokens_after"] < run["tokens_before"]
    listed = caller.call("GET", f"/api/sessions/{session}/events")["items"]
    [person] = {event["data"]["actor"]["for"] for event in listed}
    acted = {event["type"]: event["data"]["actor"] for event in listed}
    assert (acted["turn.completed"]["kind"], acted["turn.completed"]["via"]) == ("key", "api")
    assert (acted["compaction.requested"]["kind"], acted["compaction.requested"]["for"]) == ("system", person)
    worker = {"kind": "worker", "ref": "compaction", "via": "worker", "for": person}
    assert acted["summary.created"] == worker | {"request": acted["compaction.requested"]["request"]}
    events = [event["type"] for event in listed]
    order = ["compaction.requested", "compaction.triggered", "compaction.started", "summary.created", "context.changed"]
    places = [events.index(type) for type in [*order, "compaction.completed"]]
    assert places == sorted(places)
    summaries = caller.call("GET", f"/api/sessions/{session}/summaries")["items"]
    oldest = min(summaries, key=lambda summary: summary["first_seq"])["id"]
    summary = caller.call("GET", f"/api/summaries/{oldest}")
    originals = caller.call("GET", f"/api/summaries/{oldest}/expand")["items"]
    assert [message["id"] for message in originals] == summary["source_ids"]
    assert "marigold" in originals[0]["parts"][0]["text"]
    hits = caller.call("GET", f"/api/sessions/{session}/search?q=marigold")["items"]
    assert hits[-1]["message_seq"] == 1
    assert caller.say(session, "What is the word for the vault?")["state"] == "completed"
    answer = caller.texts(session)[-1]
    assert "marigold" in answer
    shown = caller.call("GET", f"/api/sessions/{session}/context?format=openai_chat")
    assert run["summary_id"] in str(shown["payload"])


def test_somebody_may_ask_for_it_and_wait(caller: Caller):
    session = caller.new_session()
    for index in range(4):
        caller.say(session, f"Chapter {index}. {STORY * 3}")
    run = caller.call("POST", f"/api/sessions/{session}/compact", {"wait": True})
    assert (run["state"], run["trigger"], run["outcome"]) == ("completed", "manual", "target_met")
    assert len(caller.call("GET", f"/api/sessions/{session}/summaries")["items"]) == 1
