r"""Sessions as JSON Lines: a header, a line for each row, and a last line that proves that nothing is missing.

    {"format": "mnesis-session", "version": 1, "session": "sess_…", "event_seq": 9, "head_hash": "…", "rows": {"turns": 1}}
    {"table": "turns", "row": {"id": "turn_…", …}}
    {"end": "sess_…", "lines": 2, "sha256": "…"}

Tables come in the order that the header names them in; contents of files come last, as rows of a table ``file_contents``
that no database has. A file may hold several sessions, one after the other, so files can be joined. The SHA-256 is over the exact bytes of the lines before it, line feeds included.

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

from mnesis_core.errors import InvalidRequest

FORMAT, VERSION = "mnesis-session", 1
# A part of 20 MB takes 120 MB in the worst case, when every character is escaped.
MAX_LINE_BYTES = 268_435_456
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    session_id: str
    event_seq: int
    head_hash: str
    # The number of rows of each table, in the order in which they follow.
    rows: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "session": self.session_id,
            "event_seq": self.event_seq,
            "head_hash": self.head_hash,
            "rows": dict(self.rows),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLine:
    # The line's number in the file, from 1.
    line: int
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
    values = chain([header.as_dict()], ({"table": table, "row": row} for table, row in rows))
    for value in values:
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
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        yield reader.take(number, line)
    reader.finish()


class _Reader:
    def __init__(self) -> None:
        self._header: Header | None = None
        self._number = 0
        self._start()

    def _start(self) -> None:
        self._header = None
        self._digest = hashlib.sha256()
        self._lines = 0
        # Tables and the number of their rows still to come.
        self._waiting: list[list[Any]] = []

    def take(self, number: int, line: bytes) -> Header | RowLine | End:
        self._number = number
        value = self._parse(line)
        if self._header is None:
            item: Header | RowLine | End = self._begin(value)
        elif "end" in value:
            if self._waiting:
                self._refuse(f"{self._waiting[0][1]} rows of {self._waiting[0][0]} are missing")
            end = End(session_id=self._header.session_id, lines=self._lines, sha256=self._digest.hexdigest())
            if value != end.as_dict():
                self._refuse("the lines before are not the ones that were exported: their SHA-256 is another")
            self._start()
            return end
        else:
            item = self._row(value)
        self._digest.update(line)
        self._lines += 1
        return item

    def finish(self) -> None:
        """Check that the file ends where a session ends.

        :raises InvalidRequest: it ends in the middle of a session, or is empty
        """
        self._number += 1
        if self._header is not None:
            self._refuse("the file is cut off here")
        if self._number == 1:
            self._refuse("the file is empty")

    def _parse(self, line: bytes) -> dict[str, Any]:
        if len(line) > MAX_LINE_BYTES:
            self._refuse(f"it is longer than {MAX_LINE_BYTES:,} bytes")
        try:
            value: Any = json.loads(line)
            same = isinstance(value, dict) and written(value) == line.removesuffix(b"\n") + b"\n"
        except (ValueError, RecursionError):
            self._refuse("it is not JSON, or was cut off")
        if not same or _NUL.search(line):
            self._refuse("it is not written as an export writes it")
        return dict(value)

    def _begin(self, value: dict[str, Any]) -> Header:
        if value.get("format") != FORMAT:
            self._refuse("a session's header must stand here. What another system wrote is for import_transcript")
        if value.get("version") != VERSION:
            self._refuse(f"this is version {value.get('version')!r} of the format; this site reads version {VERSION}")
        rows = value.get("rows")
        if not isinstance(rows, dict) or not all(_is_count(count) for count in rows.values()):
            self._refuse("the header does not say how many rows there are")
        session_id, event_seq = value.get("session"), value.get("event_seq")
        if not isinstance(session_id, str) or not _is_count(event_seq):
            self._refuse("the header does not say which session it is")
        header = Header(session_id=session_id, event_seq=event_seq, head_hash=str(value.get("head_hash")), rows=rows)
        if value != header.as_dict():
            self._refuse("the header is not as an export writes it")
        self._header, self._waiting = header, [[table, count] for table, count in rows.items() if count]
        return header

    def _row(self, value: dict[str, Any]) -> RowLine:
        table, values = value.get("table"), value.get("row")
        if list(value) != ["table", "row"] or not isinstance(values, dict) or not isinstance(table, str):
            self._refuse("it is neither a row nor an end")
        if not self._waiting or table != self._waiting[0][0]:
            self._refuse(f"a row of {self._waiting[0][0] if self._waiting else 'no table'} was to come here")
        self._waiting[0][1] -= 1
        if not self._waiting[0][1]:
            self._waiting.pop(0)
        return RowLine(line=self._number, table=table, values=values)

    def _refuse(self, reason: str) -> NoReturn:
        raise InvalidRequest(f"Line {self._number}: {reason}.", line=self._number)


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
