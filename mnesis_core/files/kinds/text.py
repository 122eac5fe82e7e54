"""Text of no other kind: how much, its chapters, and how it begins and ends. Logs: when, how many lines of which level, and
which lines come again and again. Mails: who wrote what to whom and when, their parts, attachments and first lines.
"""

from __future__ import annotations

import email
import re
from collections import Counter
from dataclasses import dataclass, field
from email.header import decode_header
from email.message import Message
from itertools import islice
from typing import Any

from mnesis_core.errors import gettext_noop
from mnesis_core.files.source import LINE_BYTES, Findings, Source, Unreadable, counted, listed, shown, walk

FIRST_LINES = 5
LINE_CHARACTERS = 160
MOST_HEADINGS = 25
LONG_LINE = 2_000
MOST_CHARACTERS = 1_073_741_824  # Words are counted up to here; lines are counted to the end.
_TO_COUNT = 1_048_576
_CHAPTER = re.compile(r"\s{0,8}(?:chapter|part|book|section|article|act|appendix)\s{1,4}(?:\d+|[ivxlc]+)\b", re.I)
_UNDERLINE = re.compile(r"([=~^*#-])\1{2,}\s*")

MOST_SHAPES = 20_000  # When there are more, the rarest are forgotten.
LOG_LINE_CHARACTERS = 240
MOST_LOG_LINES = 3_000_000
TOLD_SHAPES = 8
_TIME = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]{1,2}\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d|\[ *\d{1,9}\.\d{6}\]"
)
_LEVEL = re.compile(
    r"\b(TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|SEVERE|FATAL|ALERT|EMERG|PANIC)\b"
    r"|(?:\[|level=\"?|\"level\": ?\"|<)(trace|debug|info|notice|warn(?:ing)?|err(?:or)?|crit(?:ical)?|fatal|alert|emerg|panic)\b"
)
_STATUS = re.compile(r'" ([1-5])\d\d (?:\d|-)')
_CHANGING = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|0x[0-9a-fA-F]+|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]{7,}\b|\d+(?:[.:,]\d+)*"
)
_SAME_LEVEL = {"WARN": "WARNING", "ERR": "ERROR", "CRIT": "CRITICAL"}
_BAD_LEVELS = ("ERROR", "CRITICAL", "SEVERE", "FATAL", "ALERT", "EMERG", "PANIC")

MOST_MAIL_BYTES = 33_554_432
MOST_PARTS = 100
FIRST_BODY_LINES = 8
HEADER_CHARACTERS = 2_000
BODY_CHARACTERS = 20_000
_MAIL_HEADERS = ("From", "To", "Cc", "Subject", "Date", "Reply-To")


@dataclass(slots=True)
class _Text:
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
        if len(text) <= LINE_CHARACTERS and len(self.headings) < MOST_HEADINGS:
            if not self.above and _CHAPTER.match(text):
                self.headings.append(shown(text))
            elif self.above and len(text) * 2 >= len(self.above) and _UNDERLINE.fullmatch(text):
                self.headings.append(shown(self.above))
        self.above = self.last = text[:LINE_CHARACTERS]
        if len(self.first) < FIRST_LINES:
            self.first.append(shown(text, characters=LINE_CHARACTERS))


def explore(source: Source) -> Findings:
    read = _Text()
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
        are = "is" if read.replaced == 1 else "are"
        lines.append(f"{counted(read.replaced, 'place')} in it {are} no {source.encoding.upper()}")
    if read.headings:
        lines.append(f"Headings: {'; '.join(read.headings)}"[:1_000])
    if read.first:
        lines += ["It begins:", *read.first]
    if len(read.first) == FIRST_LINES:
        lines.append(f"It ends: {shown(read.last, characters=LINE_CHARACTERS)}")
    is_all = characters <= MOST_CHARACTERS
    covered = "all of it" if is_all else f"the first {characters:,} characters; all lines counted"
    return Findings(lines=lines, covered=covered)


def count_lines(source: Source) -> int:
    """Count the lines of a file without decoding them; the last one needs no line end."""
    lines, last = 0, b"\n"
    with source.path.open("rb") as file:
        while data := file.read(_TO_COUNT):
            lines += data.count(b"\n")
            last = data[-1:]
    return lines + (last != b"\n")


