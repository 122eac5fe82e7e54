"""Text of others: how it is stored, quoted, shown and read as JSON.

PostgreSQL refuses NUL, and a lone surrogate cannot be written as UTF-8 at all. Both are escaped with U+241B (SYMBOL FOR
ESCAPE), which escapes itself, so that ``decode_text(encode_text(t)) == t`` for every Python string.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any, NoReturn

import orjson

from mnesis_core.errors import InvalidRequest, Phrase, Values, gettext_noop, reason_of

ESCAPE = "␛"
NAME_CHARACTERS, STORED_NAME_CHARACTERS = 100, 400  # of a project, an assistant and the like
LONGEST_CHARACTER = 4  # bytes of one character in UTF-8
_UNSAFE = re.compile(f"[\x00\ud800-\udfff{ESCAPE}]")
_UNSAFE_JSON = re.compile(rb"\\u0000|" + ESCAPE.encode())
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(f"{ESCAPE}([0-9A-F]{{4}})")
_JSON_ESCAPE = re.compile(r"\\(?:(?P<space>[nrt])|.)", re.DOTALL)
# What Python says of a text that is no JSON: listed here for makemessages, since pages translate it.
_JSON_FAULTS = (
    gettext_noop("Expecting value"),
    gettext_noop("Expecting property name enclosed in double quotes"),
    gettext_noop("Expecting ':' delimiter"),
    gettext_noop("Expecting ',' delimiter"),
    gettext_noop("Illegal trailing comma before end of object"),
    gettext_noop("Illegal trailing comma before end of array"),
    gettext_noop("Unterminated string starting"),
    gettext_noop("Invalid control character"),
    gettext_noop("Invalid \\escape"),
    gettext_noop("Invalid \\uXXXX escape"),
    gettext_noop("Extra data"),
)
_OWN_TAGS = re.compile(r"<(?=/?(?:summary|summaries|conversation|inbox_message)\b)", re.IGNORECASE)
_FILE_TAGS = re.compile(r"<(?=\s*/?\s*file_text\b)", re.IGNORECASE)


def encode_text(text: str) -> str:
    """Escape NUL, lone surrogates and the escape character itself."""
    if text.isascii() and "\0" not in text:  # This is quick, while the search below reads every character.
        return text
    return _UNSAFE.sub(lambda match: f"{ESCAPE}{ord(match[0]):04X}", text)


def decode_text(text: str) -> str:
    if ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


def printable(text: str) -> str:
    """Return text that UTF-8 can write, with U+FFFD for lone surrogates: for endpoints, never for the record."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable_json(value: Any) -> Any:
    return _map_strings(value, printable)


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _map_strings(item, change) for key, item in value.items()}
    return [_map_strings(item, change) for item in value] if isinstance(value, list | tuple) else value


def printable_piece(text: str) -> str:
    """Return text that can be written as UTF-8 and has as many characters as before.

    ``printable`` makes one character of two neighbouring halves of a pair.
    """
    return _SURROGATE.sub("\ufffd", text)


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def encode_json(value: Any) -> Any:
    """Apply ``encode_text`` to every string inside a JSON value, keys included."""
    # Escapes show in the written value, and looking for them is quicker than walking through it all.
    try:
        return _map_strings(value, encode_text) if _UNSAFE_JSON.search(orjson.dumps(value)) else value
    except orjson.JSONEncodeError:  # A lone surrogate, an integer beyond 64 bits, or a key that is no string.
        return _map_strings(value, lambda text: encode_text(str(text)))


def decode_json(value: Any) -> Any:
    return _map_strings(value, decode_text)


def bytes_of_text(text: str) -> bytes:
    """Return a text as UTF-8 that ``text_of_bytes`` reads back, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def text_of_bytes(data: bytes) -> str:
    """Read bytes as UTF-8, with U+FFFD for what is not UTF-8."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def character_start(data: bytes, index: int) -> int:
    """Return where the UTF-8 character of ``data[index]`` begins, or ``index`` where the bytes are not UTF-8."""
    for start in range(index, max(-1, index - LONGEST_CHARACTER), -1):
        if start >= len(data) or data[start] & 0xC0 != 0x80:
            return min(start, len(data))
    return index


def write_time(time: datetime) -> str:
    """Return a time in ISO 8601 in UTC with milliseconds, such as ``2026-11-23T19:24:40.000Z``."""
    return f"{time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def read_time(text: str, field: str) -> datetime | None:
    """Return a date or a time as people write it, in UTC; ``None`` of an empty text.

    :raises InvalidRequest: it is neither.
    """
    if not text.strip():
        return None
    try:
        if len(text.strip()) == len("2026-11-26"):
            return datetime.combine(date.fromisoformat(text.strip()), time(), UTC)
        at = datetime.fromisoformat(text.strip().replace(" ", "+") if "T" in text else text.strip())
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            gettext_noop("%(field)s must be a date or a time, such as 2026-11-26 or 2026-11-26T10:30Z"),
            {"field": field},
            field=field,
        ) from None


def quote(text: str) -> str:
    """Return text as data, which can neither open nor close one of our tags around quoted text."""
    return _OWN_TAGS.sub("&lt;", text)


def quote_file(text: str) -> str:
    """Return the text of a file as data, which can neither open nor close the tags around a file's text."""
    return _FILE_TAGS.sub("&lt;", text)


