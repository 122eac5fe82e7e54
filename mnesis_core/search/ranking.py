"""A question as it is typed, and the places of the record that may answer it, ranked: by BM25 over words, and by how
near they are in meaning.

A message is short and says little alone, so the words of its neighbours count too, with their distance: the answer to a
question seldom repeats it. Who speaks, when, and whether a message is itself a question then raise or lower what the
words say. Every constant is a round number, chosen on two conversations and measured on others (docs/measured.md).

An index is asked term by term, and each finding is a ``Posting``. Messages are known by one number, a ``Place``, so that
a neighbour is the number next to it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from heapq import nlargest
from itertools import islice
from math import fsum, isfinite, log, sqrt
from operator import mul
from statistics import fmean, pstdev
from struct import pack, unpack
from typing import NamedTuple

from mnesis_core.errors import InvalidRequest, gettext_noop
from mnesis_core.search.words import (
    FUNCTION_WORDS,
    LONGEST_WORD,
    IndexWord,
    fold,
    forms_of,
    is_unspaced,
    readable,
    stem_of,
    words_in_order,
    words_of,
)

Place = int
"""``session * SESSION + seq`` of a message, where sessions are numbered by the caller; negative for any other text."""
SESSION = 1 << 48

K1, B = 1.2, 0.75
RARITY = 1.25
"""Exponent of the weight of a rare word, which sinks words that every sentence has, in every language."""
SPREAD = {-2: 0.5, -1: 0.75, 0: 1.0, 1: 0.75, 2: 0.5}
"""The weight of a word for the messages around its own, by their distance from it."""
_SPREAD = tuple(SPREAD.items())
ANSWERED = 1.3
"""The weight of a word in a message that asks something, for the message after it."""
NAMED, ASKING, NEAR_DATE = 2.0, 0.7, 2.0
"""The factors for a message by a person named in the question, for one that asks something, and for one of its date."""
GAP = timedelta(hours=4)
"""Messages further apart in time are not of one conversation."""
POOL = 100
"""The number of places that are looked at closely."""
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
NEARNESS_WEIGHT = 0.05
"""The share of nearness in the score of a place; words have the rest. It was chosen on two conversations."""
NEARNESS_BESIDE = 0.5
"""The weight of the messages before and after, where they are nearer than usual."""
NEAREST = 50
"""The most messages that are hits by their meaning alone."""
NEAR = 1.5
"""The standard deviations by which such a message is nearer than usual, at least."""


class Posting(NamedTuple):
    """A text that has a word of a term."""

    term: int
    place: Place
    entry: int
    length: int | None
    """The number of characters; ``None`` where it is not known, and then the text counts as one of average length."""


class Turn(NamedTuple):
    """The facts about a message that ranking uses beside its words."""

    at: datetime
    branch: int
    speaker: str
    """The folded words of the speaker's name; empty where nobody is named."""
    says: bool
    """The message has a text, which may be the answer."""
    is_question: bool


class Ranked(NamedTuple):
    place: Place
    score: float


def choose_terms(counts: Sequence[int], *, most: int) -> list[int]:
    """Return the terms to ask for, the rarest first, whose postings are at most ``most`` together; at least one.

    :param counts: texts that have each term, as far as they were counted
    """
    there = sorted((term for term, count in enumerate(counts) if count), key=lambda term: counts[term])
    chosen: list[int] = []
    left = most
    for term in there:
        left -= counts[term]
        if chosen and left < 0:
            break
        chosen.append(term)
    return chosen


