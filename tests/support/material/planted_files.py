"""Turns with file ids in one place of them, of every form that an id may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from mnesis_core.messages import FileRefPart, Part, PatchPart, ReasoningPart
from mnesis_core.records import new_id
from tests.core.context import contexts as make

PLACES = (
    "text",
    "input",
    "output",
    "tombstoned",
    "error",
    "reasoning",
    "reference",
    "imported",
    "foreign",
    "summary",
    "patch",
)
FOREIGN = ("file-AbC%{}", "{} listed in file_0", "naïve, {}]", "line\n{}", "\ud800{}", '"{}', "[{}", "x" * 80 + "{}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A turn with file ids in one place of it, among so many tokens of talk."""

    place: str
    ids: int
    tokens: int


planted = st.builds(
    Planted,
    place=st.sampled_from(PLACES),
    ids=st.sampled_from([0, 1, 1, 2, 9, 40]),
    tokens=st.sampled_from([10, 60, 300, 1_500]),
)


def parts_of(turn: Planted, ids: Sequence[str]) -> list[Part | str]:
    """What an assistant says with these ids in their place."""
    words = make.prose(turn.tokens)
    text = f"{words} {' '.join(ids)} {words}"
    parts: dict[str, Part | str] = {
        "text": text,
        "input": make.tool(input=f'{{"about": "{text}"}}'),
        "output": make.tool(output=text),
        "tombstoned": make.tool(output=text, compacted_at=make.NOON),
        "error": make.tool(output=None, error=text),
        "reasoning": ReasoningPart(text=text),
        "summary": FileRefPart(file_id="file_00000000", exploration_summary=text),
        "patch": PatchPart(unified_diff=text),
    }
    if turn.place in parts:
        return [parts[turn.place], words]
    return [words, *(FileRefPart(file_id=id, path="a.csv") for id in ids)]


def ids_for(turn: Planted, numbers: Iterator[int]) -> list[str]:
    """Ids that no other turn has: ours, the reference's of any length, those of other systems."""
    if turn.place == "imported":
        return [f"file-AbC{next(numbers)}" for _ in range(turn.ids)]
    if turn.place == "foreign":
        return [FOREIGN[number % len(FOREIGN)].format(number) for number in (next(numbers) for _ in range(turn.ids))]
    forms = (lambda number: f"file_{number:08x}", lambda number: f"file_{number:032x}", lambda number: new_id("file"))
    return [forms[number % 3](number) for number in (next(numbers) for _ in range(turn.ids))]
