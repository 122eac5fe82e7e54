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
_MARK_BYTES = 4
_BLANK = b" \t\r"


def input_lines(
    read: Read, size: int, *, after: NewItem | None = None, line_bytes: int = 4_000_000, most_items: int = 1_000_000
) -> Iterator[NewItem]:
    """Yield the items of a file: its lines that are not blank.

    :param read: takes an offset and a number of bytes
    :param size: the file's bytes
    :param after: the last known item, after which to continue
    :param line_bytes: the longest line
    :raises InvalidInput: a line is not JSON, too long or too deep, or there are too many; the message names the line
    """
    for item, line in _places(read, size, after, line_bytes):
        if item.number > most_items:
            raise InvalidInput(f"The input has more than {most_items:,} items.", most_items=most_items)
        where = f"Item {item.number} of the input (at byte {item.offset:,})"
        if len(line) > line_bytes:
            raise InvalidInput(f"{where} is longer than {line_bytes:,} bytes.", item=item.number, offset=item.offset)
        try:
            read_item(line)
        except InvalidInput as error:
            raise InvalidInput(
                f"{where} cannot be read. {error.message}", item=item.number, offset=item.offset
            ) from None
        yield item


def line_places(read: Read, size: int, *, line_bytes: int) -> Iterator[NewItem]:
    """Yield the places of the items of a file that was checked before.

    :param line_bytes: the longest line
    :raises InvalidInput: it is not UTF-8
    """
    return (item for item, _ in _places(read, size, None, line_bytes))


def read_item(line: bytes) -> Any:
    """Return the value of a line.

    :raises InvalidInput: it is not JSON, or too deep
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
    """Return a value as a JSON line without its end. Lone surrogates stay escaped, so that it can be encoded as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if printable(text) == text else json.dumps(value, separators=(",", ":"))


def _places(read: Read, size: int, after: NewItem | None, line_bytes: int) -> Iterator[tuple[NewItem, bytes]]:
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


def _lines(read: Read, size: int, begin: int, line_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its offset. Of a line that is too long, only enough is held to show that."""
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
