"""The sessions of the format's test vectors: one with something of everything, what is done to its rows, and a directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, models

from audit_app.proof.ledger import directory_findings, findings_of_session
from audit_app.proof.verify import Problem as Found
from audit_app.proof.verify import verify_session
from audit_app.tables import Table, insert_rows, session_tables
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions
from mnesis_core.actor import Actor, ActorKind, Via
from mnesis_core.errors import ModelCallAbandoned
from mnesis_core.events import GENESIS, EventType, entry_hash
from mnesis_core.llm.retrying import Retry
from mnesis_core.messages import Message, TextPart, ToolPart
from mnesis_core.records import MessageEnd, TurnState
from sessions_app.database.fields import plain_field
from sessions_app.database.guards.rights import lifted
from sessions_app.database.guards.triggers import guarded_models, install_guards, remove_guards
from sessions_app.models import DirectoryEntry, Event, MessagePart, Organisation, Session
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.actor import SYSTEM, acting_as
from sessions_app.record.change import change
from sessions_app.record.histories import begin_fork, copy_messages
from sessions_app.record.message_queries import load_messages
from sessions_app.record.organisation_store import home_of
from sessions_app.record.session_queries import load_session
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.proof.format_vectors import DIRECTORIES, FOLDER, SESSIONS, TREE, write
from tests.support.proof.second_opinion import problems_of
from tests.support.proof.second_verifier import Problem
from tests.support.record.inspected import USAGE, add_summary, claim, finish
from tests.support.record.operators import settled_run
from tests.support.record.sample_record import make_sample
from tests.support.record.tampered import undone

Rows = dict[str, list[dict[str, Any]]]
Edit = dict[str, Any]
"""``table`` and ``where``, and one of ``set`` and ``remove``; ``table`` and ``add``; or ``rehash``."""
Case = tuple[str, list[Edit]]

PERSON = Actor(
    kind=ActorKind.USER, ref="0123456789abcdefABCD-_", via=Via.PAGE, request="req_01KB0000000000000000000005"
)
PROGRAM = Actor(kind=ActorKind.KEY, ref="a1b2c3d4", for_ref=PERSON.ref, via=Via.API, request="req_of-a-proxy")
NUMBERS = {
    "floats": [0.1, 1.0, -0.0, 1e-7, 2.5e-5, 1e16, 1e22, 1e23, 1.5e300, 5e-324, 1.7976931348623157e308],
    "integers": [0, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 10**40],
    "names": {"\ufffd": 1, "😀": 2, "Z": 3, "z": 4, "": 5, "NUL \0": 6, "half \ud800": "\udfff"},
    "deep": [[[[[[{"a": {"b": [None, True, False, {}, []]}}]]]]]],
    "texts": ["1.0", "1e+3", "\x01\x7f\u2028", "␛0000", '\\"'],
}


def write_sessions() -> None:
    """Write a session of today's form, one that was begun in the first form and goes on, and what is done to both."""
    _, new, both, _ = SESSIONS
    with lifted(connection), acting_as(PROGRAM):
        lines, directory = make_session()
        (FOLDER / new).write_bytes(lines)
        write(DIRECTORIES[-1], directory_cases(directory))
        session_id = import_session(next(iter(SESSIONS)))
        _answer_by_hand(session_id)
        with acting_as(PROGRAM.later("map")):
            _go_on(session_id)
        (FOLDER / both).write_bytes(b"".join(export_session(session_id)))
        _empty()
        for name in (new, both):
            write(SESSIONS[name], tampering_cases(name))


def write_tree() -> None:
    """Write a session of today, which has branches, and what is done to it."""
    with lifted(connection), acting_as(PROGRAM):
        lines, _ = make_session()
        (FOLDER / TREE).write_bytes(lines)
        write(SESSIONS[TREE], tampering_cases(TREE))


def write_directory() -> None:
    """Write a directory of today and what is done to it."""
    with lifted(connection), acting_as(PROGRAM):
        _, directory = make_session()
        write(DIRECTORIES[-1], directory_cases(directory))