@dataclass(slots=True)
class _Shapes:
    """Lines that differ only in numbers, counted by what they have in common."""

    counts: Counter[str] = field(default_factory=Counter)
    forgotten: int = 0

    def saw(self, shape: str) -> None:
        self.counts[shape] += 1
        if (number := len(self.counts)) > MOST_SHAPES:
            # The rarer half goes: each time, as many new ones must come before the next.
            self.counts = Counter(dict(self.counts.most_common()[: MOST_SHAPES // 2]))
            self.forgotten += number - len(self.counts)

    def most_frequent(self) -> list[str]:
        # Where nothing comes twice, a few lines say as much as many.
        most = TOLD_SHAPES if max(self.counts.values(), default=0) > 1 else TOLD_SHAPES // 2
        return [f"  ×{count:,}: {shown(shape, characters=160)}" for shape, count in self.counts.most_common(most)]


@dataclass(slots=True)
class _Log:
    lines: int = 0
    first: str = ""
    last: str = ""
    timed: int = 0
    levels: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    shapes: _Shapes = field(default_factory=_Shapes)
    bad: _Shapes = field(default_factory=_Shapes)
    last_bad: str = ""

    def take(self, line: str) -> None:
        self.lines += 1
        rest = line = line[:LOG_LINE_CHARACTERS]
        if (time := _TIME.search(line, 0, 80)) is not None:
            self.first = self.first or time.group()
            self.last = time.group()
            self.timed += 1
            rest = line[: time.start()] + line[time.end() :]
        shape = _CHANGING.sub("#", rest).strip()
        if not shape:
            return
        self.shapes.saw(shape)
        if (status := _STATUS.search(rest)) is not None:
            self.statuses[f"{status.group(1)}xx"] += 1
        if (found := _LEVEL.search(rest)) is None:
            return
        level = (found.group(1) or found.group(2)).upper()
        level = _SAME_LEVEL.get(level, level)
        self.levels[level] += 1
        if level in _BAD_LEVELS:
            self.bad.saw(shape)
            self.last_bad = rest


def explore_log(source: Source) -> Findings:
    read = _Log()
    covered = source.feed(read.take, most=MOST_LOG_LINES)
    if not read.lines:
        raise Unreadable(gettext_noop("it has no line"))
    lines = [counted(read.lines, "line")]
    if read.timed:
        lines.append(f"From {shown(read.first)} to {shown(read.last)}, a time in {read.timed:,} of them")
    for word, counts in (("Levels", read.levels), ("HTTP answers", read.statuses)):
        if counts:
            lines.append(f"{word}: {', '.join(f'{name} ×{count:,}' for name, count in counts.most_common())}")
    if read.bad.counts:
        lines += ["Errors by frequency, # for what changes:", *read.bad.most_frequent()]
        lines.append(f"  the last: {shown(read.last_bad, characters=200)}")
    rare = f", besides at least {read.shapes.forgotten:,} rare ones" if read.shapes.forgotten else ""
    lines.append(f"{counted(len(read.shapes.counts), 'shape')} of lines{rare}, # for what changes:")
    return Findings(lines=[*lines, *read.shapes.most_frequent()], covered=covered)


def explore_email(source: Source) -> Findings:
    message = email.message_from_bytes(source.head(MOST_MAIL_BYTES))
    lines = []
    for header in filter(message.__contains__, _MAIL_HEADERS):
        raw = str(message[header])[:HEADER_CHARACTERS]
        try:
            decoded = "".join(_decoded(data, charset) for data, charset in decode_header(raw))
        except (ValueError, LookupError):
            decoded = raw
        lines.append(f"{header}: {shown(decoded, characters=200)}")
    if not lines:
        raise Unreadable(gettext_noop("it has neither sender, receiver nor subject"))
    leaves = _leaves(message)
    number = f"{MOST_PARTS} parts or more" if len(leaves) == MOST_PARTS else counted(len(leaves), "part")
    lines.append(f"{number}: {listed(part.get_content_type() for part in leaves)}")
    attachments = [
        f"{shown(str(name), characters=60)} ({part.get_content_type()}, {counted(len(_payload(part)), 'byte')})"
        for part in leaves
        if (name := part.get_filename())
    ]
    if attachments:
        lines.append(f"{counted(len(attachments), 'attachment')}: {listed(attachments)}")
    texts = [part for part in leaves if part.get_content_maintype() == "text" and not part.get_filename()]
    plain = [part for part in texts if part.get_content_subtype() == "plain"]
    if first := (plain or texts)[:1]:
        text = _decoded(_payload(first[0])[:BODY_CHARACTERS], first[0].get_content_charset("utf-8"))
        if begins := [shown(line, characters=160) for line in text.splitlines() if line.strip()]:
            lines += ["It begins:", *begins[:FIRST_BODY_LINES]]
    return Findings(lines=lines, covered=source.covered_by(MOST_MAIL_BYTES))


def _decoded(data: bytes | str, charset: str | None) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode(charset or "latin-1", "replace")
    except LookupError:
        return data.decode("latin-1")


def _leaves(message: Message) -> list[Message]:
    def inside(part: Message) -> list[Any]:
        inner = part.get_payload()
        return [each for each in inner[:MOST_PARTS] if isinstance(each, Message)] if isinstance(inner, list) else []

    return list(islice((one for one in walk([message], inside) if not one.is_multipart()), MOST_PARTS))


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""
