"""What an embedding model adds to what words say; and what is no vector."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from math import inf, nan
from random import Random
from typing import Any

import pytest

from mnesis_core.errors import ModelReplyIncomplete
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.search_models import checked_vectors
from mnesis_core.providers import make_embedder
from mnesis_core.search.ranking import Nearness, Ranked, Turn, blend, cosine, likely_near, packed, signs_of, unpacked

DEMO = ModelSpec(alias="near", litellm_model="demo/embedding", context_window=8_000, max_output_tokens=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
USUAL = [-0.1, 0.1]


def turns(*places: int, **apart: timedelta) -> dict[int, Turn]:
    return {place: Turn(START + place * apart.get("gap", timedelta()), 0, "", True, False) for place in places}


@pytest.mark.parametrize(
    "numbers", [[], [0.0, 0.0], [nan, 1.0], [inf], [1e300, 1e300], [10**400], ["1.0"], [None], [[1.0]]]
)
def test_what_has_no_direction_is_no_vector(numbers: Any) -> None:
    with pytest.raises(ValueError, match="vector"):
        packed(numbers)


def test_a_vector_keeps_its_direction_alone() -> None:
    assert unpacked(packed([3, 4])) == pytest.approx((0.6, 0.8))
    assert packed([3e5, 4e5]) == packed([3, 4])
    assert signs_of(packed([1.0, -1.0, 0.5])) == bytes([0b101])


def test_signs_tell_who_may_be_near() -> None:
    random = Random(7)
    question = packed([random.gauss(0, 1) for _ in range(384)])
    others = [packed([random.gauss(0, 1) for _ in range(384)]) for _ in range(300)]
    others[123] = packed([number + random.gauss(0, 0.04) for number in unpacked(question)])
    assert likely_near([signs_of(each) for each in others], signs_of(question), most=3)[0] == 123
    assert cosine(unpacked(question), unpacked(others[123])) > 0.7


@pytest.mark.parametrize(
    "found",
    [[[1.0]], [[1.0], [1.0], [1.0]], [[1.0], [nan]], [[1.0], [1.0, 2.0]], [[1.0], None], [[1.0], {}], ["ab", "cd"]],
)
def test_an_answer_without_a_vector_for_each_text_is_an_error_of_ours(found: Any) -> None:
    with pytest.raises(ModelReplyIncomplete):
        checked_vectors(found, DEMO, count=2)


def test_where_nothing_is_nearer_than_usual_words_decide() -> None:
    said = [Ranked(9, 4.0), Ranked(3, 2.0), Ranked(5, 1.0)]
    for nearness in (Nearness({}, usual=[]), Nearness({9: 0.3, 3: 0.3, 5: 0.3}, usual=[0.3, 0.3])):
        assert [ranked.place for ranked in blend(said, nearness, {})] == [9, 3, 5]


def test_nearness_decides_between_places_of_which_words_say_about_the_same() -> None:
    said = [Ranked(9, 4.0), Ranked(3, 3.9), Ranked(5, 1.0)]
    nearness = Nearness({3: 0.3, 5: 0.3}, usual=USUAL)
    assert [ranked.place for ranked in blend(said, nearness, {})] == [3, 9, 5]


def test_the_nearest_are_found_whatever_their_words() -> None:
    nearness = Nearness({7: 0.4, 8: 0.1}, usual=USUAL)
    assert [ranked.place for ranked in blend([Ranked(1, 2.0)], nearness, {})] == [1, 7]
    assert [ranked.place for ranked in blend([], nearness, {})] == [7]


def test_what_stands_beside_counts_where_it_is_of_the_same_conversation() -> None:
    nearness = Nearness({4: 0.1, 5: 0.4, 8: 0.1}, usual=USUAL)
    assert nearness.around(4, turns(4, 5, 8)) == nearness.of(4) + nearness.of(5) / 2
    assert nearness.around(4, turns(4, 5, 8, gap=timedelta(hours=5))) == nearness.of(4)
    assert nearness.around(8, turns(4, 5, 8)) == nearness.of(8)


async def test_the_demo_model_is_the_same_everywhere_and_knows_beginnings_of_words_only() -> None:
    texts = ["The ferries were late.", "a ferry", "tulips", "?!", "\ud800 \x00", "x" * 2_000_000]
    embedder = make_embedder(DEMO)
    first, second = [await embedder.embed(texts, seconds=9) for _ in range(2)]
    assert first.vectors == second.vectors
    late, ferry, tulips = (unpacked(vector) for vector in first.vectors[:3])
    assert (
        cosine(late, tulips) < 0.3 < cosine(late, unpacked((await embedder.embed(["ferries"], seconds=9)).vectors[0]))
    )
    assert first.usage.input_tokens > 0
    assert json.dumps(unpacked(first.vectors[4]))
    assert len({len(vector) for vector in first.vectors}) == 1
    assert ferry
