"""Sections 2, 6.1, 6.2 and 7: values in their canonical forms, hashes, and the tables."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FORMAT = Path(__file__).resolve().parents[4] / "docs" / "format.md"
GENESIS = "0" * 64
ESCAPE = "\u241b"
BOUND_CLASSES = ("frozen", "once", "free")
PARENTS = ("operator_runs", "summary_nodes")
_UNSAFE = re.compile(f"[\0\ud800-\udfff{ESCAPE}]")
_ESCAPED = re.compile(f"{ESCAPE}([0-9A-F]{{4}})")
_BLOCK = re.compile(r"^```tables\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COLUMN = re.compile(r"(\w+) (text|integer|boolean|time|json)(?: ([^,]+))?(?:, |$)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}")

Row = Mapping[str, Any]


class Problem(NamedTuple):
    session: str
    entry: int
    kind: str
    subject: str


class Strange(Exception):
    """A value that no writer could have committed to."""


class Column(NamedTuple):
    name: str
    kind: str
    empty: Any  # None if only NULL is


@dataclass(frozen=True)
class Table:
    name: str
    is_bound: bool
    parent: str  # the column that names the row with the session, if that is not ``session_id``
    classes: Mapping[str, Mapping[str, Column]]

    @property
    def columns(self) -> dict[str, Column]:
        return {name: column for columns in self.classes.values() for name, column in columns.items()}

    @property
    def claimed(self) -> dict[str, Column]:
        return {name: column for cls in BOUND_CLASSES for name, column in self.classes.get(cls, {}).items()}


@dataclass
class Session:
    """The rows of one session, by table, in their plain forms: as an export has them."""

    id: str
    tables: dict[str, list[Row]]
    contents: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def row(self) -> Row:
        return self.tables["sessions"][0]

    def rows(self, table: str) -> list[Row]:
        return self.tables.get(table, [])


class Unreadable:
    """What stands in the place of a JSON text that is none."""


@cache
def tables() -> dict[str, Table]:
    [block] = _BLOCK.findall(FORMAT.read_text(encoding="utf-8"))
    found = {}
    for paragraph in block.strip().split("\n\n"):
        head, *lines = paragraph.splitlines()
        name, _, mark = head.partition(" ")
        classes = {}
        for line in lines:
            cls, _, columns = line.strip().partition(": ")
            classes[cls] = {
                column: Column(column, kind, json.loads(empty) if empty else None)
                for column, kind, empty in _COLUMN.findall(columns)
            }
        found[name] = Table(name, mark == "bound", mark.strip("()") if mark.startswith("(") else "", classes)
    return found


def sessions_of_database(
    rows: Mapping[str, Sequence[Row]], contents: Mapping[str, bytes] | None = None
) -> dict[str, Session]:
    """Take the rows of all sessions as a database has them: booleans may be 0 and 1, JSON is its text, and times are texts."""
    of_rows = {row["id"]: row["session_id"] for name in PARENTS for row in rows.get(name, ())}
    found = {row["id"]: Session(row["id"], defaultdict(list), contents or {}) for row in rows["sessions"]}
    for name, table in tables().items():
        columns = table.columns
        for row in rows.get(name, ()):
            plain = {column: _from_database(columns[column].kind, value) for column, value in row.items()}
            id = (
                row["id"]
                if name == "sessions"
                else of_rows.get(row[table.parent])
                if table.parent
                else row["session_id"]
            )
            if id in found:
                found[id].tables[name].append(plain)
    return found


def _from_database(kind: str, value: Any) -> Any:
    if kind == "boolean" and type(value) is int and value in (0, 1):
        return bool(value)
    if kind == "time" and isinstance(value, str) and len(value) == 19:
        return f"{value}.000000"
    if kind == "json" and value is not None:
        try:
            return json.loads(value)
        except (ValueError, TypeError, RecursionError):
            return Unreadable()
    return value


# Section 2.


def encode_text(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"{ESCAPE}{ord(found[0]):04X}", text)


def decode_text(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def time_text(value: Any) -> str:
    if not isinstance(value, str):
        raise Strange
    if _TIME.fullmatch(value):
        return value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise Strange from None
    if time.tzinfo is None or "T" not in value:
        raise Strange
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def compact(value: Any) -> str:
    """Compact JSON whose members keep their order; what has no other form is written as Python does it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def json_text(value: Any) -> str:
    try:
        return compact(_sorted(value))
    except (ValueError, TypeError, RecursionError):
        raise Strange from None


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))
    if value is None or isinstance(value, str | int | float):
        return value
    raise Strange


# Section 6.


def is_empty(column: Column, value: Any) -> bool:
    return value is None or (column.empty is not None and type(value) is type(column.empty) and value == column.empty)


def committed(column: Column, value: Any) -> str | int:
    """Return a value as it stands in what is hashed."""
    match column.kind:
        case "time":
            return time_text(value)
        case "json":
            return json_text(value)
        case "boolean" if isinstance(value, bool):
            return int(value)
        case "integer" if isinstance(value, int) and not isinstance(value, bool):
            return value
        case "text" if isinstance(value, str):
            return value
    raise Strange


def columns_text(columns: Sequence[Column], row: Row) -> str:
    return compact(
        {
            column.name: committed(column, row.get(column.name))
            for column in columns
            if not is_empty(column, row.get(column.name))
        }
    )


def row_key(salt: str, table: str, id: str) -> bytes:
    return hashlib.sha256(f"mnesis/row/1/{salt}/{table}/{id}".encode()).digest()


def commitment(key: bytes, columns: str) -> str:
    return hashlib.sha256(key + columns.encode()).hexdigest()


# Section 4.


def body_hash(type: str, body: str) -> bytes:
    return hashlib.sha256(b"mnesis/body/1\0" + type.encode() + b"\0" + body.encode()).digest()


def entry_hash(prev_hash: str, seq: int, type: str, body: str) -> str:
    before = b"mnesis/entry/1\0" + bytes.fromhex(prev_hash) + seq.to_bytes(8, "big")
    return hashlib.sha256(before + body_hash(type, body)).hexdigest()
