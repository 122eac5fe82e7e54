"""Verify stays on its feet whatever a ledger or a row says, with several processes, and while others write."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections

from agents_app.models import OperatorItem
from audit_app.proof.verify import verify_in_segments, verify_sessions
from sessions_app.models import Event, Message, MessagePart, ModelCall, Session
from sessions_app.record import message_store, session_store
from sessions_app.record.change import change
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.cast import make_user
from tests.support.processes.children import run_child
from tests.support.record.inspected import add_session, add_turn, tool_part
from tests.support.record.tampered import chain_again, found, make_rich_session, undone, write_body

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True), pytest.mark.owner]


@pytest.mark.slow
@pytest.mark.parametrize(
    "rows",
    [
        None,
        7,
        "words",
        {},
        {"messages": "x"},
        [None],
        [["messages", "x"]],
        [["messages", 7, "0"]],
        [["messages", "x\x00", "0"]],
        [["messages", ["x"], "0"]],
        [[["messages"], "x", "0"]],
        ["messages"],
        [["messages", "x", 0]],
        [["messages", "x", "0", 7]],
        [["messages", "x", "0", "role"]],
        [["messages", "x", "0", []]],
        [["messages", "x", "0", ["outcome"], []]],
        [["messages", "x", "0", [["outcome"]]]],
    ],
)
def test_a_body_that_says_something_else_of_rows_is_named(session_id: str, unguarded: None, rows: Any) -> None:
    event = Event.objects.get(session_id=session_id, seq=3)
    write_body(event, json.loads(event.body) | {"rows": rows})
    chain_again(session_id, head=True)
    assert any(words.startswith("3 chain") for words in found(session_id))


def test_an_entry_about_what_there_is_not_is_named(session_id: str, unguarded: None) -> None:
    event = Event.objects.get(session_id=session_id, seq=3)
    body = json.loads(event.body)
    [[_, id, _], *_] = body["rows"]
    for table, columns in (("nosuch", []), ("messages", ["nosuch"]), ("messages", ["outcome", "outcome"])):
        write_body(event, body | {"rows": [*body["rows"], [table, id, "0", columns or ["x"]]]})
        assert f"3 row {table}: there is no such table or column" in found(session_id)


if connection.vendor == "sqlite":  # PostgreSQL keeps no value of another type

    def test_bytes_and_broken_json_are_named(session_id: str, unguarded: None) -> None:
        message, call = Message.objects.order_by("pk").last(), ModelCall.objects.order_by("pk").last()
        for table, column, value, id in (
            ("messages", "role", "CAST(role AS BLOB)", message.pk),
            ("model_calls", "parameters", "'{'", call.pk),
            ("model_calls", "parameters", "'" + "[" * 3_000 + "]" * 3_000 + "'", call.pk),
        ):
            with undone(), connection.cursor() as cursor:
                cursor.execute("PRAGMA ignore_check_constraints = ON")
                cursor.execute(f"UPDATE {table} SET {column} = {value} WHERE id = %s", [id])
                assert [words.split(" ", 1)[1] for words in found(session_id)] == [f"row {table} {id}"]

    def test_bytes_in_an_item_are_named(session_id: str, unguarded: None) -> None:
        item = OperatorItem.objects.filter(state="failed").earliest("pk")
        for column in ("number", "line_offset", "state", "error", "error_kind", "call_id", "tokens_input"):
            with undone(), connection.cursor() as cursor:
                cursor.execute("PRAGMA ignore_check_constraints = ON")
                cursor.execute(f"UPDATE operator_items SET {column} = CAST('x' AS BLOB) WHERE id = %s", [item.pk])
                assert any(f"{item.run_id}" in words for words in found(session_id)), column


def test_a_value_that_is_set_while_others_look_is_none_of_theirs() -> None:
    session_id = add_session(make_user("bob"))
    add_turn(session_id, "And the moon?", tool_part())
    [part_id] = MessagePart.objects.filter(part_type="tool").values_list("id", flat=True)
    before = Session.objects.get().event_seq

    def go_on() -> None:
        with change(session_id) as record:
            message_store.tombstone_parts(record, [part_id])
            session_store.update_session(record, title="Tides for ever")
        add_turn(session_id, "And the stars?")

    def later(follow: Callable[..., Any], *places: Any) -> list[Any]:
        with ThreadPoolExecutor(1) as elsewhere:
            elsewhere.submit(go_on).result()
            found = list(elsewhere.map(follow, *places))
            elsewhere.submit(connections.close_all).result()
        return found

    report = verify_in_segments(session_id, later, entries=5)
    assert (report.problems, report.entries) == ([], before)
    assert Session.objects.get().event_seq > before


@pytest.mark.slow
def test_several_processes_find_what_one_finds(session_id: str, unguarded: None) -> None:
    other = make_rich_session(make_user("bob"))
    plain(MessagePart).filter(session_id=other).update(content="forged")
    report = verify_sessions([session_id, other], jobs=1)
    assert len(report.problems) > 3
    answer = json.loads(run_child("tests.support.processes.verifies_by_processes", session_id, other))
    assert in_order(answer) == in_order(report.as_dict())


def in_order(report: dict[str, Any]) -> dict[str, Any]:
    """Rows that one entry tells of are told in any order."""
    return report | {"problems": sorted(report["problems"], key=json.dumps)}
