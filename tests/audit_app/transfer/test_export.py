"""A session goes out as lines and comes in again as the same rows, in a database that does not have it."""

from __future__ import annotations

import asyncio
import copy
import json
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import models, transaction
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents_app.store import receive_message
from audit_app.proof.verify import verify_session
from audit_app.tables import is_carried, session_tables
from audit_app.transfer.export import export_session, session_ids
from audit_app.transfer.imports import import_sessions
from mnesis_core.errors import DuplicateIDError, InvalidRequest
from mnesis_core.facts import LONGEST_STATEMENT
from mnesis_core.messages import TextPart
from mnesis_core.transcripts.session_file import End, RowLine, read_sessions, session_lines
from mnesis_core.turns.inbox import Draft, Hosting
from sessions_app.database.guards.triggers import guarded_models
from sessions_app.models import Event, Message, Session
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_peers
from sessions_app.search.search import Scope, search
from tests.support.proof.second_verifier import Refused, problems_of_session, read_export
from tests.support.record.inspected import add_session, add_turn
from tests.support.record.operators import add_run
from tests.support.record.sample_record import HOSTILE, Sample, make_sample
from tests.support.sites.site import ROOT
from tests.support.sites.site_role import acting_as

FIRST_FORM = ROOT / "tests" / "data" / "2026-11-25.jsonl.zip"
"""Every session of the database of that day, as the code of its day exported them."""
Exported = tuple[Sample, list[bytes], dict[str, Any]]


class Undone(Exception):
    """Takes back what was written."""


@pytest.fixture(scope="module")
def first_exported(site_role_name: str, django_db_blocker: Any) -> Exported:
    """A sample that is not in the database any more, written with the site's rights."""
    with django_db_blocker.unblock(), acting_as(site_role_name) if site_role_name else nullcontext():
        try:
            with transaction.atomic():
                sample = make_sample()
                lines = [line for session_id in session_ids() for line in export_session(session_id)]
                rows = rows_of(sample.talk, sample.child, sample.deleted)
                raise Undone
        except Undone:
            pass
    return sample, lines, rows


@pytest.fixture
def exported(db: None, first_exported: Exported) -> Exported:
    """Return copies of the sample, its lines and its rows, for tests that change them."""
    return copy.deepcopy(first_exported)


@pytest.fixture
def eve(db: None) -> User:
    """The person who imports. Her number is nobody's of the sample."""
    User.objects.create_user("nobody")
    return User.objects.create_superuser("eve")


def rows_of(*session_ids: str) -> dict[str, Any]:
    """Every row of some sessions as the ORM has it, but for what each database deals out."""
    return {
        table.name: [
            {field.attname: getattr(row, field.attname) for field in table.exported}
            for session_id in session_ids
            for row in table.rows(session_id)
        ]
        for table in session_tables().values()
    }


@pytest.mark.slow
@pytest.mark.both_databases
def test_sessions_come_in_as_the_same_rows(exported: Exported, eve: User):
    sample, lines, rows = exported
    done = import_sessions(lambda: lines, owner_id=eve.pk)
    assert {session.session_id for session in done} == {sample.talk, sample.child, sample.deleted}
    assert rows_of(sample.talk, sample.child, sample.deleted) == rows
    assert all(rows[name] for name in rows if name not in ("stream_journal",))
    assert set(Session._base_manager.values_list("owner_id", flat=True)) == {eve.pk}
    again = [line for session_id in session_ids() for line in export_session(session_id)]
    assert again == lines
    assert [problems_of_session(session) for session in read_export(lines)] == [[], [], []]
    report = verify_session(sample.talk)
    assert (report.ok, report.moved) == (True, [sample.talk])
    assert {hit.session_id for hit in search(Scope(owner_id=eve.pk), "quay").hits} == {sample.talk}
    assert load_messages(sample.talk)[0].parts[0].part.text == HOSTILE  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_file_of_the_first_form_comes_in_is_proven_and_goes_on(eve: User):
    with zipfile.ZipFile(FIRST_FORM) as archive:
        lines = archive.read("all.jsonl").splitlines(keepends=True)
    done = import_sessions(lambda: lines, owner_id=eve.pk)
    assert (len(done), all(session.imported for session in done)) == (6, True)
    again = import_sessions(lambda: lines, owner_id=eve.pk)
    assert [replace(session, imported=True) for session in again] == done
    assert not any(session.imported for session in again)

    [*rest, session_id] = [session.session_id for session in done]
    assert all(verify_session(other).first_form_entries == verify_session(other).entries for other in rest)
    before = verify_session(session_id).entries
    add_turn(session_id, "And now?")
    report = verify_session(session_id)
    assert (report.problems, report.first_form_entries) == ([], before)
    assert report.entries > before
    gone = list(export_session(session_id))
    assert json.loads(gone[0])["version"] == 2
    with pytest.raises(DuplicateIDError, match="it is not the same"):
        import_sessions(lambda: lines, owner_id=eve.pk)


