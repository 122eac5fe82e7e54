"""JSON, also with comments: which keys hold what, how many, how deep."""

from __future__ import annotations

import json

from mnesis_core.exploration.findings import Findings, Unreadable, counted
from mnesis_core.exploration.json_tokens import Streamed, streamed_shape, without_comments
from mnesis_core.exploration.kinds import json_lines
from mnesis_core.exploration.shape_lines import shape_lines
from mnesis_core.exploration.shapes import DEPTH, ShapeBuilder
from mnesis_core.exploration.source import Source

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
