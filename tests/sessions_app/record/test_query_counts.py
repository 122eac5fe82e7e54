"""What each operation of the store and each read costs in statements, as many with a long history as with a short one,
and which events an operation publishes.

Statements that read or write rows are counted; what begins, ends or announces a transaction is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getmembers, isfunction
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from compaction_app import queries as compaction_queries
from compaction_app import store as compaction_store
from compaction_app.context.fidelity import load_measured
from compaction_app.context.state import Frame, build_context, load_frame, load_meter, read_state
from compaction_app.facts.reflect import find_lost
from files_app import queries as file_queries
from files_app.store import store_file_reference
from mnesis_core.errors import ModelTimeout
from mnesis_core.events import EventType
from mnesis_core.llm.retrying import Retry
from mnesis_core.messages import ImagePart, Message, TextPart, ToolPart
from mnesis_core.network.sharing import Audience
from mnesis_core.records import MessageEnd, NewCall, Thumb, TurnState
from mnesis_core.spending import Spent
from sessions_app.llm import model_store, spending_store
from sessions_app.record import (
    context_queries,
    message_queries,
    message_store,
    session_queries,
    session_store,
    turn_queries,
    turn_store,
)
from sessions_app.record.change import Change, change
from sessions_app.record.histories import begin_fork, copy_messages, find_place
from sessions_app.record.message_store import Piece
from sessions_app.record.shares import share_store
from tests.support.people.cast import make_user
from tests.support.record.inspected import add_summary, add_turn, claim, finish
from tests.support.record.talks import new_session, tool

pytestmark = pytest.mark.both_databases

TEXT = Message(role="user", parts=(TextPart(text="tide"),))
MANY = Message(role="assistant", parts=(*(tool(output="high") for _ in range(20)), TextPart(text="tide")))
END = MessageEnd(outcome="complete")
RETRY = Retry(attempt=1, error=ModelTimeout(), pause_seconds=0.5)
COUNTED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A session with a history, and a turn that runs."""

    owner: User
    id: str
    idle_id: str
    """Another session with the same history and no running turn."""
    turn: str
    stub: str
    waits: str
    works: str
    """Tool calls: one that waits, one that runs."""
    call: str
    answer: str
    """A finished message."""
    tools: list[str]
    file: str
    summary: str
    frame: Frame


Operation = Callable[[Scene], Any]


def in_change(action: Callable[[Change, Scene], Any]) -> Operation:
    """One change of the session that has the running turn."""

    def operation(scene: Scene) -> None:
        with change(scene.id) as record:
            action(record, scene)

    return operation


def in_idle(action: Callable[[Change, Scene], Any]) -> Operation:
    """One change of the session without."""

    def operation(scene: Scene) -> None:
        with change(scene.idle_id) as record:
            action(record, scene)

    return operation


def whole_turn(record: Change, scene: Scene) -> None:
    """Question, answer with tools, end: as it is recorded or imported."""
    turn_id = turn_store.start_turn(record, model="demo")
    message_store.append_message(record, turn_id=turn_id, message=TEXT)
    message_store.append_message(record, turn_id=turn_id, message=MANY, end=END)
    turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)


def start_call(record: Change, scene: Scene) -> str:
    return turn_store.start_call(
        record,
        turn_id=scene.turn,
        message_id=scene.stub,
        model="demo",
        provider_model="demo",
        parameters={},
        manifest=[],
        context_seq=1,
        digest="0" * 64,
        estimated_tokens=1,
    )


def start_calls(record: Change, scene: Scene) -> list[str]:
    call = NewCall(
        purpose="map",
        model="demo",
        provider_model="demo",
        parameters={},
        manifest=[],
        digest="0" * 64,
        estimated_tokens=1,
    )
    ids = turn_store.start_calls(record, [call] * 20)
    record.publish(EventType.MAP_ITEMS_CLAIMED, call_ids=ids)
    return ids


def finish_calls(record: Change, scene: Scene) -> None:
    ended = turn_store.finish_calls(record, dict.fromkeys(start_calls(record, scene), (END, 1)))
    record.publish(EventType.MAP_ITEM_COMPLETED, calls_completed=sorted(ended))


def suspend_and_resume(record: Change, scene: Scene) -> None:
    turn_store.suspend_turn(record, scene.turn, fence=1, part_ids=[scene.waits])
    turn_store.resume_turn(record, scene.turn, fence=1, lease_owner="", lease_seconds=9)


def decide(record: Change, scene: Scene, *, approved: bool) -> None:
    message_store.decide_approval(
        record, scene.waits, turn_id=scene.turn, approved=approved, note="tide", refusal="A person refused."
    )


