"""Level 3, which needs no model: beginnings and ends, within its limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.compaction.transcript import excerpt, message_quotables, summary_quotables, transcript_pieces
from mnesis_core.files.references import Named, name_files
from mnesis_core.llm.tokens import estimate_text
from tests.core.context import contexts as make
from tests.core.context.contexts import summaries

MANIFEST = "file_01HZY3K9QV5T7W8X2C4D6F8G0J"


@given(st.lists(make.parts, min_size=1, max_size=8), st.integers(64, 512), st.integers(0, 6))
def test_an_excerpt_is_always_smaller_than_its_source(parts: list[object], limit: int, files: int) -> None:
    message = make.message(1, "user", *parts)  # type: ignore[arg-type]
    pieces = transcript_pieces([message], 10**6)
    names = [f"file_{number:016x}" for number in range(files)]
    source = sum(map(estimate_text, pieces))
    named = name_files(Named(files=tuple(names)), min(limit, source) // 4, MANIFEST).named
    text = excerpt(message_quotables([message]), limit, source, named)
    if source > 60:
        assert estimate_text(text) < source
        assert estimate_text(text) <= max(limit, 96)
    assert all(name in text for name in named.file_entries)


def test_an_excerpt_quotes_users_first_with_beginnings_and_ends_in_order() -> None:
    messages = [item for n in range(1, 9) for item in make.turn(n, f"ASK{n} {make.prose(60)} END{n}", make.prose(900))]
    text = excerpt(message_quotables(messages), 512, 8_000)
    places = [text.index(f"ASK{number}") for number in range(1, 9)]
    assert places == sorted(places)
    assert all(f"END{number}" in text for number in range(1, 9))
    assert 400 < estimate_text(text) <= 512


def test_an_excerpt_of_very_many_texts_quotes_the_first_and_the_last() -> None:
    messages = [
        item for number in range(1, 300) for item in make.turn(number, f"question {number}", f"answer {number}")
    ]
    text = excerpt(message_quotables(messages), 512, 8_000)
    assert "question 1\n" in text
    assert "question 299" in text
    assert "question 150" not in text
    assert estimate_text(text) <= 512


def test_an_excerpt_of_summaries_quotes_each() -> None:
    text = excerpt(summary_quotables(summaries(0, 0, 1)), 512, 2_000)
    assert all(f"[{first}-{first + 1}]" in text for first in (1, 3, 5))