def make_session() -> tuple[bytes, Rows]:
    """An exported session, and the rows of the directory that it was written with. Nothing of it stays."""
    sample = make_sample()
    with change(sample.talk) as record:
        session_store.update_session(record, config=NUMBERS)
    with acting_as(PERSON):
        _answer_by_hand(sample.talk)
    last = load_messages(sample.talk, limit=2)[1]
    fork = begin_fork(load_session(sample.talk), owner=sample.ada, last=last, title="fork")
    assert copy_messages(fork)
    with acting_as(SYSTEM):
        session_store.record_heads()
    lines, directory = b"".join(export_session(sample.talk)), _directory_here()
    _empty()
    return lines, directory


def _empty() -> None:
    with unguarded():
        for table in reversed(session_tables().values()):
            plain(table.model)._raw_delete("default")


def _go_on(session_id: str) -> None:
    """Change rows of before, and add others."""
    with change(session_id) as record:
        session_store.update_session(record, title="It goes on", config={"share": 1e23}, labels={"form": "both"})
        tools = MessagePart.objects.filter(session_id=session_id, tool_state="completed", compacted_at=None)
        message_store.tombstone_parts(record, list(tools.values_list("id", flat=True)))
    messages = [message.id for message in load_messages(session_id)][-2:]
    run = claim(session_id)
    add_summary(session_id, run, messages, (9, 10))
    finish(session_id, run)
    settled_run(session_id)
    with change(session_id) as record:
        session_store.archive_session(record)


def _directory_here() -> Rows:
    entries = [row | {"created_at": row["created_at"].isoformat()} for row in plain(DirectoryEntry).values()]
    return {
        "directory_entries": entries,
        "sessions": list(plain(Session).values("id", "owner_id", "organisation_id")),
        "events": list(plain(Event).values("session_id", "seq", "hash")),
    }


def _answer_by_hand(session_id: str) -> None:
    """A turn that waits for a person, whose call had to be tried again and failed."""
    with change(session_id) as record:
        turn = turn_store.start_turn(record, model="demo", lease_owner="here", lease_seconds=30)
        question = Message(role="user", parts=(TextPart(text="Open the lock."),))
        message_store.append_message(record, turn_id=turn, message=question)
        stub = message_store.append_message(record, turn_id=turn, message=Message(role="assistant", parts=()))
        planned = {"parameters": {"temperature": 0.5}, "manifest": [], "context_seq": 1, "digest": "cd" * 32}
        call = turn_store.start_call(
            record, turn_id=turn, message_id=stub, model="demo", provider_model="demo", estimated_tokens=0, **planned
        )
        turn_store.note_retry(record, call, Retry(attempt=1, pause_seconds=0.25, error=ModelCallAbandoned()))
        calls = [ToolPart(tool_name="open", tool_call_id=id) for id in ("a", "b")]
        one, other = message_store.append_parts(record, message_id=stub, parts=calls)
        message_store.finalize_message(record, stub, MessageEnd(outcome="complete", usage=USAGE))
        end = MessageEnd(outcome="broken", error_code="MODEL_CALL_ABANDONED", error_message="Half \ud83d of it.")
        turn_store.finish_call(record, call, end, attempts=2)
        turn_store.suspend_turn(record, turn, fence=1, part_ids=[one, other])
    with change(session_id) as record:
        words = {"turn_id": turn, "note": "Mind the gate.", "refusal": "No."}
        message_store.decide_approval(record, one, approved=True, **words)
        message_store.decide_approval(record, other, approved=False, **words)
        turn_store.resume_turn(record, turn, fence=1, lease_owner="there", lease_seconds=30)
        message_store.start_tool(record, one)
        message_store.finish_tool(record, one, output="It is open \0.", error=None)
        assert message_store.keep_late_output(record, other, "It was open.")
        facts = {"scope": "turn", "measure": "tokens", "limit": 9, "spent": 9}
        record.publish(EventType.BUDGET_EXHAUSTED, turn_id=turn, reason="budget_turn", **facts)
        turn_store.finish_turn(
            record, turn, state=TurnState.INCOMPLETE, fence=2, usage=USAGE, error_code="BUDGET_EXHAUSTED"
        )


# What is done to rows: in a database, and in rows as they stand in a file.