def create_share(record: Change, scene: Scene) -> str:
    return share_store.create_share(record, scene.answer, title="tide", audience=Audience.SITE)


def shared(action: Callable[[Change, str], None]) -> Operation:
    """One change of a session for a share that was made in another one."""

    def operation(scene: Scene) -> None:
        with change(scene.id) as record:
            share_id = create_share(record, scene)
        with change(scene.id) as record:
            action(record, share_id)

    return operation


def reopened(scene: Scene) -> None:
    in_change(lambda record, _: session_store.archive_session(record))(scene)
    in_change(lambda record, _: session_store.reopen_session(record))(scene)


def kept(scene: Scene) -> None:
    with change(new_session(scene.owner, temporary=True)) as record:
        session_store.keep_session(record)


def hidden_for_good(scene: Scene) -> None:
    in_change(lambda record, _: session_store.trash_session(record))(scene)
    with change(scene.id, trashed=True) as record:
        session_store.delete_trashed_session(record)


def late(record: Change, scene: Scene) -> None:
    message_store.finish_tool(record, scene.works, output=None, error="over")
    message_store.keep_late_output(record, scene.works, "high")


def store_file(record: Change, scene: Scene) -> str:
    return store_file_reference(record, content_id="cd" * 32, path="/b", exploration_summary="More tides.")


