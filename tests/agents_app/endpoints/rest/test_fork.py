"""Forks: a session that goes its own way from one message of another one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django_q.models import OrmQ

from agents_app import tasks
from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from compaction_app.queries import list_runs
from mnesis_core.errors import Conflict, InvalidRequest, MessageNotFoundError, SessionNotFoundError
from mnesis_core.messages import Message, Part, TextPart, ToolPart
from mnesis_core.records import MessageEnd, SessionRecord, TurnState
from sessions_app.models import Session
from sessions_app.pages.transcript import list_children
from sessions_app.record import histories, message_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_context_items, load_events
from sessions_app.record.message_queries import load_message_rows, load_messages
from sessions_app.record.session_queries import list_sessions, load_forking, load_session
from sessions_app.record.turn_queries import list_turns
from sessions_app.search.search import Scope, search
from tests.support.record.talks import exchange, new_session, say, tool

HOSTILE = "␛0000 \x00 \ud800"


@pytest.fixture
def source(alice: User) -> SessionRecord:
    """Two finished turns; the first has a tool call that was pruned, the second failed."""
    session_id = new_session(
        alice, title="Tides", system_prompt="Be brief.", labels={"port": HOSTILE}, config={"context_window": 9_000}
    )
    answer = [tool(output="a long table"), TextPart(text=HOSTILE)]
    say(session_id, ("user", [TextPart(text="When?")]), ("assistant", answer), finish_reason="stop", outcome="complete")
    say(
        session_id,
        ("user", [TextPart(text="And then?")]),
        ("assistant", [TextPart(text="Half an ans")]),
        state=TurnState.FAILED,
        error_code="MODEL_TIMEOUT",
        error_message=HOSTILE,
    )
    with change(session_id) as record:
        part_id = load_messages(session_id)[1].parts[0].id
        assert message_store.tombstone_parts(record, [part_id]) == 1
    return load_session(session_id)


def fork(source: SessionRecord, owner: User, *, at: int) -> SessionRecord:
    """A fork up to the message at this place, from 1."""
    message = load_messages(source.id)[at - 1]
    return lifecycle.fork_session(source.id, owner=owner, at_message_id=message.id)


def test_a_fork_before_a_message_has_everything_that_was_said_until_then(alice, source):
    third = load_messages(source.id)[2].id
    made = lifecycle.fork_session(source.id, owner=alice, before_message_id=third)
    assert len(load_messages(made.id)) == 2
    assert parts_of(made.id)[0] == [TextPart(text="When?")]


def test_a_fork_before_the_first_message_is_empty_and_set_as_the_original(alice, source):
    first = load_messages(source.id)[0].id
    made = lifecycle.fork_session(source.id, owner=alice, before_message_id=first)
    assert load_messages(made.id) == []
    assert (made.parent_id, made.origin, made.system_prompt) == (source.id, "fork", "Be brief.")
    assert made.config == source.config
    assert [id for id, _ in list_children(source.id)] == [made.id]
    assert load_session(made.id).id in [session.id for session in list_sessions(owner_id=alice.pk)]


@pytest.mark.parametrize("where", [{}, {"at_message_id": "msg_x", "before_message_id": "msg_x"}])
def test_a_fork_is_made_at_one_place(alice, source, where):
    with pytest.raises(InvalidRequest):
        lifecycle.fork_session(source.id, owner=alice, **where)


def parts_of(session_id: str) -> list[list[Part]]:
    return [[stored.part for stored in message.parts] for message in load_messages(session_id)]


@pytest.mark.both_databases
def test_a_fork_holds_everything_up_to_the_message(alice, source):
    made = fork(source, alice, at=4)
    assert (made.parent_id, made.origin, made.title) == (source.id, "fork", "Tides (fork)")
    same = ("owner_id", "model", "agent", "system_prompt", "labels", "config")
    assert [getattr(made, name) for name in same] == [getattr(source, name) for name in same]
    originals, copies = load_messages(source.id), load_messages(made.id)
    rows = load_message_rows(made.id, [copy.id for copy in copies])
    assert [(copy.seq, copy.role, copy.created_at) for copy in copies] == [
        (original.seq, original.role, original.created_at) for original in originals
    ]
    assert [rows[copy.id].external_id for copy in copies] == [original.id for original in originals]
    assert not {copy.id for copy in copies} & {original.id for original in originals}
    assert rows[copies[1].id].finish_reason == "stop"
    assert rows[copies[3].id].error_code == "MODEL_TIMEOUT"


def test_a_tombstone_stays_with_the_original(alice, source):
    made = fork(source, alice, at=4)
    [call, text] = parts_of(made.id)[1]
    assert (call.output, call.compacted_at, text.text) == ("a long table", None, HOSTILE)
    assert parts_of(source.id)[1][0].compacted_at is not None
    assert [item.item_id for item in load_context_items(made.id)] == [message.id for message in load_messages(made.id)]


def test_turns_end_as_they_did(alice, source):
    made = fork(source, alice, at=4)
    shared = ("seq", "state", "model", "created_at", "ended_at", "error_code", "error_message", "usage")
    for copy, original in zip(list_turns(made.id), list_turns(source.id), strict=True):
        assert [getattr(copy, name) for name in shared] == [getattr(original, name) for name in shared]
        assert copy.origin == "fork"


def test_a_turn_that_is_cut_ends_incomplete(alice, source):
    made = fork(source, alice, at=3)
    assert [turn.state for turn in list_turns(made.id)] == ["incomplete", "completed"]
    assert list_turns(made.id)[0].usage.tokens_input is None
    assert parts_of(made.id) == [
        [replace(part, compacted_at=None) if isinstance(part, ToolPart) else part for part in parts]
        for parts in parts_of(source.id)[:3]
    ]


def test_both_ledgers_tell_of_it_and_the_original_changes_in_nothing_else(alice, source):
    made = fork(source, alice, at=3)
    message_id = load_messages(source.id)[2].id
    [event] = load_events(source.id, after=source.event_seq)
    told = {"child_id": made.id, "at_message_id": message_id, "actor": {"kind": "system"}}
    assert (event.type, event.data) == ("session.forked", told)
    assert load_events(made.id)[0].type == "session.created"
    now = load_session(source.id)
    assert replace(now, event_seq=source.event_seq, updated_at=source.updated_at) == source
    assert list_children(source.id) == [(made.id, "Tides (fork)")]


def test_both_go_their_own_ways(alice, source):
    made = fork(source, alice, at=2)
    exchange(made.id, "here", "yes")
    exchange(source.id, "there", "no")
    assert [parts[0].text for parts in parts_of(made.id)[2:]] == ["here", "yes"]
    assert [parts[0].text for parts in parts_of(source.id)[4:]] == ["there", "no"]
    again = fork(made, alice, at=4)
    assert parts_of(again.id) == parts_of(made.id)


def test_an_archived_session_goes_on_in_a_fork(alice, source):
    lifecycle.archive_session(source.id, owner_id=alice.pk)
    made = fork(source, alice, at=4)
    assert made.state == "failed"
    exchange(made.id, "go on", "gladly")


@pytest.fixture
def tree(alice: User) -> SessionRecord:
    """``a 1 b 2``, then after ``1`` another branch ``c 3``, and after ``c`` on that one another answer ``4``."""
    session_id = new_session(alice, title="Tides")
    exchange(session_id, "a", "1")
    exchange(session_id, "b", "2")
    branch_after(session_id, parent=0, after_seq=2)
    exchange(session_id, "c", "3")
    branch_after(session_id, parent=1, after_seq=5)
    say(session_id, ("assistant", [TextPart(text="4")]))
    return load_session(session_id)


def branch_after(session_id: str, *, parent: int, after_seq: int) -> None:
    with change(session_id) as record:
        number = session_store.begin_branch(record, parent=parent, after_seq=after_seq)
        session_store.choose_branch(record, number)


def texts_of(session_id: str) -> list[str]:
    return [part.text for parts in parts_of(session_id) for part in parts]


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_fork_of_a_branch_has_its_path_and_no_branches(alice, tree, monkeypatch):
    monkeypatch.setattr(histories, "TURNS", 1)
    paths = ["a", "a1", "a1b", "a1b2", "a1c", "a1c3", "a1c4"]
    for at, path in enumerate(paths, 1):
        made = fork(tree, alice, at=at)
        assert "".join(texts_of(made.id)) == path
        assert (made.branch_seq, made.message_seq) == (0, len(path))
        exchange(made.id, "on", "and on")
        assert load_session(made.id).message_seq == len(path) + 2
        assert verify_session(made.id).problems == []
        assert made.id in [hit.session_id for hit in search(Scope(owner_id=alice.pk), '"and on"').hits]
    turns = list_turns(made.id)  # the newest first
    assert [turn.state for turn in turns] == ["completed", "completed", "incomplete", "completed"]


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_fork_before_a_message_ends_with_its_parent(alice, tree):
    messages = load_messages(tree.id)
    made = [lifecycle.fork_session(tree.id, owner=alice, before_message_id=message.id) for message in messages]
    assert ["".join(texts_of(one.id)) for one in made] == ["", "a", "a1", "a1b", "a1", "a1c", "a1c"]
    branch_after(tree.id, parent=0, after_seq=0)
    [other, _] = exchange(tree.id, "x", "5")
    made = [lifecycle.fork_session(tree.id, owner=alice, before_message_id=other)]
    assert texts_of(made[0].id) == []


@pytest.mark.both_databases
def test_half_a_fork_of_a_branch_is_not_seen_and_goes_on_where_it_was(alice, tree, monkeypatch):
    monkeypatch.setattr(histories, "TURNS", 1)
    last = load_messages(tree.id)[-1]
    fork_id = histories.begin_fork(tree, owner=alice, last=last, title="Half")
    monkeypatch.setattr(histories, "_copy_turn", dies_at_second_call(copy_turn := histories._copy_turn))
    with pytest.raises(ZeroDivisionError):
        histories.copy_messages(fork_id)
    far = load_forking(fork_id)
    assert (far.copied, far.messages, far.is_whole) == (2, 4, False)
    assert [session.id for session in list_sessions(owner_id=alice.pk)] == [tree.id]
    assert {hit.session_id for hit in search(Scope(owner_id=alice.pk), "a").hits} == {tree.id}
    with pytest.raises(SessionNotFoundError):
        load_session(fork_id)
    monkeypatch.setattr(histories, "_copy_turn", copy_turn)
    assert histories.copy_messages(fork_id)
    assert "".join(texts_of(fork_id)) == "a1c4"
    assert load_session(fork_id).id in [session.id for session in list_sessions(owner_id=alice.pk)]


def begin(session_id: str, *parts: Part, is_finished: bool = True) -> list[str]:
    """A turn that runs: the question, and an answer with these parts."""
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        question = Message(role="user", parts=(TextPart(text="Q"),))
        answer = Message(role="assistant", parts=parts)
        end = MessageEnd(outcome="complete") if is_finished else None
        return [
            message_store.append_message(record, turn_id=turn_id, message=question),
            message_store.append_message(record, turn_id=turn_id, message=answer, end=end),
        ]


def test_while_a_turn_runs_its_written_messages_are_copied_and_none_that_is_being_written(program, alice):
    session_id = new_session(alice)
    question, answer = begin(session_id, is_finished=False)
    made = lifecycle.fork_session(session_id, owner=alice, at_message_id=question)
    assert [turn.state for turn in list_turns(made.id)] == ["incomplete"]
    refused = post(program, session_id, answer)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFLICT")
    assert load_session(session_id).state == "running"


def test_a_tool_that_still_runs_has_an_error_in_the_fork(alice):
    session_id = new_session(alice)
    _, answer = begin(session_id, ToolPart(tool_name="t", tool_call_id="c"))
    made = lifecycle.fork_session(session_id, owner=alice, at_message_id=answer)
    [[_], [call]] = parts_of(made.id)
    assert (call.state, call.error) == ("error", histories.UNANSWERED)
    assert [turn.state for turn in list_turns(made.id)] == ["incomplete"]


def post(program: Client, session_id: str, at_message_id: Any) -> Any:
    body = json.dumps({"at_message_id": at_message_id})
    return program.post(f"/api/sessions/{session_id}/fork", data=body, content_type="application/json")


def test_the_endpoint_answers_with_the_new_session(program, source):
    answer = post(program, source.id, load_messages(source.id)[1].id)
    assert answer.status_code == 201
    assert (answer.json()["parent_id"], answer.json()["message_count"]) == (source.id, 2)
    listed = program.get(f"/api/sessions?parent_id={source.id}").json()["items"]
    assert [session["id"] for session in listed] == [answer.json()["id"]]


def test_what_is_not_there_or_not_yours_is_not_found(program, source, alice, bob):
    [elsewhere, _] = exchange(new_session(alice), "a", "b")
    his = new_session(bob)
    [his_message, _] = exchange(his, "a", "b")
    for message_id in ("msg_nosuch", "", HOSTILE, elsewhere, his_message):
        refused = post(program, source.id, message_id)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "MESSAGE_NOT_FOUND")
    refused = post(program, his, his_message)
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "SESSION_NOT_FOUND")
    assert post(program, source.id, 5).status_code == 422
    assert len(list_sessions(owner_id=alice.pk)) == 2


@pytest.mark.both_databases
def test_half_a_fork_is_never_seen(alice, source, monkeypatch):
    monkeypatch.setattr(histories, "TURNS", 1)
    monkeypatch.setattr(histories, "_copy_turn", dies_at_second_call(histories._copy_turn))
    with pytest.raises(ZeroDivisionError):
        fork(source, alice, at=4)
    assert [session.id for session in list_sessions(owner_id=alice.pk, archived=None)] == [source.id]
    assert list_children(source.id) == []
    assert load_session(source.id).event_seq == source.event_seq
    half = Session.objects.exclude(id=source.id).get().id
    assert len(load_messages(half)) == 2
    with pytest.raises(SessionNotFoundError):
        load_session(half)


def dies_at_second_call(function: Any) -> Any:
    calls: list[Any] = []

    def call(*args: Any, **how: Any) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise ZeroDivisionError
        function(*args, **how)

    return call


def test_a_fork_that_is_too_full_asks_for_a_compaction(alice):
    session_id = new_session(alice)
    for _ in range(4):
        exchange(session_id, "tell me", "tide and time " * 400)
    made = fork(load_session(session_id), alice, at=8)
    assert [run.trigger for run in list_runs(made.id)] == ["soft"]
    assert list_runs(session_id) == []


def test_a_long_title_keeps_its_escapes_whole(alice):
    session_id = new_session(alice, title="\x00" * 80)
    [message_id, _] = exchange(session_id, "a", "b")
    made = lifecycle.fork_session(session_id, owner=alice, at_message_id=message_id)
    assert made.title == "\x00" * 60 + " (fork)"


def test_a_deleted_session_is_forked_by_nobody(alice, source):
    message_id = load_messages(source.id)[0].id
    with change(source.id) as record:
        session_store.soft_delete_session(record)
    with pytest.raises(SessionNotFoundError):
        lifecycle.fork_session(source.id, owner=alice, at_message_id=message_id)
    with pytest.raises(MessageNotFoundError):
        histories.find_place(source, at_message_id="msg_nosuch", before_message_id=None)


def ask(program: Client, source: SessionRecord, *, at: int) -> Any:
    return post(program, source.id, load_messages(source.id)[at - 1].id)


def test_a_long_fork_is_copied_by_a_worker_and_says_how_far_it_is(program, alice, bob, source, monkeypatch):
    monkeypatch.setattr(lifecycle, "COPIED_AT_ONCE", 3)
    monkeypatch.setattr(histories, "TURNS", 1)
    answer = ask(program, source, at=4)
    fork_id = answer.json()["id"]
    assert (answer.status_code, answer.json()) == (
        202,
        {"id": fork_id, "source_id": source.id, "copied": 0, "messages": 4},
    )
    [task] = [queued for queued in OrmQ.objects.all() if queued.func() == lifecycle.FORK_TASK]
    monkeypatch.setattr(tasks, "FORK_SECONDS", 0)
    assert program.get(f"/api/sessions/{fork_id}").status_code == 404
    copied = []
    while program.get(f"/api/sessions/{fork_id}").status_code == 404:
        tasks.fork(*task.args())
        copied.append(program.get(f"/api/sessions/{fork_id}/fork").json()["copied"])
    assert copied == [2, 4]
    assert parts_of(fork_id)[0] == parts_of(source.id)[0]
    assert [event.type for event in load_events(source.id, after=source.event_seq)] == ["session.forked"]
    tasks.fork(*task.args())  # the queue may give it out again
    assert len(load_events(source.id, after=source.event_seq)) == 1
    stranger = Client()
    stranger.force_login(bob)
    assert stranger.get(f"/api/sessions/{fork_id}/fork").json()["error"]["code"] == "SESSION_NOT_FOUND"


def test_a_short_fork_is_there_at_once(program, source):
    answer = ask(program, source, at=4)
    assert (answer.status_code, answer.json()["parent_id"]) == (201, source.id)
    about = program.get(f"/api/sessions/{answer.json()['id']}/fork").json()
    assert (about["copied"], about["messages"]) == (4, 4)


@pytest.mark.both_databases
def test_two_workers_at_one_fork_copy_each_message_once(alice, source, monkeypatch):
    monkeypatch.setattr(histories, "TURNS", 1)
    last = load_messages(source.id)[3]
    fork_id = histories.begin_fork(source, owner=alice, last=last, title="Twice")
    messages = histories._read_messages

    def overtaken(*values: Any, **how: Any) -> Any:
        found = list(messages(*values, **how))
        monkeypatch.setattr(histories, "_read_messages", messages)
        assert histories.copy_messages(fork_id)
        return iter(found)

    monkeypatch.setattr(histories, "_read_messages", overtaken)
    with pytest.raises(Conflict):
        histories.copy_messages(fork_id)
    assert [row.external_id for row in load_message_rows(fork_id, [m.id for m in load_messages(fork_id)]).values()] == [
        message.id for message in load_messages(source.id)
    ]
