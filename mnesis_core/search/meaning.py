"""How near messages are to a question by an embedding model, and what that adds to what their words say.

The two are added, never merged by rank: words are much the better half, and a sum lets the other one decide only between
places of which the words say about the same. A cosine means nothing alone, since each model has its own usual ones, so it
counts by how many standard deviations it is above what is usual among the messages that were searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest
from math import fsum, isfinite, sqrt
from operator import mul
from statistics import fmean, pstdev
from struct import pack, unpack

from mnesis_core.search.ranking import Place, Ranked, Turn, is_near

WEIGHT = 0.05
"""The share of nearness in the score of a place; words have the rest. It was chosen on two conversations."""
BESIDE = 0.5
"""The weight of the messages before and after, where they are nearer than usual."""
NEAREST = 50
"""The most messages that are hits by their meaning alone."""
NEAR = 1.5
"""The standard deviations by which such a message is nearer than usual, at least."""


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
        return self.of(place) + BESIDE * sum(max(0.0, self.of(other)) for other in beside)


def blend(said: Sequence[Ranked], nearness: Nearness, turns: Mapping[Place, Turn]) -> list[Ranked]:
    """Return the places that words found, and the nearest ones, in the order of both together; of equals the newest first."""
    best = max((ranked.score for ranked in said), default=1.0)
    words = dict.fromkeys(nearness.nearest(), 0.0) | {place: score / best for place, score in said}
    both = [
        Ranked(place, (1 - WEIGHT) * score + WEIGHT * nearness.around(place, turns)) for place, score in words.items()
    ]
    return sorted(both, key=lambda ranked: (-ranked.score, -ranked.place))
