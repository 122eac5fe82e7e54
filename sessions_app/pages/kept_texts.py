"""Sentences that were kept or put together in English, in the page's language.

What the record keeps of an error is one text with its values in it. The catalogue has the texts that it was made of, so
a page finds these again: a text as it is, or one whose words stand around the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice

from django.conf import settings
from django.utils.translation import get_language, gettext, trans_real

from mnesis_core.errors import error_of, fill
from sessions_app.pages.formats import localised

LONGEST = 2_000  # characters; a longer text is no sentence of ours
MOST_SENTENCES = 8
LEAST_WORDS = 10  # characters around the values, without which anything would fit
NUMBERS = {"count", "line", "number", "first", "last"}  # values that are numbers, and show what a short text is
PHRASES = {"reason", "where", "lines"}  # values that may be texts of ours themselves
_VALUE = re.compile(r"%\((\w+)\)s")
_END = re.compile(r"(?<=[.!?\"]) ")
_NUMBER = re.compile(r"[\d,]+")
_NAME = re.compile(r"\S+|'.*'|\".*\"", re.DOTALL)
_GROUPED = re.compile(r"-?\d{1,3}(?:,\d{3})+")


@dataclass(frozen=True, slots=True)
class Pattern:
    text: str
    words: tuple[str, ...]  # before, between and behind the values
    names: tuple[str, ...]

    @property
    def rank(self) -> tuple[bool, int]:
        return not NUMBERS.intersection(self.names), -sum(map(len, self.words))

    def values_in(self, said: str) -> dict[str, str] | None:
        """Return the values with which the text says this; ``None`` if it cannot."""
        first, *between, last = self.words
        end = len(said) - len(last)
        if not (said.startswith(first) and said.endswith(last)) or end < len(first):
            return None
        values, at = [], len(first)
        for words in between:
            found = said.find(words, at, end)
            if found < 0:
                return None
            values.append(said[at:found])
            at = found + len(words)
        named = dict(zip(self.names, [*values, said[at:end]], strict=True))
        return named if self._may_be(named) else None

    def _may_be(self, named: dict[str, str]) -> bool:
        if not all(_NUMBER.fullmatch(named[name]) for name in self.names if name in NUMBERS):
            return False
        # What somebody else said may end like a text that begins with a value: that has to be a name, or ours.
        first = self.names[0]
        if self.words[0] or _NAME.fullmatch(named[first]):
            return True
        return first in PHRASES and _found(named[first]) is not None


def in_language(said: str) -> str:
    """Return an English text in the page's language, as far as its sentences are ours, and the rest as it is."""
    return _found(said) or said


def kept_error_text(message: str, code: str = "") -> str:
    """Return an error that the record keeps; behind its code's own sentence if it is not known how it was made."""
    found = _found(message)
    if found is not None or not message or _is_english():
        return found or message
    known = error_of(code)
    return f"{gettext(known.text)} {message}" if known.code == code else message


def _found(said: str) -> str | None:
    if not said or len(said) > LONGEST or _is_english():
        return None
    return _translated(get_language() or "", said)


def _is_english() -> bool:
    return (get_language() or settings.LANGUAGE_CODE) == settings.LANGUAGE_CODE


@lru_cache(maxsize=1_024)
def _translated(language: str, said: str) -> str | None:
    rest, found = said, list[str]()
    while rest and len(found) < MOST_SENTENCES:
        taken = _first(language, rest)
        if taken is None:
            break
        length, text = taken
        found.append(text)
        rest = rest[length:].lstrip(" ")
    return " ".join((*found, rest) if rest else found) if found else None


def _first(language: str, said: str) -> tuple[int, str] | None:
    """Return how much of a text is one of ours, and this in the page's language."""
    # A few: a hostile text may have a thousand, and every one is compared with every text.
    ends = [*(end.start() for end in islice(_END.finditer(said), MOST_SENTENCES)), len(said)]
    for end in reversed(ends):
        if (text := gettext(said[:end])) != said[:end]:
            return end, text
    for end in ends:
        if (filled := _filled(language, said[:end])) is not None:
            return end, filled
    return None


def _filled(language: str, said: str) -> str | None:
    for pattern in _patterns(language):
        if (values := pattern.values_in(said)) is not None:
            return fill(gettext(pattern.text), {name: _shown(name, value) for name, value in values.items()})
    return None


def _shown(name: str, value: str) -> str:
    if name in PHRASES:
        return in_language(value)
    return localised(value) if name == "seconds" or _GROUPED.fullmatch(value) else value


@cache
def _patterns(language: str) -> tuple[Pattern, ...]:
    """Return the texts with values that the catalogue has, those that fit the least first."""
    return tuple(sorted(_texts_with_values(), key=lambda pattern: (*pattern.rank, pattern.text)))


def _texts_with_values() -> Iterator[Pattern]:
    # Django has no way to ask for the texts. Plurals are pairs, and a context stands before its text.
    for text in trans_real.catalog()._catalog.keys():  # type: ignore[attr-defined]  # noqa: SIM118 - not a dict
        if isinstance(text, str) and "\x04" not in text and _VALUE.search(text):
            pieces = _VALUE.split(text)
            words, names = tuple(piece.replace("%%", "%") for piece in pieces[::2]), tuple(pieces[1::2])
            is_telling = len("".join(words).strip()) >= LEAST_WORDS or bool(NUMBERS.intersection(names))
            if is_telling and len(set(names)) == len(names) and all(words[1:-1]):
                yield Pattern(text=text, words=words, names=names)
