"""Markdown: its outline, and how many words, links and blocks of code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

MOST_HEADINGS = 60
MOST_FRONT = 30
MOST_LINES = 5_000_000
TEXT_CHARACTERS = 300
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^\s`{]*)")
_LINK = re.compile(r"\]\([^()\[\]\s]")
_IMAGE = re.compile(r"!\[")
_KEY = re.compile(r"[A-Za-z_][\w-]*[ \t]*[:=]")


@dataclass(slots=True)
class _Read:
    words: int = 0
    links: int = 0
    images: int = 0
    table_rows: int = 0
    headings: list[tuple[int, str]] = field(default_factory=list)
    more_headings: int = 0
    languages: dict[str, int] = field(default_factory=dict)
    front: list[str] = field(default_factory=list)
    first_text: str = ""
    fence: str = ""
    in_front: str = ""
    above: str = ""
    lines: int = 0

    def take(self, line: str) -> None:
        self.lines += 1
        if self.lines == 1 and line.strip() in ("---", "+++"):
            self.in_front = line.strip()
        elif self.in_front:
            if line.strip() == self.in_front:
                self.in_front = ""
            elif _KEY.match(line) and len(self.front) < MOST_FRONT:
                self.front.append(shown(line))
        elif (fence := _FENCE.match(line)) is not None:
            self._take_fence(fence, line)
        elif not self.fence:
            self._take_text(line)

    def _take_fence(self, fence: re.Match[str], line: str) -> None:
        marks, language = fence.groups()
        if not self.fence:
            self.fence = marks
            if language in self.languages or len(self.languages) < 100:
                self.languages[language[:40]] = self.languages.get(language[:40], 0) + 1
        elif marks.startswith(self.fence) and line.strip() == marks:
            self.fence = ""
        self.above = ""

    def _take_text(self, line: str) -> None:
        self.words += len(line.split())
        self.links += len(_LINK.findall(line))
        self.images += len(_IMAGE.findall(line))
        self.table_rows += line.startswith("|")
        if (heading := _HEADING.match(line)) is not None:
            self._take_heading(len(heading.group(1)), heading.group(2).strip().rstrip("#"))
            line = ""
        elif self.above and (underline := _UNDERLINE.fullmatch(line)) is not None:
            self._take_heading(1 if underline.group(1)[0] == "=" else 2, self.above)
            line = ""
        elif line.strip() and len(self.first_text) < TEXT_CHARACTERS:
            self.first_text += " " + line.strip()[:TEXT_CHARACTERS]
        self.above = line.strip()[:TEXT_CHARACTERS] if not line.startswith(("|", "-", "*", ">")) else ""

    def _take_heading(self, level: int, title: str) -> None:
        if len(self.headings) < MOST_HEADINGS:
            self.headings.append((level, title[:TEXT_CHARACTERS]))
        else:
            self.more_headings += 1


def explore(source: Source) -> Findings:
    read = _Read()
    for line in source.lines():
        if read.lines == MOST_LINES:
            return Findings(lines=_lines(read), covered=f"the first {MOST_LINES:,} lines")
        read.take(line)
    if not read.lines:
        raise Unreadable("it is empty")
    return Findings(lines=_lines(read))


def _lines(read: _Read) -> list[str]:
    headings = len(read.headings) + read.more_headings
    counts = (
        counted(read.words, "word"),
        counted(headings, "heading"),
        counted(read.links - read.images if read.links > read.images else read.links, "link"),
        counted(read.images, "image"),
        counted(sum(read.languages.values()), "block of code", "blocks of code"),
        counted(read.table_rows, "table row"),
    )
    lines = [", ".join(count for count in counts if not count.startswith("0 ")) or "Nothing but empty lines"]
    if read.front:
        lines.append(f"Front matter: {listed(read.front)}")
    languages = {language: count for language, count in read.languages.items() if language}
    if languages:
        lines.append(f"Code: {listed(f'{language} ×{count:,}' for language, count in languages.items())}")
    if read.fence:
        lines.append("A block of code is not closed")
    lines.append(f"Begins: {shown(read.first_text, characters=TEXT_CHARACTERS)}")
    lines += [f"{'#' * level} {shown(title)}" for level, title in read.headings]
    return [*lines, f"{read.more_headings:,} more headings"] if read.more_headings else lines
