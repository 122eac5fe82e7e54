"""The sentences of a summary, as places in its text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.compaction.lineage import LONGEST_SENTENCE, MOST_SENTENCES, sentences_of
from mnesis_core.compaction.transcript import HEADER


def said(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences_of(text)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("## Goal\n- Move the ledgers.\n- Keep *Rex* fed!", ["Move the ledgers.", "Keep *Rex* fed!"]),
        (
            "He asked Dr. Smith, e.g. for a check. Then he left.",
            ["He asked Dr. Smith, e.g. for a check.", "Then he left."],
        ),
        ("It costs 3.50 today. Version 1.2.3 is out", ["It costs 3.50 today.", "Version 1.2.3 is out"]),
        ("我搬家了。他也是\uff01真的吗\uff1f", ["我搬家了。", "他也是\uff01", "真的吗\uff1f"]),
        ("वह घर गया। फिर सो गया।", ["वह घर गया।", "फिर सो गया।"]),
        ("- [ ] Use `a.b. C` now.\n  1. Nested.", ["Use `a.b. C` now.", "Nested."]),
        ("A line that\ngoes on. And ends.", ["A line that\ngoes on.", "And ends."]),
        ("**Decisions**\nFiles:\n- a.py", ["a.py"]),
        ("Run:\n```sh\nmake test. Now\nmake lint\n```\nDone.", ["make test. Now\nmake lint", "Done."]),
        ("| port | what |\n|---|---|\n| 80 | web |", ["port | what", "80 | web"]),
        (f"{HEADER}\n[12 user] It begins […] It ends", ["It begins […]", "It ends"]),
        ("Messages 1 to 24, 8 May 2023, between Ana and Bo.\n\nIt rained.\n\n[LCM Files: file_1]", ["It rained."]),
        ("🎉 🎉\n---\n***\n", []),
        ("", []),
    ],
)
def test_what_is_a_sentence(text: str, sentences: list[str]) -> None:
    assert said(text) == sentences


@given(st.text(max_size=600))
def test_sentences_follow_each_other_within_the_text(text: str) -> None:
    found = sentences_of(text)
    assert all(0 <= start < end <= len(text) for start, end in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
    assert all(text[start:end] == text[start:end].strip() for start, end in found)


@given(st.lists(st.from_regex(r"[A-Z][a-z]{1,8}( [a-z]{1,8}){1,6}[.!?]", fullmatch=True), max_size=8))
def test_every_word_of_prose_is_in_a_sentence(written: list[str]) -> None:
    assert " ".join(said(" ".join(written))) == " ".join(written)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *(
            "." * 2_000_000,
            "a. " * 600_000,
            "`" * 2_000_000,
            "x " + "`a`. " * 300_000,
            "- " * 900_000,
            "\n" * 2_000_000,
        ),
        *("a\n" * 900_000, "**a" * 600_000, "[1 " * 600_000, "。" * 900_000, "[…]" * 500_000, "word " * 400_000),
    ],
    ids=lambda text: text[:8].encode("unicode_escape").decode(),
)
def test_a_text_made_to_be_slow_has_few_and_short_sentences(text: str) -> None:
    found = sentences_of(text)
    assert len(found) <= MOST_SENTENCES
    assert all(end - start <= LONGEST_SENTENCE for start, end in found)