Row = tuple[Operation, int | tuple[int, int], *tuple[str, ...]]
"""An operation, the number of its statements, and the types of its events.

Of two numbers the first is SQLite's, whose search keeps its entries and its words apart; the second is PostgreSQL's.
"""
WHOLE_TURN = ("turn.started", "message.created", "message.created", "message.finalized", "turn.completed")
WRITES: dict[str, Row] = {
    "create_session": (lambda s: new_session(s.owner), (6, 7)),
    "create_session with a parent": (lambda s: new_session(s.owner, parent_id=s.id), (7, 8)),
    "enter_imported": (lambda s: session_store.enter_imported(s.id), (3, 4)),
    "record_heads": (lambda s: session_store.record_heads(), (3, 4)),
    "update_session": (in_change(lambda r, s: session_store.update_session(r, title="new")), 4, "session.updated"),
    "begin_branch": (
        in_change(lambda r, s: session_store.begin_branch(r, parent=0, after_seq=1)),
        5,
        "branch.created",
    ),
    "choose_branch": (
        in_change(lambda r, s: session_store.choose_branch(r, session_store.begin_branch(r, parent=0, after_seq=1))),
        6,
        "branch.created",
        "branch.chosen",
    ),
    "complete_context_items": (lambda s: message_store.complete_context_items(s.id, {s.summary: 4}), 1),
    "archive_session": (in_change(lambda r, s: session_store.archive_session(r)), 4, "session.archived"),
    "reopen_session, with its archiving": (reopened, 9, "session.archived", "session.updated"),
    "keep_session, with its beginning": (kept, (10, 11)),  # in a session of its own
    "soft_delete_session": (in_change(lambda r, s: session_store.soft_delete_session(r)), (6, 7), "session.closed"),
    "trash_session": (in_change(lambda r, s: session_store.trash_session(r)), (6, 7), "session.closed"),
    "delete_trashed_session, with its way to the trash": (
        hidden_for_good,
        (12, 14),
        "session.closed",
        "session.closed",
    ),
    "rate_message": (
        in_change(lambda r, s: message_store.rate_message(r, s.answer, thumb=Thumb.UP)),
        4,
        "message.rated",
    ),
    "create_share": (in_change(lambda r, s: create_share(r, s)), 4, "share.created"),
    "revoke_share": (shared(lambda r, id: share_store.revoke_share(r, id)), 8, "share.created", "share.revoked"),
    "add_opening": (
        shared(lambda r, id: share_store.add_opening(r, id, reader="", day=1)),
        (11, 12),
        "share.created",
        "share.opened",
    ),
    "start_turn": (in_idle(lambda r, s: turn_store.start_turn(r, model="demo")), 5, "turn.started"),
    "claim_turn": (in_idle(lambda r, s: turn_store.claim_turn(r, model="demo")), 5, "turn.started"),
    "start_calls, twenty": (in_change(start_calls), 4, "map.items_claimed"),
    "finish_calls, the twenty": (in_change(finish_calls), 5, "map.items_claimed", "map.item_completed"),
    "require_turn": (in_change(lambda r, s: turn_store.require_turn(r, s.turn, fence=1)), 2),
    "append_message": (
        in_change(lambda r, s: message_store.append_message(r, turn_id=s.turn, message=TEXT)),
        (9, 8),
        "message.created",
    ),
    "append_message with 21 parts": (
        in_change(lambda r, s: message_store.append_message(r, turn_id=s.turn, message=MANY)),
        (9, 8),
        "message.created",
    ),
    "append_parts": (
        in_change(lambda r, s: message_store.append_parts(r, message_id=s.stub, parts=MANY.parts)),
        (8, 7),
        *["part.created"] * 21,
    ),
    "start_tool": (in_change(lambda r, s: message_store.start_tool(r, s.waits)), 4, "part.state_changed"),
    "finish_tool": (
        in_change(lambda r, s: message_store.finish_tool(r, s.works, output="high", error=None)),
        (8, 7),
        "part.state_changed",
    ),
    "add_to_result": (
        in_change(lambda r, s: message_store.add_to_result(r, s.works, ImagePart(media_type="image/png"), s.works)),
        (9, 8),
        "part.created",
    ),
    "tombstone_parts, one": (
        in_change(lambda r, s: message_store.tombstone_parts(r, s.tools[:1])),
        5,
        "part.compacted",
    ),
    "tombstone_parts, four": (
        in_change(lambda r, s: message_store.tombstone_parts(r, s.tools[:4])),
        5,
        "part.compacted",
    ),
    "finalize_message": (
        in_change(lambda r, s: message_store.finalize_message(r, s.stub, END)),
        4,
        "message.finalized",
    ),
    "finish_turn": (
        in_change(lambda r, s: turn_store.finish_turn(r, s.turn, state=TurnState.COMPLETED)),
        4,
        "turn.completed",
    ),
    "a whole turn": (in_idle(whole_turn), (10, 9), *WHOLE_TURN),
    "two whole turns": (
        in_idle(lambda r, s: (whole_turn(r, s), whole_turn(r, s))),
        (10, 9),
        *WHOLE_TURN,
        *WHOLE_TURN,
    ),
    "suspend_turn": (
        in_change(lambda r, s: turn_store.suspend_turn(r, s.turn, fence=1, part_ids=[s.waits])),
        5,
        "turn.suspended",
    ),
    "resume_turn": (in_change(suspend_and_resume), 6, "turn.suspended", "turn.resumed"),
    "decide_approval, yes": (
        in_change(lambda r, s: decide(r, s, approved=True)),
        5,
        "approval.decided",
        "part.state_changed",
    ),
    "decide_approval, no": (
        in_change(lambda r, s: decide(r, s, approved=False)),
        (10, 9),
        "approval.decided",
        "part.state_changed",
    ),
    "keep_late_output": (in_change(late), (9, 8), "part.state_changed", "part.answered_late"),
    "take_over_turn": (
        in_change(lambda r, s: turn_store.take_over_turn(r, s.turn, lease_owner="", lease_seconds=9)),
        2,
    ),
    "start_call": (in_change(start_call), 4, "call.started"),
    "finish_call": (in_change(lambda r, s: turn_store.finish_call(r, s.call, END)), 4, "call.completed"),
    "note_retry": (in_change(lambda r, s: turn_store.note_retry(r, s.call, RETRY)), 3, "call.retried"),
    "request_interrupt": (
        in_change(lambda r, s: turn_store.request_interrupt(r, s.turn)),
        4,
        "turn.interrupt_requested",
    ),
    "share_ratio": (lambda s: model_store.share_ratio("demo", 1.2), 1),
    "put_account_limits": (lambda s: spending_store.put_account_limits(s.owner.pk, {"day": {"tokens": 9}}), 2),
    "lock_spending": (lambda s: spending_store.lock_spending(s.owner.pk), 3),
    "keep_sum": (lambda s: spending_store.keep_sum("user:1", Spent(tokens=9), until=timezone.now()), 2),
    "keep_warnings": (lambda s: spending_store.keep_warnings("user:1", {"tokens": 9}), 2),
    "renew_leases": (lambda s: turn_store.renew_leases(lease_owner="here", turn_ids=[s.turn], lease_seconds=15), 1),
    "append_journal": (
        lambda s: message_store.append_journal(
            session_id=s.id,
            message_id=s.stub,
            pieces=[Piece(part_index=0, part_type="text", offset=9, text="tide")],
        ),
        3,
    ),
    "delete_journal": (lambda s: message_store.delete_journal(message_id=s.stub), 1),
    "swap_context_items": (
        in_change(lambda r, s: message_store.swap_context_items(r, removed_ids=[s.answer], summary_id="sum_1")),
        5,
        "context.changed",
    ),
    "request_run": (in_change(lambda r, s: compaction_store.request_run(r, trigger="soft")), 5, "compaction.requested"),
    "store_file_reference": (in_change(store_file), (7, 6), "file.added"),
    "a fork of 4 messages": (
        lambda s: copy_messages(
            begin_fork(
                source := session_queries.load_session(s.idle_id),
                owner=s.owner,
                last=find_place(
                    source,
                    at_message_id=message_queries.load_messages(s.idle_id)[3].id,
                    before_message_id=None,
                ),
                title="",
            )
        ),
        (30, 30),
        "session.forked",
    ),
}
READS: dict[str, Row] = {
    "load_session": (lambda s: session_queries.load_session(s.id, owner_id=s.owner.pk), 1),
    "load_sessions": (lambda s: session_queries.load_sessions([s.id, s.idle_id], owner_id=s.owner.pk), 1),
    "places_of_parts": (lambda s: message_queries.places_of_parts([s.waits, s.works]), 1),
    "reasons_to_wait": (lambda s: turn_queries.reasons_to_wait([s.turn]), 2),
    "list_sessions": (lambda s: session_queries.list_sessions(owner_id=s.owner.pk), 1),
    "list_sessions of a parent": (lambda s: session_queries.list_sessions(owner_id=s.owner.pk, parent_id=s.id), 2),
    "load_messages": (lambda s: message_queries.load_messages(s.id, limit=10), 1),
    "load_messages, the newest": (lambda s: message_queries.load_messages(s.id, limit=10, newest=True), 1),
    "load_messages, all": (lambda s: message_queries.load_messages(s.id, limit=1_000), 1),
    "load_messages_since": (lambda s: message_queries.load_messages_since(s.answer, session_id=s.id), 2),
    "load_messages_by_ids": (lambda s: message_queries.load_messages_by_ids([s.answer, s.stub], session_id=s.id), 1),
    "load_message": (lambda s: message_queries.load_message(s.answer, session_id=s.id), 1),
    "load_message_rows": (lambda s: message_queries.load_message_rows(s.id, [s.answer]), 1),
    "load_turn": (lambda s: turn_queries.load_turn(s.turn, session_id=s.id), 2),
    "list_turns": (lambda s: turn_queries.list_turns(s.id), 2),
    "load_events": (lambda s: context_queries.load_events(s.id), 1),
    "load_context_items": (lambda s: context_queries.load_context_items(s.id), 2),
    "load_context_items, as of": (lambda s: context_queries.load_context_items(s.id, at=5), 2),
    "load_context": (lambda s: context_queries.load_context(s.id), 1),
    "load_newest_context, all": (lambda s: context_queries.load_newest_context(s.id, items=1_000), 1),
    "load_newest_context, some": (lambda s: context_queries.load_newest_context(s.id, items=2), 3),
    "load_context, as of": (lambda s: context_queries.load_context(s.id, at=5), 1),
    "load_outlines": (lambda s: context_queries.load_outlines(s.id, first=1, last=5), 1),
    "list_calls": (lambda s: turn_queries.list_calls(s.id), 1),
    "load_call": (lambda s: turn_queries.load_call(s.call, owner_id=s.owner.pk), 1),
    "usage_of_session": (lambda s: turn_queries.usage_of_session(s.id), 1),
    "load_paid_calls of a session": (lambda s: spending_store.load_paid_calls(session_id=s.id), 1),
    "load_paid_calls of a person": (lambda s: spending_store.load_paid_calls(owner_id=s.owner.pk), 1),
    "load_kept": (lambda s: spending_store.load_kept(["user:1", "day:1"]), 1),
    "journal_texts": (lambda s: message_queries.journal_texts(s.id), 1),
    "last_summary": (lambda s: compaction_queries.last_summary(s.id), 3),
    "load_graph": (lambda s: compaction_queries.load_graph(s.id), 2),
    "describe": (lambda s: compaction_queries.describe_summary(compaction_queries.load_summary(s.summary)), 6),
    "expand_messages": (
        lambda s: compaction_queries.expand_messages(compaction_queries.load_summary(s.summary), offset=0, limit=100),
        6,
    ),
    "list_summaries": (lambda s: compaction_queries.list_summaries(s.id), 2),
    "load_measured": (lambda s: load_measured(s.id), 1),
    "find_lost": (lambda s: find_lost(compaction_queries.load_summary(s.summary)), 6),
    "list_runs": (lambda s: compaction_queries.list_runs(s.id), 2),
    "load_file_reference": (lambda s: file_queries.load_file_reference(s.file, owner_id=s.owner.pk), 1),
    "find_file_by_content": (lambda s: file_queries.find_file_by_content("ab" * 32, session_id=s.id), 1),
    "find_file_by_path": (lambda s: file_queries.find_file_by_path("/a", session_id=s.id), 1),
    "load_frame": (lambda s: load_frame(s.id), 3),
    "read_state": (lambda s: read_state(s.frame), 4),
    "read_state, as of": (lambda s: read_state(s.frame, at=s.frame.session.event_seq), 4),
    "build_context": (lambda s: build_context(s.id), 7),
}


