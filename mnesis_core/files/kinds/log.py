"""Logs: when, how many lines of which level, and which lines come again and again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown

# When there are more, the rarest are forgotten.
MOST_SHAPES = 20_000
LINE_CHARACTERS = 240
MOST_LINES = 3_000_000
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
_SAME = {"WARN": "WARNING", "ERR": "ERROR", "CRIT": "CRITICAL"}
_BAD = ("ERROR", "CRITICAL", "SEVERE", "FATAL", "ALERT", "EMERG", "PANIC")


@dataclass(slots=True)
class _Shapes:
    """Lines that differ only in numbers, counted by what they have in common."""

    counts: dict[str, int] = field(default_factory=dict)
    forgotten: int = 0

    def saw(self, shape: str) -> None:
        self.counts[shape] = self.counts.get(shape, 0) + 1
        if len(self.counts) > MOST_SHAPES:
            # The rarer half goes: each time, as many new ones must come before the next.
            by_frequency = sorted(self.counts.items(), key=lambda pair: -pair[1])
            self.counts = dict(by_frequency[: MOST_SHAPES // 2])
            self.forgotten += len(by_frequency) - len(self.counts)

    def most_frequent(self, most: int) -> list[str]:
        by_frequency = sorted(self.counts.items(), key=lambda pair: -pair[1])
        # Where nothing comes twice, a few lines say as much as many.
        most = most if by_frequency and by_frequency[0][1] > 1 else most // 2
        return [f"  ×{count:,}: {shown(shape, characters=160)}" for shape, count in by_frequency[:most]]


@dataclass(slots=True)
class _Read:
    lines: int = 0
    first: str = ""
    last: str = ""
    timed: int = 0
    levels: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    shapes: _Shapes = field(default_factory=_Shapes)
    bad: _Shapes = field(default_factory=_Shapes)
    last_bad: str = ""

    def take(self, line: str) -> None:
        self.lines += 1
        line = line[:LINE_CHARACTERS]
        rest = line
        if (time := _TIME.search(line, 0, 80)) is not None:
            self.first = self.first or time.group()
            self.last = time.group()
            self.timed += 1
            rest = line[: time.start()] + line[time.end() :]
        shape = _CHANGING.sub("#", rest).strip()
        if shape:
            self.shapes.saw(shape)
            self._take_level(rest, shape)

    def _take_level(self, line: str, shape: str) -> None:
        if (status := _STATUS.search(line)) is not None:
            name = f"{status.group(1)}xx"
            self.statuses[name] = self.statuses.get(name, 0) + 1
        if (found := _LEVEL.search(line)) is None:
            return
        level = (found.group(1) or found.group(2)).upper()
        level = _SAME.get(level, level)
        self.levels[level] = self.levels.get(level, 0) + 1
        if level in _BAD:
            self.bad.saw(shape)
            self.last_bad = line


def explore(source: Source) -> Findings:
    read = _Read()
    covered = "all of it"
    for line in source.lines():
        if read.lines == MOST_LINES:
            covered = f"the first {MOST_LINES:,} lines"
            break
        read.take(line)
    if not read.lines:
        raise Unreadable("it has no line")
    lines = [counted(read.lines, "line")]
    if read.timed:
        lines.append(f"From {shown(read.first)} to {shown(read.last)}, a time in {read.timed:,} of them")
    if read.levels:
        lines.append(f"Levels: {_counts(read.levels)}")
    if read.statuses:
        lines.append(f"HTTP answers: {_counts(read.statuses)}")
    if read.bad.counts:
        lines += ["Errors by frequency, # for what changes:", *read.bad.most_frequent(TOLD_SHAPES)]
        lines.append(f"  the last: {shown(read.last_bad, characters=200)}")
    rare = f", besides at least {read.shapes.forgotten:,} rare ones" if read.shapes.forgotten else ""
    lines.append(f"{counted(len(read.shapes.counts), 'shape')} of lines{rare}, # for what changes:")
    return Findings(lines=[*lines, *read.shapes.most_frequent(TOLD_SHAPES)], covered=covered)


def _counts(counts: dict[str, int]) -> str:
    by_frequency = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} ×{count:,}" for name, count in by_frequency)
