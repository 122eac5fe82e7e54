"""Text, JSON, single fields and media from untrusted files."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO, StringIO
from typing import Any
from urllib.parse import unquote_to_bytes

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.messages import AudioPart, DocumentPart, ImagePart
from mnesis_core.text import ESCAPE, encode_text, printable
from mnesis_core.transcripts.values import InlineFile, Progress, Source

MAX_DEPTH = 200  # Real records have about ten levels; Python's JSON gives up near a thousand.
TOO_DEEP = fill(gettext_noop("it is nested more than %(most)s levels deep"), {"most": MAX_DEPTH})
MAX_ID_LENGTH = 200  # The length of the store's columns.
MAX_TOKENS = 2**31 - 1
_PROGRESS_STEP = 65_536
_LATEST_TIME = 253_402_300_799  # 9999-12-31T23:59:59Z, the last second of ``datetime``.
_SPACE = re.compile(r"\s*")
_BRACKET_OR_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_DECODER = json.JSONDecoder()


class UnreadableRecord(ValueError):
    """A record is not JSON that can be stored. Not raised outside of this package."""


class ByteCount:
    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._read = 0
        self._told = 0

    def add(self, line: str | bytes) -> None:
        if self._progress is None:
            return
        self._read += len(line) if isinstance(line, bytes) else len(line.encode("utf-8", "surrogatepass"))
        if self._read - self._told >= _PROGRESS_STEP:
            self.tell()

    def tell(self) -> None:
        if self._progress is not None and self._read > self._told:
            self._told = self._read
            self._progress(self._read)


def read_lines(source: Source, count: ByteCount) -> Iterator[str]:
    """Yield a source's lines without their ends. Bytes that are not UTF-8 become lone surrogates, so that none is lost.

    :raises UnreadableRecord: the source breaks off, such as a cut gzip file
    """
    for number, line in enumerate(_raw_lines(source)):
        count.add(line)
        text = line.decode("utf-8", "surrogateescape") if isinstance(line, bytes) else line
        yield text.removeprefix("\ufeff").rstrip("\r\n") if number == 0 else text.rstrip("\r\n")
    count.tell()


def _raw_lines(source: Source) -> Iterator[str | bytes]:
    # Only line feeds divide lines: str.splitlines would also cut at U+2028, which JSON strings may hold as it is.
    if isinstance(source, bytes):
        source = BytesIO(source)
    elif isinstance(source, str):
        source = StringIO(source, newline="\n")
    try:
        yield from source
    except (EOFError, OSError, zlib.error, UnicodeError) as error:
        raise UnreadableRecord(fill(gettext_noop("the file breaks off: %(reason)s"), {"reason": str(error)})) from error


def load_json(text: str) -> Any:
    """:raises UnreadableRecord: it is not JSON, too deep, or holds a number too long for Python"""
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
    is_no_json = isinstance(error, json.JSONDecodeError)
    return gettext_noop("it is not JSON") if is_no_json else gettext_noop("it holds a number that is too long")


def refuse_depth(value: Any) -> None:
    """:raises UnreadableRecord: it is nested more than ``MAX_DEPTH`` levels deep"""
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
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    value: Any
    raw: str = ""  # The text, if it is unreadable.
    reason: str = ""  # Why it is unreadable; empty if it is readable.


def read_elements(text: str) -> Iterator[Element]:
    """Yield the elements of a JSON list one by one, so that a broken one does not affect the others.

    A document that is not a list is its own only element.
    """
    position = _skip_space(text, 0)
    if text[position : position + 1] != "[":
        yield read_document(text)
        return
    position = _skip_space(text, position + 1)
    while position < len(text) and text[position] != "]":
        try:
            value, end = _DECODER.raw_decode(text, position)
            refuse_depth(value)
            yield Element(value=value)
        except (ValueError, RecursionError) as error:
            # Where the decoder gives up, brackets are counted; a value without an end is all the rest.
            end = max(_end_by_brackets(text, position), position + 1)
            yield Element(value=None, raw=text[position:end], reason=_reason(error))
        position = _skip_space(text, end)
        if text[position : position + 1] == ",":
            position = _skip_space(text, position + 1)
    rest = text[position + 1 :]
    if rest.strip():
        yield Element(value=None, raw=rest, reason=gettext_noop("it comes after the end of the list"))


def read_document(text: str) -> Element:
    try:
        return Element(value=load_json(text))
    except UnreadableRecord as error:
        return Element(value=None, raw=text, reason=str(error))


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


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
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, dict) else {}


def list_in(record: Any, key: str) -> list[Any]:
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, list) else []


def text_in(record: Any, key: str) -> str:
    """Return the text under a key; a number as text, an empty text for anything else."""
    value = record.get(key) if isinstance(record, dict) else None
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def count_in(record: Any, key: str) -> int:
    """Return a number of tokens or messages, also one written as text; 0 if it is out of range."""
    try:
        count = int(text_in(record, key) or 0)
    except ValueError:
        return 0
    return count if 0 <= count <= MAX_TOKENS else 0


def time_of(value: Any) -> datetime | None:
    """Return a time in UTC from ISO 8601 or Unix (milli)seconds, as number or text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    except ValueError:
        try:
            time = datetime.fromisoformat(str(value).strip())
            return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            return None
    in_seconds = seconds / 1000 if abs(seconds) > _LATEST_TIME else seconds
    return datetime.fromtimestamp(in_seconds, UTC) if 0 <= in_seconds <= _LATEST_TIME else None


