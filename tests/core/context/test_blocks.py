"""A prompt in blocks: together they say exactly what the prompt says, and each knows what it is of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import Assembled, ContextEntry
from mnesis_core.context.replay import Block, BlockKind, blocks_of
from mnesis_core.errors import MessageNotFoundError, SummaryNotFoundError
from mnesis_core.messages import FileRefPart
from tests.core.context import contexts as make

SYSTEM = "Be careful. " * 30


def prompt(entries: list[ContextEntry], usable: int = 100_000) -> Assembled:
    return assemble(entries, system_prompt=SYSTEM, tools=[make.CALCULATOR], budget=make.budget(usable))


def blocks(entries: list[ContextEntry], usable: int = 100_000) -> list[Block]:
    manifest = prompt(entries, usable).manifest
    return blocks_of(manifest, entries, system_prompt=SYSTEM, tools=[make.CALCULATOR])


def said(found: list[Block], name: str) -> list[str]:
    return [text for block in found if block.kind is not BlockKind.TOOL for key, text in block.texts if key == name]


@given(make.contexts(), st.integers(200, 12_000))
def test_the_blocks_say_what_the_prompt_says(entries: list[ContextEntry], usable: int) -> None:
    assembled, found = prompt(entries, usable), blocks(entries, usable)
    messages = assembled.messages
    assert "\n".join(said(found, "text")) == "\n".join(message.text for message in messages if message.text)
    assert said(found, "input") == [call.arguments for message in messages for call in message.tool_calls]
    assert said(found, "output") == [result.text for message in messages for result in message.tool_results]
    assert [block.name for block in found if block.kind is BlockKind.TOOL] == [tool.name for tool in assembled.tools]
    assert sum(block.tokens for block in found) <= usable


def test_each_block_knows_what_it_is_of() -> None:
    pruned = make.tool(output="x" * 90, compacted_at=make.NOON, tool_call_id="c2")
    running = make.tool(output=None, tool_call_id="c3")
    file = FileRefPart(file_id="file_1", path="a.csv", file_type="csv", token_count=9)
    answers = ("I look.", make.tool(), pruned, running)
    messages = make.turn(2, "How high?", *answers)
    asked = make.message(5, "user", file, turn="turn_0003")
    found = blocks(make.entries_of([*messages, asked], make.summary(1, "Tides.", first=1, last=2)))
    assert [(block.kind.value, block.role, block.item_id, block.first_seq) for block in found] == [
        ("system", "system", "", 0),
        ("tool", "system", "", 0),
        ("summary", "user", "sum_0001", 1),
        ("message", "user", "msg_0003", 3),
        ("message", "assistant", "msg_0004", 4),
        ("tool_output", "tool", "msg_0004", 4),
        ("tombstone", "tool", "msg_0004", 4),
        ("tool_output", "tool", "msg_0004", 4),
        ("file", "user", "msg_0005", 5),
    ]
    assert [block.part_id for block in found[4:8]] == [f"part_0004_{index}" for index in range(4)]
    assert [block.is_unanswered for block in found[5:8]] == [False, False, True]
    assert [[name for name, _ in block.texts] for block in found[5:8]] == [["input", "output"]] * 2 + [["input"]]
    assert (found[2].last_seq, found[8].name) == (2, "a.csv")


def test_what_was_left_out_and_what_was_shortened_is_told() -> None:
    entries = make.entries_of([*make.conversation(6), *make.turn(9, make.prose(9_000), "Yes.")])
    found = blocks(entries, 2_000)
    [gap] = [block for block in found if block.kind is BlockKind.GAP]
    assert (gap.first_seq, gap.last_seq) == (1, 12)
    assert [block.first_seq for block in found if block.is_shortened] == [17]


def test_a_block_whose_source_is_gone_says_which() -> None:
    entries = make.entries_of(make.turn(2, "How high?", "4 m."), make.summary(1, "Tides.", first=1, last=2))
    manifest = prompt(entries).manifest
    with pytest.raises(SummaryNotFoundError, match="sum_0001"):
        blocks_of(manifest, entries[1:], system_prompt=SYSTEM, tools=[])
    with pytest.raises(MessageNotFoundError, match="msg_0003"):
        blocks_of(manifest, entries[:1], system_prompt=SYSTEM, tools=[])


def test_what_is_pinned_says_so() -> None:
    asked, entries = make.message(1, "user", "Mend the gauge."), [make.summary(1, "Tides.", first=1, last=2)]
    budget = make.budget(2_000)
    manifest = assemble(entries, system_prompt="", tools=(), budget=budget, pinned=[asked]).manifest
    found = blocks_of(manifest, [*entries, *make.entries_of([asked])], system_prompt="", tools=())
    assert [(block.kind.value, block.is_pinned) for block in found] == [("summary", False), ("message", True)]
