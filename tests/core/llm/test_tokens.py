"""Token estimates: near what real tokenisers count, quick, and safe to build budgets on."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.llm.tokens import MESSAGE_FRAMING, characters_within, estimate_message, estimate_part, estimate_text
from mnesis_core.messages import PatchPart, ReasoningPart, StepStartPart, TextPart, ToolPart

ENGLISH = (
    "The harbour office closed early because the storm had torn two boards from its roof. Martha walked home along "
    "the quay, counting the boats that were still out, and wondered whether anyone had told the lighthouse keeper. "
    "By nine o'clock the wind had dropped, but the sea kept throwing stones over the wall and into the gardens."
)
CODE = '''def merge_sorted(left: list[int], right: list[int]) -> list[int]:
    """Merge two sorted lists into one sorted list."""
    result: list[int] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            result.append(left[i])
            i += 1
        else:
            result.append(right[j])
            j += 1
    result.extend(left[i:])
    result.extend(right[j:])
    return result
'''
JSON = (
    '{"id": "evt_9f31", "type": "order.updated", "created": 1718031212, "data": {"order": {"number": 40213, "lines": '
    '[{"sku": "A-100", "quantity": 2, "price": 19.95}, {"sku": "B-220", "quantity": 1, "price": 149.0}], "status": '
    '"shipped", "customer": {"name": "Ada Byron", "email": "ada@example.org"}}}}'
)
CHINESE = (
    "港口办公室今天提前关门, 因为暴风雨把屋顶上的两块木板刮走了。玛莎沿着码头走回家, 数着还没有回来的船, "
    "心里想着有没有人通知灯塔的看守人。到了晚上九点, 风已经小了, 但是海浪还在把石头抛过围墙。"
)
JAPANESE = (
    "嵐で屋根の板が二枚はがれたため、港の事務所は早めに閉まりました。マーサは岸壁に沿って家まで歩きながら、"
    "まだ戻っていない船を数え、灯台守に誰かが知らせたのだろうかと考えていました。"
)
KOREAN = (
    "폭풍으로 지붕의 판자 두 장이 떨어져 나가서 항구 사무실은 일찍 문을 닫았습니다. 마사는 부두를 따라 집으로 걸어가면서 "
    "아직 돌아오지 않은 배를 세고 누가 등대지기에게 알렸는지 궁금해했습니다."
)


@pytest.mark.parametrize(
    ("text", "cl100k", "o200k"),
    [
        pytest.param(ENGLISH, 66, 64, id="english"),
        pytest.param(CODE, 109, 109, id="code"),
        pytest.param(JSON, 112, 112, id="json"),
        pytest.param(CHINESE, 130, 83, id="chinese"),
        pytest.param(JAPANESE, 101, 74, id="japanese"),
        pytest.param(KOREAN, 107, 68, id="korean"),
    ],
)
def test_the_estimate_lies_near_what_two_real_tokenisers_count(text: str, cl100k: int, o200k: int) -> None:
    assert estimate_text(text) == pytest.approx((cl100k + o200k) / 2, rel=0.15)


def test_a_megabyte_takes_a_moment() -> None:
    text = CODE * 2_500
    began = time.process_time()
    estimate_text(text + "é")
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("text", ["\x00", "\ud800", "\U0001f600", "\u202e", "a", " ", "\n", "0"])
def test_any_character_counts_for_something_and_nothing_crashes(text: str) -> None:
    assert estimate_text(text) >= 1


def test_only_the_empty_text_is_free() -> None:
    assert estimate_text("") == 0


@given(st.text(max_size=200), st.text(max_size=40))
def test_more_text_is_never_fewer_tokens(text: str, more: str) -> None:
    assert max(estimate_text(text), estimate_text(more)) <= estimate_text(text + more)


@given(st.text(max_size=200), st.text(max_size=200))
def test_joining_two_texts_adds_next_to_nothing(first: str, second: str) -> None:
    assert estimate_text(first + second) <= estimate_text(first) + estimate_text(second) + 3


@given(st.text(max_size=400), st.integers(0, 60), st.booleans())
def test_an_end_of_a_text_stays_within_its_limit(text: str, limit: int, from_end: bool) -> None:
    count = characters_within(text, limit, from_end=from_end)
    assert estimate_text(text[len(text) - count :] if from_end else text[:count]) <= limit


@pytest.mark.parametrize("from_end", [False, True])
def test_an_end_of_a_text_is_nearly_as_long_as_it_may_be(from_end: bool) -> None:
    text = CODE * 50
    count = characters_within(text, 1_000, from_end=from_end)
    assert estimate_text(text[-count:] if from_end else text[:count]) > 900


def test_a_part_counts_all_that_it_holds() -> None:
    tool = ToolPart(tool_name="read_file", tool_call_id="call_1", input='{"path": "a"}', output=ENGLISH)
    assert estimate_part(tool) > estimate_text(ENGLISH) + estimate_text('{"path": "a"}')
    assert estimate_part(ReasoningPart(text=ENGLISH)) == estimate_text(ENGLISH)
    assert estimate_part(PatchPart(unified_diff=CODE)) == estimate_text(CODE)
    assert estimate_part(StepStartPart()) == 0


def test_a_message_counts_its_framing() -> None:
    parts = (TextPart(text=ENGLISH), TextPart(text=CODE))
    assert estimate_message(parts) == MESSAGE_FRAMING + estimate_text(ENGLISH) + estimate_text(CODE)
