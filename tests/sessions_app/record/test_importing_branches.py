"""Imported conversations that are trees become one session with branches, and importing them again adds what is new."""

from __future__ import annotations

import json
from typing import Any

import pytest

from audit_app.proof.verify import verify_session
from compaction_app.context.state import load_state
from mnesis_core.errors import SessionBusy
from mnesis_core.messages import TextPart, text_of
from mnesis_core.transcripts import FORMATS
from mnesis_core.transcripts.values import ROOT, ParseResult, Report, Transcript, TranscriptMessage, TranscriptTurn
from sessions_app.models import Session
from sessions_app.record import session_store
from sessions_app.record.branch_queries import load_branches, load_path
from sessions_app.record.change import change
from sessions_app.record.histories import ImportReport, store_transcripts
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_sessions, load_session
from sessions_app.record.turn_queries import list_turns
from sessions_app.record.turn_store import start_turn
from tests.support.material.transcript_lines import answered, exported, node, said, text
from tests.support.proof.second_opinion import assert_agreed
from tests.support.record.talks import exchange

pytestmark = pytest.mark.both_databases


def stored(owner, *nodes: dict[str, Any], current: str) -> ImportReport:
    result = FORMATS["chatgpt"](json.dumps([exported(*nodes, current=current)]))
    return store_transcripts(result, owner=owner, model="demo")


def turn(id: str, *messages: str, continues: str = "") -> TranscriptTurn:
    roles = ("user", "assistant")
    return TranscriptTurn(
        external_id=id,
        continues=continues,
        messages=tuple(
            TranscriptMessage(external_id=said, role=roles[said.startswith("a")], parts=(TextPart(text=said),))
            for said in messages
        ),
    )


def only_session(report: ImportReport) -> str:
    [session_id] = report.sessions.values()
    return session_id


def told(session_id: str) -> list[str]:
    """What the chosen path says."""
    messages = load_messages(session_id, path=load_path(session_id), limit=10_000)
    context = load_state(session_id).entries
    assert [entry.message.seq for entry in context] == [message.seq for message in messages]
    return [text_of(tuple(stored.part for stored in message.parts)) for message in messages]


def verified(session_id: str) -> None:
    report = verify_session(session_id)
    assert report.problems == []
    assert_agreed(session_id, report)


HELLO = [
    node("u1", None, "user", "Hello"),
    node("a1", "u1", "assistant", "Hi"),
    node("a2", "u1", "assistant", "Good day"),
    node("u2", "a1", "user", "One"),
    node("u3", "a1", "user", "Two"),
]


def test_a_conversation_is_one_session_with_its_branches_and_its_choice(ada):
    report = stored(ada, *HELLO, current="a2")
    session_id = only_session(report)
    assert (report.sessions_created, report.turns_stored, report.messages_stored) == (1, 4, 5)
    assert [(branch.parent, branch.after_seq) for branch in load_branches(session_id).values()] == [(0, 1), (0, 2)]
    assert told(session_id) == ["Hello", "Good day"]
    exchange(session_id, "And now?", "Now.")
    assert told(session_id) == ["Hello", "Good day", "And now?", "Now."]
    verified(session_id)


def test_importing_again_adds_nothing_and_keeps_the_choice(ada):
    session_id = only_session(stored(ada, *HELLO, current="a2"))
    with change(session_id) as record:
        session_store.choose_branch(record, 0)
    before = load_session(session_id).event_seq
    report = stored(ada, *HELLO, current="a2")
    assert (report.sessions_created, report.turns_stored, report.turns_known) == (0, 0, 4)
    assert load_session(session_id).event_seq == before


def test_what_came_since_goes_where_it_belongs(ada):
    session_id = only_session(stored(ada, *HELLO[:2], current="a1"))
    assert load_branches(session_id) == {}
    exchange(session_id, "Said here", "Heard here")
    later = [
        *HELLO,
        node("a3", "u3", "assistant", "Two it is"),
        node("u0", None, "user", "Hello, edited"),
        node("u4", "a2", "user", "Never mind"),
    ]
    report = stored(ada, *later, current="a3")
    assert (report.turns_known, report.messages_stored) == (1, 6)
    assert told(session_id) == ["Hello", "Hi", "Two", "Two it is"]
    said = [
        [text_of(tuple(part.part for part in message.parts)) for message in load_messages(session_id, path=path)]
        for path in (load_path(session_id, number) for number in range(5))
    ]
    assert said == [
        ["Hello", "Hi", "Said here", "Heard here"],
        ["Hello", "Hi", "One"],
        ["Hello", "Good day", "Never mind"],
        ["Hello", "Hi", "Two", "Two it is"],
        ["Hello, edited"],
    ]
    verified(session_id)


def test_a_turn_that_had_not_ended_goes_on_in_another_one(ada):
    session_id = only_session(stored(ada, *HELLO[:1], current="u1"))
    report = stored(ada, *HELLO[:2], current="a1")
    assert (report.turns_stored, report.messages_stored, report.turns_known) == (1, 1, 0)
    assert told(session_id) == ["Hello", "Hi"]
    assert stored(ada, *HELLO[:2], current="a1").turns_known == 1
    assert load_branches(session_id) == {}


