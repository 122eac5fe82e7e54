"""The input of an operator, one JSON value a line: walked once, whatever its size, so that each item is found again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mnesis_core.errors import InvalidInput, InvalidRequest
from mnesis_core.files.lines import Read, encoding_of
from mnesis_core.maps.values import NewItem
from mnesis_core.text import nests_within, printable, read_json

READ_BYTES = 1_048_576
DEEPEST_ITEM = 100
"""Objects and lists inside each other."""
_MARK_BYTES = 4
_BLANK = b" \t\r"


def input_lines(
    read: Read, size: int, *, after: NewItem | None = None, line_bytes: int = 4_000_000, most_items: int = 1_000_000
) -> Iterator[NewItem]:
    """The items of a file: its lines, without those that are blank.

    :param read: so many bytes (the second argument) from an offset (the first) on
    :param size: bytes of the file
    :param after: the last item that is known already, to go on behind it
    :param line_bytes: the longest line
    :raises InvalidInput: a line is no JSON, too long or too deep, or there are too many; the message says which line.
    """
    for item, line in _places(read, size, after, line_bytes):
        if item.number > most_items:
            raise InvalidInput(f"The input has more than {most_items:,} items.", most_items=most_items)
        _check(line, item.number, item.offset, line_bytes)
        yield item


def line_places(read: Read, size: int, *, line_bytes: int) -> Iterator[NewItem]:
    """Where the items of a file are, which was read before: nobody looks at what they say.

    :param line_bytes: the longest line
    :raises InvalidInput: it is not UTF-8.
    """
    return (item for item, _ in _places(read, size, None, line_bytes))


def read_item(line: bytes) -> Any:
    """The value of a line.

    :raises InvalidInput: it is no JSON, or too deep.
    """
    try:
        value = read_json(line.decode())
    except UnicodeDecodeError:
        raise InvalidInput("It is not UTF-8.") from None
    except InvalidRequest as error:
        raise InvalidInput(error.message.replace("The body", "It", 1)) from None
    if not nests_within(value, DEEPEST_ITEM):
        raise InvalidInput(f"It nests more than {DEEPEST_ITEM} objects and lists.")
    return value


def one_line(value: Any) -> str:
    """A value as a line of a JSON Lines file, without its end. UTF-8 can write it: lone surrogates stay escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if printable(text) == text else json.dumps(value, separators=(",", ":"))


def _places(read: Read, size: int, after: NewItem | None, line_bytes: int) -> Iterator[tuple[NewItem, bytes]]:
    """Each line that is not blank, with its place."""
    number = after.number if after else 0
    begin = after.offset + after.length if after else _begin(read(0, _MARK_BYTES))
    for offset, line in _lines(read, size, begin, line_bytes):
        if kept := line.strip(_BLANK):
            number += 1
            lead = len(line) - len(line.lstrip(_BLANK))
            yield NewItem(number=number, offset=offset + lead, length=len(kept)), kept


def _begin(head: bytes) -> int:
    encoding = encoding_of(head)
    if encoding.name != "utf-8":
        raise InvalidInput(f"The input is {encoding.name.upper()}; write it as UTF-8.")
    return encoding.mark


def _check(line: bytes, number: int, offset: int, line_bytes: int) -> None:
    where = f"Item {number} of the input (at byte {offset:,})"
    if len(line) > line_bytes:
        raise InvalidInput(f"{where} is longer than {line_bytes:,} bytes.", item=number, offset=offset)
    try:
        read_item(line)
    except InvalidInput as error:
        raise InvalidInput(f"{where} cannot be read. {error.message}", item=number, offset=offset) from None


def _lines(read: Read, size: int, begin: int, line_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Each line with where it begins. Of one that is too long no more than shows that is held."""
    rest, offset = b"", begin
    while begin < size:
        piece = read(begin, READ_BYTES)
        if not piece:
            break
        begin += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield offset, line
            offset += len(line) + 1
        if not rest.strip(_BLANK):
            offset, rest = offset + len(rest), b""
        elif len(rest) > line_bytes + READ_BYTES:
            break
    if rest:
        yield offset, rest
