"""What is summarised next: the oldest whole turns, never the last two of the user, no more than is read whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.compaction.selection import SMALLEST_SOURCE, choose_span
from mnesis_core.compaction.transcript import transcript_pieces
from mnesis_core.config import Config, override
from mnesis_core.context.entries import ContextEntry, MessageEntry, whole_turns
from mnesis_core.context.fitting import whole
from mnesis_core.errors import InvalidRequest
from mnesis_core.files.references import Named
from tests.core import contexts as make
from tests.core.contexts import conversation, situation

CONFIG = Config()
FILE = "file_0123456789abcdef"


def span(entries: Sequence[ContextEntry], config: Config = CONFIG, **values: Any) -> tuple[int, int] | None:
    chosen = choose_span(situation(entries, config, **values))
    return (chosen.first_seq, chosen.last_seq) if chosen else None


def test_the_oldest_turns_are_chosen_and_the_last_two_protected() -> None:
    assert span(make.entries_of(conversation(6))) == (1, 8)
    assert span(make.entries_of(conversation(6)), override(CONFIG, {"compaction": {"protect_turns": 4}})) == (1, 4)


def test_no_more_turns_are_chosen_than_bring_the_context_to_its_target() -> None:
    # 1,500 tokens have to leave and the summary needs 2,000: nine turns of about 400.
    assert span(make.entries_of(conversation(20)), used=4_500) == (1, 18)


@pytest.mark.parametrize("turns", [1, 2])
def test_the_last_two_turns_are_never_chosen_whatever_the_pressure(turns: int) -> None:
    entries = make.entries_of(conversation(turns, tokens=9_000))
    assert span(entries, used=10**9) is span(entries, used=10**9, everything=True) is None
    with pytest.raises(InvalidRequest, match=r"compaction\.protect_turns must lie between 2 and"):
        override(CONFIG, {"compaction": {"protect_turns": 1}})


def test_the_last_turns_of_the_user_are_protected_also_where_others_follow() -> None:
    alone = [make.message(seq, "assistant", make.prose(300)) for seq in (5, 6, 7)]
    assert span(make.entries_of([*conversation(2), *alone])) is None
    before = [make.message(seq, "assistant", make.prose(300), turn=f"early_{seq}") for seq in (1, 2, 3)]
    after = [replace(message, id=f"msg_{seq:04}", seq=seq) for seq, message in enumerate(conversation(2), 4)]
    assert span(make.entries_of([*before, *after])) == (1, 3)


def test_messages_without_a_turn_are_grouped_by_what_the_user_said() -> None:
    loose = [replace(message, turn_id=None) for message in conversation(6)]
    assert span(make.entries_of(loose)) == (1, 8)
    assert span(make.entries_of(loose), used=1_000) == (1, 2)


def test_the_running_turn_ends_the_span_wherever_it_stands() -> None:
    assert span(make.entries_of(conversation(6)), running_turn_id="turn_0003") == (1, 4)
    assert span(make.entries_of(conversation(6)), running_turn_id="turn_0001") is None


def test_a_turn_with_a_late_result_is_not_split() -> None:
    messages = conversation(6)
    messages[3] = replace(messages[3], turn_id="turn_0001")
    # The target is reached within turn 1, but its late message stands among those of turn 2.
    assert span(make.entries_of(messages), used=1_000) == (1, 4)


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
        pytest.param(20_000, 10**6, 47 * 2, id="as many turns as the chunk holds"),
        pytest.param(20_000, 2_000, 4 * 2, id="no more than the summarising model reads in one call"),
        pytest.param(0, 2_000, 4 * 2, id="just that at 0"),
        pytest.param(2_000, 10**6, 4 * 2, id="less where that is configured"),
        pytest.param(100, 10**6, 2, id="one turn at least, however large it is"),
    ],
)
def test_a_leaf_stands_for_no_more_than_can_be_read_whole(chunk: int, reads: int, last: int) -> None:
    config = override(CONFIG, {"compaction": {"leaf_chunk_tokens": chunk}})
    entries = make.entries_of(conversation(100))
    assert span(entries, config, reads=reads, everything=True) == (1, last)


@given(make.contexts(size=20), st.integers(256, 4_000))
def test_only_a_turn_too_large_by_itself_is_read_in_pieces(entries: list[ContextEntry], reads: int) -> None:
    chosen = choose_span(situation(entries, reads=reads, everything=True))
    if chosen is None:
        return
    before_last = [message for turn in whole_turns(chosen.messages)[:-1] for message in turn]
    tokens = sum(whole(MessageEntry(position=0, message=message)).tokens for message in before_last)
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
