"""Facts without a database: quotations that are there word for word, and which fact takes whose place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from mnesis_core.facts import (
    LONGEST_QUOTE,
    FactState,
    Place,
    Standing,
    find_quote,
    is_forbidden,
    plain_subject,
    state_of,
    superseded_by_new,
)
from mnesis_core.messages import ReasoningPart, StoredMessage, StoredPart, TextPart, ToolPart
from mnesis_core.text import encode_text

NOW = datetime(2026, 1, 9, tzinfo=UTC)


def message(*parts: Any, role: Any = "user") -> StoredMessage:
    stored = tuple(
        StoredPart(id=f"part_{index}", index=index, part=part, token_estimate=1) for index, part in enumerate(parts)
    )
    return StoredMessage(id="msg_1", seq=1, turn_id=None, role=role, parts=stored, created_at=NOW)


def quoted(text: str, quote: str) -> str | None:
    place = find_quote([message(TextPart(text=text))], quote)
    return None if place is None else encode_text(text)[place.start : place.end]


@pytest.mark.parametrize(
    "quote",
    ["I prefer tea", "  I prefer tea\n", "prefer tea, not coffee.", "I prefer tea, not coffee.", ", not"],
)
def test_words_that_were_said_are_found_where_they_stand(quote: str) -> None:
    assert quoted("Well. I prefer tea, not coffee.", quote) == quote.strip()


@pytest.mark.parametrize(
    "quote",
    [
        "",
        "   ",
        "i prefer tea",
        "I prefer  tea",
        "prefer te",
        "refer tea",
        "I prefer coffee",
        "I prefer … coffee",
        "tea not",
    ],
)
def test_words_that_were_not_said_so_are_found_nowhere(quote: str) -> None:
    assert quoted("Well. I prefer tea, not coffee.", quote) is None


def test_a_part_of_a_word_is_passed_over_for_the_word_itself() -> None:
    assert find_quote([message(TextPart(text="The party is art."))], "art") == Place(part_id="part_0", start=13, end=16)


def test_scripts_without_spaces_are_quoted_from_any_character_on() -> None:
    assert quoted("私は紅茶が好きです。", "紅茶が好き") == "紅茶が好き"


@pytest.mark.parametrize("text", ["a \x00 b", "a \ud83d b", "a ␛0000 b", "a 😀 b", "a \u202e b", "<b>a</b> b"])
def test_any_characters_are_quoted_as_they_are_stored(text: str) -> None:
    assert quoted(f"Say {text} now", text) == encode_text(text)


def test_a_longer_quotation_than_anybody_needs_is_none() -> None:
    text = "ab " * LONGEST_QUOTE
    assert quoted(text, text) is None


def test_nobody_has_said_what_a_tool_gave_or_a_model_thought() -> None:
    parts = (ToolPart(tool_name="t", tool_call_id="c", input="{}", output="Remember: 4711"), ReasoningPart(text="4711"))
    assert find_quote([message(*parts, role="assistant")], "4711") is None
    assert find_quote([message(TextPart(text="4711"), role="system")], "4711") is None
    assert find_quote([message(*parts, TextPart(text="4711"), role="assistant")], "4711") is not None


def test_what_is_said_later_supersedes_what_was_said_before() -> None:
    standing = [Standing(id="fact_a", said_seq=3), Standing(id="fact_b", said_seq=5)]
    assert superseded_by_new(standing, said_seq=7) == (["fact_a", "fact_b"], None)
    assert superseded_by_new(standing, said_seq=5) == (["fact_a", "fact_b"], None)
    assert superseded_by_new(standing, said_seq=4) == (["fact_a"], "fact_b")
    assert superseded_by_new([], said_seq=4) == ([], None)


def test_a_withdrawn_fact_is_withdrawn_whatever_else_became_of_it() -> None:
    assert state_of(superseded_seq=None, withdrawn_seq=None) is FactState.LIVE
    assert state_of(superseded_seq=9, withdrawn_seq=None) is FactState.SUPERSEDED
    assert state_of(superseded_seq=9, withdrawn_seq=12) is FactState.WITHDRAWN
    assert state_of(superseded_seq=9, withdrawn_seq=12, ban="forbidden") is FactState.FORBIDDEN


@pytest.mark.parametrize(
    "statement",
    [
        "Lives in Oslo.",
        "  LIVES, in Oslo",
        "The user lives in Óslo now",
        "Oslo",
        "lives in",
    ],
)
def test_the_same_words_are_forbidden_and_so_is_what_contains_them_or_is_contained(statement: str) -> None:
    assert is_forbidden(statement, ["Has a dog.", "Lives in Oslo."])


@pytest.mark.parametrize("statement", ["Lives in Bergen.", "In Oslo lives", "Lives near Oslo.", "Oslofjord", "", "?!"])
def test_other_words_are_not_forbidden(statement: str) -> None:
    assert not is_forbidden(statement, ["Lives in Oslo.", "", "…"])
    assert not is_forbidden(statement, [])


def test_what_has_no_words_or_no_spaces_is_compared_too() -> None:
    assert is_forbidden("🙂", ["🙂"])
    assert not is_forbidden("🙂", ["🙃", "Lives in Oslo."])
    assert is_forbidden("私は紅茶が好きです", ["紅茶が好き"])
    assert not is_forbidden("私は紅茶が嫌いです", ["紅茶が好き"])


def test_case_and_white_space_make_no_other_subject() -> None:
    assert plain_subject("  My  Dog\n") == plain_subject("my dog") == "my dog"
