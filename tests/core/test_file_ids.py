"""File ids are found wherever they stand, and a summary names every one of them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.file_ids import file_ids_of, find_file_ids, with_file_ids, without_file_ids
from mnesis_core.ids import new_id
from mnesis_core.messages import DataPart, FileRefPart, PatchPart, ReasoningPart
from tests.core.contexts import NOON, message, tool

HEX = "file_0123456789abcdef"
footers = st.lists(st.integers(0, 2**64).map(lambda number: f"file_{number:016x}"), max_size=5)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"see {HEX}, then {HEX}.", [HEX]),
        (
            "file_01234567 and file_01234567890123456789012345678901",
            ["file_01234567", "file_01234567890123456789012345678901"],
        ),
        ("file_0123456 is too short, file_012345678901234567890123456789012 too long", []),
        ("profile_0123456789abcdef file_name file_handler", []),
        ("file_01HZY3K9QV5T7W8X2C4D6F8G0J", ["file_01HZY3K9QV5T7W8X2C4D6F8G0J"]),
        ("", []),
    ],
)
def test_file_ids_are_found(text: str, found: list[str]) -> None:
    assert list(find_file_ids(text)) == found


def test_our_own_file_ids_are_found() -> None:
    made = new_id("file")
    assert find_file_ids(f"[{made}]") == (made,)


def test_file_ids_are_found_in_every_kind_of_part() -> None:
    names = [f"file_{number:016x}" for number in range(8)]
    parts = (
        f"text {names[0]}",
        tool(input=f'{{"id": "{names[1]}"}}', output="x" * 9_000 + f" {names[2]}", error=names[3], compacted_at=NOON),
        FileRefPart(file_id=names[4], exploration_summary=f"like {names[5]}"),
        PatchPart(unified_diff=f"+ {names[6]}"),
        ReasoningPart(text=names[7]),
        DataPart(label="progress", text=names[0]),
    )
    assert file_ids_of([message(1, "assistant", *parts)]) == tuple(names)


def test_the_footer_names_each_id_once_and_replaces_the_one_before() -> None:
    text = with_file_ids("They wrote a file.", [HEX, HEX, "file_ffffffff"])
    assert text == f"They wrote a file.\n\n[LCM File IDs: {HEX}, file_ffffffff]"
    assert with_file_ids(text, [HEX]) == f"They wrote a file.\n\n[LCM File IDs: {HEX}]"
    assert with_file_ids(text, []) == "They wrote a file."


@given(st.text(max_size=80), footers)
def test_a_footer_can_be_taken_off_again(text: str, names: list[str]) -> None:
    once = with_file_ids(text, names)
    assert with_file_ids(once, names) == once
    assert all(name in once for name in names)
    assert without_file_ids(once) == without_file_ids(text)


def test_a_footer_in_the_middle_is_text() -> None:
    text = f"[LCM File IDs: {HEX}] was written, then more."
    assert without_file_ids(text) == text


def test_taking_off_a_footer_is_quick_on_hostile_text() -> None:
    began = time.perf_counter()
    without_file_ids("[LCM File IDs: " * 20_000 + " " * 200_000 + "x")
    assert time.perf_counter() - began < 1.0
