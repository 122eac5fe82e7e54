"""The format is what ``docs/format.md`` says: its tables, its example, its vectors, and a verifier written from it alone."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, models

from audit_app.proof.verify import verify_all, verify_session
from audit_app.tables import session_tables
from audit_app.transfer.export import export_session, session_ids
from files_app.intake import keep_file
from mnesis_core.events import DirectoryType, EventType
from mnesis_core.transcripts import FORMATS
from sessions_app.database.tables import commitments_of
from sessions_app.models import Event, Session
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.histories import store_transcripts
from tests.support.people.cast import make_user
from tests.support.proof.format_sessions import (
    NUMBERS,
    change_rows,
    directory_problems,
    import_session,
    problems_after,
    rows_of_session,
)
from tests.support.proof.format_vectors import DIRECTORIES, FOLDER, MAKERS, SESSIONS, around, load
from tests.support.proof.old_databases import fill
from tests.support.proof.second_opinion import all_problems
from tests.support.proof.second_verifier import (
    Problem,
    Refused,
    problems_of_directory,
    problems_of_session,
    read_export,
    read_lines,
    values,
)
from tests.support.proof.second_verifier import (
    Session as Second,
)
from tests.support.record.inspected import add_session
from tests.support.record.sample_record import make_sample

DOCUMENT = values.FORMAT.read_text(encoding="utf-8")
EVENT_ROW = re.compile(r"^\| (`[a-z_]+\.[a-z_]+`(?:, `[a-z_]+\.[a-z_]+`)*) \| (.*?) \|.*\|$", re.MULTILINE)
USAGE = (
    *("tokens_input", "tokens_output", "tokens_cache_read", "tokens_cache_write"),
    *("usage_source", "cost_micros"),
)
KINDS: dict[str, type[models.Field[Any, Any]] | tuple[type[models.Field[Any, Any]], ...]] = {
    "text": (models.CharField, models.TextField),
    "integer": models.IntegerField,
    "boolean": models.BooleanField,
    "time": models.DateTimeField,
    "json": models.JSONField,
}


# The document.


def test_the_tables_of_the_document_are_those_of_the_models() -> None:
    """A new table or column of the record has to be entered in section 7 of docs/format.md."""
    assert values.tables().keys() == session_tables().keys()
    for name, table in values.tables().items():
        model: Any = session_tables()[name].model
        fields = {str(field.column): field for field in model._meta.concrete_fields}
        assert table.columns.keys() == fields.keys(), name
        assert table.is_bound == model.rules.bound
        if not table.is_bound:
            continue
        bound = commitments_of(model)
        assert set(table.classes["frozen"]) == set(bound.frozen)
        assert set(table.classes.get("once", ())) == set(bound.later) - bound.free
        assert set(table.classes.get("free", ())) == set(bound.free)
        for column in table.claimed.values():
            field = fields[column.name]
            assert isinstance(getattr(field, "target_field", field), KINDS[column.kind]), (name, column)
            assert column.empty == field.get_default(), (name, column)


def fields_of_events() -> dict[str, tuple[set[str], set[str]]]:
    """Return by type the fields that section 8.5 says a body has, and those that it may have."""
    found = {}
    for types, words in EVENT_ROW.findall(DOCUMENT[DOCUMENT.index("### 8.5") : DOCUMENT.index("### 8.6")]):
        outside = re.sub(r": a list of .*", "", words)
        names = {name for name in re.findall(r"`(\w+)`", outside) if name != "true"}
        may = set(re.findall(r"\[`(\w+)`\]", outside))
        names |= set(USAGE) if "usage" in outside else set()
        found.update(dict.fromkeys(re.findall(r"`([\w.]+)`", types), (names - may, may)))
    return found


def test_every_type_of_entry_is_in_the_document() -> None:
    """A new type of events has to be entered in section 8.5 of docs/format.md."""
    assert fields_of_events().keys() == set(EventType)
    section = DOCUMENT[DOCUMENT.index("## 12.") : DOCUMENT.index("## 13.")]
    assert set(re.findall(r"`(session\.\w+)`", section)) == set(DirectoryType)


def assert_described() -> None:
    """Every body in the database has the fields that the document says."""
    fields = fields_of_events()
    for type, body in Event.objects.values_list("type", "body"):
        must, may = fields[type]
        names = json.loads(body).keys() - {"at", "rows", "v", "actor"}
        assert must <= names <= must | may, (type, names)


def test_the_example_can_be_followed_in_a_shell() -> None:
    [code] = re.findall(r"^```sh\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
    [said] = re.findall(r"^```text\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert subprocess.run(["bash", "-c", code], capture_output=True, check=True, text=True).stdout == said


# The vectors.


def second_value(text: str) -> str | None:
    try:
        return values.json_text(json.loads(text))
    except (values.Strange, ValueError):
        return None


def second_commitment(given: dict[str, Any]) -> dict[str, str]:
    table = values.tables()[given["table"]]
    names = sorted(table.classes["frozen"]) if given["columns"] is None else given["columns"]
    hashed = values.columns_text([table.columns[name] for name in names], given["row"])
    key = values.row_key(given["salt"], given["table"], given["id"])
    return {"key": key.hex(), "hashed": hashed, "commitment": values.commitment(key, hashed)}


def second_line(line: str) -> bool:
    try:
        return bool(list(read_lines(around(line))))
    except Refused:
        return False


SECOND: dict[str, Callable[[Any], Any]] = {
    "texts.json": lambda points: values.encode_text("".join(map(chr, points))),
    "times.json": values.time_text,
    "json_values.json": second_value,
    "entries.json": lambda given: values.entry_hash(**given),
    "commitments.json": second_commitment,
    "lines.json": second_line,
}


@pytest.mark.parametrize("name", MAKERS)
def test_todays_code_and_the_second_verifier_give_what_the_vectors_say(name: str) -> None:
    cases = load(name)
    assert len(cases) > 3
    for case in cases:
        for make in (MAKERS[name], *([SECOND[name]] if name in SECOND else [])):
            assert make(case["given"]) == case["gives"], case


def test_texts_come_back() -> None:
    for case in load("texts.json"):
        assert [ord(character) for character in values.decode_text(case["gives"])] == case["given"]


def test_bodies_are_sorted_compact_json() -> None:
    for case in load("bodies.json"):
        if case["gives"] is not None:
            assert case["gives"] == values.json_text(case["given"])


def test_vectors_are_frozen() -> None:
    """What has been published holds for ever. A new file has its own line here."""
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir()}
    frozen = dict(reversed(line.split()) for line in (FOLDER.parent / "format.sha256").read_text().splitlines())
    assert found == frozen


@pytest.mark.parametrize("name", SESSIONS)
def test_the_second_verifier_finds_what_the_vectors_say(name: str) -> None:
    with (FOLDER / name).open("rb") as lines:
        [whole] = read_export(lines)
    assert problems_of_session(whole) == []
    for case in load(SESSIONS[name]):
        session = copy.deepcopy(whole)
        for edit in case["edits"]:
            change_rows(edit, session.tables)  # type: ignore[arg-type]
        found = sorted({problem[1:] for problem in problems_of_session(session)})
        assert found == [tuple(problem) for problem in case["problems"]], case["name"]


@pytest.mark.both_databases
@pytest.mark.owner
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "name", [next(iter(SESSIONS)), *(pytest.param(one, marks=pytest.mark.slow) for one in [*SESSIONS][1:])]
)
def test_todays_code_finds_what_the_vectors_say(unguarded: None, name: str) -> None:
    session_id = import_session(name)
    assert verify_session(session_id).problems == []
    for case in load(SESSIONS[name]):
        found = [problem[1:] for problem in problems_after(session_id, case["edits"])]
        assert found == [tuple(problem) for problem in case["problems"]], case["name"]


def canonical_row(table: str, row: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A row's columns of then, which later versions may have more of; PostgreSQL has JSON in a form of its own."""
    columns = values.tables()[table].columns if table in values.tables() else {}
    is_json = {name for name, column in columns.items() if column.kind == "json"}
    return {name: values.json_text(row[name]) if name in is_json else row[name] for name in names}


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_of_the_vectors_leaves_as_it_came(name: str) -> None:
    lines = list(export_session(import_session(name)))
    rows: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, lines):
        if "table" in line:
            rows.setdefault(line["table"], []).append(line["row"])
    for table, given in rows_of_session(name).items():
        assert [canonical_row(table, row, given[0]) for row in rows[table]] == [
            canonical_row(table, row, given[0]) for row in given
        ]
    assert [problems_of_session(session) for session in read_export(lines)] == [[]]
    assert_described()


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.owner
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_is_found_to_be_what_the_vectors_say(unguarded: None, name: str) -> None:
    there, *cases = load(name)
    for case in cases:
        rows = copy.deepcopy(there["rows"])
        for edit in case["edits"]:
            change_rows(edit, rows)
        sessions = {
            row["id"]: Second(
                row["id"],
                {"sessions": [row], "events": [one for one in rows["events"] if one["session_id"] == row["id"]]},
            )
            for row in rows["sessions"]
        }
        wanted = [Problem(*problem) for problem in case["problems"]]
        assert sorted(set(problems_of_directory(rows["directory_entries"], sessions))) == wanted, case["name"]
        assert directory_problems(there["rows"], case["edits"]) == wanted, case["name"]