def make_scene(owner: User, messages: int) -> Scene:
    """A history of so many messages, a summary among them, and a turn in the middle of an answer."""
    idle_id, id = new_session(owner), new_session(owner)
    for _ in range(messages // 2):
        add_turn(idle_id, "tide", tool(output="high"))
        add_turn(id, "tide", tool(output="high"))
    said = message_queries.load_messages(id, limit=messages)
    run = claim(id)
    summary = add_summary(id, run, [said[0].id, said[1].id], (1, 2))
    finish(id, run)
    with change(id) as record:
        file = store_file_reference(record, content_id="ab" * 32, path="/a", exploration_summary="Tides.")
        turn = turn_store.start_turn(record, model="demo", lease_owner="here", lease_seconds=60)
        message_store.append_message(record, turn_id=turn, message=TEXT)
        calls = tuple(ToolPart(tool_name="t", tool_call_id=f"{number}") for number in range(2))
        stub = message_store.append_message(record, turn_id=turn, message=Message(role="assistant", parts=calls))
        waits, works = (part.id for part in message_queries.load_message(stub, session_id=id).parts)
        message_store.start_tool(record, works)
        scene = Scene(
            owner=owner,
            id=id,
            idle_id=idle_id,
            turn=turn,
            stub=stub,
            waits=waits,
            works=works,
            call="",
            answer=said[3].id,
            tools=[message.parts[0].id for message in said if message.role == "assistant"],
            file=file,
            summary=summary,
            frame=load_frame(id),
        )
        call = start_call(record, scene)
    piece = Piece(part_index=0, part_type="text", offset=0, text="so far")
    message_store.append_journal(session_id=id, message_id=stub, pieces=[piece])
    return Scene(**vars(scene) | {"call": call})


def observe(operation: Operation, scene: Scene) -> tuple[int, list[str]]:
    """Return the number of statements of one operation, which is undone, and the types of the events that it publishes."""
    before = {id: session_queries.load_session(id).event_seq for id in (scene.id, scene.idle_id)}
    with transaction.atomic():
        with CaptureQueriesContext(connection) as captured:
            operation(scene)
        written = [event for id, seq in before.items() for event in context_queries.load_events(id, after=seq)]
        transaction.set_rollback(True)
    sent = [query["sql"].lstrip("( \n") for query in captured.captured_queries]
    counted = sum(sql.startswith(COUNTED) and "pg_notify" not in sql for sql in sent)
    return counted, [event.type for event in written]


@pytest.mark.django_db
@pytest.mark.parametrize("messages", [10, 200])
def test_each_operation_costs_what_it_costs(messages: int) -> None:
    scene = make_scene(make_user("alice"), messages)
    is_postgres = connection.vendor == "postgresql"
    table = WRITES | READS
    expected = {name: cost if isinstance(cost, int) else cost[is_postgres] for name, (_, cost, *_) in table.items()}
    observed = {name: observe(operation, scene) for name, (operation, *_) in table.items()}
    assert {name: statements for name, (statements, _) in observed.items()} == expected
    assert {name: events for name, (_, events) in observed.items()} == {
        name: events for name, (_, _, *events) in table.items()
    }


@pytest.mark.django_db
@pytest.mark.parametrize(("messages", "cost"), [(10, 7), (200, 9)])
def test_the_meter_reads_further_back_until_the_window_is_full(messages: int, cost: int) -> None:
    scene = make_scene(make_user("alice"), messages)
    assert observe(lambda s: load_meter(s.id), scene)[0] == cost


def test_every_operation_of_the_store_is_counted() -> None:
    counted = {name.split(",")[0].split(" ")[0] for name in WRITES}
    operations = {
        name
        for store in (message_store, session_store, share_store, turn_store)
        for name, function in getmembers(store, isfunction)
        if function.__module__ == store.__name__ and not name.startswith("_")
    }
    # mark_seen is no change of the record; tests/agents_app/sessions/test_seen.py counts its queries.
    # Three are parts of others, and what is restored is entered in the search again, however long it is.
    parts = {"require_turn_of_session", "add_call", "end_call", "enter_at_end"}
    assert operations - counted == {*parts, "restore_session", "mark_seen"}
