"""Evaluations of memory: planted facts, policies' prompts, what they show, and reports as JSON and Markdown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.compaction.evaluation.datasets import MOST_FACTS, plant
from mnesis_core.compaction.evaluation.measures import (
    Conversation,
    Measurement,
    Outcome,
    Question,
    Report,
    Told,
    has_answer,
    misleads,
    present_by_age,
    read_report,
    said_in,
    sum_up,
    table_of,
    write_markdown,
)
from mnesis_core.compaction.evaluation.policies import roll, send_full, send_rolling, send_truncated, size_of
from mnesis_core.config import Config
from mnesis_core.context.fitting import Budget, make_budget
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import StoredMessage, TextPart, ToolPart, ToolState
from mnesis_core.transcripts.values import Transcript, TranscriptMessage, TranscriptTurn
from tests.core.context.contexts import message, prose

TEXTS = st.lists(st.text(max_size=60), min_size=1, max_size=30)


def conversation(texts: list[str], questions: tuple[Question, ...] = ()) -> Conversation:
    turns = [
        TranscriptTurn(
            external_id=str(number),
            messages=(
                TranscriptMessage(
                    external_id=str(number),
                    role="user" if number % 2 == 0 else "assistant",
                    parts=(TextPart(text=text), ToolPart(tool_name="a", tool_call_id="b", state=ToolState.COMPLETED)),
                ),
            ),
        )
        for number, text in enumerate(texts)
    ]
    transcript = Transcript(external_id="one", format="test", turns=tuple(turns))
    return Conversation(name="one", transcript=transcript, questions=questions)


def said(planted: Conversation) -> list[str]:
    return [part.text for one in planted.transcript.messages for part in one.parts if isinstance(part, TextPart)]


@given(texts=TEXTS, count=st.integers(0, 60), seed=st.integers(0, 99))
def test_every_code_stands_in_one_message_once_and_the_newer_of_two_in_a_later_one(
    texts: list[str], count: int, seed: int
) -> None:
    texts = [*texts, "7F-2K5 was said before."]
    planted = plant(conversation(texts), count=count, seed=seed)
    now = said(planted)
    assert len(planted.questions) == count
    assert len(now) == len(texts)
    assert all(after.startswith(before) for before, after in zip(texts, now, strict=True))
    for question in planted.questions:
        holding = [number for number, text in enumerate(now, 1) if question.answer in text]
        assert tuple(holding) == question.evidence
        assert "\n".join(now).count(question.answer) == 1
        assert question.answer not in "\n".join(texts)
        assert question.answer not in question.text
        assert (question.kind == "changed") == bool(question.outdated)
        if question.outdated:
            [older] = [number for number, text in enumerate(now, 1) if question.outdated in text]
            assert older < question.evidence[0]


@given(texts=TEXTS, seed=st.integers(0, 99))
def test_the_same_seed_plants_the_same_facts_and_another_seed_others(texts: list[str], seed: int) -> None:
    one = conversation([*texts, "something"])
    assert plant(one, count=12, seed=seed) == plant(one, count=12, seed=seed)
    assert plant(one, count=12, seed=seed) != plant(one, count=12, seed=seed + 1)


def test_no_two_facts_have_one_code_and_none_has_one_that_was_said() -> None:
    texts = [f"message {number}" for number in range(9)]
    for seed in range(8):
        planted = plant(conversation(texts), count=MOST_FACTS, seed=seed)
        codes = [code for one in planted.questions for code in (one.answer, one.outdated) if code]
        assert len(set(codes)) == len(codes)
        again = plant(conversation([*texts, f"then {codes[0].lower()}"]), count=MOST_FACTS, seed=seed)
        assert codes[0] not in {one.answer for one in again.questions}


def test_facts_are_spread_over_the_conversation_and_one_in_five_changes() -> None:
    planted = plant(conversation([f"message {number}" for number in range(200)]), count=40, seed=1)
    places = [question.place for question in planted.questions]
    assert places == sorted(places)
    assert all(any(tenth / 10 <= place < (tenth + 1) / 10 for place in places) for tenth in range(10))
    assert sum(question.kind == "changed" for question in planted.questions) == 8


def test_a_conversation_that_says_nothing_and_too_many_facts_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="no message with a text"):
        plant(conversation(["", " "]), count=1, seed=1)
    with pytest.raises(InvalidRequest, match="between 0 and"):
        plant(conversation(["a"]), count=MOST_FACTS + 1, seed=1)
    assert plant(conversation([""]), count=0, seed=1).questions == ()


def budget(window: int) -> Budget:
    return make_budget(
        ModelSpec(alias="a", litellm_model="demo/chat", context_window=window, max_output_tokens=500), Config()
    )


MESSAGES = st.lists(st.integers(1, 700), max_size=25).map(
    lambda sizes: [message(seq, "user", TextPart(text=f"{seq}: {prose(size)}")) for seq, size in enumerate(sizes, 1)]
)
QUESTION = message(999, "user", TextPart(text="What is the gate code of Bergen?"))


@given(messages=MESSAGES, window=st.integers(1_000, 8_000))
def test_only_the_full_history_is_larger_than_the_window(messages: list[StoredMessage], window: int) -> None:
    usable = budget(window).usable
    truncated = send_truncated(messages, QUESTION, usable)
    rolling = roll(messages, budget(window), 600, 500, lambda payload, target: prose(2 * target))
    rolled = send_rolling(rolling, QUESTION, usable)
    full = send_full(messages, QUESTION)
    assert truncated.tokens <= usable
    assert rolled.tokens <= usable
    assert [one.text for one in truncated.prompt.messages] == [one.text for one in full.prompt.messages][
        -len(truncated.prompt.messages) :
    ]
    assert all(one.prompt.messages[-1].text == "What is the gate code of Bergen?" for one in (truncated, rolled, full))
    assert full.tokens >= sum(map(size_of, messages))
    if full.tokens <= usable:
        assert said_in(truncated.prompt.messages) == said_in(rolled.prompt.messages) == said_in(full.prompt.messages)


def test_truncation_leaves_out_no_message_that_still_fits() -> None:
    messages = [message(seq, "user", TextPart(text=prose(300))) for seq in range(1, 20)]
    sent = send_truncated(messages, QUESTION, budget(4_096).usable)
    assert budget(4_096).usable - sent.tokens < size_of(messages[0])


def test_a_rolling_summary_is_written_anew_from_the_one_before_and_a_model_that_fails_loses_a_span() -> None:
    messages = [message(seq, "user", TextPart(text=f"{seq}: {prose(300)}")) for seq in range(1, 30)]
    asked: list[str] = []

    def answer(payload: dict[str, Any], target: int) -> str | None:
        asked.append(payload["messages"][-1]["content"])
        return None if len(asked) == 2 else f"summary {len(asked)}"

    rolling = roll(messages, budget(4_096), 5_000, 500, answer)
    assert "[1 user" in asked[0]
    assert "summary 1" in asked[1]
    assert "summary 1" in asked[2]
    assert rolling.summary == f"summary {len(asked)}"
    assert rolling.recent[-1] == messages[-1]


CHANGED = Question(kind="changed", text="?", answer="7F-2K5", outdated="3B-9Q4", evidence=(3,), place=0.9)


def test_a_code_is_present_character_by_character_and_an_answer_by_its_words() -> None:
    assert has_answer("it is 7F-2K5.", CHANGED)
    assert not has_answer("it is 7f-2k5.", CHANGED)
    asked = Question(kind="asked", text="?", answer="The painted bowls")
    assert has_answer("she paints a bowl", asked)
    assert not has_answer("she paints", asked)
    assert has_answer("anything", Question(kind="asked", text="?", answer="")) is None


def test_a_fact_that_changed_misleads_where_only_the_old_code_is_there() -> None:
    assert misleads("3B-9Q4", CHANGED)
    assert not misleads("3B-9Q4, then 7F-2K5", CHANGED)
    assert not misleads("nothing", CHANGED)


def test_the_words_of_the_question_answer_nothing() -> None:
    sent = send_full([message(1, "user", "The code is old.")], QUESTION)
    assert said_in(sent.prompt.messages, without=QUESTION.id) == "The code is old."


def report(**values: Any) -> Report:
    planted = Question(kind="planted", text="?", answer="4H-5J6", evidence=(1,), place=0.1)
    asked = Question(kind="asked", text="?", answer="", evidence=(2, 3), place=0.5)
    outcomes = (
        Outcome(question=0, is_present=True, prompt_tokens=100, recalled=(1.0, 1.0)),
        Outcome(question=1, is_present=False, is_outdated=True, prompt_tokens=200, recalled=(0.0, 1.0)),
        Outcome(question=2, is_present=None, prompt_tokens=300, recalled=(0.5, 0.5), is_answered=True),
    )
    measured = {"model": "demo", "window": 4_096, "outcomes": outcomes, "fits": True}
    return Report(
        id="20261126T120000-abcdef",
        at="2026-11-26T12:00:00+00:00",
        seed=1,
        plant=2,
        is_whole=True,
        conversations=(Told(name="a | <b>*", messages=3, tokens=600, questions=(planted, CHANGED, asked)),),
        measurements=(
            Measurement(conversation="a | <b>*", policy="mnesis", calls=3, cost_micros=250_000, **measured),
            Measurement(conversation="a | <b>*", policy="full", cost_micros=None, **measured | {"fits": False}),
        ),
        notes=("a note",),
        **values,
    )


def test_outcomes_are_summed_up_by_policy() -> None:
    ours, full = sum_up(report())
    assert (ours.facts, ours.outdated, ours.answers, ours.answered) == (0.5, 1.0, None, 1.0)
    assert (ours.facts_told, ours.evidence_told) == ((0.5, 1.0), (0.5, 0.5))
    assert (ours.prompt_tokens, ours.calls, ours.cost_micros, ours.fits) == (200, 3, 250_000, True)
    assert (full.cost_micros, full.fits) == (None, False)
    assert present_by_age(report(), "demo", 4_096, "mnesis", 5) == [1.0, None, None, None, 0.0]


def test_a_report_is_read_as_it_was_written() -> None:
    assert read_report(json.loads(json.dumps(report().as_dict()))) == report()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"format": "x"},
        {"seed": "1"},
        {"seed": True},
        {"is_whole": None},
        {"notes": "a"},
        {"conversations": [{}]},
        {"conversations": 3},
        {"measurements": [[]]},
        {"more": 1},
    ],
)
def test_a_report_that_is_none_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_report(report().as_dict() | change)


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "best"},
        {"window": "4096"},
        {"cost_micros": "x"},
        {"outcomes": [{"question": 1}]},
        {"window": -1},
        {"calls": 10**400},
        {"fits": 1},
        {"outcomes": [{"question": 0, "is_present": None, "prompt_tokens": 1, "recalled": [float("nan")]}]},
    ],
)
def test_a_measurement_that_is_none_is_refused(change: dict[str, Any]) -> None:
    values = json.loads(json.dumps(report().as_dict()))
    values["measurements"][0] |= change
    with pytest.raises(ValueError, match=r"."):
        read_report(values)


def test_a_table_leaves_out_what_was_not_measured() -> None:
    header, rows = table_of(sum_up(report()))
    assert "Answers present" not in header
    assert header[:3] == ["Model", "Window", "Policy"]
    assert rows[1][2] == "full history, does not fit"
    assert table_of([]) == ([], [])


def test_markdown_says_names_as_they_are_and_does_nothing_with_them() -> None:
    said = write_markdown(report(), [("A chart", "a.svg")])
    assert r"a \| \<b\>\*: 3 messages" in said
    assert "![A chart](a.svg)" in said
    assert "interrupted" not in said
    assert "<b>" not in said.replace(r"\<b\>", "")
