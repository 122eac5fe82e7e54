"""Word documents: their headings, and how much text, tables and pictures they hold."""

from __future__ import annotations

from itertools import islice
from typing import Any

import docx
from docx.opc.exceptions import OpcError

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.kinds.archive import READ_ERRORS, check_parts, properties_of
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

MOST_HEADINGS = 60
FIRST_PARAGRAPHS = 5
PARAGRAPH_CHARACTERS = 300
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def explore(source: Source) -> Findings:
    check_parts(source, "word/")
    try:
        document = docx.Document(str(source.path))
        body = document.element.body
        styles = {style.style_id: style.name for style in document.styles if style.name}
    except (OpcError, *READ_ERRORS) as error:
        raise Unreadable(
            fill(gettext_noop("not readable as a document: %(reason)s"), {"reason": shown(str(error))})
        ) from None
    paragraphs = [(_level(one, styles), text) for one in body.iter(f"{_WORD}p") if (text := _text(one))]
    words = sum(len(text.split()) for _, text in paragraphs)
    tables = sum(1 for _ in body.iter(f"{_WORD}tbl"))
    counts = [counted(len(paragraphs), "paragraph"), counted(words, "word"), counted(tables, "table")]
    if drawn := sum(1 for _ in body.iter(f"{_WORD}drawing", f"{_WORD}pict")):
        counts.append(counted(drawn, "picture"))
    lines = [f"Word document: {', '.join(counts)}", *properties_of(document.core_properties)]
    if headings := [f"{'  ' * (level - 1)}{shown(text)}" for level, text in paragraphs if level]:
        lines += [f"{counted(len(headings), 'heading')}:", *headings[:MOST_HEADINGS]]
    texts = filter(None, (_text(one) for one in body.iterchildren(f"{_WORD}p") if not _level(one, styles)))
    if begins := [shown(text, characters=PARAGRAPH_CHARACTERS) for text in islice(texts, FIRST_PARAGRAPHS)]:
        lines += ["It begins:", *begins]
    for table in list(body.iter(f"{_WORD}tbl"))[:5]:
        row = next(table.iter(f"{_WORD}tr"), None)
        cells = [] if row is None else [" ".join(map(_text, cell.iter(f"{_WORD}p"))) for cell in row.iter(f"{_WORD}tc")]
        lines.append(f"Table: {listed(cells)}")
    return Findings(lines=lines)


def _text(paragraph: Any) -> str:
    return "".join(one.text or "" for one in paragraph.iter(f"{_WORD}t")).strip()


def _level(paragraph: Any, styles: dict[str, str]) -> int:
    style = paragraph.find(f"{_WORD}pPr/{_WORD}pStyle")
    name = "" if style is None else styles.get(style.get(f"{_WORD}val", ""), "")
    if name == "Title":
        return 1
    number = name.removeprefix("Heading ")
    return int(number) if name != number and number.isdecimal() and len(number) == 1 else 0