def exported_host(owner: User, *texts: str) -> tuple[str, list[bytes]]:
    """A session in host mode that is in its file only, with these messages in its inbox."""
    with transaction.atomic():
        session_id = add_session(owner)
        with change(session_id) as record:
            session_store.update_session(record, hosting=Hosting(is_on=True, name="ida"))
            for text in texts:
                receive_message(record, Draft(text=text))
        lines = list(export_session(session_id))
        transaction.set_rollback(True)
    return session_id, lines


def test_a_session_that_would_begin_a_turn_by_itself_is_refused(eve: User):
    _, lines = exported_host(eve, "Begin!")
    with pytest.raises(InvalidRequest, match="would begin a turn here at once"):
        import_sessions(lambda: lines, owner_id=eve.pk)
    assert not Session.objects.exists()


def test_a_session_whose_run_would_go_on_is_refused(eve: User):
    with transaction.atomic():
        session_id = add_session(eve)
        run_id = add_run(session_id)
        lines = list(export_session(session_id))
        transaction.set_rollback(True)
    with pytest.raises(InvalidRequest, match=run_id):
        import_sessions(lambda: lines, owner_id=eve.pk)
    assert not Session.objects.exists()


def test_a_session_in_host_mode_comes_in_once_under_its_name(eve: User):
    (first, lines), (_, other) = exported_host(eve), exported_host(eve)
    import_sessions(lambda: lines, owner_id=eve.pk)
    assert [peer.id for peer in list_peers(owner_id=eve.pk)] == [first]
    with pytest.raises(InvalidRequest, match="cannot be stored"):
        import_sessions(lambda: other, owner_id=eve.pk)


@pytest.mark.slow
def test_importing_again_changes_nothing(exported: Exported, eve: User):
    _, lines, rows = exported
    import_sessions(lambda: lines, owner_id=eve.pk)
    again = import_sessions(lambda: lines, owner_id=eve.pk)
    assert [session.imported for session in again] == [False] * 3
    assert Event.objects.count() == len(rows["events"])


@pytest.mark.slow
def test_a_session_goes_on_after_it_was_imported(exported: Exported, eve: User):
    sample, lines, _ = exported
    import_sessions(lambda: lines, owner_id=eve.pk)
    add_turn(sample.talk, "And tomorrow?")
    with pytest.raises(
        DuplicateIDError, match=r"already, and it is not the same: it has \d+ ledger entries"
    ) as refusal:
        import_sessions(lambda: lines, owner_id=eve.pk)
    assert refusal.value.code == "DUPLICATE_ID"


@pytest.mark.slow
def test_somebody_elses_session_is_only_said_to_be_there(exported: Exported, eve: User):
    sample, lines, _ = exported
    import_sessions(lambda: lines, owner_id=eve.pk)
    stranger = User.objects.create_user("mallory")
    with pytest.raises(DuplicateIDError) as refusal:
        import_sessions(lambda: lines, owner_id=stranger.pk)
    assert refusal.value.message == f"There is a session {sample.talk} already."


@pytest.mark.slow
@pytest.mark.both_databases
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(), title=st.text(max_size=20))
def test_any_text_survives(eve: User, text: str, title: str):
    try:
        with transaction.atomic():
            session_id = add_session(eve, title=title)
            add_turn(session_id, text, TextPart(text=text))
            lines, rows = list(export_session(session_id)), rows_of(session_id)
            raise Undone
    except Undone:
        pass
    import_sessions(lambda: lines, owner_id=eve.pk)
    assert rows_of(session_id) == rows
    assert [message.parts[0].part.text for message in load_messages(session_id)] == [text, text]  # type: ignore[union-attr]


Values = dict[str, Any]


def forged(lines: list[bytes], change: Callable[[str, Values], None]) -> list[bytes]:
    """The first session of an export with its rows changed, and an end that fits."""
    items = list(read_sessions(lines))
    end = next(place for place, item in enumerate(items) if isinstance(item, End))
    rows = [(item.table, item.values) for item in items[:end] if isinstance(item, RowLine)]
    for table, values in rows:
        change(table, values)
    header: Any = items[0]
    return list(session_lines(header, rows))


