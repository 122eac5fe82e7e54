"""Text of no known kind: how much, its chapters, and how it begins and ends."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mnesis_core.files.source import LINE_BYTES, Findings, Source, counted, shown

FIRST_LINES = 5
LINE_CHARACTERS = 160
MOST_HEADINGS = 25
LONG_LINE = 2_000
# Words are counted up to here; lines are counted to the end.
MOST_CHARACTERS = 1_073_741_824
_TO_COUNT = 1_048_576
_CHAPTER = re.compile(r"\s{0,8}(?:chapter|part|book|section|article|act|appendix)\s{1,4}(?:\d+|[ivxlc]+)\b", re.I)
_UNDERLINE = re.compile(r"([=~^*#-])\1{2,}\s*")


@dataclass(slots=True)
class _Read:
    words: int = 0
    paragraphs: int = 0
    longest: int = 0
    replaced: int = 0
    first: list[str] = field(default_factory=list)
    last: str = ""
    headings: list[str] = field(default_factory=list)
    above: str = ""

    def take(self, line: str) -> None:
        text = line.strip()
        if not text:
            self.above = ""
            return
        self.paragraphs += not self.above
        self.words += len(text.split())
        self.longest = max(self.longest, len(line))
        self.replaced += line.count("\ufffd")
        self._take_heading(text)
        self.above = self.last = text[:LINE_CHARACTERS]
        if len(self.first) < FIRST_LINES:
            self.first.append(shown(text, characters=LINE_CHARACTERS))

    def _take_heading(self, text: str) -> None:
        if len(text) > LINE_CHARACTERS or len(self.headings) >= MOST_HEADINGS:
            return
        if not self.above and _CHAPTER.match(text):
            self.headings.append(shown(text))
        elif self.above and len(text) * 2 >= len(self.above) and _UNDERLINE.fullmatch(text):
            self.headings.append(shown(self.above))


def explore(source: Source) -> Findings:
    read = _Read()
    characters = 0
    for line in source.lines():
        read.take(line)
        characters += len(line)
        if characters > MOST_CHARACTERS:
            break
    lines = [
        f"{counted(count_lines(source), 'line')}, {counted(read.words, 'word')}, "
        f"{counted(read.paragraphs, 'paragraph')}, {counted(source.size, 'byte')}"
    ]
    if read.longest > LONG_LINE:
        least = "at least " if read.longest >= LINE_BYTES - 1 else ""
        lines.append(f"Its longest line has {least}{read.longest:,} characters")
    if read.replaced:
        lines.append(
            f"{counted(read.replaced, 'place')} in it {'is' if read.replaced == 1 else 'are'} no {source.encoding.upper()}"
        )
    if read.headings:
        lines += [f"Headings: {'; '.join(read.headings[:MOST_HEADINGS])}"[:1_000]]
    if read.first:
        lines += ["It begins:", *read.first]
    if len(read.first) == FIRST_LINES:
        lines.append(f"It ends: {shown(read.last, characters=LINE_CHARACTERS)}")
    covered = (
        "all of it" if characters <= MOST_CHARACTERS else f"the first {characters:,} characters; all lines counted"
    )
    return Findings(lines=lines, covered=covered)


def count_lines(source: Source) -> int:
    """Count the lines of a file without decoding them; the last one needs no line end."""
    lines, last = 0, b"\n"
    with source.path.open("rb") as file:
        while data := file.read(_TO_COUNT):
            lines += data.count(b"\n")
            last = data[-1:]
    return lines + (last != b"\n")
