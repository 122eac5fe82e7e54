"""The sentences of a summary, as places in its text.

Headings, the marks of lists, rules and tables, labels, the footer and what the engine writes itself are no sentences. A
block of code is one, since what it says stands or falls as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mnesis_core.compaction.transcript import HEADER
from mnesis_core.files.references import without_footer

LONGEST_SENTENCE = 1_000  # characters; what is longer is cut at white space
MOST_SENTENCES = 1_000
LONGEST_TEXT = 1_000_000  # characters that are looked at; no summary that a model wrote is nearly as long
LONGEST_HEADING = 6  # words of a line that ends with a colon

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)|[ \t]*(\*\*|__)(?![\s*_])[^*_\n]{1,120}\1:?[ \t]*$")
_MARK = re.compile(r"(?:[ \t]|[-*+•>|](?=[ \t|])|\d{1,3}[.)](?=[ \t])|\[[ xX]\](?=[ \t]))*")
_LABEL = re.compile(r"\[\d{1,12}(?:-\d{1,12})?(?: [^\]\n]{0,80})?\] ")
_FRAME = re.compile(r"Messages? \d{1,12}(?: to \d{1,12})?(?:, [^\n]{0,300})?\.$|\[(?:LCM |Level 3 excerpt)[^\n]*\]$")
_CODE = re.compile(r"(?<!`)(`{1,3})(?!`)[^`\n]+\1(?!`)")
_CLOSING = "\"'\u201d\u2019\u00bb)]*_`"
_END = re.compile(
    rf"[.!?\u2026]+[{re.escape(_CLOSING)}]*|[\u3002\uff01\uff1f\uff61][\u300d\u300f\u201d\u2019\uff09]*|[\u0964\u0965\u061f\u06d4\u1362\u166e]"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'])(?:dr|mrs?|ms|prof|st|vs|etc|cf|approx|no|nr|fig|inc|ltd|co|jr|sr|bzw|usw|ca|(?:[^\W\d_]\.)*[^\W\d_])\.$",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\[\u2026\]")
_NEXT = re.compile(r"\S")
_WORDY = re.compile(r"[^\W_]")


class Sentence(NamedTuple):
    start: int  # characters of the text, from 0 on
    end: int


def sentences_of(text: str) -> list[Sentence]:
    """Return the sentences of a summary in order, at most ``MOST_SENTENCES``; none overlaps another."""
    body = without_footer(text)[:LONGEST_TEXT]
    plain = _CODE.sub(lambda code: "x" * len(code[0]), body)  # a full stop in code ends no sentence
    found: list[Sentence] = []
    for start, end, is_code in _blocks(body):
        pieces = [(start, end)] if is_code else _split(plain, start, end)
        for sentence in (cut for piece in pieces for cut in _cut(body, *piece)):
            found.append(sentence)
            if len(found) == MOST_SENTENCES:
                return found
    return found


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield lines, or several that go on with one sentence, without their marks; and each block of code."""
    start = end = 0  # of the lines before that may go on
    fence, code = "", 0
    for line in re.finditer(r"[^\n]+", text):
        said, opening = line[0], _FENCE.match(line[0])
        if fence:
            if opening and opening[1].startswith(fence) and not said[opening.end() :].strip():
                yield code, line.start(), True
                fence = ""
            continue
        if opening or _HEADING.match(said):
            yield start, end, False
            start = end = line.end()
            fence, code = (opening[1], line.end()) if opening else ("", 0)
            continue
        mark = _MARK.match(said)
        first = line.start() + (mark.end() if mark else 0)
        if end > start and _goes_on(text, end, first, line.start()):
            end = line.end()
            continue
        yield start, end, False
        label = _LABEL.match(text, first)
        start, end = (label.end() if label else first), line.end()
    yield start, end, False
    if fence:
        yield code, len(text), True


def _goes_on(text: str, end: int, first: int, line: int) -> bool:
    """Return whether a line goes on with the sentence before it: the next line, unmarked, in lower case."""
    return line == end + 1 and not text[line:first].strip() and text[first : first + 1].islower()


def _split(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    said = text[start:end].strip()
    if said == HEADER or _FRAME.match(said) or (said.endswith(":") and len(said.split()) <= LONGEST_HEADING):
        return
    ends = [match.end() for match in _END.finditer(text, start, end) if _ends(text, match, end)]
    ends += [match.end() for match in _BETWEEN.finditer(text, start, end)]
    for after in (*sorted(ends), end):
        yield start, after
        start = after


def _ends(text: str, match: re.Match[str], end: int) -> bool:
    if match[0][0] not in ".!?\u2026":
        return True
    if match.end() < end and not text[match.end()].isspace():
        return False
    after = _NEXT.search(text, match.end(), end)
    if after is not None and after[0].islower():
        return False
    return match[0][0] != "." or not _ABBREVIATION.search(text, max(0, match.start() - 12), match.start() + 1)


def _cut(text: str, start: int, end: int) -> Iterator[Sentence]:
    """Yield a sentence without white space around it, in pieces if it is long; nothing if it has no letter and no digit."""
    while start < end:
        if end - start <= LONGEST_SENTENCE:
            after = end
        else:
            at = max(text.rfind(sign, start + 1, start + LONGEST_SENTENCE) for sign in " \n")
            after = at if at > start else start + LONGEST_SENTENCE
        piece = text[start:after]
        if _WORDY.search(piece):
            first = start + len(piece) - len(piece.lstrip())
            # The edge of a table closes its row.
            yield Sentence(first, start + len(piece.rstrip().rstrip("|").rstrip()))
        start = after
