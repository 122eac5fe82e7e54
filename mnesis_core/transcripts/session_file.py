r"""Sessions as JSON Lines: a header, a line for each row, and a last line that proves that nothing is missing.

    {"format": "mnesis-session", "version": 2, "session": "sess_…", "event_seq": 9, "head_hash": "…", "rows": {"turns": 1}}
    {"table": "turns", "row": {"id": "turn_…", …}}
    {"end": "sess_…", "lines": 2, "sha256": "…"}

Tables come in the order that the header names them in; contents of files come last, as rows of a table ``file_contents``
that no database has. A file may hold several sessions, one after the other, so files can be joined. The SHA-256 is over
the exact bytes of the lines before it, line feeds included.

The version is that of the record's form (``mnesis_core.events``). Of version 1 were the files that were written while no
entry named its form.

A line is written in one way: UTF-8, no spaces, keys in the order of the columns. Text stands as it is stored, which is
after ``encode_text``: JSON's own ``\uD83D\uDE00`` could not say whether it is one character or two lone surrogates, and
the ledger's commitments are over the stored text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn, TypeGuard

from mnesis_core.errors import InvalidRequest, Phrase, gettext_noop
from mnesis_core.events import FORMAT_VERSION

FORMAT = "mnesis-session"
MAX_LINE_BYTES = 268_435_456  # A part of 20 MB takes 120 MB in the worst case, when every character is escaped.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    session_id: str
    event_seq: int
    head_hash: str
    rows: Mapping[str, int]  # The number of rows of each table, in the order in which they follow.
    version: int = FORMAT_VERSION

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": self.version,
            "session": self.session_id,
            "event_seq": self.event_seq,
            "head_hash": self.head_hash,
            "rows": dict(self.rows),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLine:
    line: int  # The line's number in the file, from 1.
    table: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    session_id: str
    lines: int
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        return {"end": self.session_id, "lines": self.lines, "sha256": self.sha256}


def session_lines(header: Header, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[bytes]:
    """Yield a session's lines; ``rows`` are (table, values) in the header's order."""
    digest = hashlib.sha256()
    count = 0
    for value in chain([header.as_dict()], ({"table": table, "row": row} for table, row in rows)):
        line = written(value)
        digest.update(line)
        count += 1
        yield line
    yield written(End(session_id=header.session_id, lines=count, sha256=digest.hexdigest()).as_dict())


def written(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def read_sessions(lines: Iterable[bytes]) -> Iterator[Header | RowLine | End]:
    """Yield every line of a file after checking its form, order, counts and, at each end, the SHA-256.

    :raises InvalidRequest: a line, which the error names, is not as ``session_lines`` writes it
    """
    header: Header | None = None
    digest, count = hashlib.sha256(), 0
    waiting: list[list[Any]] = []  # Tables and the number of their rows still to come.
    number = 0
    for number, line in enumerate(lines, 1):
        value = _parse(number, line)
        if header is None:
            header = _header(number, value)
            digest, count = hashlib.sha256(line), 1
            waiting = [[table, rows] for table, rows in header.rows.items() if rows]
            yield header
        elif "end" in value:
            if waiting:
                _refuse(
                    number,
                    Phrase(
                        gettext_noop("%(count)s rows of %(table)s are missing"),
                        {"count": str(waiting[0][1]), "table": waiting[0][0]},
                    ),
                )
            end = End(session_id=header.session_id, lines=count, sha256=digest.hexdigest())
            if value != end.as_dict():
                _refuse(
                    number,
                    Phrase(
                        gettext_noop("the lines before are not the ones that were exported: their SHA-256 is another")
                    ),
                )
            header = None
            yield end
        else:
            yield _row(number, value, waiting)
            digest.update(line)
            count += 1
    if header is not None:
        _refuse(number + 1, Phrase(gettext_noop("the file is cut off here")))
    if number == 0:
        _refuse(1, Phrase(gettext_noop("the file is empty")))


def _parse(number: int, line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        _refuse(number, Phrase(gettext_noop("it is longer than %(most)s bytes"), {"most": MAX_LINE_BYTES}))
    try:
        value: Any = json.loads(line)
        same = isinstance(value, dict) and written(value) == line.removesuffix(b"\n") + b"\n"
    except (ValueError, RecursionError):
        _refuse(number, Phrase(gettext_noop("it is not JSON, or was cut off")))
    if not same or _NUL.search(line):
        _refuse(number, Phrase(gettext_noop("it is not written as an export writes it")))
    return dict(value)


def _header(number: int, value: dict[str, Any]) -> Header:
    if value.get("format") != FORMAT:
        _refuse(
            number,
            Phrase(
                gettext_noop("a session's header must stand here. What another system wrote is for import_transcript")
            ),
        )
    version = value.get("version")
    if not _is_count(version) or not 1 <= version <= FORMAT_VERSION:
        _refuse(
            number,
            Phrase(
                gettext_noop("this is version %(version)s of the format; this site reads versions up to %(newest)s"),
                {"version": repr(version), "newest": str(FORMAT_VERSION)},
            ),
        )
    rows = value.get("rows")
    if not isinstance(rows, dict) or not all(_is_count(count) for count in rows.values()):
        _refuse(number, Phrase(gettext_noop("the header does not say how many rows there are")))
    session_id, event_seq = value.get("session"), value.get("event_seq")
    if not isinstance(session_id, str) or not _is_count(event_seq):
        _refuse(number, Phrase(gettext_noop("the header does not say which session it is")))
    head_hash = str(value.get("head_hash"))
    header = Header(session_id=session_id, event_seq=event_seq, head_hash=head_hash, rows=rows, version=version)
    if value != header.as_dict():
        _refuse(number, Phrase(gettext_noop("the header is not as an export writes it")))
    return header


def _row(number: int, value: dict[str, Any], waiting: list[list[Any]]) -> RowLine:
    table, values = value.get("table"), value.get("row")
    if list(value) != ["table", "row"] or not isinstance(values, dict) or not isinstance(table, str):
        _refuse(number, Phrase(gettext_noop("it is neither a row nor an end")))
    if not waiting or table != waiting[0][0]:
        _refuse(
            number,
            Phrase(
                gettext_noop("a row of %(table)s was to come here"), {"table": waiting[0][0] if waiting else "no table"}
            ),
        )
    waiting[0][1] -= 1
    if not waiting[0][1]:
        waiting.pop(0)
    return RowLine(line=number, table=table, values=values)


def _refuse(number: int, reason: str) -> NoReturn:
    raise InvalidRequest(
        gettext_noop("Line %(number)s: %(reason)s."), {"number": str(number), "reason": reason}, line=number
    )


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
