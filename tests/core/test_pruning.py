"""Which tool outputs become tombstones: seed 000's rules, as a table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from mnesis_core.config import Config, override
from mnesis_core.dag import ContextEntry, MessageEntry
from mnesis_core.messages import Part, StoredMessage, ToolPart, ToolState
from mnesis_core.pruning import PruneChoice, select_prunable
from mnesis_core.tokens import estimate_text
from tests.core.contexts import NOON, budget, contexts, message, prose, tool, turn

OUTPUT = prose(1_000)
SIZE = estimate_text(OUTPUT)
WIDE = budget(10_000_000)
CONFIG = override(Config(), {"prune": {"protect_tokens": 2 * SIZE, "minimum_tokens": SIZE}})


def output(**values: object) -> ToolPart:
    return tool(**({"output": OUTPUT} | values))  # type: ignore[arg-type]


def history(*oldest: Part, turns: int = 8) -> list[StoredMessage]:
    """Turns with one output each, the parts given in the oldest."""
    first = turn(1, "go", *(oldest or (output(),)))
    return [*first, *(item for number in range(2, turns + 1) for item in turn(number, "go", output()))]


def chosen(messages: list[StoredMessage], **prune: object) -> list[str]:
    config = override(CONFIG, {"prune": prune})
    return [part_id.removeprefix("part_") for part_id in select_prunable(messages, config, WIDE).part_ids]


def test_outputs_beyond_the_protected_turns_and_window_are_chosen_newest_first() -> None:
    # Turns 8 and 7 are protected, the outputs of 6 and 5 fill the window, the rest goes.
    assert chosen(history()) == ["0008_0", "0006_0", "0004_0", "0002_0"]


def test_the_choice_says_how_much_it_gains_and_how_much_was_looked_at() -> None:
    made = select_prunable(history(), CONFIG, WIDE)
    assert (made.tokens, made.scanned) == (4 * SIZE, 6)


def test_the_output_that_crosses_the_border_goes_whole() -> None:
    assert chosen(history(), protect_tokens=2 * SIZE - 1) == ["0010_0", "0008_0", "0006_0", "0004_0", "0002_0"]


def test_the_minimum_itself_is_not_enough() -> None:
    assert chosen(history(turns=5), minimum_tokens=SIZE) == []
    assert chosen(history(turns=5), minimum_tokens=SIZE - 1) == ["0002_0"]


@pytest.mark.parametrize("turns", [0, 1])
def test_the_newest_turn_is_protected_whatever_the_configuration_says(turns: int) -> None:
    assert chosen(history(turns=3), protect_turns=turns, protect_tokens=0, minimum_tokens=0) == ["0004_0", "0002_0"]


@pytest.mark.parametrize(
    "spared",
    [
        pytest.param(output(name="skill"), id="a protected tool"),
        pytest.param(output(state=ToolState.RUNNING), id="still running"),
        pytest.param(output(state=ToolState.ERROR, error="no"), id="failed"),
        pytest.param(output(compacted_at=NOON), id="a tombstone already"),
        pytest.param(output(output="ok"), id="smaller than a tombstone"),
    ],
)
def test_what_may_not_be_pruned_is_skipped_and_hides_nothing_older(spared: ToolPart) -> None:
    assert chosen(history(output(), spared)) == ["0008_0", "0006_0", "0004_0", "0002_0"]


def test_outputs_in_user_messages_are_pruned_too() -> None:
    messages = [message(1, "user", "here", output()), *history()[2:]]
    assert "0001_1" in chosen(messages)


def test_nothing_is_pruned_when_it_is_switched_off() -> None:
    assert select_prunable(history(), override(CONFIG, {"prune": {"enabled": False}}), WIDE) == PruneChoice(
        part_ids=(), tokens=0, scanned=0
    )


def test_the_windows_shrink_with_the_budget() -> None:
    # A quarter of usable is protected and an eighth is the minimum, so the defaults work on a small model.
    small = select_prunable(history(), Config(), budget(8 * SIZE))
    assert small.part_ids == ("part_0008_0", "part_0006_0", "part_0004_0", "part_0002_0")
    assert select_prunable(history(), Config(), WIDE).part_ids == ()


@settings(max_examples=60, deadline=None)
@given(contexts())
def test_only_completed_outputs_outside_the_newest_turn_are_ever_chosen(entries: list[ContextEntry]) -> None:
    messages = [entry.message for entry in entries if isinstance(entry, MessageEntry)]
    config = override(Config(), {"prune": {"protect_tokens": 0, "minimum_tokens": 0}})
    parts = {stored.id: (item, stored.part) for item in messages for stored in item.parts}
    for part_id in select_prunable(messages, config, WIDE).part_ids:
        item, part = parts[part_id]
        assert isinstance(part, ToolPart)
        assert part.state is ToolState.COMPLETED
        assert part.compacted_at is None
        assert item is not messages[-1]
