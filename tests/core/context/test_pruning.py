"""Which tool outputs become tombstones: seed 000's rules, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from mnesis_core.config import Config, PruneConfig, override
from mnesis_core.context.entries import ContextEntry, MessageEntry, SummaryEntry
from mnesis_core.context.fitting import MARKER_TOKENS, PruneChoice, select_prunable
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import Part, StoredMessage, ToolPart, ToolState
from tests.core.context.contexts import NOON, budget, contexts, entries_of, message, prose, summary, tool, turn

OUTPUT = prose(1_000)
SIZE = estimate_text(OUTPUT)
TINY = "row 7 is fine " * 2
WIDE = budget(10_000_000)
CONFIG = override(Config(), {"prune": {"protect_tokens": 2 * SIZE, "minimum_tokens": SIZE}})


def output(**values: Any) -> ToolPart:
    return tool(**({"output": OUTPUT} | values))


def history(*oldest: Part, turns: int = 6) -> list[StoredMessage]:
    """Turns with one output each (``1:0`` is the first's), the parts given in the oldest."""
    first = turn(1, "go", *(oldest or (output(),)))
    return [*first, *(item for number in range(2, turns + 1) for item in turn(number, "go", output()))]


def without_turns(messages: list[StoredMessage]) -> list[StoredMessage]:
    """Return messages that belong to no turn, as an import may bring them."""
    return [message(item.seq, item.role, *(stored.part for stored in item.parts), turn=None) for item in messages]


def chosen(entries: Sequence[ContextEntry], **prune: Any) -> list[str]:
    """The choice as ``turn:part``."""
    choice = select_prunable(entries, override(CONFIG, {"prune": prune}), WIDE)
    return [f"{int(part_id[5:9]) // 2}:{part_id[10:]}" for part_id in choice.part_ids]


# The table. Unless a row says otherwise: six turns with an output each, of which 6 and 5 are protected, 4
# and 3 fill the protected window of two outputs, 2 and 1 are chosen, and more than one output is enough.
RULES = [
    pytest.param(history(), {}, ["2:0", "1:0"], id="newest first, beyond the protected turns and the window"),
    pytest.param(history(), {"enabled": False}, [], id="nothing when it is switched off"),
    pytest.param([], {}, [], id="nothing of nothing"),
    pytest.param(history(), {"protect_turns": 1}, ["3:0", "2:0", "1:0"], id="one protected turn"),
    pytest.param(history(), {"protect_turns": 3}, [], id="three protected turns leave one output, not enough"),
    pytest.param(history(turns=2), {"protect_tokens": 0, "minimum_tokens": 0}, [], id="the two newest turns stay"),
    pytest.param(without_turns(history()), {}, ["2:0", "1:0"], id="turns are counted by user messages"),
    pytest.param(
        [*history(turns=1), message(3, "user", "and this", output()), *history()[10:]],
        {"protect_tokens": 0, "minimum_tokens": 0},
        ["1:1", "1:0"],
        id="the user message that begins the protected turns is not protected itself",
    ),
    pytest.param(
        history(), {"protect_tokens": 2 * SIZE - 1}, ["3:0", "2:0", "1:0"], id="the crossing output goes whole"
    ),
    pytest.param(history(), {"protect_tokens": 2 * SIZE}, ["2:0", "1:0"], id="an output that fills the window stays"),
    pytest.param(history(), {"protect_tokens": 0}, ["4:0", "3:0", "2:0", "1:0"], id="no window"),
    pytest.param(history(turns=5), {"minimum_tokens": SIZE}, [], id="the minimum itself is not enough"),
    pytest.param(history(turns=5), {"minimum_tokens": SIZE - 1}, ["1:0"], id="one token above the minimum is"),
    pytest.param(history(output(name="skill"), output()), {}, ["2:0", "1:1"], id="a protected tool stays"),
    pytest.param(history(output(name="skill")), {"protected_tools": []}, ["2:0", "1:0"], id="no tool is protected"),
    pytest.param(history(output(), output(state=ToolState.PENDING)), {}, ["2:0", "1:0"], id="a pending call stays"),
    pytest.param(history(output(), output(state=ToolState.RUNNING)), {}, ["2:0", "1:0"], id="a running call stays"),
    pytest.param(
        history(output(), output(state=ToolState.ERROR, error="no")), {}, ["2:0", "1:0"], id="a failed call stays"
    ),
    pytest.param(
        [*history()[:6], *turn(4, "go", output(name="skill")), *history()[8:]],
        {"minimum_tokens": 0},
        ["1:0"],
        id="what may not be pruned does not count towards the window",
    ),
    pytest.param(history(output(output=TINY), output()), {}, ["2:0", "1:1"], id="smaller than its tombstone: it stays"),
    pytest.param(
        history(output(), output(compacted_at=NOON), output()),
        {},
        ["2:0", "1:2"],
        id="a tombstone ends the scan of its message",
    ),
    pytest.param(
        [*turn(1, "go", output()), *turn(2, "go", output(compacted_at=NOON)), *history()[4:]],
        {"minimum_tokens": 0},
        ["1:0"],
        id="but not of older messages",
    ),
]


@pytest.mark.parametrize(("messages", "prune", "expected"), RULES)
def test_the_rules(messages: list[StoredMessage], prune: dict[str, Any], expected: list[str]) -> None:
    assert chosen(entries_of(messages), **prune) == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        pytest.param(1, ["2:0", "1:0"], id="a summary of what is older than all of it"),
        pytest.param(6, ["2:0"], id="a summary between the first turn and the second"),
        pytest.param(10, [], id="a summary just before what the window protects"),
        pytest.param(22, [], id="a summary before the newest turn"),
    ],
)
def test_the_scan_stops_at_the_last_summary(place: int, expected: list[str]) -> None:
    entries: list[ContextEntry] = [
        *(MessageEntry(position=item.seq * 2 + 1, message=item) for item in history()),
        summary(1, "They looked at it.", first=place, last=place),
    ]
    assert chosen(entries, minimum_tokens=SIZE - 1) == expected


