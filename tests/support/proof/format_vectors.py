"""The test vectors of ``docs/format.md``, section 13: ``python -m tests.support.proof.format_vectors``.

A file that is there is never written again: what it says holds for ever, and later versions of the format have files of their
own. Most files are lists of what is given and what it gives; ``MAKERS`` say that with today's code.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import django

FOLDER = Path(__file__).resolve().parents[2] / "data" / "format"
# A session's file -> what is done to its rows. The third begins in the first form and goes on in the second; the last has
# branches.
SESSIONS = {
    "session.jsonl": "tampering.json",
    "session_2.jsonl": "tampering_2.json",
    "session_both.jsonl": "tampering_both.json",
    "session_tree.jsonl": "tampering_tree.json",
}
TREE = "session_tree.jsonl"
DIRECTORIES = ("directory.json", "directory_2.json", "directory_3.json")
ID, SALT = "msg_01KB0000000000000000000002", "00112233445566778899aabbccddeeff" * 2
GENESIS = "0" * 64
Maker = Callable[[Any], Any]


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def text_as_stored(code_points: list[int]) -> str:
    from mnesis_core.text import encode_text

    return encode_text("".join(map(chr, code_points)))


def canonical_time(time: str) -> str:
    from sessions_app.database.tables import time_text

    return time_text(datetime.fromisoformat(time))


def canonical_value(text: str) -> str | None:
    from sessions_app.database.tables import json_text

    try:
        return json_text(json.loads(text))
    except ValueError:
        return None


def canonical_members(members: dict[str, Any]) -> str | None:
    from mnesis_core.events import canonical_body

    try:
        return canonical_body(members)
    except ValueError:
        return None


def hash_of_entry(entry: dict[str, Any]) -> str:
    from mnesis_core.events import entry_hash

    return entry_hash(**entry)


def commitment_to_row(given: dict[str, Any]) -> dict[str, str]:
    """The key and the commitment that today's code gives, and the text between, which its hash proves."""
    from audit_app.tables import session_tables
    from mnesis_core.events import row_commitment, row_key
    from sessions_app.database.tables import commitments_of
    from tests.support.proof.second_verifier.values import columns_text, tables

    table, id, salt = given["table"], given["id"], given["salt"]
    model: Any = session_tables()[table].model
    commitments = commitments_of(model)
    kinds = tables()[table].columns
    values = {
        name: datetime.fromisoformat(value) if value and kinds[name].kind == "time" else value
        for name, value in given["row"].items()
    }
    if given["columns"] is None:
        empty = {str(field.column): None for field in model._meta.concrete_fields}
        [[_, _, made, *_], *_] = commitments.inserted(empty | values, salt=salt)
    else:
        claims = commitments.changed(id, {name: values[name] for name in given["columns"]}, salt=salt)
        # What is NULL is claimed no longer.
        made = claims[0][2] if claims else row_commitment(row_key(salt, table=table, id=id), {})
    names = sorted(tables()[table].classes["frozen"]) if given["columns"] is None else given["columns"]
    hashed, key = columns_text([kinds[name] for name in names], given["row"]), row_key(salt, table=table, id=id)
    assert hashlib.sha256(key + hashed.encode()).hexdigest() == made
    return {"key": key.hex(), "hashed": hashed, "commitment": made}


def is_one_way(line: str) -> bool:
    """Whether a reader of exports takes this line as the only one of a session's rows."""
    from mnesis_core.errors import InvalidRequest
    from mnesis_core.transcripts.session_file import read_sessions

    try:
        return bool(list(read_sessions(around(line))))
    except InvalidRequest:
        return False


def around(line: str) -> list[bytes]:
    """A file with this one row, and an end that fits."""
    header = {"format": "mnesis-session", "version": 1, "session": "sess_1", "event_seq": 0, "head_hash": GENESIS}
    lines = [json.dumps(header | {"rows": {"turns": 1}}, separators=(",", ":")).encode() + b"\n", f"{line}\n".encode()]
    end = {"end": "sess_1", "lines": 2, "sha256": hashlib.sha256(b"".join(lines)).hexdigest()}
    return [*lines, json.dumps(end, separators=(",", ":")).encode() + b"\n"]


MAKERS: Mapping[str, Maker] = {
    "texts.json": text_as_stored,
    "times.json": canonical_time,
    "json_values.json": canonical_value,
    "bodies.json": canonical_members,
    "entries.json": hash_of_entry,
    "commitments.json": commitment_to_row,
    "lines.json": is_one_way,
}

