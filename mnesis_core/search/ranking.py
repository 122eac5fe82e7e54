"""Ranks the places of the record that may answer a question: BM25 over their words and the words around them.

A message is short and says little alone, so the words of its neighbours count too, with their distance: the answer to a
question seldom repeats it. Who speaks, when, and whether a message is itself a question then raise or lower what the
words say. Every constant is a round number, chosen on two conversations and measured on others (docs/measured.md).

An index is asked term by term, and each finding is a ``Posting``. Messages are known by one number, a ``Place``, so that
a neighbour is the number next to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nlargest
from math import log
from statistics import fmean
from typing import NamedTuple

from mnesis_core.search.questions import Question

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