class Evidence:
    """The occurrences of a question's words, by term and place."""

    def __init__(self, question: Question, postings: Sequence[Posting], counts: Sequence[int], *, total: int) -> None:
        """:param total: messages that were searched"""
        lengths = {posting.entry: posting.length for posting in postings if posting.length is not None}
        usual = max(1.0, fmean(lengths.values())) if lengths else 1.0
        self.terms: dict[int, dict[Place, float]] = defaultdict(dict)
        for term, place, _, length in postings:
            share = 1 / (1 - B + B * (1.0 if length is None else length / usual))
            at = self.terms[term]
            if share > at.get(place, 0.0):
                at[place] = share
        self.said: dict[Place, list[tuple[int, float]]] = defaultdict(list)
        for term, places in self.terms.items():
            for place, share in places.items():
                self.said[place].append((term, share))
        self.words = sum(term.weight == 1.0 for term in question.terms)
        """The number of words in the question, found or not."""
        self.weights: dict[int, float] = {}
        for term in self.terms:
            count, most = counts[term], max(total, counts[term])
            rarity = log(1 + (most - count + 0.5) / (count + 0.5)) ** RARITY
            self.weights[term] = question.terms[term].weight * rarity

    def candidates(self, most: int = POOL) -> list[Place]:
        """Return roughly the best places; gaps in time and the questions among messages are ignored."""
        scores: dict[Place, float] = defaultdict(float)
        for term, places in self.terms.items():
            weight, near = self.weights[term] * (K1 + 1), defaultdict[Place, float](float)
            for place, share in places.items():
                scores[place] += weight * share / (share + K1)
                if place < 0:
                    near[place] += share
                    continue
                for distance, part in _SPREAD:
                    near[place + distance] += part * share
            for place, share in near.items():
                scores[place] += weight * share / (share + K1)
        return [place for _, place in nlargest(most, zip(scores.values(), scores, strict=True))]

    def score(self, place: Place, turns: Mapping[Place, Turn]) -> float:
        """Return the score of a place from the words at it and around it."""
        found, near = [(place, SPREAD[0])], defaultdict[int, float](float)
        for distance, part in _SPREAD if place >= 0 else ():
            other = place - distance
            if distance and is_near(place, other, turns):
                found.append((other, ANSWERED if distance == 1 and turns[other].is_question else part))
        for other, part in found:
            for term, share in self.said[other]:
                near[term] += part * share
        total = sum(self.weights[term] * _saturated(share) for term, share in near.items())
        return total + sum(self.weights[term] * _saturated(share) for term, share in self.said[place])


def rank(
    question: Question, evidence: Evidence, candidates: Iterable[Place], turns: Mapping[Place, Turn]
) -> list[Ranked]:
    """Return the candidates that say anything, the best first, and of equals the newest.

    :param turns: of the candidates, and of the messages around them that belong to their sessions
    """
    found = []
    for place in candidates:
        turn = turns.get(place)
        if turn is None and place >= 0:
            continue  # A place beside a message where there is none.
        score = evidence.score(place, turns) * (1.0 if turn is None else _factor(question, turn))
        if score > 0:
            found.append(Ranked(place, score))
    return sorted(found, key=lambda ranked: (-ranked.score, -ranked.place))


def with_scores(ranked: Sequence[Ranked], scores: Mapping[Place, float], *, weight: float) -> list[Ranked]:
    """Return places in the order of their own score and a reranker's together; those that it did not read come last.

    A reranker's scale is its own, so its lowest score counts as 0 and its highest as 1, with this weight beside ours.
    """
    best = max((one.score for one in ranked), default=0.0) or 1.0
    low, high = min(scores.values(), default=0.0), max(scores.values(), default=0.0)
    read = [
        Ranked(place, (1 - weight) * score / best + weight * (scores[place] - low) / ((high - low) or 1.0))
        for place, score in ranked
        if place in scores
    ]
    read.sort(key=lambda one: (-one.score, -one.place))
    return [*read, *(one for one in ranked if one.place not in scores)]


def beside(places: Collection[Place], distance: int = 2) -> set[Place]:
    """Return the numbers of messages at and around places."""
    return {place + step for place in places if place >= 0 for step in range(-distance, distance + 1)}


def is_near(place: Place, other: Place, turns: Mapping[Place, Turn]) -> bool:
    """Return whether two messages stand in one conversation: in the same session and branch, and not long apart."""
    one, two = turns.get(place), turns.get(other)
    if one is None or two is None or one.branch != two.branch or place // SESSION != other // SESSION:
        return False
    return abs(one.at - two.at) <= GAP


def _factor(question: Question, turn: Turn) -> float:
    factor = ASKING if turn.is_question else 1.0
    if turn.speaker and not question.words.isdisjoint(turn.speaker.split()):
        factor *= NAMED
    return factor * (NEAR_DATE ** question.period.nearness(turn.at) if question.period else 1.0)