_TEXTS = (
    *("", "plain", "NUL \0.", "\x01\x1f\x7f\x80\x85", "line\r\nbreaks\u2028\u2029", "\ud83d", "\ude00\ud83d", "😀"),
    *(
        "\ud83d" + "\ude00",
        "␛",
        "␛0000",
        "␛␛D800",
        "\u202ebidi\u2066",
        "e\u0301 \u00e9",
        "\ufeff\uffff",
        "\ud800\0␛\udfff",
    ),
)
_TIMES = (
    *("2026-11-26T09:30:00+00:00", "2026-11-26T09:30:00.000001+00:00", "2026-11-26T09:30:00.120000+00:00"),
    *("2026-11-26T10:30:00+01:00", "2026-11-25T23:45:00.500000-09:45", "0001-01-01T00:00:00+00:00"),
    *("9999-12-31T23:59:59.999999+00:00", "2026-11-26T09:30:00.000000+00:00", "2026-11-26T09:30:30+00:00:30"),
)
_JSON_VALUES = (
    *("null", "true", "[]", "{}", '""', "0", "-0", "0.0", "-0.0", "1.0", "7e0", "-7E+0", "1.50", "0.1", "-0.1"),
    *(
        "9007199254740991",
        "9007199254740992",
        "9007199254740993",
        "-9007199254740993",
        "9007199254740993.0",
        "9007199254740994.0",
    ),
    *(
        "18446744073709551616",
        "123456789012345678901234567890",
        "1e15",
        "1e16",
        "1e21",
        "1e22",
        "1e23",
        "-1e23",
        "1.5e300",
    ),
    *("1.7976931348623157e308", "1e400", "-1e400", "1e-400", "0.0001", "0.00001", "1e-5", "1e-7", "2.5e-7", "5e-324"),
    *(
        "0.1000000000000000055511151231257827",
        "1234.5",
        "4503599627370496.5",
        "0.30000000000000004",
        "1e-10",
        "1.25e-100",
    ),
    *('{"b":1,"a":{"d":2,"c":[3,{"f":4,"e":5}]}}', '{"\\ufffd":1,"\\ud83d\\ude00":2,"z":3,"Z":4,"":5,"é":6}'),
    *(
        '{ "a" : [ 1 , 2.0 ] }',
        '"\\u0001\\b\\t\\n\\f\\r\\u001f\\u007f\\u2028\\/\\"\\\\"',
        '"␛0000 ␛D800 😀"',
        '"\\u00e9"',
    ),
    *('"1.0 and 1e+3 stay in a text"', '{"1.0":1.0}', "[[[[[[[[[[1.0]]]]]]]]]]", "NaN", "[1e400]"),
)
_BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"b": 1, "a": [None, True, False, "x"], "at": "2026-11-26 09:30:00.000000"},
    {
        "at": "2026-11-26 09:30:00.000000",
        "rows": [["messages", ID, "ab" * 32], ["messages", ID, "cd" * 32, ["outcome"]]],
    },
    {"least": -(2**53 - 1), "most": 2**53 - 1, "nested": {"z": {"y": 1, "x": 2}, "Z": 0, "_": 1}},
    {"text": '\x01\t\n\x7f\u2028 "quoted" \\ / é 😀 ␛0000'},
    {"integer": 2**53},
    {"integer": -(2**53)},
    {"number": 1.5},
    {"deep": [{"number": 1.0}]},
)
_MESSAGE = {
    **{"id": ID, "session_id": "sess_01KB0000000000000000000001", "turn_id": "turn_01KB0000000000000000000003"},
    **{"seq": 2, "role": "assistant", "agent": "default", "model": "demo", "is_summary": False, "external_id": ""},
    **{"created_at": "2026-11-26T09:30:00+00:00", "recorded_at": "2026-11-26T10:30:00.000250+01:00"},
    **{"finish_reason": "stop", "outcome": "complete", "error_code": None, "error_message": None, "tokens_input": 0},
    **{"finalized_at": "2026-11-26T09:30:01+00:00", "tokens_output": 9_007_199_254_740_993, "usage_source": ""},
}
_PART = {
    **{
        "id": "part_01KB0000000000000000000004",
        "session_id": _MESSAGE["session_id"],
        "message_id": ID,
        "part_index": 0,
    },
    **{
        "part_type": "text",
        "content": 'NUL ␛0000, half ␛D83D, 😀, \x7f \u2028 " \\ \t',
        "token_estimate": 0,
        "label": "",
    },
}
_SESSION = {
    **{"id": _MESSAGE["session_id"], "model": "demo", "parent_id": None, "title": "", "labels": {}, "host_mode": False},
    **{"config": {"z": 1e23, "a": [0.1, 2.0, -0.0, 9007199254740993], "n": {"\ufffd": 1, "😀": 2}, "t": "␛0000"}},
    **{"created_at": "2026-11-26T09:30:00+00:00", "archived_at": None, "agent": "default", "origin": "fork"},
}
_OPTIONS = (
    *("1", "-1", "0", "-0", "1.0", "-0.0", "1.50", "0.1", "1e5", "100000.0", "1e16", "1e+16", "1E+16", "1e-5", "1e-05"),
    *("0.0001", "9007199254740993", "1e400", "NaN", "01", "true", "null", "[]", "[ ]", '"é"', '"\\u00e9"', '"\\/"'),
    *('"\\u0000"', '"\\\\u0000"', '"\\ud800"', '"\\ud83d\\ude00"', '"😀"', '"\\u001f"', '"\\u001F"', '"\\n"'),
    *('"\\u000a"', '{"a":1,"a":1}', '{"b":1,"a":2}'),
)
_LINES = (
    *(f'{{"table":"turns","row":{{"options":{value}}}}}' for value in _OPTIONS),
    *('{"row":{},"table":"turns"}', '{"table":"turns","row":{},"more":1}', '{"table":"turns"}', "[]", "", " {}"),
    *('{"table":"turns","row":{}} ', '{"table":"turns", "row":{}}', '{"table":"turns","row":[]}'),
    *('{"table":7,"row":{}}', '{"table":"messages","row":{}}', '{"table":"turns","row":{}}'),
    "\ufeff" + '{"table":"turns","row":{}}',
)


