"""Calls keep their manifests folded: short rows, from which every row and every byte of a prompt comes back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from agents_app.turns import lifecycle
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions
from benchmarks.manifests import make_session
from compaction_app.compact import compact_now
from compaction_app.context import manifests
from compaction_app.context import state as context
from compaction_app.context.manifests import load_manifest, with_manifests
from compaction_app.context.state import BuiltContext, build_context, rebuild_payload
from mnesis_core.context.entries import ContextEntry, Row
from mnesis_core.context.manifests import fold_manifest, is_folded
from mnesis_core.llm.interface import ModelSpec, Request, ToolCall
from mnesis_core.messages import Message, TextPart, ToolState
from mnesis_core.providers.scripted import Script
from mnesis_core.records import CallRecord, MessageEnd
from sessions_app.database.guards.triggers import guarded_models, install_guards, remove_guards
from sessions_app.database.threads import db
from sessions_app.llm import model_store
from sessions_app.models import ContextItem, MessagePart, ModelCall
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls, load_call
from tests.compaction_app.context.test_rebuilding import add_call
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.people.story import say
from tests.support.record.inspected import add_summary, claim
from tests.support.record.talks import exchange, new_session, tool
from tests.support.record.talks import say as write

SUM = ToolCall(id="c1", name="calculator", arguments='{"expression": "6*7"}')
FILE = "file_01HZY3K9QV5T7W8X2C4D6F8G0J"


def reply(request: Request) -> Script:
    if "MNESIS-SUMMARISE" in str(request.payload["messages"][0]["content"]):
        return "## Goal\n- Sums."
    return SUM if request.payload["messages"][-1]["role"] == "user" else "It is 42."


class Undone(Exception):
    """Takes back what was written."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[Row]]:
    """Every manifest that is folded, whole."""
    whole: list[list[Row]] = []

    def fold(manifest: Sequence[Row], entries: Sequence[ContextEntry], *, branch: int = 0) -> list[Row]:
        whole.append(list(manifest))
        return fold_manifest(manifest, entries, branch=branch)

    monkeypatch.setattr(context, "fold_manifest", fold)
    return whole


def turns_of(session_id: str) -> list[CallRecord]:
    """The calls of turns, oldest first."""
    return [call for call in list_calls(session_id, limit=500)[::-1] if call.purpose == "turn"]


def prune(session_id: str) -> None:
    """Make tombstones of all outputs."""
    parts = MessagePart.objects.filter(session_id=session_id, tool_state=ToolState.COMPLETED)
    with change(session_id) as record:
        message_store.tombstone_parts(record, list(parts.values_list("id", flat=True)))


def ask(session_id: str, built: BuiltContext | None = None) -> str:
    """Write a call with the context as it is, or as it was read; return its id."""
    built = built or build_context(session_id)
    with change(session_id) as record:
        return turn_store.start_call(
            record,
            turn_id=None,
            message_id=None,
            model="demo",
            provider_model="demo",
            parameters={},
            manifest=built.stored_manifest,
            context_seq=built.context_seq,
            digest=built.digest,
            estimated_tokens=1,
        )


def is_proven(call_id: str) -> bool:
    """Whether the payload is rebuilt to the byte."""
    rebuilt = rebuild_payload(load_call(call_id))
    return rebuilt.digest_matches and not rebuilt.problems


def size_of(call_id: str) -> int:
    """Bytes of a call's row, as the texts of its values."""
    [row] = ModelCall.objects.filter(id=call_id).values()
    return sum(len(json.dumps(value, default=str)) for value in row.values() if value is not None)