def change_database(edit: Edit, session_id: str) -> None:
    """Do to the rows of a database what ``change_rows`` does to those of a file, past its guards."""
    if "rehash" in edit:
        _rehash_database(session_id, with_head=edit["rehash"] == "entries and head")
        return
    table = session_tables().get(edit["table"]) or Table(DirectoryEntry)
    fields = {field.attname: field for field in table.fields}
    if "add" in edit:
        named = [fields[name] for name in edit["add"]]
        insert_rows(table.name, named, [tuple(_typed(fields, edit["add"]).values())], using="default")
        return

    def assignments(values: Mapping[str, Any], between: str) -> tuple[str, list[Any]]:
        prepared = [plain_field(fields[name]).get_db_prep_save(value, connection) for name, value in values.items()]
        return between.join(f"{name} = %s" for name in values), prepared

    which, wanted = assignments(_typed(fields, edit["where"]), " AND ")
    what, values = assignments(_typed(fields, edit.get("set", {})), ", ")
    with connection.cursor() as cursor:
        sql = f"UPDATE {table.name} SET {what}" if values else f"DELETE FROM {table.name}"
        cursor.execute(f"{sql} WHERE {which}", [*values, *wanted])
        assert cursor.rowcount == 1, edit


def _typed(fields: Mapping[str, models.Field[Any, Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: datetime.fromisoformat(value) if value and isinstance(fields[name], models.DateTimeField) else value
        for name, value in values.items()
    }


def _rehash_database(session_id: str, *, with_head: bool) -> None:
    hash, seq = GENESIS, 0
    for event in plain(Event).filter(session_id=session_id).order_by("seq"):
        before, seq = hash, event.seq
        hash = entry_hash(prev_hash=before, seq=seq, type=event.type, body=event.body)
        plain(Event).filter(pk=event.pk).update(prev_hash=before, hash=hash)
    if with_head:
        plain(Session).filter(pk=session_id).update(head_hash=hash, event_seq=seq)


def change_rows(edit: Edit, rows: Rows) -> None:
    if "rehash" in edit:
        _rehash_rows(rows, with_head=edit["rehash"] == "entries and head")
    elif "add" in edit:
        rows[edit["table"]].append(edit["add"])
    else:
        [row] = [row for row in rows[edit["table"]] if edit["where"].items() <= row.items()]
        if edit.get("remove"):
            rows[edit["table"]].remove(row)
        else:
            row.update(edit["set"])


def _rehash_rows(rows: Rows, *, with_head: bool) -> None:
    hash, seq = GENESIS, 0
    for entry in sorted(rows["events"], key=lambda entry: int(entry["seq"])):
        before, seq = hash, entry["seq"]
        hash = entry_hash(prev_hash=before, seq=seq, type=entry["type"], body=entry["body"])
        entry.update(prev_hash=before, hash=hash)
    if with_head:
        rows["sessions"][0].update(head_hash=hash, event_seq=seq)


@contextmanager
def unguarded() -> Iterator[None]:
    remove_guards(connection, guarded_models())
    try:
        yield
    finally:
        install_guards(connection, guarded_models())


def import_session(name: str) -> str:
    """Bring a session of the vectors in, as another account's than it was; return its id."""
    lines = (FOLDER / name).read_bytes().splitlines(keepends=True)
    owner, _ = User.objects.get_or_create(username="importer")
    [imported] = import_sessions(lambda: lines, owner_id=owner.pk)
    return imported.session_id


def problems_after(session_id: str, edits: Iterable[Edit]) -> list[Problem]:
    """What ``verify`` finds in an imported session after these changes, which are undone."""
    with undone():
        for edit in edits:
            change_database(edit, session_id)
        return sorted(set(problems_of(verify_session(session_id, alone=True).problems)))


# The cases.


def rows_of_session(name: str) -> Rows:
    rows: Rows = {}
    for line in (FOLDER / name).read_bytes().splitlines():  # of bytes, as texts have other line breaks too
        if (value := json.loads(line)).get("table"):
            rows.setdefault(value["table"], []).append(value["row"])
    return rows


def tampering_cases(session: str) -> list[dict[str, Any]]:
    with unguarded():
        session_id = import_session(session)
        cases = [
            {"name": name, "edits": edits, "problems": [problem[1:] for problem in problems_after(session_id, edits)]}
            for name, edits in cases_of(rows_of_session(session))
        ]
    _empty()
    return cases


def cases_of(rows: Rows) -> list[Case]:
    of_tree = _branch_cases(rows) if "branches" in rows else []
    return [*_content_cases(rows), *_work_cases(rows), *_ledger_cases(rows), *of_tree]


def _content_cases(rows: Rows) -> list[Case]:
    """Changes of the session's own row, and of messages and their parts."""
    session = rows["sessions"][0]
    spoken = _first(rows, "message_parts", lambda row: row["part_type"] == "text" and row["content"])
    tool = _first(rows, "message_parts", lambda row: row["output"])
    message = _first(rows, "messages", lambda row: row["finalized_at"])
    escaped = spoken["content"].replace("␛0000", "␛0001")
    integers, reversed_config = {"integers": [9007199254740992]}, dict(reversed(session["config"].items()))
    return [
        ("nothing", []),
        ("a letter of what was said", [_put("message_parts", spoken, content=spoken["content"] + ".")]),
        ("the escape of one character", [_put("message_parts", spoken, content=escaped)]),
        ("an output that was set once", [_put("message_parts", tool, output="forged")]),
        ("an output where there was none", [_put("message_parts", spoken, output="forged")]),
        ("a salt", [_put("message_parts", spoken, salt="00" * 32)]),
        ("the salt of the session", [_put("sessions", session, salt="00" * 32)]),
        ("a state", [_put("message_parts", tool, tool_state="error")]),
        ("a time by a microsecond", [_put("messages", message, recorded_at="2026-01-01T00:00:00.000001+00:00")]),
        ("a number from NULL to 0", [_put("messages", message, tokens_cache_read=0)]),
        ("a boolean", [_put("messages", message, is_summary=True)]),
        ("a title, which may change", [_put("sessions", session, title="Another")]),
        ("a number in JSON", [_put("sessions", session, config=session["config"] | integers)]),
        ("the order and the form of JSON, which say nothing", [_put("sessions", session, config=reversed_config)]),
        ("an archive mark", [_put("sessions", session, archived_at="2026-01-01T00:00:00+00:00")]),
        ("a counter", [_put("sessions", session, message_seq=session["message_seq"] + 1)]),
    ]


def _work_cases(rows: Rows) -> list[Case]:
    """Changes of turns, calls, the context, summaries, files and runs, and rows that are gone or were put in."""
    spoken = _first(rows, "message_parts", lambda row: row["part_type"] == "text" and row["content"])
    message = _first(rows, "messages", lambda row: row["finalized_at"])
    turn, call, item = rows["turns"][0], rows["model_calls"][0], rows["context_items"][-1]
    edge, node = rows["summary_edges"][0], rows["summary_nodes"][0]
    file, run, line = rows["file_references"][0], rows["operator_runs"][0], rows["operator_items"][0]
    failed = _first(rows, "operator_items", lambda row: row["state"] == "failed")
    another = spoken | {"id": "part_01KB0000000000000000000009", "part_index": 77}
    return [
        ("the end of a turn", [_put("turns", turn, state="failed")]),
        ("a lease, which nothing proves", [_put("turns", turn, lease_owner="me")]),
        ("the end of a call", [_put("model_calls", call, state="failed")]),
        ("a manifest", [_put("model_calls", call, manifest=[])]),
        ("an item of the context that leaves it", [_put("context_items", item, removed_seq=3)]),
        ("an item of the context that is gone", [_take("context_items", item)]),
        ("a source of a summary", [_put("summary_edges", edge, position=7)]),
        ("a summary that is stale", [_put("summary_nodes", node, freshness="stale")]),
        ("a message that is gone", [_take("messages", message)]),
        ("a part that is gone", [_take("message_parts", spoken)]),
        ("a part that was put in", [{"table": "message_parts", "add": another}]),
        ("a file's content that is another's", [_put("file_references", file, content_id="cd" * 32)]),
        ("a file's size, so that its content must be there", [_put("file_references", file, size=1)]),
        ("the results of a run", [_put("operator_runs", run, completed_count=77)]),
        ("the end of an item", [_put("operator_items", line, state="failed")]),
        ("the place of a line", [_put("operator_items", line, line_offset=1)]),
        ("why an item failed", [_put("operator_items", failed, error="forged")]),
    ]


def _ledger_cases(rows: Rows) -> list[Case]:
    """Changes of entries, salts and the head, also with hashes that are made anew."""
    session, last, newest_turn = rows["sessions"][0], rows["events"][-1], rows["turns"][-1]
    entry = _first(rows, "events", lambda row: row["type"] == "message.created")
    body = json.loads(entry["body"])
    entries: Edit = {"rehash": "entries"}
    whole: Edit = {"rehash": "entries and head"}
    unsorted = json.dumps(dict(reversed(body.items())), ensure_ascii=False)

    def written(**values: Any) -> Edit:
        text = json.dumps(body | values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return _put("events", entry, body=text)

    return [
        ("the time of an entry", [_put("events", entry, created_at="2026-01-01T00:00:00+00:00")]),
        ("the type of an entry", [_put("events", entry, type="message.finalized")]),
        ("a body", [written(role="system")]),
        ("a body, and the hashes made anew", [written(role="system"), entries]),
        ("a body, and the hashes and the head made anew", [written(role="system"), whole]),
        ("a body without its claims, and all made anew", [written(rows=[]), whole]),
        ("a body that is no object, and all made anew", [_put("events", entry, body="[1]"), whole]),
        ("a body whose rows are none, and all made anew", [written(rows=None), whole]),
        (
            "a claim about an unknown table, and all made anew",
            [written(rows=[*body["rows"], ["nosuch", "x", "0"]]), whole],
        ),
        ("a body with members in another order, and all made anew", [_put("events", entry, body=unsorted), whole]),
        ("the salt of one row", [_put("turns", newest_turn, salt="")]),
        ("the salt of the session's row", [_put("sessions", session, own_salt="another")]),
        ("an actor", [_put("turns", newest_turn, actor="{}")]),
        ("an entry without its form, and all made anew", [_without("v", last), whole]),
        ("an entry without its actor, and all made anew", [_without("actor", last), whole]),
        ("an entry of an unknown form, and all made anew", [written(v=3), whole]),
        ("an entry that is gone", [_take("events", entry)]),
        ("the last entry that is gone", [_take("events", last)]),
        ("the last entry that is gone, and the head made anew", [_take("events", last), whole]),
        ("an entry before the first", [{"table": "events", "add": last | {"seq": -1}}]),
        ("the head", [_put("sessions", session, head_hash="00" * 32)]),
    ]


def _branch_cases(rows: Rows) -> list[Case]:
    session, branch, edge = rows["sessions"][0], rows["branches"][0], rows["summary_edges"][0]
    said = _first(rows, "messages", lambda row: row["branch"] == branch["number"])
    summary = _first(rows, "context_items", lambda row: row["until"] is not None)
    message = _first(rows, "context_items", lambda row: row["item_id"] == said["id"])
    another = branch | {"id": "branch_01KB0000000000000000000009", "number": branch["number"] + 1}
    return [
        ("what a branch begins after", [_put("branches", branch, after_seq=branch["after_seq"] - 1)]),
        ("a branch that begins in itself", [_put("branches", branch, parent=branch["number"])]),
        ("the number of a branch", [_put("branches", branch, number=7)]),
        ("a branch that is gone", [_take("branches", branch)]),
        ("a branch that was put in", [{"table": "branches", "add": another}]),
        ("the chosen branch", [_put("sessions", session, branch=branch["number"])]),
        ("the number of branches", [_put("sessions", session, branch_seq=9)]),
        ("a message on another branch", [_put("messages", said, branch=0)]),
        ("a message on a branch that there is not", [_put("messages", said, branch=9)]),
        ("an item on another branch", [_put("context_items", message, branch=0)]),
        ("how far a summary reaches", [_put("context_items", summary, until=summary["until"] + 1)]),
        ("a summary that does not say how far it reaches", [_put("context_items", summary, until=None)]),
        ("a summary made for another branch", [_put("summary_edges", edge, branch=1)]),
    ]


def _first(rows: Rows, table: str, has: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    return next(row for row in rows[table] if has(row))


def _put(table: str, row: dict[str, Any], **values: Any) -> Edit:
    return {"table": table, "where": _key(row), "set": values}


def _take(table: str, row: dict[str, Any]) -> Edit:
    return {"table": table, "where": _key(row), "remove": True}


def _without(name: str, entry: dict[str, Any]) -> Edit:
    body = {key: value for key, value in json.loads(entry["body"]).items() if key != name}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return _put("events", entry, body=text)


def _key(row: Mapping[str, Any]) -> dict[str, Any]:
    for names in (("id",), ("seq",), ("item_id",), ("node_id", "position"), ("run_id", "number")):
        if row.keys() >= set(names):
            return {name: row[name] for name in names}
    raise KeyError(row)


# The directory.


def directory_cases(there: Rows) -> list[dict[str, Any]]:
    """What is there, and then what is changed in it."""
    entries = there["directory_entries"]
    last, session = entries[-1], there["sessions"][0]
    seen = next(
        row for row in there["events"] if (row["session_id"], row["seq"]) == (last["session_id"], last["entries"])
    )
    where = {"seq": last["seq"]}
    edits: list[Case] = [
        ("nothing", []),
        ("a session that is gone", [{"table": "sessions", "where": {"id": session["id"]}, "remove": True}]),
        ("an owner", [{"table": "sessions", "where": {"id": session["id"]}, "set": {"owner_id": 77}}]),
        (
            "an organisation",
            [{"table": "sessions", "where": {"id": session["id"]}, "set": {"organisation_id": "org_other"}}],
        ),
        ("an entry of the session that is gone", [{"table": "events", "where": _event(seen), "remove": True}]),
        ("an entry of the session", [{"table": "events", "where": _event(seen), "set": {"hash": "00" * 32}}]),
        ("a body", [{"table": "directory_entries", "where": where, "set": {"body": "{}"}}]),
        ("a number of entries", [{"table": "directory_entries", "where": where, "set": {"entries": 1}}]),
        (
            "a time",
            [{"table": "directory_entries", "where": where, "set": {"created_at": "2026-01-01T00:00:00+00:00"}}],
        ),
        ("a type", [{"table": "directory_entries", "where": where, "set": {"type": "session.deleted"}}]),
        ("whom it is about", [{"table": "directory_entries", "where": where, "set": {"session_id": "sess_other"}}]),
        ("an entry that is gone", [{"table": "directory_entries", "where": {"seq": 2}, "remove": True}]),
        (
            "the last entry that is gone, which nothing shows",
            [{"table": "directory_entries", "where": where, "remove": True}],
        ),
    ]
    with unguarded():
        return [
            {"rows": there},
            *(
                {
                    "name": name,
                    "edits": some,
                    "problems": [list(problem) for problem in directory_problems(there, some)],
                }
                for name, some in edits
            ),
        ]


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"session_id": row["session_id"], "seq": row["seq"]}


def directory_problems(there: Rows, edits: Iterable[Edit]) -> list[Problem]:
    """What today's code finds in a database with this directory and these sessions, after these changes."""
    rows: Rows = json.loads(json.dumps(there))
    for edit in edits:
        change_rows(edit, rows)
    with undone():
        for model in (DirectoryEntry, Event):
            plain(model)._raw_delete("default")
        _fill(rows)
        sessions = [row["id"] for row in rows["sessions"]]
        found = [(id, finding) for id, finding in directory_findings(using="default")]
        found += [(id, finding) for id in sessions for finding in findings_of_session(id, using="default")]
        problems = [Found(session=id, **finding._asdict()) for id, finding in found]
        return sorted(set(problems_of(problems)))


def _fill(rows: Rows) -> None:
    time = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    plain(Session)._raw_delete("default")
    for owner_id in {row["owner_id"] for row in rows["sessions"]}:
        User.objects.get_or_create(pk=owner_id, defaults={"username": f"account {owner_id}"})
    for id in {row["organisation_id"] for row in rows["sessions"] if "organisation_id" in row}:
        Organisation.objects.get_or_create(pk=id, defaults={"slug": id, "created_at": time})
    sessions = [
        Session(**{"organisation_id": home_of(row["owner_id"])} | row, model="demo", created_at=time, updated_at=time)
        for row in rows["sessions"]
    ]
    events = [Event(**row, type="x", body="{}", prev_hash="0", created_at=time) for row in rows["events"]]
    told = [
        DirectoryEntry(**row | {"created_at": datetime.fromisoformat(row["created_at"])})
        for row in rows["directory_entries"]
    ]
    for row in (*sessions, *events, *told):
        models.Model.save(row, force_insert=True)