def _commitments() -> list[dict[str, Any]]:
    end = ["error_code", "error_message", "finalized_at", "finish_reason", "outcome", "tokens_input", "tokens_output"]
    message, session = {"table": "messages", "id": ID}, {"table": "sessions", "id": _SESSION["id"]}
    part = {"table": "message_parts", "id": _PART["id"]}
    return [
        {**message, "salt": SALT, "row": _MESSAGE, "columns": None},
        {**message, "salt": SALT, "row": _MESSAGE | {"is_summary": True, "agent": ""}, "columns": None},
        {**message, "salt": SALT, "row": _MESSAGE, "columns": [*end, "usage_source"]},
        {**message, "salt": SALT, "row": _MESSAGE, "columns": ["error_code"]},
        {**part, "salt": SALT, "row": _PART, "columns": None},
        {**part, "salt": "another salt", "row": _PART, "columns": None},
        {**session, "salt": SALT, "row": _SESSION, "columns": None},
        *(
            {**session, "salt": SALT, "row": _SESSION, "columns": [name]}
            for name in ("config", "labels", "title", "host_mode")
        ),
        {**session, "salt": SALT, "row": _SESSION | {"host_mode": True}, "columns": ["host_mode"]},
    ]


def _entries() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    prev_hash = GENESIS
    for seq, type, body in (
        (1, "session.created", '{"at":"2026-11-26 09:30:00.000000","origin":"chat","owner_id":7}'),
        (2, "turn.started", '{"turn_id":"turn_1","turn_seq":1}'),
        (3, "", ""),
        (2**53, "é😀", '{ "not": "canonical" }'),
    ):
        entries.append({"prev_hash": prev_hash, "seq": seq, "type": type, "body": body})
        prev_hash = hash_of_entry(entries[-1])
    return entries


GIVEN: Mapping[str, Callable[[], list[Any]]] = {
    "texts.json": lambda: [[ord(character) for character in text] for text in _TEXTS],
    "times.json": lambda: list(_TIMES),
    "json_values.json": lambda: list(_JSON_VALUES),
    "bodies.json": lambda: list(_BODIES),
    "entries.json": _entries,
    "commitments.json": _commitments,
    "lines.json": lambda: list(_LINES),
}


def write(name: str, cases: list[dict[str, Any]]) -> None:
    """One case a line, so that a person can read them."""
    lines = [json.dumps(case, ensure_ascii=False, separators=(", ", ": ")) for case in cases]
    (FOLDER / name).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def main() -> None:
    """Write the files that are not there."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from django.db import connection

    FOLDER.mkdir(exist_ok=True)
    for name, make in MAKERS.items():
        if not (FOLDER / name).exists():
            write(name, [{"given": given, "gives": make(given)} for given in GIVEN[name]()])
    missing = [name for name in (*SESSIONS.values(), DIRECTORIES[-1]) if not (FOLDER / name).exists()]
    if missing:
        connection.creation.create_test_db(verbosity=0, serialize=False)
        from tests.support.proof.format_sessions import write_directory, write_sessions, write_tree

        alone = {DIRECTORIES[-1]: write_directory, SESSIONS[TREE]: write_tree}
        (alone.get(missing[0], write_sessions) if len(missing) == 1 else write_sessions)()


if __name__ == "__main__":
    main()
