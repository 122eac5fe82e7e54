"""Random histories: turns of any sizes, with tools, with one huge text, without a question, as imports without turns."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from mnesis_core.messages import Part
from tests.core.context import contexts as make

FILE = "file_0123456789abcdef"

sizes = st.sampled_from([1, 10, 40, 40, 200, 200, 200, 900, 3_000]) | st.integers(1, 12_000)
said = sizes.map(make.prose)
answers = st.one_of(
    said,
    said,
    st.builds(
        make.tool, output=said, name=st.sampled_from(["read_file", "skill"]), input=st.sampled_from(["{}", '{"a": 1}'])
    ),
    st.just(f"I wrote {FILE}."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A turn, or what an import has instead."""

    question: str | None
    answers: tuple[Part | str, ...]
    has_turn: bool


exchanges = st.builds(
    Exchange,
    question=st.one_of(said, said, said, st.none()),
    answers=st.lists(answers, max_size=4).map(tuple),
    has_turn=st.sampled_from([True, True, True, False]),
)
