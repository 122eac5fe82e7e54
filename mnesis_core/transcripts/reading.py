"""Text, JSON and single fields out of files that nobody promised anything about."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mnesis_core.text import ESCAPE, encode_text, printable
from mnesis_core.transcripts.values import Progress, Source

MAX_DEPTH = 200
"""Levels of nesting. Real records have about ten; Python's JSON gives up near a thousand."""
TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
MAX_ID_LENGTH = 200
"""Characters of an identifier, as the store's columns hold them."""
MAX_TOKENS = 2**31 - 1
_PROGRESS_STEP = 65_536
_LATEST_TIME = 253_402_300_799
"""9999-12-31T23:59:59Z, the last second that ``datetime`` knows."""
_SPACE = re.compile(r"\s*")
_BRACKET_OR_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_DECODER = json.JSONDecoder()


class UnreadableRecord(ValueError):
    """A record is no JSON that can be kept as such. It never leaves this package."""


class ByteCount:
    """How much has been read, told to whoever asked."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._read = 0
        self._told = 0

    def add(self, line: str | bytes) -> None:
        """Count one line, and tell once there is enough to tell."""
        if self._progress is None:
            return
        self._read += len(line) if isinstance(line, bytes) else len(line.encode("utf-8", "surrogatepass"))
        if self._read - self._told >= _PROGRESS_STEP:
            self.tell()

    def tell(self) -> None:
        """Say what has been read so far, unless that was said already."""
        if self._progress is not None and self._read > self._told:
            self._told = self._read
            self._progress(self._read)


def read_lines(source: Source, count: ByteCount) -> Iterator[str]:
    """The lines of a source, without their ends. Bytes that are no UTF-8 become lone surrogates, so none is lost.

    :raises UnreadableRecord: when the source itself breaks off, such as a cut gzip file.
    """
    for number, line in enumerate(_raw_lines(source)):
        count.add(line)
        text = line.decode("utf-8", "surrogateescape") if isinstance(line, bytes) else line
        yield text.removeprefix("\ufeff").rstrip("\r\n") if number == 0 else text.rstrip("\r\n")
    count.tell()


def _raw_lines(source: Source) -> Iterator[str | bytes]:
    # Only line feeds divide lines: str.splitlines would also cut at U+2028, which JSON strings may hold as it is.
    if isinstance(source, bytes):
        yield from (source[start:end] for start, end in _spans(source, b"\n"))
        return
    if isinstance(source, str):
        yield from (source[start:end] for start, end in _spans(source, "\n"))
        return
    try:
        yield from source
    except (EOFError, OSError, zlib.error, UnicodeError) as error:
        raise UnreadableRecord(f"the file breaks off: {error}") from error


def _spans(text: Any, line_feed: Any) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = text.find(line_feed, start) + 1 or len(text)
        yield start, end
        start = end


def load_json(text: str) -> Any:
    """A JSON value of at most ``MAX_DEPTH`` levels.

    :raises UnreadableRecord: when it is no JSON, too deep, or holds a number too long for Python.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableRecord(_reason(error)) from None
    refuse_depth(value)
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, UnreadableRecord):
        return str(error)
    if isinstance(error, RecursionError):
        return TOO_DEEP
    # Python refuses to convert a number of more than 4,300 digits; that is a ValueError of another kind.
    return "it is not JSON" if isinstance(error, json.JSONDecodeError) else "it holds a number that is too long"


