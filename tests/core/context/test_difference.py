"""The difference of two prompts by their manifests: everything that changed is told once, with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import ContextEntry, Row
from mnesis_core.context.prompt_diff import difference
from tests.core.context import contexts as make

SYSTEM: Row = {"kind": "system", "id": ""}
GAP: Row = {"kind": "gap", "id": "", "messages": 2, "summaries": 0, "first_seq": 1, "last_seq": 2}


def message(seq: int, **values: Any) -> Row:
    row = {"kind": "message", "id": f"m{seq}", "seq": seq, "parts": 1, "tombstoned": [], "unanswered": []}
    return row | {"shortened": [], "omitted": []} | values


def summary(name: str, first: int, last: int) -> Row:
    return {"kind": "summary", "id": name, "first_seq": first, "last_seq": last}


def tools(*names: str) -> Row:
    return {"kind": "tools", "id": "", "names": list(names)}


def cut(part: str, head: int, field: str = "text") -> dict[str, Any]:
    return {"part": part, "field": field, "head": head, "tail": 0}


def told(before: list[Row], after: list[Row], **values: Any) -> list[tuple[str, str, str, str]]:
    return [(item.change, item.id, item.reason, item.by) for item in difference(before, after, **values)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param([message(1)], [message(1), message(2)], [("entered", "m2", "new", "")], id="a new message"),
        pytest.param(
            [message(1), message(2)],
            [summary("s", 1, 2)],
            [
                ("summarised", "m1", "summarised", "s"),
                ("summarised", "m2", "summarised", "s"),
                ("entered", "s", "stands_for_earlier", ""),
            ],
            id="a summary in the place of messages",
        ),
        pytest.param(
            [message(1), message(2)],
            [summary("s", 1, 2), message(2, kind="pinned", shortened=[cut("p", 9)])],
            [
                ("summarised", "m1", "summarised", "s"),
                ("entered", "s", "stands_for_earlier", ""),
                ("shortened", "p", "over_budget", ""),
            ],
            id="a message that is pinned beside its summary",
        ),
        pytest.param(
            [summary("a", 1, 2), summary("b", 3, 4)],
            [summary("c", 1, 4)],
            [
                ("summarised", "a", "summarised", "c"),
                ("summarised", "b", "summarised", "c"),
                ("entered", "c", "stands_for_earlier", ""),
            ],
            id="a summary of summaries",
        ),
        pytest.param(
            [summary("a", 1, 2)],
            [summary("b", 1, 2)],
            [("left", "a", "revised", "b"), ("entered", "b", "stands_for_earlier", "")],
            id="a summary said again",
        ),
        pytest.param(
            [message(1), message(3)],
            [GAP, message(3)],
            [("left", "m1", "over_budget", "")],
            id="no room any more",
        ),
        pytest.param(
            [GAP, message(3)],
            [message(1), message(3)],
            [("entered", "m1", "fits_again", "")],
            id="room again",
        ),
        pytest.param(
            [message(3)], [summary("s", 1, 2), message(3)], [("entered", "s", "fits_again", "")], id="a summary again"
        ),
        pytest.param(
            [message(1)], [message(1, tombstoned=["p"])], [("tombstoned", "p", "pruned", "")], id="a pruned output"
        ),
        pytest.param(
            [message(1, unanswered=["p"])], [message(1)], [("answered", "p", "result_came", "")], id="a result"
        ),
        pytest.param([message(1)], [message(1, parts=2)], [("grew", "m1", "more_parts", "")], id="more parts"),
        pytest.param(
            [message(1)], [message(1, shortened=[cut("p", 9)])], [("shortened", "p", "over_budget", "")], id="shortened"
        ),
        pytest.param(
            [message(1, shortened=[cut("p", 9)])],
            [message(1, shortened=[cut("p", 5)])],
            [("shortened", "p", "over_budget", "")],
            id="shortened further",
        ),
        pytest.param(
            [message(1, shortened=[cut("p", 9)])],
            [message(1)],
            [("unshortened", "p", "fits_again", "")],
            id="whole again",
        ),
        pytest.param(
            [message(1)], [message(1, omitted=["p"])], [("omitted", "p", "over_budget", "")], id="a part left out"
        ),
        pytest.param(
            [message(1, omitted=["p"])],
            [message(1, shortened=[cut("p", 3)])],
            [("unomitted", "p", "fits_again", "")],
            id="a part again, shortened or not",
        ),
        pytest.param(
            [SYSTEM, tools("a", "b")],
            [SYSTEM | {"head": 5, "tail": 0}, tools("b", "c")],
            [
                ("shortened", "", "over_budget", ""),
                ("left", "a", "not_offered", ""),
                ("entered", "c", "offered", ""),
            ],
            id="the opening",
        ),
        pytest.param([SYSTEM], [], [("left", "", "over_budget", "")], id="no system prompt any more"),
    ],
)
def test_what_is_told_and_why(before: list[Row], after: list[Row], expected: list[tuple[str, str, str, str]]) -> None:
    assert told(before, after) == expected


def test_in_a_first_call_everything_is_new() -> None:
    rows = [SYSTEM, tools("a"), summary("s", 1, 2), message(3)]
    assert told([], rows, is_first=True) == [("entered", id, "first_call", "") for id in ("", "a", "s", "m3")]


def test_a_summary_that_is_itself_left_out_is_named_all_the_same() -> None:
    assert told([message(1), message(3)], [message(3)], replaced={"m1": "s"}) == [
        ("summarised", "m1", "summarised", "s")
    ]


@given(make.contexts(), st.integers(200, 9_000), st.integers(200, 9_000), st.integers(0, 9), st.integers(0, 9))
def test_what_came_and_went_is_told_once_and_nothing_else(
    entries: list[ContextEntry], room: int, more_room: int, first: int, last: int
) -> None:
    def manifest(part: list[ContextEntry], usable: int) -> list[Row]:
        budget = make.budget(usable)
        return assemble(part, system_prompt="Be brief.", tools=[make.CALCULATOR], budget=budget).manifest  # type: ignore[return-value]

    before, after = manifest(entries[:first], room), manifest(entries[last:], more_room)
    changes = list(difference(before, after))
    shown = [{row["id"] for row in rows if row["kind"] in ("message", "summary")} for rows in (before, after)]
    items = [change for change in changes if change.kind in ("message", "summary") and change.change != "grew"]
    assert sorted(c.id for c in items if c.change in ("left", "summarised")) == sorted(shown[0] - shown[1])
    assert sorted(c.id for c in items if c.change == "entered") == sorted(shown[1] - shown[0])
    keys = [(c.change, c.kind, c.id) for c in changes]
    assert len(keys) == len(set(keys))
    assert list(difference(after, after)) == []