def identifier(text: str) -> str:
    """Return a name that fits the store: a longer one is cut and gets a digest, so that it stays unique."""
    if len(text) <= MAX_ID_LENGTH and encode_text(text) == text:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{one_line(text, MAX_ID_LENGTH - 33)}~{digest}"


def one_line(text: str, limit: int) -> str:
    """Return text as a heading or name: one line of at most ``limit`` characters, none of which needs escaping."""
    # Cut twice: first so that 20 MB are not rewritten for 80 characters, then because of the ellipsis.
    words = " ".join(printable(text[: limit * 4]).replace("\0", "").replace(ESCAPE, "").split())
    return words if len(words) <= limit else words[: limit - 1] + "…"


MediaKind = type[ImagePart | AudioPart | DocumentPart]
_DATA_URL = re.compile(r"data:(?P<type>[^;,]{0,200})(?P<how>(?:;[^;,]{0,200})*),", re.IGNORECASE)
_INLINE = "sha256:"  # begins the source of a part whose bytes come with it, until they are a file of the session


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    part: ImagePart | AudioPart | DocumentPart
    file: InlineFile | None = None


def read_media(
    kind: MediaKind, *, encoded: str = "", address: str = "", data: bytes = b"", media_type: str = "", **known: Any
) -> Media | None:
    """Return what a block shows; ``None`` if it names neither bytes nor a place, or its bytes cannot be read.

    :param encoded: its bytes in Base64
    :param address: where it is, or a ``data:`` address that holds its bytes
    :param known: other values of the part
    """
    inside = _DATA_URL.match(address)
    if inside:
        held, address, media_type = address[inside.end() :], "", inside["type"] or media_type
        is_base64 = inside["how"].lower().endswith(";base64")
        encoded, data = (held, b"") if is_base64 else ("", unquote_to_bytes(held))
    if encoded:
        try:
            data = base64.b64decode("".join(encoded.split()), validate=True)
        except (binascii.Error, ValueError):
            return None
    if not data:
        return Media(part=kind(source=address, media_type=media_type, **known)) if address else None
    source = f"{_INLINE}{hashlib.sha256(data).hexdigest()}"
    part = kind(source=source, media_type=media_type, **known | {"size": len(data)})
    return Media(part=part, file=InlineFile(source=source, data=data, media_type=media_type, name=part.name))


def kind_of_media(media_type: str) -> MediaKind:
    return {"image": ImagePart, "audio": AudioPart}.get(media_type.partition("/")[0], DocumentPart)


def read_block(block: Any, **known: Any) -> Media | None:
    """Return what a content block of Anthropic's Messages shows; ``None`` for blocks of other kinds."""
    kinds: dict[str, MediaKind] = {"image": ImagePart, "document": DocumentPart}
    kind, source = kinds.get(text_in(block, "type")), mapping_in(block, "source")
    if kind is None:
        return None
    known |= {"name": one_line(text_in(block, "title"), 200), "media_type": text_in(source, "media_type")}
    match text_in(source, "type"):
        case "base64":
            return read_media(kind, encoded=text_in(source, "data"), **known)
        case "text":
            return read_media(kind, data=text_in(source, "data").encode("utf-8", "surrogatepass"), **known)
        case "url":
            return read_media(kind, address=text_in(source, "url"), **known)
        case "file":
            return read_media(kind, address=text_in(source, "file_id"), **known)
        case _:
            return None


def rest_of_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block that ``read_block`` has read, without the bytes."""
    source = {name: value for name, value in block["source"].items() if name != "data"}
    return {**block, "source": source}


def without_bytes(value: Any, known: dict[str, str]) -> Any:
    """Return a JSON value in which the source of a file stands in the place of its bytes: ``known`` has it by their Base64."""
    if isinstance(value, str):
        return known.get(value, value)
    if isinstance(value, dict):
        return {key: without_bytes(item, known) for key, item in value.items()}
    return [without_bytes(item, known) for item in value] if isinstance(value, list) else value
