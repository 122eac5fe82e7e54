"""The fidelity of a summary: what of its sources stands nowhere, and when that is an alarm."""

from __future__ import annotations

import pytest

from mnesis_core.compaction.fidelity import (
    MOST_COUNTED,
    Fidelity,
    Shown,
    SourceText,
    is_alarm,
    items_of,
    measure,
    spoken_texts,
)
from mnesis_core.compaction.reflection import MOST_CARRIED, carried_facts
from tests.core.compaction.test_reflection import message


def missing(said: str, *shown: str) -> list[str]:
    return [one.item.text for one in measure(items_of([SourceText(text=said)]), Shown(shown)).missing]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("It cost 1,200 pounds.", "The price was 1200."),
        ("On 7 May 2023 we met.", "They met (2023-05-07)."),
        ("On 7 May we met.", "They met on 7 May 2023."),
        ("I met Caroline Smith.", "SMITH, CAROLINE was met."),
        ("I met Zoe\u0308 there.", "The user met Zo\u00eb."),
        ("See src/app/main.py now", "- SRC/app/main.py (changed)"),
        ("Never deploy on Fridays.", "Constraints: they never deploy on a Friday"),
        ("We decided to use Redis for the queue.", "- Decision: Redis is used for the queue"),
        ("你必须使用中文。", "约束:必须使用中文"),
    ],
)  # fmt: skip
def test_what_is_said_in_other_words_or_order_is_not_missing(said: str, shown: str) -> None:
    assert missing(said, "Other text.", shown) == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("It cost 1,200 pounds.", "The price was 12,000."),
        ("On 7 May 2023 we met.", "They met in June 2023, on the 7th, and on 7 May 2022."),
        ("I met Caroline Smith.", "Caroline was met."),
        ("See src/app/main.py now", "main.py"),
        ("Never deploy on Fridays.", "They deploy on Fridays."),
        ("The gate code must be 4711 at night.", "The gate code must be 4712 at night."),
        ("We decided to use Redis for the queue.", "The queue is slow.\nRedis is old."),
    ],
)
def test_what_says_something_else_is_missing(said: str, shown: str) -> None:
    assert said.strip(".") in " ".join(missing(said, shown)) or missing(said, shown)


def test_an_item_said_twice_counts_once_where_it_was_said_last() -> None:
    sources = [SourceText(text=text, seq=seq) for seq, text in enumerate(["I met Ines.", "Then Ines left.", "So INES"])]
    [one] = [one for one in items_of(sources[:2]) if one.item.kind == "name"]
    assert (one.source.seq, one.item.text) == (1, "Ines")


def test_only_users_instruct_and_tools_say_nothing() -> None:
    said = [
        message(1, "Never deploy."),
        message(2, "You must never deploy on Monday.", role="assistant"),
        message(3, "We decided to wait.", role="assistant"),
        message(4, "Never touch 4711 stones.", role="tool"),
    ]
    found = [(one.source.seq, one.item.kind.value) for one in items_of(spoken_texts(said))]
    assert found == [(1, "instruction"), (3, "decision")]


def test_an_alarm_needs_enough_items_and_more_than_the_bound_missing() -> None:
    assert is_alarm(10, 6, bound=0.5)
    assert not is_alarm(10, 5, bound=0.5)
    assert not is_alarm(7, 7, bound=0.5)
    assert not is_alarm(100, 100, bound=1.0)


def test_a_lost_instruction_is_enough_and_weighs_more_than_anything_else() -> None:
    said = "Never deploy on Fridays. " + " ".join(f"There are {number} boats." for number in range(10, 30))
    items = items_of([SourceText(text=said)])
    boats = measure(items, Shown([" ".join(map(str, range(10, 30)))]))
    order = measure(items, Shown(["Never deploy on Fridays."]))
    assert boats.passes(0.9)
    assert not boats.passes(1)
    assert not order.passes(0.99)
    assert order.keeps_more(boats)
    assert not boats.keeps_more(order)
    assert {one.item.kind.value for one in order.missing} == {"number"}


def test_items_are_bounded_and_every_kind_has_its_share() -> None:
    text = " ".join(f"There are {number} boats in src/a{number}.py." for number in range(100, 1_500))
    items = items_of([SourceText(text=f"Never deploy on Fridays. {text}")])
    assert len(items) <= MOST_COUNTED
    assert {one.item.kind.value for one in items} == {"instruction", "number", "identifier"}
    texts = [one.item.text for one in items_of(SourceText(text=f"I have {number} boats.") for number in range(2_000))]
    assert texts[-1] == "1999 boats", "the newest are kept"


def test_nothing_to_count_is_no_alarm() -> None:
    assert not Fidelity(counted=0).passes(0)


def lost_of(*said: str) -> list[tuple[str, str]]:
    messages = [message(seq, text) for seq, text in enumerate(said, start=1)]
    facts = carried_facts(measure(items_of(spoken_texts(messages)), Shown([])).missing, messages)
    texts = {part.id: part.part.text for one in messages for part in one.parts}
    assert all(
        texts[fact.places[0].part_id][fact.places[0].start : fact.places[0].end] == fact.statement for fact in facts
    )
    return [(fact.kind.value, fact.statement) for fact in facts]


def test_few_of_many_instructions_are_carried_the_newest_in_their_order() -> None:
    said = [
        f"Never touch the {name} pump." for name in ("red", "blue", "green", "black", "white", "brown", "pink", "gold")
    ]
    assert lost_of(*said) == [("instruction", text) for text in said[-MOST_CARRIED:]]


def test_a_sentence_with_several_lost_items_is_carried_and_a_lonely_name_is_not() -> None:
    said = "The crane in Harwich lifts 35 tons. The fog came from Portwell. It cost 4,200 pounds on 7 May 2025."
    assert lost_of(said) == [
        ("entity", "The crane in Harwich lifts 35 tons."),
        ("entity", "It cost 4,200 pounds on 7 May 2025."),
    ]
    assert lost_of("The fog came from Portwell.") == []


def test_what_a_summary_says_is_carried_only_in_the_words_of_a_message() -> None:
    messages = [message(1, "Well. Never deploy on Fridays!")]
    [*sources] = items_of([SourceText(text="User, 7 May 2023: Never deploy on Fridays!\nUser: Never say this.")])
    [fact] = carried_facts(sources, messages)
    assert (fact.statement, fact.said_seq, fact.method.value) == ("Never deploy on Fridays!", 1, "rule")
