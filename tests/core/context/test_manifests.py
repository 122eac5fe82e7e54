"""A folded manifest: short however long the context is, and unfolded it has every row again, years later."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import ContextEntry, MessageEntry, Row, SummaryEntry, read_manifest
from mnesis_core.context.manifests import (
    LARGEST_PACKED,
    ItemOutline,
    fold_manifest,
    is_folded,
    outlines_of,
    rows_beside,
    unfold_manifest,
)
from mnesis_core.context.wording import message_row, summary_row
from mnesis_core.messages import ProviderPart, TextPart, ToolPart
from tests.core.context import contexts as make

AT = 9
FILE = "file_01HZY3K9QV5T7W8X2C4D6F8G0J"
names_file = make.tool(output=f"saved as {FILE}", compacted_at=make.NOON)
naming = make.entries_of(make.turn(4, "look", names_file, make.tool(compacted_at=make.NOON), "and then", names_file))
contexts = make.contexts(size=12) | make.contexts(size=6).map(lambda entries: [*entries, *naming])


def manifest_of(
    entries: Sequence[ContextEntry], usable: int = 10**6, system_prompt: str = "Be brief.", provider: str = ""
) -> list[Row]:
    what = {"tools": [make.CALCULATOR], "budget": make.budget(usable), "provider": provider}
    found = assemble(entries, system_prompt=system_prompt, **what)  # type: ignore[arg-type]
    return list(found.manifest)


def kept(manifest: Sequence[Row], entries: Sequence[ContextEntry]) -> list[Row]:
    """What a row keeps of a manifest, read again."""
    return read_manifest(json.loads(json.dumps(fold_manifest(manifest, entries))))


def size(stored: object) -> int:
    return len(json.dumps(stored))


@given(
    contexts,
    st.integers(200, 12_000),
    st.sampled_from(["", "Be brief.", "Be brief. " * 900]),
    st.sampled_from(["", "openai", "anthropic"]),
)
def test_every_row_of_a_manifest_comes_back(
    entries: list[ContextEntry], usable: int, prompt: str, provider: str
) -> None:
    manifest = manifest_of(entries, usable, prompt, provider)
    stored = kept(manifest, entries)
    assert is_folded(stored)
    assert unfold_manifest(stored, outlines_of(entries), at=AT) == manifest


@pytest.mark.parametrize("count", [0, 1, 9])
def test_what_is_shown_beside_a_context_is_read_without_it(count: int) -> None:
    messages = [make.message(seq, "user", f"Question {seq}.") for seq in range(1, 20)]
    entries = [make.summary(1, "Questions.", first=1, last=9), *make.entries_of(messages[9:])]
    pinned = messages[9 - count : 9]
    manifest = assemble(entries, system_prompt="Be brief.", tools=(), budget=make.budget(9_000), pinned=pinned).manifest
    assert is_folded(kept(manifest, entries))
    for stored in (kept(manifest, entries), manifest):
        assert [(row["kind"], row["id"]) for row in rows_beside(stored)] == [
            ("pinned", message.id) for message in pinned
        ]
    with pytest.raises(ValueError, match="form 9"):
        rows_beside([{"kind": "context", "form": 9, "items": 1, "parts": 1}])


@given(contexts, st.integers(200, 12_000), st.data())
def test_what_happened_since_changes_nothing(entries: list[ContextEntry], usable: int, data: st.DataObject) -> None:
    manifest = manifest_of(entries, usable)
    later: list[ItemOutline] = []
    for item in outlines_of(entries):
        if data.draw(st.integers(0, 3)) == 0:
            later.append(item._replace(id="sum_later", role=None, added_seq=AT + 1))
        had = {id for id, _ in item.compacted}
        tools = [id for id, type in zip(item.part_ids, item.part_types, strict=True) if type == "tool"]
        compacted = tuple((id, data.draw(st.integers(0, AT)) if id in had else AT + 1) for id in tools)
        item = item._replace(compacted=compacted, removed_seq=data.draw(st.sampled_from([None, AT + 1])))
        if item.role is not None and not item.part_ids:  # an answer that was not written yet
            item = item._replace(part_ids=("part_later",), part_types=("text",))
        later.append(item)
    gone = [item._replace(id="gone", added_seq=1, removed_seq=AT) for item in later[:2]]
    assert unfold_manifest(kept(manifest, entries), [*gone, *later], at=AT) == manifest


@given(contexts, st.integers(200, 12_000), st.randoms(use_true_random=False))
def test_whatever_assembly_may_come_to_decide_comes_back(
    entries: list[ContextEntry], usable: int, random: Random
) -> None:
    by_id = {row["id"]: row for row in manifest_of(entries, usable)}
    rows: list[Any] = []
    for entry in entries:
        row = summary_row(entry) if isinstance(entry, SummaryEntry) else message_row(entry.message)
        row = dict(by_id.get(row["id"], row))
        if random.random() < 0.2:
            row["colour"] = "green"
        if row["kind"] == "message" and random.random() < 0.3:
            row[random.choice(["parts", "seq"])] = random.randrange(9)
            row["tombstoned"] = random.choice([[], row["tombstoned"], [*row["tombstoned"], "part_x"]])
            row["omitted"] = random.choice([row["omitted"] * 2, row["omitted"][::-1], ["part_y"]])
        if random.random() < 0.7:
            rows.append(row)
    if random.random() < 0.1:
        random.shuffle(rows)
    for row in by_id.values():
        if row["kind"] not in ("message", "summary"):
            rows.insert(random.randint(0, len(rows)), row)
    assert unfold_manifest(kept(rows, entries), outlines_of(entries), at=AT) == rows


def long_context(items: int = 10_000, *, seed: int = 1) -> list[ContextEntry]:
    """Much of everything: two thousand tombstones, some of which name files, files, silent answers, summaries."""
    random = Random(seed)
    entries: list[ContextEntry] = []
    for seq in range(1, items + 1):
        if seq <= 50:
            entries.append(make.summary(seq, "They talked.", first=seq, last=seq))
            continue
        if seq % 2:
            entries.append(MessageEntry(position=seq, message=make.message(seq, "user", "Go on.")))
            continue
        said: list[Any] = ["I looked."]
        if random.random() < 0.55:
            output = f"saved as {FILE}" if random.random() < 0.5 else "done"
            said.append(make.tool(output=output, compacted_at=make.NOON if random.random() < 0.8 else None))
        if random.random() < 0.05:
            said = []
        entries.append(MessageEntry(position=seq, message=make.message(seq, "assistant", *said)))
    return entries


def test_ten_thousand_items_are_kept_in_less_than_a_kilobyte_and_a_half() -> None:
    entries = long_context()
    manifest = manifest_of(entries, 10**8)
    tombstones = sum(len(row.get("tombstoned", ())) for row in manifest)
    naming = sum(len(row.get("naming", ())) for row in manifest)
    assert tombstones > 2_000
    assert 800 < naming < tombstones
    stored = kept(manifest, entries)
    assert size(manifest) > 1_000_000
    assert size(stored) <= 1_500
    assert unfold_manifest(stored, outlines_of(entries), at=AT) == manifest


def test_thinking_before_every_answer_takes_a_line() -> None:
    thought = ProviderPart(provider="anthropic", kind="thinking", data="{}")
    turns = [make.turn(number, "Go on.", thought, "I looked.") for number in range(1, 5_001)]
    entries = make.entries_of([message for turn in turns for message in turn])
    manifest = manifest_of(entries, 10**8, provider="anthropic")
    assert sum("opaque" in row for row in manifest) == 5_000
    stored = kept(manifest, entries)
    assert size(stored) <= 500
    assert unfold_manifest(stored, outlines_of(entries), at=AT) == manifest


def test_a_context_that_is_shown_whole_is_kept_in_a_line_however_long_it_is() -> None:
    sizes = {}
    for turns in (5, 5_000):
        entries = make.entries_of(make.conversation(turns, tokens=5))
        sizes[turns] = size(kept(manifest_of(entries, 10**8), entries))
    assert sizes[5_000] - sizes[5] == 6  # the digits of two numbers
    assert sizes[5] < 200


def test_a_prompt_with_room_for_its_end_alone_is_kept_as_short() -> None:
    entries = make.entries_of(make.conversation(5_000, tokens=20))
    manifest = manifest_of(entries, 4_000)
    assert [row["kind"] for row in manifest[:4]] == ["system", "tools", "gap", "message"]
    assert size(kept(manifest, entries)) < 300
    assert unfold_manifest(kept(manifest, entries), outlines_of(entries), at=AT) == manifest


def test_a_turn_of_which_every_text_is_shortened_is_kept_in_a_few_bytes_for_each() -> None:
    random = Random(7)
    words = make.WORDS.split()
    said = [TextPart(text=" ".join(random.choices(words, k=random.randrange(150, 900)))) for _ in range(600)]
    outputs: list[Any] = [make.tool(output=text.text, input='{"path": "a.txt"}') for text in said]
    entries = make.entries_of(make.turn(1, "Look at all.", *outputs))
    manifest = manifest_of(entries, 110_000)
    cuts = sum(len(row.get("shortened", ())) for row in manifest)
    assert cuts > 500
    assert size(kept(manifest, entries)) < 4.5 * cuts + 300
    assert unfold_manifest(kept(manifest, entries), outlines_of(entries), at=AT) == manifest


# Rows of this form are in databases and exports: what they say may never change.
ITEMS = [
    ItemOutline("sum_1", None, 1, 4, added_seq=5),
    ItemOutline("msg_5", "user", 5, 5, ("p50",), ("text",), added_seq=1, removed_seq=5),
    ItemOutline("msg_6", "user", 6, 6, ("p60",), ("text",), added_seq=6),
    ItemOutline(
        *("msg_7", "assistant", 7, 7, ("p70", "p71", "p72"), ("text", "tool", "tool"), (("p71", 7), ("p72", 8))),
        added_seq=6,
    ),
    ItemOutline("msg_8", "assistant", 8, 8, ("p80",), ("reasoning",), added_seq=6),
    ItemOutline("msg_9", "assistant", 9, 9, ("p90",), ("text",), added_seq=7),
    ItemOutline("msg_10", "assistant", 10, 10, ("pa0",), ("file_ref",), added_seq=7, removed_seq=8),
    ItemOutline("msg_11", "assistant", 11, 11, ("pb0",), ("patch",), added_seq=8),
]
GAP = {"kind": "gap", "id": "", "messages": 1, "summaries": 0, "first_seq": 5, "last_seq": 5}
PLAIN: list[Any] = [
    {"kind": "system", "id": ""},
    {
        "kind": "context",
        "form": 1,
        "items": 6,
        "parts": 6,
        "unlike": [5, 1],
        "empty": [4, 1],
        "named": [0, 1],
        "unanswered": [3, 1],
        "omitted": [1, 1],
        "returned": [3, 1],
        "shortened": [[0, 2, 0], [0, 1, 2], [5, 6, 7], [8, 9, 0]],
        "notes": [[1, GAP], [1, GAP | {"messages": 2}], [3, GAP]],
        "rows": [[1, {"kind": "message", "id": "msg_6", "seq": 6, "colour": "green"}]],
    },
]
EMPTY = {"tombstoned": [], "unanswered": [], "shortened": [], "omitted": []}


def test_form_one_says_for_ever_what_it_says() -> None:
    PLAIN[1]["rows"][0][1] |= {"parts": 1, **EMPTY}
    rows = unfold_manifest(read_manifest(PLAIN), ITEMS, at=7)
    cuts = [
        {"part": "p71", "field": "input", "head": 6, "tail": 9},
        {"part": "p71", "field": "output", "head": 7, "tail": 0},
    ]
    assert rows == [
        {"kind": "system", "id": ""},
        {"kind": "summary", "id": "sum_1", "first_seq": 1, "last_seq": 4},
        GAP,
        GAP | {"messages": 2},
        {"kind": "message", "id": "msg_6", "seq": 6, "parts": 1, **EMPTY, "colour": "green"},
        {
            "kind": "message",
            "id": "msg_7",
            "seq": 7,
            "parts": 3,
            "tombstoned": ["p71"],
            "unanswered": ["p72"],
            "shortened": cuts,
            "omitted": ["p70"],
            "naming": ["p71"],
            "opaque": ["p72"],
        },
        GAP,
    ]
    plain = PLAIN[1]
    said = {key: value for key, value in plain.items() if key not in ("kind", "form", "items", "parts")}
    packed = base64.b64encode(zlib.compress(json.dumps(said).encode())).decode()
    row = {key: plain[key] for key in ("kind", "form", "items", "parts")} | {"packed": packed}
    assert unfold_manifest(read_manifest([PLAIN[0], row]), ITEMS, at=7) == rows


@pytest.mark.parametrize(
    ("role", "type", "is_shown"),
    [
        *(("assistant", type, True) for type in ("text", "tool", "file_ref", "patch", "refusal", "provider_tool")),
        *(("assistant", type, True) for type in ("image", "audio", "document")),
        *(("assistant", type, False) for type in ("reasoning", "data", "compaction", "step_start", "provider")),
        *(("assistant", type, False) for type in ("citation", "hologram", "")),
        ("system", "reasoning", False),
        ("", "reasoning", False),
        ("user", "reasoning", True),
        (None, "", True),
    ],
)
def test_form_one_shows_for_ever_what_it_shows(role: str | None, type: str, is_shown: bool) -> None:
    row = {"kind": "context", "form": 1, "items": 1, "parts": 1}
    item = ItemOutline("msg_1", role, 1, 1, ("p1",), (type,))
    assert bool(unfold_manifest(read_manifest([row]), [item], at=7)) is is_shown


bomb = base64.b64encode(zlib.compress(b" " * (LARGEST_PACKED + 1) + b"{}")).decode()
deep = base64.b64encode(zlib.compress(b"[" * 100_000)).decode()


@pytest.mark.parametrize(
    "said",
    [
        {"form": 2},
        {"items": 5},
        {"parts": 6},
        {"items": 10**15},
        {"packed": "?"},
        {"packed": 7},
        {"packed": "\ud800"},
        {"packed": base64.b64encode(b"no zlib").decode()},
        {"packed": base64.b64encode(zlib.compress(b"[]")).decode()},
        {"packed": base64.b64encode(zlib.compress(b"{}")[:-1]).decode()},
        {"packed": bomb},
        {"packed": deep},
        {"unlike": 7},
        {"unlike": [0, 10**15]},
        {"unlike": [1]},
        {"unlike": [-1, 1]},
        {"unlike": [0, True]},
        {"shortened": 7},
        {"shortened": [[1]]},
        {"shortened": [[1], [4], [1], [1]]},
        {"shortened": [[1], [0], ["x"], [1]]},
        {"notes": 7},
        {"notes": [7]},
        {"notes": [[0]]},
        {"notes": [["x", {"kind": "gap"}]]},
        {"notes": [[0, {"kind": "gap"}]]},
        {"notes": [[0, {"kind": "context", "form": 1, "items": 0, "parts": 0}]]},
        {"rows": [[0, 7]]},
    ],
)
def test_a_folded_row_of_anybody_s_making_is_refused_in_words(said: dict[str, Any]) -> None:
    row: dict[str, Any] = {"kind": "context", "form": 1, "items": 6, "parts": 7} | said
    with pytest.raises(ValueError, match=r"[a-z]"):
        unfold_manifest(read_manifest([row]), ITEMS, at=7)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=4), max_leaves=20))
def test_nothing_in_a_folded_row_makes_another_error(value: Any) -> None:
    for name in ("unlike", "empty", "unanswered", "omitted", "named", "shortened", "notes", "rows", "packed"):
        row: dict[str, Any] = {"kind": "context", "form": 1, "items": 6, "parts": 7, name: value}
        try:
            unfold_manifest(read_manifest([row]), ITEMS, at=7)
        except ValueError:
            continue


def test_a_manifest_that_is_not_folded_is_complete() -> None:
    entries = make.entries_of(
        make.turn(1, "hello", "hi", make.tool(output=None), ToolPart(tool_name="x", tool_call_id=""))
    )
    manifest = manifest_of(entries)
    assert not is_folded(manifest)
    assert unfold_manifest(manifest, [], at=AT) == manifest
