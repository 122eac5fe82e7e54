"""JSON, also with comments: which keys hold what, how many, how deep; a large file is streamed in constant memory. JSON
Lines: how many records, and which keys they have with values of which types. Notebooks of Jupyter: language, cells,
headings, what the code imports and defines, and which errors it left.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.kinds.text import count_lines
from mnesis_core.files.schemas import (
    ARRAY,
    BOOLEAN,
    DEPTH,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    SchemaBuilder,
    schema_lines,
)
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

PARSED_BYTES = 8_388_608  # A larger document is streamed: parsed, it takes up to thirty times its size.
MOST_TOKENS = 20_000_000  # About 100 MB of a file of records.
TOKEN_CHARACTERS = 33_554_432
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_COMMENT = r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+"
_TOKEN = re.compile(rf'{_STRING}"?|(?:{_COMMENT})(?:\*/)?|[{{}}\[\]]|[^\s,:{{}}\[\]"/]++|/', re.DOTALL)
_WITHOUT_COMMENTS = re.compile(rf'({_STRING}"?)|(?:{_COMMENT})(?:\*/)?', re.DOTALL)
_WITHOUT_LAST_COMMAS = re.compile(rf'({_STRING}"?)|,(?=\s*+[}}\]])', re.DOTALL)
_CONSTANTS = {"true": BOOLEAN, "false": BOOLEAN, "null": NULL, "NaN": NUMBER, "Infinity": NUMBER, "-Infinity": NUMBER}
_OPENING = {"{": OBJECT, "[": ARRAY}
_CLOSING = {"}": OBJECT, "]": ARRAY}

MOST_RECORDS = 20_000  # The lines after them are only counted.
MOST_RECORD_CHARACTERS = 67_108_864
RECORD_CHARACTERS = 8_388_608  # A longer line arrives in pieces, none of which is a record.

MOST_NOTEBOOK_BYTES = 67_108_864  # Most of a large notebook are pictures, which are cheap to parse.
MOST_CELLS = 5_000
CELL_CHARACTERS = 200_000
_HEADING = re.compile(r"^(#{1,6})[ \t]+(.*)", re.MULTILINE)
_IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+([\w.]+)|^[ \t]*(?:library|require)\(\"?(\w+)", re.MULTILINE)
_DEFINITION = re.compile(r"^(?:async[ \t]+)?(?:def|class|function)[ \t]+(\w+)", re.MULTILINE)


class _SeveralValues(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    builder: SchemaBuilder
    characters: int
    is_all: bool


def explore(source: Source) -> Findings:
    try:
        streamed = _parsed(source) if source.size <= PARSED_BYTES else _streamed(source)
    except _SeveralValues:
        return explore_json_lines(source)
    builder = streamed.builder
    lines = schema_lines(builder.root)
    if builder.depth and streamed.is_all:
        lines.insert(0, f"It breaks off: {counted(builder.depth, 'object or array', 'objects and arrays')} not closed")
    if builder.deepest > DEPTH:
        lines.append(f"Nested {builder.deepest:,} levels deep")
    if streamed.is_all:
        return Findings(lines=lines)
    megabytes = f"{streamed.characters / 1e6:,.0f} of {source.size / 1e6:,.0f} MB"
    return Findings(lines=lines, covered=f"about the first {megabytes}: it has more than is counted")


def _parsed(source: Source) -> Streamed:
    text = source.text()
    if not text.strip():
        raise Unreadable(gettext_noop("not valid JSON: it is empty"))
    builder = SchemaBuilder()
    try:
        builder.value(_loaded(text))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and error.lineno > 1:
            raise _SeveralValues from None
        raise Unreadable(fill(gettext_noop("not valid JSON: %(reason)s"), {"reason": str(error)})) from None
    except (RecursionError, ValueError):
        # Deeper than the parser goes, or a number of thousands of digits.
        return _streamed(source)
    return Streamed(builder=builder, characters=len(text), is_all=True)


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        strict = _WITHOUT_LAST_COMMAS.sub(r"\1", _WITHOUT_COMMENTS.sub(r"\1", text))
        if strict == text:
            raise
        try:
            return json.loads(strict)
        except json.JSONDecodeError:
            raise error from None


def _streamed(source: Source) -> Streamed:
    streamed = streamed_schema(source)
    if streamed.builder.root.count > 1:
        raise _SeveralValues
    if not streamed.builder.root.count:
        raise Unreadable(gettext_noop("not valid JSON: it holds no value"))
    return streamed


def streamed_schema(source: Source) -> Streamed:
    """Return the schema of a file, or of its first ``MOST_TOKENS``. Commas and colons are not checked.

    :raises Unreadable: something in it belongs to no JSON, or a string is longer than ``TOKEN_CHARACTERS``.
    """
    builder = SchemaBuilder()
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
            if not builder.close(_CLOSING[first]):
                raise Unreadable(fill(gettext_noop("not valid JSON: a %(sign)s closes nothing"), {"sign": first}))
        elif not word.startswith(("//", "/*")):
            builder.scalar(_type_of_word(word), word)
    return Streamed(builder=builder, characters=characters, is_all=True)


def _type_of_word(word: str) -> str:
    if (known := _CONSTANTS.get(word)) is not None:
        return known
    if word.lstrip("-")[:1].isdigit():
        return INTEGER if word.lstrip("-").isdigit() else NUMBER
    if word == "/":
        raise Unreadable(gettext_noop("not valid JSON: a / is outside of strings"))
    raise Unreadable(fill(gettext_noop("not valid JSON: %(word)s is no value"), {"word": shown(word, characters=40)}))


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _tokens(source: Source) -> Iterator[str]:
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
            raise Unreadable(
                fill(
                    gettext_noop("it has a string of more than %(most)s characters"),
                    {"most": TOKEN_CHARACTERS},
                )
            )


def explore_json_lines(source: Source) -> Findings:
    builder = SchemaBuilder()
    records, broken, first_broken, characters, is_all = 0, 0, "", 0, True
    for number, line in enumerate(source.lines(RECORD_CHARACTERS), start=1):
        if records + broken >= MOST_RECORDS or characters > MOST_RECORD_CHARACTERS:
            is_all = False
            break
        characters += len(line)
        if not line.strip("\x1e \t\r"):
            continue
        try:
            builder.value(json.loads(line.strip("\x1e")))
            records += 1
        except (ValueError, RecursionError) as error:
            broken += 1
            first_broken = first_broken or f"line {number:,}: {shown(str(error))}"
    if records <= broken:
        raise Unreadable(fill(gettext_noop("not JSON Lines: %(reason)s"), {"reason": first_broken or "it is empty"}))
    lines = [counted(records, "record") if is_all else f"{counted(count_lines(source), 'line')}, one record each"]
    if broken:
        lines.append(f"{counted(broken, 'line is', 'lines are')} no JSON: {first_broken}")
    lines += schema_lines(builder.root, name="Each record:")
    covered = "all of it" if is_all else f"the first {records + broken:,} records; the others counted"
    return Findings(lines=lines, covered=covered)


def explore_notebook(source: Source) -> Findings:
    try:
        notebook = json.loads(source.text(MOST_NOTEBOOK_BYTES))
    except (ValueError, RecursionError) as error:
        raise Unreadable(fill(gettext_noop("not a notebook: %(reason)s"), {"reason": shown(str(error))})) from None
    every = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(every, list):
        raise Unreadable(gettext_noop("not a notebook: it has no cells"))
    every = [cell for cell in every if isinstance(cell, dict)]
    cells = every[:MOST_CELLS]
    code = [_cell_text(cell.get("source")) for cell in cells if cell.get("cell_type") == "code"]
    prose = [_cell_text(cell.get("source")) for cell in cells if cell.get("cell_type") == "markdown"]
    outputs = [output for cell in cells for output in _list(cell.get("outputs")) if isinstance(output, dict)]
    types = Counter(shown(str(cell.get("cell_type")), characters=20) for cell in every)
    data = (_dict(output.get("data")) or (output.get("output_type"),) for output in outputs)
    kinds = Counter(str(kind) for each in data for kind in each)

    metadata = _dict(notebook.get("metadata"))
    kernel, language = _dict(metadata.get("kernelspec")), _dict(metadata.get("language_info"))
    name = str(language.get("name") or kernel.get("language") or "unknown language")
    version = f" {language['version']}" if "version" in language else ""
    title = str(kernel.get("display_name") or "")
    lines = [
        shown(name + version)
        + (f" (kernel {shown(title)})" if title else "")
        + f"; {counted(len(every), 'cell')}: "
        + listed(f"{count:,} {type_}" for type_, count in types.most_common()),
        f"Imports {listed(_names_in(_IMPORT, code))}",
        f"Defines {listed(_names_in(_DEFINITION, code))}",
        f"{counted(len(outputs), 'output')}: {listed(f'{kind} ×{count:,}' for kind, count in kinds.most_common())}",
    ]
    errors = [output for output in outputs if output.get("output_type") == "error"]
    lines += [f"Error {shown(str(each.get('ename')))}: {shown(str(each.get('evalue')))}" for each in errors[:5]]
    headings = [heading for text in prose for heading in _HEADING.findall(text)]
    lines += [f"{marks} {shown(title)}" for marks, title in headings[:40]]
    if code and not headings:
        lines.append(f"The first code: {shown(code[0], characters=200)}")
    covered = "all of it" if len(every) <= MOST_CELLS else f"{MOST_CELLS:,} of {len(every):,} cells"
    return Findings(lines=lines, covered=covered)


def _names_in(pattern: re.Pattern[str], code: list[str]) -> dict[str, None]:
    return dict.fromkeys(name for text in code for match in pattern.finditer(text) for name in match.groups() if name)


def _cell_text(source: Any) -> str:
    # The format keeps a cell's text whole or as lines.
    text = source if isinstance(source, str) else "".join(str(line) for line in _list(source))
    return text[:CELL_CHARACTERS]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
