"""Values that are frozen for the type checker."""

from __future__ import annotations

import pytest

from mnesis_core.messages import TextPart, ToolPart
from mnesis_core.records import new_id


def test_two_with_the_same_content_are_equal_and_have_one_hash() -> None:
    made = [ToolPart(tool_name="read", tool_call_id="c1", output="high") for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made)) == 1
    assert TextPart(text="a") != TextPart(text="b")


def test_nothing_can_be_added_to_one() -> None:
    with pytest.raises(AttributeError):
        TextPart(text="a").note = "b"  # type: ignore[attr-defined]


def test_ids_that_are_made_one_after_another_increase() -> None:
    made = [new_id("file") for _ in range(10_000)]
    assert made == sorted(set(made))