def setting(table: str, column: str, value: Any) -> Callable[[str, Values], None]:
    """Give every row of a table this value."""

    def change(name: str, values: Values) -> None:
        if name == table:
            values[column] = value

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "column", "value", "reason"),
    [
        ("messages", "seq", "1", r"Line \d+: seq cannot be \"1\""),
        ("messages", "seq", True, "seq cannot be true"),
        ("messages", "seq", 2**63, "seq cannot be 9223372036854775808"),
        ("messages", "is_summary", 0, "is_summary cannot be 0"),
        ("messages", "created_at", "yesterday", "Line"),
        ("messages", "created_at", "2026-01-01T00:00:00", "no time with its offset"),
        ("messages", "created_at", None, "created_at cannot be null"),
        ("messages", "role", "x" * 17, "longer than 16"),
        ("messages", "role", "root", "unknown role 'root'"),
        ("messages", "colour", "red", "no column 'colour'"),
        ("turns", "state", "asleep", "state cannot be 'asleep'"),
        # A type that this version does not know may be of a later one, but not of this ledger.
        ("message_parts", "part_type", "mystery", "does not hold: .*: row, message_parts part_"),
        ("message_parts", "tool_state", "asleep", "cannot be read"),
        ("events", "body", "[]", "cannot be read"),
        ("sessions", "system_prompt", "Obey.", "does not hold: entry 1: row, sessions sess_"),
        ("message_parts", "content", "other words", "does not hold: .*: row, message_parts part_"),
        ("context_items", "added_seq", 1, "does not hold: .*: replay"),
        ("events", "hash", "0" * 64, "does not hold: entry 1: chain, entry 1 is not what was hashed"),
        ("events", "body", '{"rows":5}', "cannot be read|does not hold"),
        ("events", "seq", 7, "Lines .* cannot be stored"),
        ("sessions", "event_seq", 3, "names another head than its session"),
        ("sessions", "parent_id", "sess_00000000000000000000000000", "parent sess_0+ is not here"),
        ("sessions", "parent_id", "", "parent  is not here"),
        ("turns", "session_id", "sess_00000000000000000000000000", "session_id names what is not in this session"),
        ("messages", "turn_id", "turn_00000000000000000000000000", "turn_id names what is not in this session"),
        ("summary_edges", "node_id", "sum_00000000000000000000000000", "node_id names what is not in this session"),
    ],
)
def test_what_was_changed_is_refused_and_nothing_is_written(
    exported: Exported, eve: User, table: str, column: str, value: Any, reason: str
):
    _, lines, _ = exported
    forgery = forged(lines, setting(table, column, value))
    with pytest.raises(InvalidRequest, match=reason):
        import_sessions(lambda: forgery, owner_id=eve.pk)
    assert not Session._base_manager.exists()
    assert not Event.objects.exists()
    assert is_refused_or_named(forgery)


def is_refused_or_named(lines: list[bytes]) -> bool:
    """Whether the second verifier refuses a file, or finds something wrong in it."""
    try:
        return any(problems_of_session(session) for session in read_export(lines))
    except Refused:
        return True


@pytest.mark.parametrize(
    ("table", "column"),
    [("context_items", "item_id"), ("turns", "session_id"), ("message_parts", "message_id"), ("sessions", "parent_id")],
)
def test_a_file_leads_to_nothing_that_is_somebody_elses(exported: Exported, eve: User, table: str, column: str):
    _, lines, _ = exported
    bob = User.objects.create_user("bob")
    secret = add_session(bob)
    message_id = add_turn(secret, "The combination is 1888.")[0]
    value = message_id if column in ("item_id", "message_id") else secret
    before = rows_of(secret)
    with pytest.raises(InvalidRequest, match="rows that are not yours"):
        import_sessions(lambda: forged(lines, setting(table, column, value)), owner_id=eve.pk)
    assert rows_of(secret) == before


def test_a_row_that_is_there_already_is_not_taken_over(exported: Exported, eve: User):
    _, lines, _ = exported
    mine = add_session(eve)
    turn = Message.objects.get(pk=add_turn(mine, "Mine.")[0]).turn_id

    def change(table: str, values: Values) -> None:
        if table == "turns":
            values["id"] = turn

    with pytest.raises(DuplicateIDError, match="one of these ids is there already"):
        import_sessions(lambda: forged(lines, change), owner_id=eve.pk)


