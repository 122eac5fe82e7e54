"""What an inspector makes of text that hides something."""

from __future__ import annotations

import pytest

from mnesis_core.text import Run, excerpt, visible_runs, visible_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b", "a[␀]b"),
        ("\x1b[31mred", "[␛][31mred"),
        ("invoice\u202egpj.exe", "invoice[U+202E]gpj.exe"),
        ("\ud800 alone", "[U+D800] alone"),
        ("pass\u200bword", "pass[U+200B]word"),
        ("tag \U000e0041", "tag [U+E0041]"),
        ("a\u200db", "a[U+200D]b"),
        ("lone\rreturn", "lone[␍]return"),
    ],
)
def test_what_misleads_a_reader_becomes_a_mark(text: str, shown: str) -> None:
    assert visible_text(text) == shown


@pytest.mark.parametrize(
    "text", ["naïve שלום 日本", "👩\u200d👩\u200d👧", "\u0645\u06cc\u200c\u062e", "line one\r\n\tline two\n", ""]
)
def test_honest_text_stays_as_it_is(text: str) -> None:
    assert "".join(run.text for run in visible_runs(text)) == text
    assert not any(run.is_mark for run in visible_runs(text))


def test_a_row_of_one_hidden_character_is_one_mark_that_counts_them() -> None:
    assert visible_runs("a" + "\x00" * 40 + "b") == [
        Run(text="a"),
        Run(text="␀ x40", is_mark=True, code="U+0000", count=40),
        Run(text="b"),
    ]


def test_an_excerpt_is_one_line_of_the_length_asked_for() -> None:
    assert excerpt("short\n\nand sweet", 40) == "short and sweet"
    assert excerpt("x" * 20_000_000, 10) == "x" * 9 + "…"
    assert excerpt(" " * 1000 + "late", 10) == "…"
