"""The exact words of a text, which a paraphrase has to keep as they are: numbers, dates, names and identifiers.

They are found by their form alone, in linear time, in any language that writes digits and capital letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from mnesis_core.search.forms import FUNCTION_WORDS
from mnesis_core.search.words import fold

LONGEST_WORD = 200  # characters; what is longer, such as a picture in base64, is none
CAPITALS, WORDS_TO_JUDGE = 0.2, 40
"""The share of capitalised words within sentences above which a capital letter marks no name, as in German; and from how
many words on that is known."""


class ExactKind(StrEnum):
    NUMBER = "number"
    DATE = "date"
    NAME = "name"
    IDENTIFIER = "identifier"  # what has signs or digits within a word: a path, an address, a key, a version


class Exact(NamedTuple):
    kind: ExactKind
    key: str
    """What is compared: ``1000`` for ``1,000``, ``2023-05-07`` or ``-05-07`` for dates, and folded words for the rest."""
    start: int
    end: int


_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH = {name[:letters]: number for number, name in enumerate(_MONTHS, 1) for letters in (3, len(name))} | {"sept": 9}
_MONTH_NAME = "|".join(sorted(_MONTH, key=len, reverse=True))
_DATE = re.compile(
    r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)"
    rf"|\b(?P<day2>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month2>{_MONTH_NAME})\b\.?(?:,? (?P<year2>\d{{4}})\b)?"
    rf"|\b(?P<month3>{_MONTH_NAME})\b\.? (?P<day3>\d{{1,2}})(?:st|nd|rd|th)?\b(?!:)(?:,? (?P<year3>\d{{4}})\b)?",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"\w(?:[\w./:@#\\-]|(?<=\d),(?=\d))*")
_SIGNS_BEHIND = ".,:;/\\-#@"
_NUMBER = re.compile(r"\d[\d,.]*")
_NUMBER_WITH_UNIT = re.compile(r"(\d[\d,.]*)[^\W\d_]{0,3}")
_THOUSANDS = re.compile(r",(?=\d{3}\b)")
_ABBREVIATED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]?")
_HUMP = re.compile(r"[a-z][A-Z]")
_WORD = re.compile(r"[^\W\d_]+")
_NO_NAMES = FUNCTION_WORDS | {"user", "assistant", "ok", "okay", "todo", "yes", "no", "not"}
_WITHIN = re.compile(r"[\w,)\]%\u201d\u2019'\"] $")  # what stands before a word that begins no sentence


def exact_words_of(text: str) -> list[Exact]:
    """Return the exact words of a text in order; no two of them overlap."""
    found: list[Exact] = []
    for kind in (_dates, _tokens, _names):
        taken = bytearray(len(text))
        for item in found:
            taken[item.start : item.end] = b"1" * (item.end - item.start)
        found += [item for item in kind(text) if not any(taken[item.start : item.end])]
    return sorted(found, key=lambda item: item.start)


def numbers_in(text: str) -> Iterator[str]:
    """Yield the keys of all numbers of a text, those within dates and identifiers too."""
    return (_number(match[0]) for match in _NUMBER.finditer(text))


def dates_in(text: str) -> Iterator[str]:
    """Yield the keys of the dates of a text."""
    return (item.key for item in _dates(text))


def _dates(text: str) -> Iterator[Exact]:
    for match in _DATE.finditer(text):
        said = match.groupdict()
        year, month, day = (
            next((said[name + at] for at in ("", "2", "3") if said.get(name + at)), "") for name in _PARTS
        )
        number = int(month) if month.isdecimal() else _MONTH[month.lower()]
        yield Exact(ExactKind.DATE, f"{year}-{number:02}-{int(day):02}", match.start(), match.end())


_PARTS = ("year", "month", "day")


def _tokens(text: str) -> Iterator[Exact]:
    for match in _TOKEN.finditer(text):
        token = match[0].rstrip(_SIGNS_BEHIND)
        if len(token) > LONGEST_WORD or token.isalpha():
            continue
        start = match.start()
        if _is_identifier(token):
            if key := " ".join(fold(token).split()):
                yield Exact(ExactKind.IDENTIFIER, key, start, start + len(token))
            continue
        for number in _NUMBER.finditer(token):
            yield Exact(ExactKind.NUMBER, _number(number[0]), start + number.start(), start + number.end())


def _is_identifier(token: str) -> bool:
    pieces = re.split(r"[-:/]", token)
    if any(sign in token for sign in "_@#\\") or "://" in token:
        return True
    if token.count("/") > 1 and not all(piece.isdecimal() for piece in pieces):
        return True
    # Scripts without spaces put numbers between words.
    mixed = [
        piece for piece in pieces if piece.isascii() and not (piece.isalpha() or _NUMBER_WITH_UNIT.fullmatch(piece))
    ]
    if any(piece and not _ABBREVIATED.fullmatch(piece) for piece in mixed):
        return True
    # GPT-4 is a name, a 7-year-old has a number.
    return len(pieces) > 1 and pieces[0].isupper() and pieces[0].isalpha() and any(map(str.isdecimal, pieces))


def _number(digits: str) -> str:
    whole, point, rest = _THOUSANDS.sub("", digits.strip(".,")).partition(".")
    whole, rest = whole.lstrip("0") or "0", rest.rstrip("0")
    return f"{whole}{point}{rest}" if rest else whole


def _names(text: str) -> Iterator[Exact]:
    found: list[Exact] = []
    words = 0
    for match in _WORD.finditer(text):
        word, start = match[0], match.start()
        is_within = _WITHIN.search(text, max(0, start - 2), start) is not None
        words += is_within
        if not word[0].isupper() or fold(word).strip() in _NO_NAMES:
            continue
        if (is_within and len(word) > 1) or (word.isupper() and len(word) > 1) or _HUMP.search(word):
            found.append(Exact(ExactKind.NAME, fold(word), start, match.end()))
    return iter([] if words >= WORDS_TO_JUDGE and len(found) > CAPITALS * words else found)
