"""Section 3: the file in which a session leaves a site."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, repeat
from typing import Any, NoReturn

from tests.support.proof.second_verifier.values import Column, Row, Session, compact, tables

LONGEST_LINE = 268_435_456
CONTENTS = "file_contents"
TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "integer": (int,), "boolean": (bool,), "time": (str,)}
OF_THEIR_PARENTS = ("summary_edges", "operator_items")
NUMBERED = ("events", "context_items", "summary_edges", "operator_items", "stream_journal")


Line = tuple[int, str, Row]
"""The number of a line, its table and its row."""


class Refused(Exception):
    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


def read_export(lines: Iterable[bytes]) -> list[Session]:
    """:raises Refused: a line is not as section 3 says."""
    return [_session(number, header, rows) for number, header, rows in read_lines(lines)]


def read_lines(lines: Iterable[bytes]) -> Iterator[tuple[int, dict[str, Any], list[Line]]]:
    """Yield the number of the last line, the header and the rows of each session in a file, whatever its tables are.

    :raises Refused: a line is not written as section 3 says, or not in its place.
    """
    numbered = enumerate(lines, 1)
    number = 0
    for number, line in numbered:
        header = _header(number, _parse(number, line))
        yield _read_rows(number, line, header, numbered)
    if not number:
        raise Refused(1)


def _read_rows(
    number: int, line: bytes, header: dict[str, Any], lines: Iterator[tuple[int, bytes]]
) -> tuple[int, dict[str, Any], list[Line]]:
    order = chain.from_iterable(repeat(table, count) for table, count in header["rows"].items())
    digest, rows = hashlib.sha256(line), []
    for number, line in lines:
        value = _parse(number, line)
        if "end" in value:
            end = {"end": header["session"], "lines": len(rows) + 1, "sha256": digest.hexdigest()}
            if next(order, None) is not None or list(value.items()) != list(end.items()):
                raise Refused(number)
            return number, header, rows
        if list(value) != ["table", "row"] or not isinstance(value["row"], dict):
            raise Refused(number)
        if value["table"] != next(order, None):
            raise Refused(number)
        rows.append((number, value["table"], value["row"]))
        digest.update(line)
    raise Refused(number + 1)


def _parse(number: int, line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise Refused(number)
    try:
        value = json.loads(line)
        written = f"{compact(value)}\n".encode()
    except (ValueError, RecursionError):
        raise Refused(number) from None
    if not isinstance(value, dict) or written != line.removesuffix(b"\n") + b"\n" or _has_nul(value):
        raise Refused(number)
    return value


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(item) for item in (*value, *value.values()))
    return isinstance(value, list) and any(map(_has_nul, value))


def _header(number: int, value: dict[str, Any]) -> dict[str, Any]:
    if list(value) != ["format", "version", "session", "event_seq", "head_hash", "rows"]:
        raise Refused(number)
    known = value["format"] == "mnesis-session" and _is_count(value["version"]) and value["version"] in (1, 2)
    rows = value["rows"]
    if not known or not isinstance(value["session"], str) or not isinstance(value["head_hash"], str):
        raise Refused(number)
    if not isinstance(rows, dict) or not all(map(_is_count, (value["event_seq"], *rows.values()))):
        raise Refused(number)
    return value


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _row(number: int, table: str, row: Row) -> Row:
    if table == CONTENTS:
        if {name: type(item) for name, item in row.items()} != {"content_id": str, "offset": int, "data": str}:
            raise Refused(number)
        return row
    if table not in tables():
        raise Refused(number)
    columns = tables()[table].columns
    left_out = {"owner_id", "organisation_id"} if table == "sessions" else {"id"} if table in NUMBERED else set()
    left_out |= {"session_id"} if table in OF_THEIR_PARENTS else set()
    for name, item in row.items():
        if name not in columns or name in left_out or not _is_of_kind(columns[name], item):
            raise Refused(number)
    return {name: row.get(name, column.empty) for name, column in columns.items()}


def _is_of_kind(column: Column, value: Any) -> bool:
    if value is None or column.kind == "json":
        return True
    if type(value) not in TYPES[column.kind]:
        return False
    if column.kind != "time":
        return True
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return False
    return time.tzinfo is not None and time.isoformat() == value


def _session(number: int, header: dict[str, Any], lines: list[Line]) -> Session:
    rows: dict[str, list[Row]] = defaultdict(list)
    for place, table, row in lines:
        rows[table].append(_row(place, table, row))
    contents = _contents(number, rows.pop(CONTENTS, []))
    session = Session(header["session"], rows, contents)
    if [row["id"] for row in session.rows("sessions")] != [session.id]:
        _refuse(number)
    if (session.row["event_seq"], session.row["head_hash"]) != (header["event_seq"], header["head_hash"]):
        _refuse(number)
    wanted = {row["content_id"] for row in session.rows("file_references")}
    if not contents.keys() <= wanted:
        _refuse(number)
    return session


def _contents(number: int, pieces: list[Row]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    last = ""
    for piece in pieces:
        id = piece["content_id"]
        if piece["offset"] != len(contents.get(id, b"")) or (id in contents and id != last):
            _refuse(number)
        try:
            data = b64decode(piece["data"], validate=True)
        except ValueError:
            _refuse(number)
        contents[id] = contents.get(id, b"") + data
        last = id
    if any(hashlib.sha256(data).hexdigest() != id for id, data in contents.items()):
        _refuse(number)
    return contents


def _refuse(number: int) -> NoReturn:
    raise Refused(number)
