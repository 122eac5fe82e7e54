"""The choice of the next span: the oldest steps, outside the protected tail, and no more than necessary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.compaction.selection import SMALLEST_SOURCE, choose_pinned, choose_span
from mnesis_core.compaction.transcript import reading_tokens, transcript_pieces
from mnesis_core.config import Config, override
from mnesis_core.context.entries import ContextEntry, MessageEntry
from mnesis_core.context.fitting import whole
from mnesis_core.files.references import Named
from tests.core.context import contexts as make
from tests.core.context.contexts import conversation, situation

CONFIG = Config()
FILE = "file_0123456789abcdef"


def span(entries: Sequence[ContextEntry], config: Config = CONFIG, **values: Any) -> tuple[int, int] | None:
    chosen = choose_span(situation(entries, config, **values))
    return (chosen.first_seq, chosen.last_seq) if chosen else None


def test_the_oldest_turns_are_chosen_and_the_last_two_protected() -> None:
    assert span(make.entries_of(conversation(6)), everything=True) == (1, 8)
    four = override(CONFIG, {"compaction": {"protect_turns": 4, "protect_fraction": 0.9}})
    assert span(make.entries_of(conversation(6)), four, everything=True) == (1, 4)


def test_no_more_turns_are_chosen_than_bring_the_context_to_its_target() -> None:
    # 1,800 of 6,800 tokens may leave, and turns have about 430.
    assert span(make.entries_of(conversation(20)), used=6_800) == (1, 8)


def test_one_step_that_would_leave_too_little_of_the_window_stays() -> None:
    long = make.entries_of([make.message(1, "assistant", make.prose(4_000)), *conversation(6)[4:]])
    assert span(long, used=7_000) is None
    assert span(long, used=9_500) == (1, 6)


@pytest.mark.parametrize("steps", [3, 40])
def test_older_steps_of_the_running_turn_are_chosen_and_the_newest_quarter_is_not(steps: int) -> None:
    answers = [
        make.message(seq, "assistant", make.tool(output=make.prose(400)), turn="turn_1") for seq in range(2, steps + 2)
    ]
    entries = make.entries_of([make.message(1, "user", "Mend it.", turn="turn_1"), *answers])
    # A quarter of 10,000 tokens holds five steps of about 440.
    assert span(entries, running_turn_id="turn_1", used=10_000) == (None if steps == 3 else (1, 12))
    assert span(entries, everything=True, running_turn_id="turn_1") == (None if steps == 3 else (1, 36))


def test_the_last_step_stays_however_large_it_is() -> None:
    alone = [make.message(1, "user", "go"), make.message(2, "assistant", make.prose(9_000))]
    assert span(make.entries_of(alone)) is span(make.entries_of(alone), everything=True) is None
    begun = [*alone, make.message(3, "assistant", turn="turn_3")]
    assert span(make.entries_of(begun)) is None, "an answer that has only begun is no step yet"


def test_nothing_from_the_first_unanswered_call_of_the_running_turn_on_is_chosen() -> None:
    waiting = make.tool(output=None)
    answers = [
        make.message(seq, "assistant", waiting if seq == 4 else make.tool(output=make.prose(900)), turn="turn_1")
        for seq in range(2, 9)
    ]
    entries = make.entries_of([make.message(1, "user", "Mend it.", turn="turn_1"), *answers])
    assert span(entries) == (1, 3)
    later = [
        *answers,
        *(replace(message, id=f"msg_1{message.seq}", seq=message.seq + 20) for message in conversation(9)),
    ]
    assert span(make.entries_of(later), everything=True) == (2, 34), "a turn that has ended waits for nothing"


def test_what_will_be_pinned_does_not_count_as_room_that_is_made() -> None:
    asked = make.message(1, "user", make.prose(400), turn="turn_1")
    steps = [make.message(seq, "assistant", make.prose(1_000), turn="turn_1") for seq in range(2, 6)]
    chosen = choose_span(situation(make.entries_of([asked, *steps])))
    assert chosen is not None
    assert chosen.source_ids[0] == "msg_0001"
    assert chosen.tokens == sum(message.token_estimate for message in chosen.messages[1:])


def test_the_newest_question_is_pinned_however_large_it_is_and_earlier_ones_while_they_are_small() -> None:
    budget = make.budget(4_000)
    small, large = make.message(1, "user", "Mend the gauge."), make.message(2, "user", make.prose(900))
    assert choose_pinned([small, large], CONFIG, budget) == [large]
    assert choose_pinned([large, small], CONFIG, budget) == [small]
    assert choose_pinned([small, small], CONFIG, budget) == [small, small]


def test_a_summary_is_never_part_of_a_span() -> None:
    entries = make.entries_of(conversation(6)[4:], make.summary(1, "before", first=1, last=4))
    assert span(entries) == (5, 8)
    between = [*make.entries_of([*conversation(2), *conversation(6)[8:]], make.summary(1, "middle", first=5, last=8))]
    assert span(between) == (1, 4)


def test_everything_takes_all_unprotected_turns_whatever_is_used() -> None:
    assert span(make.entries_of(conversation(20)), used=0, everything=True) == (1, 36)


def test_turns_too_small_to_shrink_are_left_alone() -> None:
    messages = [item for number in (1, 2, 3) for item in make.turn(number, "hi", "hello")]
    assert span(make.entries_of(messages)) is None


@pytest.mark.parametrize(
    ("chunk", "reads", "last"),
    [
        pytest.param(20_000, 10**6, 46 * 2, id="as many turns as the chunk holds"),
        pytest.param(20_000, 2_000, 4 * 2, id="no more than the summarising model reads in one call"),
        pytest.param(0, 2_000, 4 * 2, id="just that at 0"),
        pytest.param(2_000, 10**6, 4 * 2, id="less where that is configured"),
        pytest.param(100, 10**6, 1, id="one step at least, however large it is"),
    ],
)
def test_a_leaf_stands_for_no_more_than_can_be_read_whole(chunk: int, reads: int, last: int) -> None:
    config = override(CONFIG, {"compaction": {"leaf_chunk_tokens": chunk}})
    entries = make.entries_of(conversation(100))
    assert span(entries, config, reads=reads, everything=True) == (1, last)


def test_of_named_turns_no_rest_is_left_that_is_too_little_for_a_summary() -> None:
    long, short = make.turn(1, "Go.", make.prose(400)), make.turn(2, "Hello.", "Hi.")
    entries = make.entries_of([*long, *short, *conversation(9)[4:]])
    chunk = reading_tokens(long, 10**6) + 1
    config = override(CONFIG, {"compaction": {"leaf_chunk_tokens": chunk}})
    assert span(entries, config, reads=10**6, everything=True) == (1, 2)
    named = {short[0].turn_id, long[0].turn_id}
    assert span(entries, config, reads=10**6, everything=True, turn_ids=named) == (1, 4)


@given(make.contexts(size=20), st.integers(256, 4_000))
def test_only_a_step_too_large_by_itself_is_read_in_pieces(entries: list[ContextEntry], reads: int) -> None:
    chosen = choose_span(situation(entries, reads=reads, everything=True))
    if chosen is None:
        return
    tokens = sum(
        whole(MessageEntry(position=0, message=message)).tokens
        for message in chosen.messages[:-1]
        if message.role != "user"
    )
    assert len(transcript_pieces(chosen.messages, reads)) == 1 or tokens < SMALLEST_SOURCE


def test_a_span_says_what_it_takes_and_names() -> None:
    messages = [*make.turn(1, f"see {FILE}", make.prose(300)), *conversation(3)[2:]]
    chosen = choose_span(situation(make.entries_of(messages)))
    assert chosen is not None
    assert (chosen.source_ids, chosen.named) == (("msg_0001", "msg_0002"), Named(files=(FILE,)))
    assert chosen.tokens == pytest.approx(330, abs=40)


def test_a_tombstoned_output_counts_as_what_it_takes_in_the_context() -> None:
    pruned = make.tool(output=make.prose(9_000), compacted_at=make.NOON)
    messages = [*make.turn(1, make.prose(300), pruned), *conversation(3)[2:]]
    chosen = choose_span(situation(make.entries_of(messages)))
    assert chosen is not None
    assert chosen.tokens < 500


def test_little_that_is_long_to_read_does_not_hide_the_large_step_behind_it() -> None:
    pruned = make.tool(output=make.prose(9_000), compacted_at=make.NOON)
    small = [message for number in range(1, 4) for message in make.turn(number, make.prose(60), pruned)]
    large = make.message(7, "assistant", make.tool(output=make.prose(8_000)))
    entries = make.entries_of([*small, large, make.message(8, "user", "And now?")])
    assert span(entries, used=9_500, reads=5_000) == (1, 7)
