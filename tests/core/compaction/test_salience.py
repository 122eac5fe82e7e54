"""Salient items: found by rule, where they are, in any script, and in bounded time however hostile a text is."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mnesis_core.compaction.fidelity import (
    LONGEST_TEXT,
    ItemKind,
    SalientItem,
    Shown,
    SourceText,
    find_items,
    items_of,
    measure,
    number_of,
)

PIECES = st.sampled_from(
    [
        *(
            "Never deploy on Fridays. ",
            "We decided to use Redis. ",
            "on 7 May 2023 ",
            "2024-02-03 ",
            "1,204.50 € ",
            "12 % ",
        ),
        *(
            "Ines Maria ",
            "src/app/main.py ",
            "https://x.y/z ",
            "`foo_bar` ",
            "ABC-123 ",
            "v1.2.3 ",
            "٣٤ قطط ",
            "你必须使用中文。",
        ),
        *("```\n", "\n", "# Heading\n", "- ", "? ", "\ud800", "\u202e", "\0", "_", "/", "."),
    ]
)


def kinds(text: str) -> list[tuple[str, str]]:
    return [(item.kind.value, item.text) for item in find_items(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I paid $1,200.50 for 3 cats, about 12 %.", [("number", "$1,200.50"), ("number", "3 cats"), ("number", "12 %")]),
        ("Step 1. Go. Option 2, then.", []),
        ("On 7 May 2023, in June 2024 and 2024-02-03.", [("date", "7 May 2023"), ("date", "June 2024"), ("date", "2024-02-03")]),
        ("会議は2024年5月7日です", [("date", "2024年5月7日")]),
        ("I met Caroline Smith's dog in Portwell.", [("name", "Caroline Smith"), ("name", "Portwell")]),
        ("Maybe. Perhaps. Hello there, see you Monday in May.", []),
        ("Look at src/app/main.py and `foo_bar`.", [("identifier", "src/app/main.py"), ("identifier", "foo_bar")]),
        ("See https://x.y/z?a=1, then ABC-123.", [("identifier", "https://x.y/z?a=1"), ("identifier", "ABC-123")]),
        ("```\nx = 4711 # Never touch Ines\n```", []),
        ("- Never deploy on Fridays.", [("instruction", "Never deploy on Fridays.")]),
        ("I have never been there. Must I go?", []),
        ("We decided to sail.", [("decision", "We decided to sail.")]),
        ("I prefer tea.", [("instruction", "I prefer tea.")]),
        ("Du musst immer auf Deutsch antworten.", [("instruction", "Du musst immer auf Deutsch antworten."), ("name", "Deutsch")]),
        ("你必须使用中文。我们决定三月去。", [("instruction", "你必须使用中文。"), ("decision", "我们决定三月去。")]),
        ("I met Zoe\u0308 there.", [("name", "Zoe\u0308")]),
        ("", []),
    ],
)  # fmt: skip
def test_each_kind_is_found_and_ordinary_words_are_not(text: str, found: list[tuple[str, str]]) -> None:
    assert kinds(text) == found


@example("/0/0,00")
@example("\x1bA0\U00011a8a")
@example("See B" + "a" * 70 + " there")
@example("15,0/a.py")
@given(st.one_of(st.text(), st.lists(PIECES).map("".join)))
@settings(max_examples=200, deadline=None)
def test_an_item_is_where_it_says_and_a_text_has_all_of_its_own(text: str) -> None:
    items = find_items(text)
    assert all(text[item.start : item.end] == item.text for item in items)
    assert items == find_items(text)
    measured = measure(items_of([SourceText(text=text)]), Shown([text]))
    assert [one.item for one in measured.missing] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "a/",
        "A",
        "Aa ",
        "1",
        "1,",
        "1.",
        "`a",
        "a@b.",
        "http://",
        "May ",
        "1 May ",
        "- ",
        "```\n",
        "never ",
        "必须",
        ".",
        "Aa'",
        "\u0301",
    ],
)
def test_twenty_million_characters_are_read_in_bounded_time(unit: str) -> None:
    began = time.process_time()
    items = find_items(unit * (20_000_000 // len(unit)))
    Shown([unit * (20_000_000 // len(unit))]).has(SalientItem(kind=ItemKind.NUMBER, text="7", start=0, end=1))
    assert time.process_time() - began < 20, "a bound for what would otherwise take minutes"
    assert len(items) < 20_000


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["Never deploy {}.\n", "On {} May 2023 ", "Never boat Ines{} a1b2c3{} {} cats. "])
def test_hostile_sources_are_compared_in_bounded_time(unit: str) -> None:
    text = "".join(unit.format(*[number] * 3) for number in range(200_000))
    began = time.process_time()
    measured = measure(items_of([SourceText(text=text)]), Shown([text.replace("deploy", "deploys"), text[::-1]]))
    assert time.process_time() - began < 20, "a bound for what would otherwise take minutes"
    assert measured.counted


def test_the_end_of_a_very_long_text_is_read_too() -> None:
    text = "x\n" * LONGEST_TEXT + "Never deploy on Fridays."
    assert ("instruction", "Never deploy on Fridays.") in kinds(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("At 2026-02-11T10:20 it ran.", [("date", "2026-02-11")]),
        ("I came in May 12:30 sharp.", [("number", "12:30 sharp")]),
        ("我买了3本书。", [("number", "3本书")]),
    ],
)
def test_days_and_numbers_are_found_beside_other_signs(text: str, found: list[tuple[str, str]]) -> None:
    assert kinds(text) == found


def test_what_may_not_be_changed_is_more_than_what_must_not_be_lost() -> None:
    text = "It (step 1) sets user_id, calls enum.map and ends in h3.\n```\nx = 4711\n```"
    assert kinds(text) == []
    assert [item.text for item in find_items(text, thorough=True)] == ["1", "user_id", "enum.map", "h3", "4711"]


@pytest.mark.parametrize(
    ("digits", "number"),
    [
        ("1,204.50", "1204.5"),
        ("1,000,000", "1000000"),
        ("1,20", "1,20"),
        ("45.00", "45"),
        ("100", "100"),
        ("0.50", "0.5"),
        ("08:30", "8:30"),
        ("0471", "0471"),
        ("1.2.0", "1.2.0"),
        ("٣٤", "34"),
    ],
)
def test_a_number_is_the_same_however_it_is_written(digits: str, number: str) -> None:
    assert number_of(digits) == number


def test_a_language_that_capitalises_nouns_marks_no_names() -> None:
    german = (
        "Gestern haben wir den Hafen und die Brücke besucht, und der Koch hat uns eine Suppe mit Brot gebracht. Danach ist"
        " der Maler mit seinem Boot über den Fluss gefahren, weil die Lampe im Garten und das Fenster der Werkstatt fehlten, und am"
        " Abend haben wir bei der Mutter mit den Kindern ein Fest gefeiert."
    )
    english = "Then Ines went to the harbour of Portwell and painted the bridge. " * 4
    assert "name" not in dict(kinds(german))
    assert dict(kinds(english))["name"] == "Portwell"
