"""File ids are found wherever they stand."""

from __future__ import annotations

import pytest

from mnesis_core.files.references import file_ids_of, find_file_ids
from mnesis_core.messages import DataPart, FileRefPart, PatchPart, ReasoningPart
from mnesis_core.records import new_id
from tests.core.context.contexts import NOON, message, tool

HEX = "file_0123456789abcdef"


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
