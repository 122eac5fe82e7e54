"""JSON of any size as a stream: its shape in constant memory, however long or deep it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mnesis_core.files.kinds import json_lines
from mnesis_core.files.shapes import (
    ARRAY,
    BOOLEAN,
    DEPTH,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    ShapeBuilder,
    shape_lines,
)
from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown

MOST_TOKENS = 20_000_000
"""That are looked at: about 100 MB of a file of records."""
TOKEN_CHARACTERS = 33_554_432
"""A longer string is not looked at."""
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_COMMENT = r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+"
_TOKEN = re.compile(rf'{_STRING}"?|(?:{_COMMENT})(?:\*/)?|[{{}}\[\]]|[^\s,:{{}}\[\]"/]++|/', re.DOTALL)
_WITHOUT_COMMENTS = re.compile(rf'({_STRING}"?)|(?:{_COMMENT})(?:\*/)?', re.DOTALL)
_WITHOUT_LAST_COMMAS = re.compile(rf'({_STRING}"?)|,(?=\s*+[}}\]])', re.DOTALL)
_CONSTANTS = {"true": BOOLEAN, "false": BOOLEAN, "null": NULL, "NaN": NUMBER, "Infinity": NUMBER, "-Infinity": NUMBER}
_OPENING = {"{": OBJECT, "[": ARRAY}
_CLOSING = {"}": OBJECT, "]": ARRAY}


def without_comments(text: str) -> str:
    """JSON of JSON with comments and commas after the last item."""
    return _WITHOUT_LAST_COMMAS.sub(r"\1", _WITHOUT_COMMENTS.sub(r"\1", text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """What was seen of a file that is not held whole."""

    builder: ShapeBuilder
    characters: int
    """That were looked at."""
    is_all: bool


def streamed_shape(source: Source) -> Streamed:
    """The shape of a file's beginning, or all of it. Commas and colons are taken on trust.

    :raises Unreadable: something in it belongs to no JSON, or one string is longer than is looked at.
    """
    builder = ShapeBuilder()
    characters = 0
    for number, word in enumerate(_tokens(source)):
        if number == MOST_TOKENS:
            return Streamed(builder=builder, characters=characters, is_all=False)
        characters += len(word) + 1
        first = word[0]
        if first == '"':
            builder.scalar(STRING, _unescaped(word[1:-1]))
        elif first in _OPENING:
            builder.open(_OPENING[first])
        elif first in _CLOSING:
            _close(builder, first)
        elif first != "/":
            builder.scalar(_type_of_word(word), word)
        elif word == "/":
            raise Unreadable("not valid JSON: a / is outside of strings")
    return Streamed(builder=builder, characters=characters, is_all=True)


def _close(builder: ShapeBuilder, bracket: str) -> None:
    if not builder.close(_CLOSING[bracket]):
        raise Unreadable(f"not valid JSON: a {bracket} closes nothing")


def _type_of_word(word: str) -> str:
    if (known := _CONSTANTS.get(word)) is not None:
        return known
    if word.lstrip("-")[:1].isdigit():
        return INTEGER if word.lstrip("-").isdigit() else NUMBER
    raise Unreadable(f"not valid JSON: {shown(word, characters=40)} is no value")


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _tokens(source: Source) -> Iterator[str]:
    """Strings, brackets, words and comments, whole."""
    rest = ""
    file = source.pieces()
    ended = False
    while not ended:
        taken = [rest]
        # As much again as waits already: a long string is then searched a few times, not once for each piece.
        while sum(map(len, taken)) <= len(rest) * 2:
            if not (piece := next(file, "")):
                ended = True
                break
            taken.append(piece)
        text, rest = "".join(taken), ""
        for match in _TOKEN.finditer(text):
            if match.end() == len(text) and not ended:
                rest = match.group()
                break
            yield match.group()
        if len(rest) > TOKEN_CHARACTERS:
            raise Unreadable(f"it has a string of more than {TOKEN_CHARACTERS:,} characters")


# JSON, also with comments: which keys hold what, how many, how deep.

PARSED_BYTES = 8_388_608
"""A larger document is streamed: parsed, it takes up to thirty times its size."""


def explore(source: Source) -> Findings:
    """Tell the shape of a document. A large one is streamed; several values, one per line, are told as JSON Lines.

    :raises Unreadable: it is no JSON.
    """
    try:
        streamed = _parsed(source) if source.size <= PARSED_BYTES else _streamed(source)
    except _SeveralValues:
        return json_lines.explore(source)
    builder = streamed.builder
    lines = shape_lines(builder.root)
    if builder.depth and streamed.is_all:
        lines.insert(0, f"It breaks off: {counted(builder.depth, 'object or array', 'objects and arrays')} not closed")
    if builder.deepest > DEPTH:
        lines.append(f"Nested {builder.deepest:,} levels deep")
    return Findings(lines=lines, covered=_covered(streamed, source))


def _covered(streamed: Streamed, source: Source) -> str:
    if streamed.is_all:
        return "all of it"
    return (
        f"about the first {streamed.characters / 1e6:,.0f} of {source.size / 1e6:,.0f} MB: it has more than is counted"
    )


class _SeveralValues(Exception):
    """More than one document in one file."""


def _parsed(source: Source) -> Streamed:
    text = source.text()
    if not text.strip():
        raise Unreadable("not valid JSON: it is empty")
    builder = ShapeBuilder()
    try:
        builder.value(_loaded(text))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and error.lineno > 1:
            raise _SeveralValues from None
        raise Unreadable(f"not valid JSON: {error}") from None
    except (RecursionError, ValueError):
        # Deeper than the parser goes, or a number of thousands of digits.
        return _streamed(source)
    return Streamed(builder=builder, characters=len(text), is_all=True)


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        strict = without_comments(text)
        if strict == text:
            raise
        try:
            return json.loads(strict)
        except json.JSONDecodeError:
            raise error from None


def _streamed(source: Source) -> Streamed:
    streamed = streamed_shape(source)
    if streamed.builder.root.count > 1:
        raise _SeveralValues
    if not streamed.builder.root.count:
        raise Unreadable("not valid JSON: it holds no value")
    return streamed