# Text as an inspector shows it, with a visible mark for what a reader could not see or would be misled by:
# control characters (but not a return before a line break), lone surrogates, bidirectional controls ("Trojan Source",
# CVE-2021-42574), zero-width and tag characters. Line breaks and tabs stay. The text must be decoded.

_HIDDEN = re.compile(
    "(?P<hidden>"
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)"
    "|[\ud800-\udfff]"
    "|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
    "|[\u00ad\u180e\u200b\u2060-\u2064\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
    # Joiners are part of many scripts and of emoji; after ASCII or another invisible character they hide something.
    "|(?<![^\x00-\x7f\u200b-\u200f])[\u200c\u200d]"
    ")(?P=hidden)*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A stretch of text as it is, or a mark for one hidden character that may be repeated."""

    text: str
    is_mark: bool = False
    code: str = ""
    count: int = 1


def visible_runs(text: str) -> list[Run]:
    runs, end = [], 0
    for found in _HIDDEN.finditer(text):
        if found.start() > end:
            runs.append(Run(text=text[end : found.start()]))
        number, count = ord(found["hidden"]), len(found[0])
        code = f"U+{number:04X}"
        # U+2400 and what follows are pictures of the control characters, in the same order.
        name = chr(0x2400 + number) if number < 0x20 else code
        runs.append(Run(text=name if count == 1 else f"{name} x{count}", is_mark=True, code=code, count=count))
        end = found.end()
    if end < len(text):
        runs.append(Run(text=text[end:]))
    return runs


def visible_text(text: str) -> str:
    line = "".join(f"[{run.text}]" if run.is_mark else run.text for run in visible_runs(text))
    return re.sub(r"[\t\n ]+", " ", line).strip()


def without_hidden(text: str) -> str:
    return _HIDDEN.sub("", text)


def excerpt(text: str, length: int) -> str:
    """Return the beginning of a text on one visible line of at most ``length`` characters."""
    # Cut first, so that a text of 20 MB is not made visible for the sake of a table cell.
    line = visible_text(text[: length * 4])
    return line if len(line) <= length and len(text) <= length * 4 else line[: length - 1].rstrip() + "…"


def read_json(text: str | bytes) -> Any:
    """Return the value that a text holds as JSON (RFC 8259).

    Python would also read NaN and Infinity, and 1e999 as infinity, which no database keeps.

    :raises InvalidRequest: the text is not JSON, not UTF-8 or nested too deeply; the message says where.
    """
    try:
        return json.loads(text, parse_constant=refuse_constant, parse_float=_finite)
    except RecursionError:
        raise InvalidRequest(gettext_noop("The body is nested too deeply.")) from None
    except UnicodeDecodeError:
        raise InvalidRequest(gettext_noop("The body is not UTF-8.")) from None
    except json.JSONDecodeError as error:
        place: Values = {"line": str(error.lineno), "column": str(error.colno)}
        where = Phrase(gettext_noop("at line %(line)s, column %(column)s"), place)
        fault = Phrase(error.msg.removesuffix(" at"))  # some of Python's words end with it
        raise InvalidRequest(
            gettext_noop("The body is not JSON: %(msg)s %(where)s."), {"msg": fault, "where": where}
        ) from None
    except ValueError as error:
        raise InvalidRequest(
            gettext_noop("The body cannot be read: %(reason)s."), {"reason": reason_of(error)}
        ) from None


def spaced_json(text: str) -> str:
    """Return JSON of the same length with spaces for escaped line breaks and tabs, which would join words to ``n`` or ``t``."""
    return _JSON_ESCAPE.sub(lambda found: "  " if found["space"] else found[0], text) if "\\" in text else text


def exact_value(text: str, *, deepest: int) -> Any:
    """Return the value of JSON that was kept word for word, if it can be written again without a change.

    :raises ValueError: it is no JSON (RFC 8259), is nested deeper, or holds a lone surrogate or a number without end.
    """
    try:
        value = json.loads(text, parse_constant=refuse_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # an escaped lone surrogate shows only now
    except RecursionError:
        raise ValueError(Phrase(gettext_noop("it is nested too deeply"))) from None
    if not nests_within(value, deepest):
        raise ValueError(Phrase(gettext_noop("it is nested more than %(most)s levels deep"), {"most": deepest}))
    return value


def refuse_constant(name: str) -> NoReturn:
    raise ValueError(Phrase(gettext_noop("%(name)s is not JSON"), {"name": name}))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(Phrase(gettext_noop("a number is too large")))
    return number


def nests_within(value: Any, deepest: int) -> bool:
    """Return whether at most ``deepest`` objects and lists stand inside each other: readers of a value recurse."""
    if not isinstance(value, dict | list):
        return True
    held = value.values() if isinstance(value, dict) else value
    return deepest > 0 and all(nests_within(item, deepest - 1) for item in held)


def checked_name(name: str, *, missing: str, field: str = "name") -> str:
    """Return the name, or title, of something, on one line.

    :param missing: what is said where there is none
    :raises InvalidRequest: it is empty or too long.
    """
    name = " ".join(name.split())
    if not name:
        raise InvalidRequest(missing, field=field)
    # Once NUL and the like are escaped a name is longer.
    if len(name) > NAME_CHARACTERS or len(encode_text(name)) > STORED_NAME_CHARACTERS:
        told = gettext_noop("A name may have %(most)s characters.")
        if field == "title":
            told = gettext_noop("A title may have %(most)s characters.")
        raise InvalidRequest(told, {"most": NAME_CHARACTERS}, field=field)
    return name