def test_the_choice_says_how_much_it_gains_and_how_much_was_looked_at() -> None:
    made = select_prunable(entries_of(history()), CONFIG, WIDE)
    assert (made.tokens, made.scanned) == (2 * SIZE, 4)
    nothing = select_prunable(entries_of(history()), override(CONFIG, {"prune": {"enabled": False}}), WIDE)
    assert nothing == PruneChoice(part_ids=(), tokens=0, scanned=0)


def test_the_defaults_are_the_seeds() -> None:
    assert PruneConfig() == PruneConfig(
        enabled=True, protect_tokens=40_000, minimum_tokens=20_000, protect_turns=2, protected_tools=("skill",)
    )


def test_the_newest_turn_is_protected_whatever_the_configuration_says() -> None:
    with pytest.raises(InvalidRequest, match=r"prune\.protect_turns must lie between 1 and"):
        override(Config(), {"prune": {"protect_turns": 0}})


def test_the_windows_shrink_with_the_budget_and_are_the_seeds_in_a_large_one() -> None:
    # A quarter of usable is protected and an eighth is the minimum, so the defaults work on a small model.
    small = select_prunable(entries_of(history()), Config(), budget(8 * SIZE))
    assert small.part_ids == ("part_0004_0", "part_0002_0")
    assert select_prunable(entries_of(history()), Config(), budget(160_000)).part_ids == ()
    turns = 40_000 // SIZE + 20_000 // SIZE + 1 + 2
    large = select_prunable(entries_of(history(turns=turns)), Config(), budget(160_000))
    assert large.tokens == (20_000 // SIZE + 1) * SIZE > 20_000
    assert select_prunable(entries_of(history(turns=turns - 1)), Config(), budget(160_000)).part_ids == ()


@given(contexts())
def test_only_completed_outputs_after_the_last_summary_and_before_the_newest_question_are_ever_chosen(
    entries: list[ContextEntry],
) -> None:
    config = override(Config(), {"prune": {"protect_tokens": 0, "minimum_tokens": 0, "protect_turns": 1}})
    parts = {
        stored.id: (entry, stored.part)
        for entry in entries
        if isinstance(entry, MessageEntry)
        for stored in entry.message.parts
    }
    last_summary = max((entry.position for entry in entries if isinstance(entry, SummaryEntry)), default=-1)
    questions = [
        entry.position for entry in entries if isinstance(entry, MessageEntry) and entry.message.role == "user"
    ]
    for part_id in select_prunable(entries, config, WIDE).part_ids:
        entry, part = parts[part_id]
        assert isinstance(part, ToolPart)
        assert part.state is ToolState.COMPLETED
        assert part.compacted_at is None
        assert part.tool_name != "skill"
        assert estimate_text(part.output or "") > MARKER_TOKENS
        assert last_summary < entry.position <= max(questions)