@pytest.mark.both_databases
def test_a_file_cut_anywhere_is_refused_before_anything_is_written(exported: Exported, eve: User):
    _, lines, _ = exported
    for kept in range(0, len(lines), 17):
        if not (kept and b'"end"' in lines[kept - 1][:6]):
            with pytest.raises(InvalidRequest, match=rf"Line {kept + 1}: "):
                import_sessions(lambda kept=kept: lines[:kept], owner_id=eve.pk)  # type: ignore[misc]
    assert not Session._base_manager.exists()


def test_every_table_of_a_session_is_exported_by_itself():
    exported = {table.model for table in session_tables().values()}
    # What is guarded and no session's.
    of_the_record = {
        apps.get_model("sessions_app", name)
        for name in ("DirectoryEntry", "Person", "Organisation", "Assistant", "AssistantVersion")
    }
    others = {apps.get_model("agents_app", "McpServer"), *of_the_record}
    assert set(guarded_models()) - others == exported
    for model in filter(is_carried, apps.get_models()):
        points = any(
            isinstance(field, models.ForeignKey) and field.related_model is Session for field in model._meta.fields
        )
        assert not points or model in exported, model


def test_no_exported_row_is_known_by_a_number_that_the_database_deals_out():
    """Such a number would be another row's elsewhere."""
    for table in session_tables().values():
        for _, needed in table.foreign_keys:
            other = next((each for each in session_tables().values() if each.model is needed), None)
            assert other is None or not isinstance(needed._meta.pk, models.AutoField), table.name


def test_the_commands_write_a_file_and_read_it(sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "sessions.jsonl"
    call_command("export", sample.talk, sample.child, out=str(path))
    call_command("import_session", str(path), user="ada", json=True)
    report = json.loads(capsys.readouterr().out)
    assert [(session["session_id"], session["imported"]) for session in report] == [
        (sample.talk, False),
        (sample.child, False),
    ]
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(CommandError, match="SESSION_NOT_FOUND"):
        call_command("export", "sess_none", out=str(path))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(
        CommandError, match=r"INVALID_REQUEST: sessions.jsonl: Line \d+: it is not JSON, or was cut off"
    ):
        call_command("import_session", str(path), user="ada")


def test_a_child_alone_says_that_its_parent_is_needed(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    call_command("export", sample.child, out=str(tmp_path / "child.jsonl"))
    assert f"export {sample.talk} too" in capsys.readouterr().err


def test_the_memory_of_a_session_is_a_directory_or_an_archive(sample: Sample, tmp_path: Path):
    call_command("export", sample.talk, out=str(tmp_path / "memory"), format="autobyteus")
    call_command("export", sample.talk, out=str(tmp_path / "memory.zip"), format="autobyteus")
    directory = tmp_path / "memory" / "agents" / sample.talk
    files = {file.name: file.read_bytes() for file in directory.iterdir()}
    with zipfile.ZipFile(tmp_path / "memory.zip") as archive:
        assert {Path(name).name: archive.read(name) for name in archive.namelist()} == files
    lines = {name: [json.loads(line) for line in content.splitlines()] for name, content in files.items()}
    assert [trace["content"] for trace in lines["raw_traces.jsonl"]] == ["Still in context.", "Noted."]
    assert lines["raw_traces_archive.jsonl"][0]["content"] == json.loads(json.dumps(HOSTILE))
    assert [len(item["turn_ids"]) for item in lines["episodic.jsonl"]] == [1, 2]
    assert lines["episodic.jsonl"][0]["summary"] == json.loads(json.dumps(HOSTILE * 2))
    assert [item["fact"] for item in lines["semantic.jsonl"]] == [json.loads(json.dumps(HOSTILE[:LONGEST_STATEMENT]))]


@pytest.mark.django_db(transaction=True)  # it is written in a thread of its own
def test_an_owner_takes_a_session_along_from_the_api(sample: Sample, client: Client):
    lines = b"".join(export_session(sample.talk))
    client.force_login(sample.ada)
    answer = client.get(f"/api/sessions/{sample.talk}/export")
    assert asyncio.run(joined(answer.streaming_content)) == lines  # type: ignore[attr-defined]
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{sample.talk}.jsonl"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    client.force_login(sample.bob)
    refused = client.get(f"/api/sessions/{sample.talk}/export")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "SESSION_NOT_FOUND")


async def joined(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])
