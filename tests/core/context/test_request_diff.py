"""Two requests that a client made itself: what entered, left and reads differently, whatever they hold."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.context.prompt_diff import (
    MOST_ALIGNED,
    MOST_PARTS,
    compare_requests,
    pictures_in,
    pieces_of,
    without_bytes,
)
from tests.support.material.drawings import drawing

MARK = {"cache_control": {"type": "ephemeral"}}


def said(text: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def told(earlier: dict[str, Any] | None, later: dict[str, Any]) -> list[tuple[str, str, str]]:
    before = None if earlier is None else pieces_of(earlier)
    changes = [change.difference for change in compare_requests(before, pieces_of(later))]
    return [(one.change, one.kind, one.id) for one in changes]


OLD = {
    "system": "Be brief.",
    "tools": [{"name": "look"}, {"name": "run"}],
    "messages": [said("Hi"), said("Yes?", "assistant")],
}


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({}, []),
        ({"messages": [*OLD["messages"], said("Go")]}, [("entered", "message", "3")]),
        ({"messages": [said("Hi")]}, [("left", "message", "2")]),
        ({"messages": [said("Hello"), *OLD["messages"][1:]]}, [("reworded", "message", "1")]),
        ({"messages": [said("A summary."), said("Go")]}, [("reworded", "message", "1"), ("left", "message", "2"), ("entered", "message", "2")]),
        ({"system": "Be long."}, [("reworded", "system", "1")]),
        ({"system": None}, [("left", "system", "1")]),
        ({"tools": [{"name": "look"}, {"name": "go"}, {"name": "run", "more": 1}]}, [("left", "tool", "run"), ("entered", "tool", "go"), ("entered", "tool", "run")]),
        ({"tools": [{"name": "look", **MARK}, {"name": "run"}], "system": [{"type": "text", "text": "Be brief.", **MARK}]}, []),
        ({"messages": [said([{"type": "text", "text": "Hi", **MARK}]), OLD["messages"][1]]}, []),
    ],
)  # fmt: skip
def test_what_is_new_in_a_request(later: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert told(OLD, OLD | later) == expected


def test_each_part_of_a_message_is_read_by_itself() -> None:
    parts = [{"type": "text", "text": "Hi", **MARK}, {"type": "2. text", "x": 1}, {"type": "text", "text": "Look"}, 5]
    [piece] = pieces_of({"messages": [said(parts)]})
    assert dict(piece.block.texts) == {"text": "Hi", "2. 2. text": json.dumps(parts[1]), "3. text": "Look", "4. ": "5"}
    [piece] = pieces_of({"messages": [said(parts * MOST_PARTS)]})
    assert len(piece.block.texts) == 1


PNG = "data:image/png;base64," + base64.b64encode(drawing(400, 300)).decode()


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ({"type": "image_url", "image_url": {"url": PNG}}, 1),
        ({"type": "input_image", "image_url": PNG}, 1),
        ({"type": "function_call_output", "output": [{"type": "input_image", "image_url": PNG}]}, 1),
        ({"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}, 0),
        ({"type": "text", "text": PNG}, 0),
        ({"content": [{"content": [{"content": [{"content": [{"type": "input_image", "image_url": PNG}]}]}]}]}, 0),
    ],
)
def test_pictures_are_found_where_protocols_have_them(part: dict[str, Any], count: int) -> None:
    assert [picture.data for picture in pictures_in(said([part]))] == [drawing(400, 300)] * count
    assert (len(str(without_bytes(part))) < 300) == (part.get("type") != "text" and "content" not in part)


def test_in_the_first_request_everything_is_new_and_tokens_add_up() -> None:
    changes = list(compare_requests(None, pieces_of(OLD)))
    assert {change.difference.reason for change in changes} == {"first_call"}
    assert sum(change.tokens for change in changes) == sum(piece.block.tokens for piece in pieces_of(OLD))
    assert told({"input": "Hi"}, {"input": [{"type": "message", **said("Hi")}], "instructions": "x"})


def test_a_long_history_that_was_rewritten_is_not_aligned() -> None:
    old, new = ([said(f"{name} {number}") for number in range(MOST_ALIGNED + 1)] for name in ("a", "b"))
    assert len(told({"messages": [said("Hi"), *old]}, {"messages": [said("Hi"), *new]})) == 2 * len(old)


WILD = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.sampled_from(["user", "text", "function"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "type", "content", "name", "function", "text"]), inner, max_size=3)
    ),
    max_leaves=8,
)
REQUESTS = st.dictionaries(st.sampled_from(["messages", "input", "system", "instructions", "tools"]), WILD)


@given(earlier=REQUESTS, later=REQUESTS)
def test_no_request_breaks_it(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    assert told(earlier, json.loads(json.dumps(earlier))) == []
    before, after = pieces_of(earlier), pieces_of(later)
    assert list(pictures_in([earlier, later])) == []
    grown = sum(change.tokens for change in compare_requests(before, after))
    unlike = sum(piece.block.tokens for piece in after) - sum(piece.block.tokens for piece in before)
    assert grown == unlike