def _saturated(share: float) -> float:
    return share * (K1 + 1) / (share + K1)


# A question as it is typed: what to ask an index for, and how much each word of it says.
#
# Nothing in it must occur. A word asks for its forms (``mnesis_core.search.words``) and, for less, for every word with
# the same beginning, which is what finds the inflected words of languages that have no list here.


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


# How near messages are to a question by an embedding model, and what that adds to what their words say.
#
# The two are added, never merged by rank: words are much the better half, and a sum lets the other one decide only
# between places of which the words say about the same. A cosine means nothing alone, since each model has its own
# usual ones, so it counts by how many standard deviations it is above what is usual among the messages that were
# searched.


def packed(numbers: Sequence[float]) -> bytes:
    """Return a vector as it is stored: of length 1, each number a float32, the least significant byte first.

    :raises ValueError: the numbers have no direction, or one of them is none.
    """
    if not numbers or not all(isinstance(number, int | float) for number in numbers):
        raise ValueError("a vector must have numbers, and nothing else")
    try:
        length = sqrt(fsum(number * number for number in numbers))
        if not isfinite(length) or length == 0:
            raise ValueError("a vector must have a direction")
        return pack(f"<{len(numbers)}f", *(number / length for number in numbers))
    except OverflowError:
        raise ValueError("a number of a vector is too large") from None


def unpacked(vector: bytes) -> tuple[float, ...]:
    return unpack(f"<{len(vector) // 4}f", vector)


def signs_of(vector: bytes) -> bytes:
    """Return a bit for each number, set where it is positive: how many differ tells at little cost who may be near."""
    numbers = unpacked(vector)
    return sum(1 << place for place, number in enumerate(numbers) if number > 0).to_bytes((len(numbers) + 7) // 8)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return float(sum(map(mul, one, other)))


def likely_near(signs: Sequence[bytes], question: bytes, *, most: int) -> list[int]:
    """Return the positions of those vectors that are likely to be nearest to a question's, by their signs alone."""
    wanted = int.from_bytes(question)
    differing = [(int.from_bytes(each) ^ wanted).bit_count() for each in signs]
    return sorted(range(len(differing)), key=differing.__getitem__)[:most]


class Nearness:
    """How near places are to a question, against what is usual."""

    def __init__(self, cosines: Mapping[Place, float], *, usual: Sequence[float]) -> None:
        """:param usual: cosines of messages that were chosen without looking"""
        mean, deviation = (fmean(usual), pstdev(usual)) if usual else (0.0, 0.0)
        self._deviations = {
            place: (cosine - mean) / deviation if deviation > 0 else 0.0 for place, cosine in cosines.items()
        }

    def of(self, place: Place) -> float:
        """Return by how many standard deviations a place is nearer than usual; 0 for one without a vector."""
        return self._deviations.get(place, 0.0)

    def nearest(self) -> list[Place]:
        near = [(deviations, place) for place, deviations in self._deviations.items() if deviations >= NEAR]
        return [place for _, place in nlargest(NEAREST, near)]

    def around(self, place: Place, turns: Mapping[Place, Turn]) -> float:
        """Return how near a place is together with those beside it, as far as they were compared."""
        beside = [other for other in (place - 1, place + 1) if is_near(place, other, turns)]
        return self.of(place) + NEARNESS_BESIDE * sum(max(0.0, self.of(other)) for other in beside)


def blend(said: Sequence[Ranked], nearness: Nearness, turns: Mapping[Place, Turn]) -> list[Ranked]:
    """Return the places that words found, and the nearest ones, in the order of both together; of equals the newest first."""
    best = max((ranked.score for ranked in said), default=1.0)
    words = dict.fromkeys(nearness.nearest(), 0.0) | {place: score / best for place, score in said}
    both = [
        Ranked(place, (1 - NEARNESS_WEIGHT) * score + NEARNESS_WEIGHT * nearness.around(place, turns))
        for place, score in words.items()
    ]
    return sorted(both, key=lambda ranked: (-ranked.score, -ranked.place))