@pytest.mark.slow
@pytest.mark.both_databases
async def test_every_call_of_a_long_life_gives_its_rows_and_its_bytes_again(session, script, client, alice, seen):
    model = script(reply, window=3_000)
    for number in range(9):
        await say(session, f"How much is it? {number} " + "and why, \x00 \ud800 dear? " * (900 if number == 7 else 40))
        if number % 3 == 1:
            await db(prune, session.id)
        if number == 5:
            await db(compact_now, session.id)
    calls = await db(turns_of, session.id)
    sent = [request.payload for request in model.requests if "MNESIS" not in str(request.payload["messages"][0])]
    assert len(calls) == len(sent) == 18
    for call, payload in zip(calls, sent, strict=True):
        assert is_folded(call.manifest)
        rebuilt = await db(rebuild_payload, call)
        assert (rebuilt.payload, rebuilt.problems) == (payload, ())
        assert await db(load_manifest, call) in seen
    kinds = [{row["kind"] for row in manifest} for manifest in seen]
    assert {"summary", "gap", "message"} <= set.union(*kinds)
    assert any(row.get("tombstoned") for manifest in seen for row in manifest)
    await db(client.force_login, alice)
    listed = (await db(client.get, f"/api/sessions/{session.id}/calls")).json()["items"]
    shown = {item["id"]: item["manifest"] for item in listed}
    for call in calls:
        one = (await db(client.get, f"/api/calls/{call.id}")).json()
        assert one["manifest"] == shown[call.id] == await db(load_manifest, call)
        assert one["digest_matches"]


@pytest.mark.both_databases
def test_what_happens_between_reading_the_context_and_writing_the_call_is_not_in_it(session, alice):
    write(session.id, ("user", [TextPart(text="Look.")]), ("assistant", [tool(output="x" * 300)]))
    exchange(session.id, "And this?", "That too.")
    built = build_context(session.id)
    prune(session.id)
    exchange(session.id, "And that?", "Yes.")
    call_id = ask(session.id, built)
    assert is_proven(call_id)
    [tombstoned] = [row["tombstoned"] for row in load_manifest(load_call(call_id)) if row.get("seq") == 2]
    assert tombstoned == []
    assert is_proven(ask(session.id))