# Everything else that there is.


def assert_all_agree() -> None:
    """Nothing is wrong with any session here, by both verifiers, in the database and in its file."""
    assert [problem for problem in verify_all(jobs=1).problems if problem.kind != "guard"] == []
    assert all_problems() == set()
    for session_id in session_ids():
        [session] = read_export(export_session(session_id))
        assert problems_of_session(session) == []
    assert_described()


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.django_db(transaction=True)
def test_both_agree_on_a_record_with_one_of_everything(session_id: str) -> None:
    make_sample()
    assert_all_agree()


@pytest.mark.slow
@pytest.mark.both_databases
@pytest.mark.django_db(transaction=True)
def test_both_agree_on_what_was_lived_imported_forked_and_compacted(tmp_path: Path) -> None:
    fill(tmp_path)
    assert_all_agree()


@pytest.mark.both_databases
@pytest.mark.django_db(transaction=True)
def test_both_agree_on_numbers_that_databases_write_in_their_own_way() -> None:
    session_id = session_store.create_session(
        owner=make_user("alice"), model="demo", config=NUMBERS, labels={"␛": "\0"}
    )
    assert_all_agree()
    with change(session_id) as record:
        session_store.update_session(record, config={"again": NUMBERS})
    assert_all_agree()


@pytest.mark.both_databases
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_a_number_that_json_does_not_have_is_refused(number: float) -> None:
    session_id = add_session(make_user("alice"))
    # The database refuses it if it is asked first.
    with pytest.raises((ValueError, DatabaseError)), change(session_id) as record:
        session_store.update_session(record, config={"share": number})
    assert verify_session(session_id).problems == []


@pytest.mark.both_databases
@pytest.mark.django_db(transaction=True)
def test_both_agree_on_files(tmp_path: Path) -> None:
    owner = make_user("alice")
    session_id = add_session(owner)
    for path, data in (("empty", b""), ("tool-outputs/x", b"\0\xff" * 9), ("large", b"x" * 3_200_000)):
        keep_file(session_id, owner_id=owner.pk, path=path, chunks=[data])
    assert_all_agree()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_both_agree_on_real_transcripts(real_data: Path) -> None:
    owner = make_user("alice")
    for format, name in (
        *(("claude_code", f"claude_code/{name}.jsonl") for name in ("short", "subagent", "tool_heavy")),
        ("locomo", "locomo/locomo2.json"),
    ):
        with (real_data / name).open("rb") as source:
            result = FORMATS[format](source, name=name, companions=[], progress=lambda done: None)  # type: ignore[index]
        store_transcripts(result, owner=owner, model="demo")
    assert Session.objects.count() > 3
    assert_all_agree()