def refuse_depth(value: Any) -> None:
    """Nothing, when a value can safely be written and walked again.

    :raises UnreadableRecord: when it is nested more than ``MAX_DEPTH`` levels deep.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise UnreadableRecord(TOO_DEEP)


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return [item for item in value.values() if isinstance(item, dict | list)]
    return [item for item in value if isinstance(item, dict | list)] if isinstance(value, list) else ()


def dump_json(value: Any) -> str:
    """A value as compact JSON; characters stay as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element of a JSON list, or a whole document that is no list."""

    value: Any
    raw: str = ""
    """Its text, only where it is unreadable."""
    reason: str = ""
    """Why it is unreadable; empty when it is not."""


def read_elements(text: str) -> Iterator[Element]:
    """The elements of a JSON list one by one, so that a bad one does not take the others along.

    A document that is no list is its own only element.
    """
    position = _skip_space(text, 0)
    if text[position : position + 1] != "[":
        yield read_document(text)
        return
    position = _skip_space(text, position + 1)
    while position < len(text) and text[position] != "]":
        element, position = _element_at(text, position)
        yield element
        position = _skip_space(text, position)
        if text[position : position + 1] == ",":
            position = _skip_space(text, position + 1)
    rest = text[position + 1 :]
    if rest.strip():
        yield Element(value=None, raw=rest, reason="it comes after the end of the list")


def read_document(text: str) -> Element:
    """A whole text as one JSON value."""
    try:
        return Element(value=load_json(text))
    except UnreadableRecord as error:
        return Element(value=None, raw=text, reason=str(error))


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _element_at(text: str, start: int) -> tuple[Element, int]:
    try:
        value, end = _DECODER.raw_decode(text, start)
        refuse_depth(value)
        return Element(value=value), end
    except (ValueError, RecursionError) as error:
        # Where the decoder gives up, brackets are counted; a value without an end is all the rest.
        end = max(_end_by_brackets(text, start), start + 1)
        return Element(value=None, raw=text[start:end], reason=_reason(error)), end


def _end_by_brackets(text: str, start: int) -> int:
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text, start):
        if match[0] in "[{":
            depth += 1
        elif match[0] in "]}":
            depth -= 1
        if depth < 0:
            return match.start()
        if depth == 0 and match[0] in "]}":
            return match.end()
    return len(text)


def mapping_in(record: Any, key: str) -> dict[str, Any]:
    """The object under a key; an empty one when there is none."""
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, dict) else {}


def list_in(record: Any, key: str) -> list[Any]:
    """The list under a key; an empty one when there is none."""
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, list) else []


def text_in(record: Any, key: str) -> str:
    """The text under a key; a number is written out, anything else is no text."""
    value = record.get(key) if isinstance(record, dict) else None
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def count_in(record: Any, key: str) -> int:
    """A number of tokens or messages under a key, also when it is written as text; 0 when it makes no sense."""
    try:
        count = int(text_in(record, key) or 0)
    except ValueError:
        return 0
    return count if 0 <= count <= MAX_TOKENS else 0


def time_of(value: Any) -> datetime | None:
    """A time in UTC out of ISO 8601 or Unix (milli)seconds, as number or text; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return _time_of_seconds(float(value))
    except (ValueError, OverflowError):
        return _time_of_text(value) if isinstance(value, str) else None


def _time_of_seconds(seconds: float) -> datetime:
    in_seconds = seconds / 1000 if abs(seconds) > _LATEST_TIME else seconds
    if not 0 <= in_seconds <= _LATEST_TIME:
        raise ValueError(seconds)
    return datetime.fromtimestamp(in_seconds, UTC)


def _time_of_text(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text.strip())
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def identifier(text: str) -> str:
    """A name that fits the store: a longer one keeps its beginning and gets a digest, so that it stays unique."""
    if len(text) <= MAX_ID_LENGTH and encode_text(text) == text:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{one_line(text, MAX_ID_LENGTH - 33)}~{digest}"


def one_line(text: str, limit: int) -> str:
    """Text for a heading or a name: one line, at most ``limit`` characters, none that needs escaping."""
    # Cut twice: first so that 20 MB are not rewritten for 80 characters, then because of the ellipsis.
    words = " ".join(printable(text[: limit * 4]).replace("\0", "").replace(ESCAPE, "").split())
    return words if len(words) <= limit else words[: limit - 1] + "…"