@pytest.mark.both_databases
def test_an_answer_that_is_written_after_the_call_is_not_in_it(session):
    write(session.id, ("user", [TextPart(text="Look.")]))
    with change(session.id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        stub = message_store.append_message(record, turn_id=turn_id, message=Message(role="assistant", parts=()))
        waiting = Message(role="assistant", parts=(tool(output=None, state=ToolState.RUNNING),))
        message_store.append_message(record, turn_id=turn_id, message=waiting)
    before = ask(session.id)
    part = MessagePart.objects.get(tool_state="running")
    with change(session.id) as record:
        message_store.append_parts(record, message_id=stub, parts=[TextPart(text="Here."), TextPart(text="And there.")])
        message_store.finalize_message(record, stub, MessageEnd())
        message_store.finish_tool(record, part.id, output="late", error=None)
    assert is_proven(before)
    assert len(load_manifest(load_call(before))) == 2
    after = ask(session.id)
    assert is_proven(after)
    assert len(load_manifest(load_call(after))) == 3


def live(session_id: str) -> list[str]:
    """Some turns with calls, tombstones that name files, and a summary; returns the calls."""
    calls = []
    messages: list[str] = []
    for number in range(4):
        output = f"saved as {FILE} " if number % 2 else "the tide "
        messages += write(session_id, ("user", [TextPart(text="Look.")]), ("assistant", [tool(output=output * 30)]))
        if number > 1:
            prune(session_id)
        calls.append(ask(session_id))
    add_summary(session_id, claim(session_id), messages[:4], (1, 4))
    return [*calls, ask(session_id)]


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_fork_and_a_session_from_a_file_have_calls_that_are_proven(alice):
    try:
        with transaction.atomic():
            session_id = new_session(alice)
            ids = live(session_id)
            whole = [load_manifest(load_call(call_id)) for call_id in ids]
            assert all(map(is_proven, ids))
            lines = list(export_session(session_id))
            raise Undone
    except Undone:
        pass
    assert [kind for kind in ("naming", "tombstoned") if any(row.get(kind) for rows in whole for row in rows)]
    assert whole[-1][0]["kind"] == "summary"
    import_sessions(lambda: lines, owner_id=alice.pk)
    assert [load_manifest(load_call(call_id)) for call_id in ids] == whole
    assert all(map(is_proven, ids))
    fork = lifecycle.fork_session(session_id, owner=alice, at_message_id=load_messages(session_id)[-1].id)
    assert is_proven(ask(fork.id))
    assert {row["kind"] for row in load_manifest(list_calls(fork.id)[0])} == {"message"}


@pytest.mark.slow
@pytest.mark.both_databases
def test_ten_thousand_items_take_two_kilobytes_of_a_row(alice):
    model_store.put_model(
        ModelSpec(alias="large", litellm_model="demo/chat", context_window=4_000_000, max_output_tokens=4_000)
    )
    _, calls = make_session(alice, 10_000)
    assert len(load_manifest(load_call(calls[-1]))) > 10_000
    assert [call_id for call_id in calls if size_of(call_id) > 2_000] == []
    assert is_proven(calls[-1])
    assert is_proven(calls[3])


def test_a_page_of_calls_ends_where_its_manifests_are_enough(session, client, alice, monkeypatch):
    exchange(session.id, "Hello?", "Hello.")
    ids = [ask(session.id) for _ in range(5)][::-1]
    monkeypatch.setattr(manifests, "MOST_ROWS", 5)
    client.force_login(alice)
    address = f"/api/sessions/{session.id}/calls"
    first = client.get(address, {"limit": 4}).json()
    assert [item["id"] for item in first["items"]] == ids[:2]
    second = client.get(address, {"limit": 4, "cursor": first["next_cursor"]}).json()
    third = client.get(address, {"limit": 4, "cursor": second["next_cursor"]}).json()
    assert [item["id"] for item in (*second["items"], *third["items"])] == ids[2:]
    assert third["next_cursor"] is None
    monkeypatch.setattr(manifests, "MOST_ROWS", 1)
    assert len(client.get(address).json()["items"]) == 1


def test_a_page_of_calls_takes_as_few_reads_however_many_there_are(session):
    exchange(session.id, "Hello?", "Hello.")
    for _ in range(9):
        ask(session.id)
    calls = list_calls(session.id)
    with CaptureQueriesContext(connection) as queries:
        assert len(with_manifests(calls)) == 9
    assert len(queries) == 1  # and one for summaries


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"items": 3}, "had 2 items"),
        ({"parts": 9}, "tells of 2 with 9"),
        ({"form": 3}, "form 3"),
        ({"packed": "?"}, "cannot be read"),
        ({"unlike": [0, 10**15]}, "more than"),
        ({"form": "one"}, "row 1"),
    ],
)
def test_a_folded_manifest_that_the_record_does_not_bear_out_is_shown_as_it_is(session, client, alice, row, problem):
    exchange(session.id, "Hello?", "Hello.")
    stored: list[Any] = [{"kind": "context", "form": 1, "items": 2, "parts": 2} | row]
    call_id = ask(session.id, replace(build_context(session.id), stored_manifest=stored))
    client.force_login(alice)
    assert problem in client.get(f"/api/calls/{call_id}/payload").json()["problems"][0]
    assert client.get(f"/api/calls/{call_id}").json()["manifest"] == stored
    assert client.get(f"/api/sessions/{session.id}/calls").json()["items"][0]["manifest"] == stored
    assert problem in client.get(f"/api/calls/{call_id}/difference").json()["error"]["message"]


@pytest.mark.owner
def test_a_summary_that_is_gone_is_noticed(session):
    ids = live(session.id)
    remove_guards(connection, guarded_models())
    try:
        plain(ContextItem).filter(session_id=session.id, item_type="summary").update(item_id="sum_x")
    finally:
        install_guards(connection, guarded_models())
    call = load_call(ids[-1])
    assert "sum_x" in rebuild_payload(call).problems[0]
    with pytest.raises(ValueError, match="items"):
        load_manifest(call)
    assert with_manifests([call]) == [call]


def test_another_session_s_context_is_not_read(session, bob):
    elsewhere = new_session(bob)
    exchange(elsewhere, "A secret?", "Yes.")
    call = load_call(ask(elsewhere))
    mine = load_call(add_call(session.id, call.manifest))
    assert rebuild_payload(replace(mine, context_seq=call.context_seq)).payload is None
