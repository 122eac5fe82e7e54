"""A question as it is typed: what to ask an index for, and how much each word of it says.

Nothing in it must occur. A word asks for its forms (``mnesis_core.search.forms``) and, for less, for every word with the
same beginning, which is what finds the inflected words of languages that have no list here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import islice

from mnesis_core.errors import InvalidRequest, gettext_noop
from mnesis_core.search.forms import FUNCTION_WORDS, forms_of, stem_of
from mnesis_core.search.words import LONGEST_WORD, IndexWord, fold, is_unspaced, readable, words_in_order, words_of

LONGEST_QUESTION = 100_000
"""Characters."""
MOST_WORDS = 40
"""Words of a question that an index is asked for."""
BEGINNING = 5
"""Letters of a word that another one with the same meaning is likely to share."""
WHOLE_WEIGHT, BEGINNING_WEIGHT, PART_WEIGHT = 1.0, 0.4, 0.5

_MONTHS = "january february march april may june july august september october november december"
NUMBER_OF_MONTH = {
    name[:letters]: number for number, name in enumerate(_MONTHS.split(), 1) for letters in (3, len(name))
}
# "may" and "march" are other words too, so a month stands behind one of these, or beside a number.
_BEFORE_MONTH = {"in", "of", "on", "during", "since", "until", "early", "late", "mid", "last", "this", "next"}
_AMBIGUOUS = {"may", "march", "mar", "sep", "jan", "dec"}
_NUMBER = re.compile(r"([0-9]{1,4})(?:st|nd|rd|th)?")
_ISO = re.compile(r"\b(\d{4})-(\d\d)(?:-(\d\d))?\b")
_BETWEEN_SENTENCES = re.compile(r"[.!?\u2026]+\s|[\n\u3002\uff01\uff1f]")
NEAR_DAYS = 3
"""Days around a date on which people talk of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    words: tuple[IndexWord, ...]
    """Any of them counts."""
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A month, or a day of it, of one year or of any."""

    month: int
    day: int | None = None
    year: int | None = None

    def nearness(self, at: datetime) -> int:
        """Return 0 for a time outside the month, 1 within it, 2 close to the day."""
        if at.month != self.month or self.year not in (None, at.year):
            return 0
        return 1 + (self.day is not None and abs(at.day - self.day) <= NEAR_DAYS)


@dataclass(frozen=True, kw_only=True)
class Question:
    terms: tuple[Term, ...]
    words: frozenset[str]
    """Every word of it, folded."""
    period: Period | None = None

    @cached_property
    def _asked(self) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Return whole words, beginnings of words, and what may stand anywhere in a text without spaces."""
        words = {word for term in self.terms for word in term.words}
        runs = {word.text for word in words if is_unspaced(word.text)}
        whole = {word.text for word in words if not word.prefix} - runs
        return frozenset(whole), frozenset(word.text for word in words if word.prefix), frozenset(runs)

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where words of the question are in a text, in order."""
        return iter(self._known(text))

    def is_stated_in(self, text: str) -> bool:
        """Return whether one sentence has every word of the question, in one of its forms; never for a question of one word."""
        asked = [term.words for term in self.terms if term.weight == WHOLE_WEIGHT]
        for sentence in _BETWEEN_SENTENCES.split(text) if len(asked) > 1 else ():
            folded = fold(sentence)
            words = set(folded.split())
            if all(any(one.text in (folded if is_unspaced(one.text) else words) for one in forms) for forms in asked):
                return True
        return False

    @cached_property
    def _known(self) -> Callable[[str], list[tuple[int, int]]]:
        # A text is shown twice: in short, and among those around it.
        return lru_cache(maxsize=64)(lambda text: list(self._find(text)))

    def _find(self, text: str) -> Iterator[tuple[int, int]]:
        whole, beginnings, runs = self._asked
        folded = f" {fold(text)} "
        # Few of a text's different words are in the question, and only those are looked for.
        said = set(folded.split())
        words = said & whole
        if beginnings:
            words |= {word for word in said if word[:BEGINNING] in beginnings}
        found = [(at - 1, at - 1 + len(word)) for word in words for at in _all_of(folded, f" {word} ", skip=1)]
        found += [(at - 1, at - 1 + len(run)) for run in runs for at in _all_of(folded, run)]
        end = 0
        for start, after in sorted(found):
            if start >= end:
                yield start, after
                end = after


def _all_of(text: str, wanted: str, *, skip: int = 0) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at + skip
        at = text.find(wanted, at + len(wanted) - skip)


def parse_question(text: str, *, without: Collection[str] = ()) -> Question:
    """Return what a question asks for.

    :param without: folded words that say nothing here, such as the names of those who speak
    :raises InvalidRequest: it is too long, or has no word in it.
    """
    if not text.strip():
        raise InvalidRequest(gettext_noop("The search is empty."), field="q")
    if len(text) > LONGEST_QUESTION:
        raise InvalidRequest(
            gettext_noop("A question has at most %(most)s characters, not %(count)s."),
            {"most": LONGEST_QUESTION, "count": len(text)},
            field="q",
        )
    text = readable(text)
    words = words_in_order(text)
    if not words:
        raise InvalidRequest(
            gettext_noop("The search has no word in it. Search for punctuation with mode=regex."), field="q"
        )
    asked = [word for word in words if word not in without] or words
    return Question(
        terms=tuple(_terms(asked, words_of(text).difference(words))),
        words=frozenset(words),
        period=_period(fold(text).split(), text),
    )


def _terms(words: list[str], parts: Collection[str]) -> Iterator[Term]:
    """:param parts: of identifiers: getUserName is also a user and a name"""
    # A question of function words alone asks for them.
    chosen = dict.fromkeys([word for word in words if word not in FUNCTION_WORDS] or words)
    if len(chosen) > MOST_WORDS:
        # Long words are rare ones, in every language that has spaces.
        chosen = dict.fromkeys(sorted(chosen, key=len, reverse=True)[:MOST_WORDS])
    stems: set[str] = set()
    beginnings: set[str] = set()
    for word in chosen:
        if (stem := stem_of(word)) in stems:
            continue
        stems.add(stem)
        yield Term(words=tuple(IndexWord(text=form[:LONGEST_WORD]) for form in forms_of(word)), weight=WHOLE_WEIGHT)
        beginning = word[:BEGINNING]
        if len(word) >= BEGINNING and not word.isdigit() and beginning not in beginnings:
            beginnings.add(beginning)
            yield Term(words=(IndexWord(text=beginning, prefix=True),), weight=BEGINNING_WEIGHT)
    named = (part for part in sorted(set(parts) - FUNCTION_WORDS) if not is_unspaced(part))
    for part in islice(named, MOST_WORDS - len(chosen)):
        yield Term(words=(IndexWord(text=part),), weight=PART_WEIGHT)


def _period(words: list[str], text: str) -> Period | None:
    if (match := _ISO.search(text)) and 1 <= int(match[2]) <= 12:
        return Period(month=int(match[2]), day=int(match[3]) if match[3] else None, year=int(match[1]))
    for at, word in enumerate(words):
        month = NUMBER_OF_MONTH.get(word, 0)
        around = words[max(0, at - 2) : at] + words[at + 1 : at + 3]
        numbers = [int(match[1]) for near in around if (match := _NUMBER.fullmatch(near))]
        if not month or (word in _AMBIGUOUS and not numbers and words[max(0, at - 1)] not in _BEFORE_MONTH):
            continue
        day = next((number for number in numbers if 1 <= number <= 31), None)
        year = next((number for number in numbers if 1900 <= number <= 2999), None)
        return Period(month=month, day=day, year=year)
    return None
