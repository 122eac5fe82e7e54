"""A question becomes words to ask an index for: their forms, their beginnings, and the date that it names."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.errors import InvalidRequest
from mnesis_core.search.ranking import LONGEST_QUESTION, MOST_WORDS, Period, parse_question
from mnesis_core.search.words import FUNCTION_WORDS, forms_of, stem_of, words_of

FAMILIES = [
    ("paint", "paints", "painted", "painting", "painter"),
    ("hike", "hikes", "hiked", "hiking", "hiker"),
    ("run", "runs", "ran", "running", "runner"),
    ("family", "families"),
    ("story", "stories"),
    ("bus", "buses"),
    ("go", "goes", "went", "gone", "going"),
    ("child", "children"),
    ("use", "used", "using"),
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])
def test_each_form_of_a_word_asks_for_the_others(family: tuple[str, ...]) -> None:
    for form in family:
        assert set(family) <= set(forms_of(form)), form


@pytest.mark.parametrize(
    ("one", "other"),
    [("news", "newt"), ("sing", "singular"), ("art", "party"), ("bed", "bing"), ("4711", "471"), ("herring", "her")],
)
def test_words_that_mean_something_else_are_no_forms(one: str, other: str) -> None:
    assert other not in forms_of(one)


@given(st.text(max_size=30))
def test_a_word_is_the_first_of_its_forms_and_they_are_few(word: str) -> None:
    forms = forms_of(word)
    assert forms[0] == word
    assert len(forms) <= 25
    assert stem_of(stem_of(word)) or not word


def test_a_word_of_a_text_is_found_by_a_question_in_any_script() -> None:
    for text in (
        "Größe der Tür",
        "東京タワーへ",
        "우리 학교",
        "ฉันรักภาษาไทย",
        "Быстрая лиса",
        "getUserName()",
        "我的iPhone手机",
    ):
        asked = {word.text for term in parse_question(text).terms for word in term.words if not word.prefix}
        assert asked & words_of(text), text


def test_function_words_are_asked_for_only_where_there_is_nothing_else() -> None:
    def asked(text: str) -> set[str]:
        return {term.words[0].text for term in parse_question(text).terms if not term.words[0].prefix}

    assert asked("What did she say about the tulips?") == {"say", "tulips"}
    assert asked("What is it?") == {"what", "is", "it"}
    assert asked("What is it?") <= FUNCTION_WORDS


def test_a_question_without_the_names_of_those_who_speak() -> None:
    terms = parse_question("When did Ada plant tulips?", without={"ada"}).terms
    assert "ada" not in {word.text for term in terms for word in term.words}
    assert parse_question("Ada?", without={"ada"}).terms[0].words[0].text == "ada"


def test_a_very_long_question_asks_for_its_longest_words() -> None:
    text = " ".join(f"w{number} verylongword{number}" for number in range(3_000))
    terms = [term for term in parse_question(text).terms if not term.words[0].prefix]
    assert len(terms) == MOST_WORDS
    assert all(term.words[0].text.startswith("verylongword") for term in terms)


@pytest.mark.parametrize("text", ["", " ", "...", "🦊", "\0", "\ud800", "x" * (LONGEST_QUESTION + 1)])
def test_what_is_no_question_is_refused_in_words(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_question(text)


@given(st.text())
def test_every_text_is_a_question_or_is_refused(text: str) -> None:
    try:
        question = parse_question(text)
    except InvalidRequest:
        return
    assert question.terms
    places = list(question.places(text))
    assert all(0 <= first < last <= len(text) for first, last in places)
    assert all(before[1] <= after[0] for before, after in pairwise(places))


PERIODS = {
    "What happened in January?": Period(month=1),
    "Who called on 7 May 2023?": Period(month=5, day=7, year=2023),
    "Who called on May 7th, 2023?": Period(month=5, day=7, year=2023),
    "What broke on 2026-11-22?": Period(month=11, day=22, year=2026),
    "What broke in 2026-11?": Period(month=11, year=2026),
    "What was said in may": Period(month=5),
    "May I see the march of the penguins?": None,
    "Error 2026-13-77": None,
    "What did she say?": None,
    "january " + "9" * 5_000: Period(month=1),
}


@pytest.mark.parametrize("text", PERIODS, ids=lambda text: text[:40])
def test_the_date_of_a_question(text: str) -> None:
    assert parse_question(text).period == PERIODS[text]


def test_a_time_is_near_to_a_day_that_is_talked_of_in_the_days_after_it() -> None:
    asked = Period(month=5, day=7, year=2023)
    times = [datetime(*day, tzinfo=UTC) for day in [(2023, 5, 8), (2023, 5, 20), (2023, 6, 7), (2024, 5, 7)]]
    assert [asked.nearness(time) for time in times] == [2, 1, 0, 0]


def test_the_words_of_a_question_are_marked_in_a_text() -> None:
    text = "Tulips, tulip-beds and TULIPOMANIA; 东京都 and untulips."
    question = parse_question("tulip 东京都")
    assert [text[first:last] for first, last in question.places(text)] == ["Tulips", "tulip", "TULIPOMANIA", "东京"]