def test_an_import_that_was_cut_off_goes_on_where_it_was(ada):
    conversation = [*HELLO, node("a3", "u3", "assistant", "Two it is"), node("u4", "a2", "user", "Never mind")]

    def stop_after(turns: int, done: int) -> None:
        if done == turns:
            raise KeyboardInterrupt

    result = FORMATS["chatgpt"](json.dumps([exported(*conversation, current="u4")]))
    for turns in range(1, 5):
        with pytest.raises(KeyboardInterrupt):
            store_transcripts(
                result, owner=ada, model="demo", progress=lambda done, _, turns=turns: stop_after(turns, done)
            )
    session_id = only_session(store_transcripts(result, owner=ada, model="demo"))
    assert told(session_id) == ["Hello", "Good day", "Never mind"]
    assert len(load_messages(session_id)) == 7
    assert len(load_branches(session_id)) == 2
    verified(session_id)


def test_an_import_of_before_keeps_its_forks_and_grows_there(ada):
    """Other branches used to be sessions of their own: what they hold is not stored again, and what follows it goes there."""
    kept = [("conv", [turn("u1", "u1", "a1"), turn("u3", "u3")]), ("conv/a2", [turn("a2", "a2")])]
    ids: dict[str, str] = {}
    for external_id, turns in kept:
        parent = ids.get("conv")
        ids[external_id] = session_store.create_session(
            owner=ada,
            model="demo",
            origin="import:chatgpt",
            external_id=external_id,
            parent_id=parent,
            labels={"link": "fork"} if parent else {},
        )
        transcript = Transcript(external_id=external_id, format="chatgpt", turns=tuple(turns))
        report = Report(format="chatgpt", read={}, stored={})
        store_transcripts(ParseResult(transcripts=(transcript,), report=report), owner=ada, model="demo")
    report = stored(ada, *HELLO, current="u3")
    assert (report.sessions, report.turns_known, report.messages_stored) == ({"conv": ids["conv"]}, 3, 1)
    assert told(ids["conv/a2"]) == ["a2"]
    assert told(ids["conv"]) == ["u1", "a1", "u3"]
    later = [node("u4", "a2", "user", "Never mind"), node("a4", "u1", "assistant", "Good evening")]
    assert stored(ada, *HELLO, *later, current="a4").messages_stored == 2
    assert told(ids["conv/a2"]) == ["a2", "Never mind"]
    assert told(ids["conv"]) == ["u1", "Good evening"]
    assert stored(ada, *HELLO, *later, current="a4").turns_stored == 0
    assert len(list_sessions(owner_id=ada.pk)) == 2
    for session_id in ids.values():
        verified(session_id)


def test_a_line_stays_a_line_and_goes_on_at_its_end(ada):
    lines = [said("u1", "One"), answered("a1", "m1", text("1"))]
    more = [*lines, said("u2", "Two", parentUuid="a1")]
    for records in (lines, more):
        report = store_transcripts(
            FORMATS["claude_code"](map(json.dumps, records), name="S.jsonl"), owner=ada, model="demo"
        )
        session_id = only_session(report)
        if records is lines:
            exchange(session_id, "Said here", "Heard here")
    assert told(session_id) == ["One", "1", "Said here", "Heard here", "Two"]
    assert load_branches(session_id) == {}


def test_ids_that_stand_twice_and_unknown_places_lose_nothing(ada):
    turns = (
        *(turn("u1", "u1", "a1"), turn("u1", "u1", "a1"), turn("", "", ""), turn("#3", "#3", "a9")),
        *(turn("u2", "u2", continues="nowhere"), turn("a7", "a7", continues=ROOT)),
    )
    result = ParseResult(
        transcripts=(Transcript(external_id="x", format="chatgpt", turns=turns),),
        report=Report(format="chatgpt", read={}, stored={}),
    )
    for expected in (10, 0):
        report = store_transcripts(result, owner=ada, model="demo")
        assert report.messages_stored == expected
    assert len(list_turns(only_session(report))) == 6
    verified(only_session(report))


def test_no_branch_is_begun_while_a_turn_runs(ada):
    session_id = only_session(stored(ada, *HELLO, current="u3"))
    with change(session_id) as record:
        start_turn(record, model="demo")
    with pytest.raises(SessionBusy):
        stored(ada, *HELLO, node("a9", "u1", "assistant", "Hey"), current="u3")
    assert len(load_branches(session_id)) == 2
    assert Session.objects.get(id=session_id).branch == load_session(session_id).branch


@pytest.mark.slow
# Changes that commit: inside one transaction every version of a session's row stays, and each foreign key walks them all.
@pytest.mark.django_db(transaction=True)
def test_two_thousand_attempts_and_a_chain_of_a_thousand_branches_are_stored(ada):
    attempts = [node("u", None, "user", "?"), *(node(f"a{i}", "u", "assistant", str(i)) for i in range(2_000))]
    session_id = only_session(stored(ada, *attempts, current="a7"))
    assert told(session_id) == ["?", "7"]
    chain = [node("n0", None, "user", "0")]
    for place in range(1, 1_000):
        chain += [
            node(f"f{place}", f"n{place - 1}", "assistant", "x"),
            node(f"n{place}", f"n{place - 1}", "user", str(place)),
        ]
    result = FORMATS["chatgpt"](json.dumps([exported(*chain) | {"conversation_id": "chain"}]))
    session_id = only_session(store_transcripts(result, owner=ada, model="demo"))
    assert told(session_id) == [str(place) for place in range(1_000)]
    verified(session_id)
