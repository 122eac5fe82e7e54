"""A summary's footer names what it has to name, whatever the model wrote there."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.files.references import Named, with_footer, without_footer

FILE = "file_0123456789abcdef"
SUMMARY = "sum_01HZY3K9QV5T7W8X2C4D6F8G0J"

names = st.lists(st.integers(0, 2**64).map(lambda number: f"file_{number:016x}"), max_size=5).map(tuple)
named = st.builds(Named, files=names, summaries=names)
texts = st.lists(
    st.sampled_from(["They wrote.", "[LCM ", "[LCM File IDs: a]", "[LCM Summary IDs: b]", "]", "\n", " "])
    | st.text(max_size=20),
    max_size=6,
).map("".join)


def test_the_footer_names_each_id_once_and_replaces_the_one_before() -> None:
    text = with_footer("They wrote a file.", Named(files=(FILE, FILE, "file_ffffffff")))
    assert text == f"They wrote a file.\n\n[LCM File IDs: {FILE}, file_ffffffff]"
    assert with_footer(text, Named(files=(FILE,))) == f"They wrote a file.\n\n[LCM File IDs: {FILE}]"
    assert with_footer(text, Named()) == "They wrote a file."


def test_summaries_are_named_before_files() -> None:
    text = with_footer("They wrote.", Named(summaries=(SUMMARY,), files=(FILE,)))
    assert text == f"They wrote.\n\n[LCM Summary IDs: {SUMMARY}]\n[LCM File IDs: {FILE}]"
    assert without_footer(text) == "They wrote."


@given(texts, named)
def test_a_footer_can_be_taken_off_again(text: str, ids: Named) -> None:
    once = with_footer(text, ids)
    assert with_footer(once, ids) == once
    assert all(name in once for name in (*ids.files, *ids.summaries))
    assert without_footer(once) == without_footer(text)


def test_a_footer_in_the_middle_is_text() -> None:
    text = f"[LCM File IDs: {FILE}] was written, then more."
    assert without_footer(text) == text


def test_taking_off_a_footer_is_quick_on_hostile_text() -> None:
    began = time.process_time()
    without_footer("[LCM File IDs: " * 20_000 + " " * 200_000 + "x")
    assert without_footer("[LCM File IDs: ]" * 100_000) == ""
    assert time.process_time() - began < 1.0
