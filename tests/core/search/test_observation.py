"""The query bar of Observe: what is typed becomes terms, and what no term can be is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.errors import InvalidRequest
from mnesis_core.records import TurnState
from mnesis_core.search.observation import (
    ALIASES,
    FIELDS,
    STATES,
    Name,
    Term,
    parse_observation,
    term_text,
    tokens_of,
    with_term,
    without_term,
)

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOSTILE = [
    *("\0", "\ud800", "model:\0", "person:\ud800*", "\u202emodel:x", "tokens>\u0663", "cost>1e9", 'model:%_\'"--"'),
    *(
        "<script>alert(1)</script>",
        "' OR 1=1 --",
        "tokens>-1",
        "after:99999-01-01",
        "-",
        "--",
        '"',
        '""',
        "-:",
        ":",
        "*",
    ),
    *(
        "after:0001-01-01",
        "before:9999-12-31T23:59:59-14:00",
        "after:99999w",
        "is:",
        "model:,,,",
        "x" * 10_000,
        "🙂",
        "a:b:c",
    ),
    *("tokens>" + "9" * 17, "cost>0.0000001", "error:*", "title:*", " ".join(f"w{n}" for n in range(40))),
]


def parse(text: str) -> tuple[Term, ...]:
    return parse_observation(text, now=NOW)


def test_a_query_becomes_terms() -> None:
    text = 'model:gpt-4o -person:anna,"ben o" error:PROVIDER_* tokens>100k cost>=0.5 after:2026-11-01 "refund policy" over-window'
    model, person, error, tokens, cost, after, words, over = parse(text)
    assert model == Term(text="model:gpt-4o", name="model", names=(Name("gpt-4o"),))
    assert (person.name, person.is_negated, person.names) == ("person", True, (Name("anna"), Name("ben o")))
    assert error.names == (Name("PROVIDER_", True),)
    assert (tokens.sign, tokens.number) == (">", 100_000)
    assert (cost.sign, cost.number) == (">=", 500_000)
    assert after.time == datetime(2026, 11, 1, tzinfo=UTC)
    assert (words.name, words.names) == ("", (Name('"refund policy"'),))
    assert (over.text, over.name, over.names) == ("over-window", "is", (Name("over-window"),))
    assert [term.text for term in parse(text)] == tokens_of(text)


def test_a_period_is_counted_from_now_and_fields_may_be_written_in_capitals() -> None:
    [after, turns] = parse("After:7d TURNS=3")
    assert after.time == datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert (turns.name, turns.sign, turns.number) == ("turns", "=", 3)


def test_what_has_a_colon_is_found_in_quotation_marks_and_typographic_ones_count() -> None:
    assert [term.names for term in parse('"http://example.org" “over-window” 10:30')] == [
        (Name('"http://example.org"'),),
        (Name('"over-window"'),),
        (Name("10:30"),),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modell:x", "“modell:x” is not a known field. Fields: person, group,"),
        ("tokens>many", "“tokens>many” needs a number. Write it as tokens>100k."),
        ("turns>1.5", "needs a whole number"),
        ("model>x", "cannot be compared with >. Write it as model:gpt-*."),
        ("model:", "“model:” has no value. Write it as model:gpt-*."),
        ("state:gone", "is not a valid value for state. Use one of: running, suspended,"),
        ("after:yesterday", "needs a date, a time or a period such as 7d or 24h. Write it as after:2026-11-01."),
        ('model:"x', "A quotation mark (\") is not closed."),
        ("...", "“...” has no word in it."),
    ],
)  # fmt: skip
def test_a_bad_term_is_named_with_what_is_possible(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(f"model:demo {text}")
    assert said in caught.value.message


def test_hostile_texts_are_terms_or_refused(subtests: pytest.Subtests) -> None:
    for text in HOSTILE:
        with subtests.test(ascii(text[:40])):  # execnet carries no lone surrogates
            try:
                assert len(parse(text)) <= 30
            except InvalidRequest as error:
                said = error.message
            else:
                said = ""
            assert said.encode() is not None  # can be shown
            assert len(said) < 500


@given(st.text(alphabet=st.sampled_from('abc:-"*,<>=0k. \0\u202e'), max_size=40))
def test_no_text_fails_otherwise(text: str) -> None:
    try:
        terms = parse(text)
    except InvalidRequest:
        return
    assert {term.text for term in terms} == set(tokens_of(text))


@given(st.sampled_from([name for name, field in FIELDS.items() if field.takes == "name"]), st.text(max_size=60))
def test_a_value_of_a_row_becomes_a_term_that_means_exactly_that(name: str, value: str) -> None:
    text = term_text(name, value)
    if text:
        [term] = parse(with_term("", text))
        assert (term.name, term.names) == (name, (Name(value),))


def test_terms_are_added_once_and_taken_away() -> None:
    text = with_term("cost>1", "model:x")
    assert text == "cost>1 model:x"
    assert with_term(text, "model:x") == text
    assert without_term(text, "cost>1") == "model:x"


def test_every_field_has_an_example_that_is_understood() -> None:
    for name, field in FIELDS.items():
        [term] = parse(field.example)
        assert term.name == name
    assert {parse(alias)[0].name for alias in ALIASES} == {"is"}
    assert set(STATES) == set(TurnState)
