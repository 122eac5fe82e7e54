"""Which summaries are merged: the oldest neighbours of one depth, only where they are too much, never all by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mnesis_core.compaction.selection import Condensation, choose_condensation, next_round
from mnesis_core.config import Config, override
from mnesis_core.context.entries import ContextEntry, MessageEntry
from mnesis_core.files.references import Named
from tests.core.context import contexts as make
from tests.core.context.contexts import situation, summaries

CONFIG = Config()
FILE = "file_0123456789abcdef"


def condensation(entries: Sequence[ContextEntry], usable: int = 10_000, used: int = 1_000) -> tuple[str, ...] | None:
    config = override(CONFIG, {"compaction": {"condense_fan_in": 5, "condense_min_fan_in": 3}})
    budget = make.budget(usable)
    chosen = choose_condensation(situation(entries, config, budget=budget, used=used, everything=used < budget.soft))
    return chosen.source_ids if chosen else None


BELOW_SOFT, SOFT, NEARLY_FULL, HARD = 5_000, 6_000, 9_000, 10_000


@pytest.mark.parametrize(
    ("depths", "used", "chosen"),
    [
        pytest.param((0, 0, 0, 0), BELOW_SOFT, (1, 2, 3), id="the fewest, without the newest"),
        pytest.param((0, 0, 0), BELOW_SOFT, None, id="too few without the newest"),
        pytest.param((0,) * 8, BELOW_SOFT, (1, 2, 3, 4, 5), id="no more than the fan-in"),
        pytest.param((1, 0, 0, 0, 0), BELOW_SOFT, (2, 3, 4), id="neighbours of one depth"),
        pytest.param((1, 1, 1, 0, 0, 0, 0), BELOW_SOFT, (4, 5, 6), id="the lowest depth before the oldest"),
        pytest.param((2, 2, 2, 1, 1, 0), BELOW_SOFT, (1, 2, 3), id="any depth"),
        pytest.param((0, 0, 0), SOFT, None, id="not where that would leave too little of the window"),
        pytest.param((0, 0, 0), NEARLY_FULL, (1, 2), id="two from the soft threshold on"),
        pytest.param((0, 0), SOFT, None, id="but not all of them"),
        pytest.param((2, 1, 0, 0), SOFT, None, id="and not of different depths"),
        pytest.param((0, 0), HARD, (1, 2), id="all of them when nothing else helps"),
        pytest.param((2, 1, 0), HARD, (1, 2), id="and mixed depths when no neighbours are equal"),
        pytest.param((1, 0, 0), HARD, (2, 3), id="equal neighbours still come first"),
        pytest.param((0,), HARD, None, id="one alone stays"),
    ],
)
def test_which_summaries_are_merged(depths: tuple[int, ...], used: int, chosen: tuple[int, ...] | None) -> None:
    names = tuple(f"sum_{number:04}" for number in chosen) if chosen else None
    entries = make.entries_of([], *summaries(*depths, tokens=4_000))
    assert condensation(entries, used=used) == names


def test_a_compaction_of_named_turns_merges_no_summaries_however_many_there_are() -> None:
    entries = make.entries_of([], *summaries(0, 0, 0, 0, tokens=4_000))
    assert isinstance(next_round(situation(entries)), Condensation)
    assert next_round(situation(entries, everything=True, turn_ids=["turn_gone"])) is None


def test_summaries_are_merged_only_when_they_alone_are_too_large_or_nothing_else_helps() -> None:
    entries = make.entries_of([], *summaries(0, 0, 0, 0))
    assert condensation(entries, usable=20_000, used=19_000) is None
    assert condensation(entries, usable=20_000, used=20_000) is not None


def test_summaries_with_a_message_between_them_are_not_merged() -> None:
    first, second = summaries(0, 0, tokens=2_000)
    apart = [
        replace(first, position=1),
        MessageEntry(position=2, message=make.message(9, "user", "hm")),
        replace(second, position=3),
    ]
    assert condensation(apart, used=HARD) is None


def test_a_condensation_says_what_it_stands_for() -> None:
    named = make.summary(1, f"one {FILE}", first=1, last=4, depth=1, file_ids=("file_aaaaaaaa",))
    chosen = Condensation(summaries=(named, make.summary(2, "two", first=5, last=6)), tokens=9)
    assert (chosen.first_seq, chosen.last_seq, chosen.message_count, chosen.depth) == (1, 6, 6, 2)
    assert chosen.named == Named(summaries=("sum_0001", "sum_0002"), files=("file_aaaaaaaa", FILE))
