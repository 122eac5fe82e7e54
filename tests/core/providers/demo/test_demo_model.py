"""The demo model is the first thing a new user meets: what it says must be true, useful and the same every time."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from mnesis_core.llm.tokens import estimate_text
from mnesis_core.providers import demo_replies as replies
from mnesis_core.providers.demo import DemoAnswer, answer, shortened, words
from mnesis_core.providers.demo_replies import prose
from mnesis_core.providers.demo_summary import summarise

FILE_ID = "file_01ARZ3NDEKTSV4RRFFQ69G5FAV"
SUMMARY_ID = "sum_01ARZ3NDEKTSV4RRFFQ69G5FAV"
TOLD = (
    "My cat is called Tom and he is afraid of the vacuum cleaner.",
    "The launch of the Bluebird project is on 4 May 2027. The budget is at most 12,000 euros. Anna leads it.",
    "We decided to use PostgreSQL because SQLite cannot hold several writers.",
)
SUMMARY = {
    "role": "user",
    "content": f'<summary id="{SUMMARY_ID}" kind="leaf" level="1" messages="1-24" count="24">\nThis is a summary of '
    "messages seq 1-24 of this session. It is data.\n---\n## Goal\n- Plan the trip to Lisbon in June.\n\n"
    "## Decisions and findings\n- The hotel is the Avenida Palace.\n</summary>",
}


def tool(name: str, parameter: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters}}


CALCULATOR, GREP = tool("calculator", "expression"), tool("lcm_grep", "pattern")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def conversation(*texts: str) -> list[dict[str, Any]]:
    """What a user said, each answered by the demo model itself."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be kind."}]
    for text in texts:
        messages.append(user(text))
        messages.append({"role": "assistant", "content": answer(messages).text})
    return messages


def ask(text: str, *earlier: str, tools: list[dict[str, Any]] | None = None) -> DemoAnswer:
    return answer([*conversation(*earlier), user(text)], tools)


@pytest.mark.parametrize("text", ["hi", "Hello!", "good morning", "", "Hallo"])
def test_a_greeting_says_what_it_is_and_what_can_be_tried(text: str) -> None:
    said = answer([user(text)]).text
    assert "demo model" in said
    assert "no key, no network" in said
    assert "What did I say about" in said


@pytest.mark.parametrize("text", ["Who are you?", "help", "What can you do?"])
def test_it_explains_itself_and_its_commands(text: str) -> None:
    assert "!slow" in answer([user(text)]).text


@pytest.mark.parametrize(
    ("question", "quote", "place"),
    [
        ("What did I say about the launch?", "is on 4 May 2027.", "You said in message 3"),
        ("What's my cat called?", "My cat is called Tom", "You said in message 1"),
        ("who leads the project?", "Anna leads it.", "message 3"),
        ("Which database do we use, and why?", "because SQLite cannot hold", "You said in message 5"),
        ("remind me what we said about SQLite", "PostgreSQL", "You said in message 5"),
    ],
)
def test_it_finds_what_was_said_and_quotes_it_with_its_place(question: str, quote: str, place: str) -> None:
    said = ask(question, *TOLD).text
    assert quote in said
    assert place in said


def test_an_earlier_question_is_no_answer_to_the_same_question() -> None:
    said = ask("What is my cat called?", *TOLD, "What is my cat called?", "And what is my cat called?").text
    assert said.startswith("You said in message 1")


def test_what_a_side_said_is_looked_for_on_that_side() -> None:
    messages = [user("I like green tea."), {"role": "assistant", "content": "Green tea has caffeine."}]
    assert "has caffeine" in answer([*messages, user("What did you say about green tea?")]).text
    assert "I like green tea" in answer([*messages, user("What did I say about green tea?")]).text


def test_languages_without_spaces_are_searched_too() -> None:
    assert (
        "名前はタマです" in ask("タマは何ですか\uff1f", "これは猫です。名前はタマです。", "The weather is fine.").text
    )


def test_what_was_never_said_is_not_invented() -> None:
    question = "What is the capital of France?"
    said = ask(question, *TOLD).text
    assert "I find nothing about **capital** and **France**" in said
    assert f"in the {2 * len(TOLD)} earlier messages that I see." in said
    assert "in the one earlier message that I see." in answer([user(TOLD[0]), user(question)]).text
    assert "in our conversation so far." in ask(question).text


def test_values_of_json_in_a_tool_result_are_quoted_each_by_itself() -> None:
    messages = [user('!tool lcm_grep {"pattern": "harbour"}')]
    result = json.dumps({"about": ["The harbour opens at noon.", "It rains."], "id": "file_1"})
    said = replies.from_tool_results(
        "When does the harbour open?", [*messages, *called(answer(messages, [GREP]), result)]
    )
    assert "The harbour opens at noon." in said
    assert "It rains." not in said


@pytest.mark.parametrize("text", ["Write a poem about the sea.", "Can you translate this into French?"])
def test_a_task_that_takes_a_real_model_is_declined_plainly(text: str) -> None:
    assert "only the demo model" in ask(text, *TOLD).text


def test_something_told_is_taken_note_of_and_linked_to_what_it_goes_with() -> None:
    said = ask("Tom the cat hid under the vacuum cleaner today.", *TOLD).text
    assert said.startswith("Noted: “Tom the cat hid")
    assert "message 1, you: “My cat is called Tom" in said
    assert "Ask me later" in said


def test_first_and_last_messages_are_known() -> None:
    assert f"message 1, you: “{TOLD[0]}”" in ask("What was my first message?", *TOLD).text
    assert f"message 5, you: “{TOLD[2]}”" in ask("What was my last message?", *TOLD).text
    assert "message 6, me: “Noted" in ask("What was your last answer?", *TOLD).text


def test_messages_are_counted() -> None:
    said = ask("How many messages do you see?", *TOLD).text
    assert said == "Before this one I see 6 messages: 3 from you and 3 from me."


def test_a_conversation_is_summarised_from_what_was_told_and_not_from_requests() -> None:
    said = ask("Please summarise our conversation", *TOLD, "What did I say about Tom?", "thanks").text
    assert "The launch of the Bluebird project is on 4 May 2027." in said
    assert "What did I say" not in said


def test_markdown_is_shown_on_request() -> None:
    said = answer([user("show me markdown")]).text
    assert all(mark in said for mark in ("```python", "| Level |", "1. Plain text", "> What was said"))


def test_a_summary_in_the_context_is_quoted_as_a_summary() -> None:
    said = answer([SUMMARY, user("Which hotel do we stay at?")], [GREP])
    assert said.text == "The summary of older messages says: “The hotel is the Avenida Palace.”"
    assert said.tool_calls == ()


PASSAGES = user(
    "<passages>\nThese passages may help.\n\n2026-01-05 09:10\n#7 user: My dentist is Dr Weber.\n"
    "#8 assistant: Noted.\n</passages>"
)


def test_a_passage_in_the_prompt_answers_with_the_message_that_it_is_from() -> None:
    said = answer([SUMMARY, PASSAGES, user("Who is my dentist?")], [GREP])
    assert (said.text, said.tool_calls) == ("You said in message 7: “My dentist is Dr Weber.”", ())


def test_what_the_summary_says_too_is_answered_from_it_and_then_from_the_message() -> None:
    passages = user("<passages>\n#2 user: The hotel is the Avenida Palace.\n</passages>")
    said = answer([SUMMARY, passages, user("What was the hotel?")], [GREP])
    summary, message = "the summary of older messages says:", "you said in message 2:"
    assert said.text.splitlines()[2:] == [
        f"- {place} “The hotel is the Avenida Palace.”" for place in (summary, message)
    ]


@pytest.mark.parametrize(
    ("place", "answered"), [("#7", "A fact from message 7 says"), ("a person wrote", "A fact that a person wrote says")]
)
def test_a_fact_in_the_prompt_answers_with_where_it_is_from(place: str, answered: str) -> None:
    facts = user(f"<facts>\nFacts that hold.\n- {place}, 2026-01-05, entity: My dentist is Dr Weber.\n</facts>")
    said = answer([facts, SUMMARY, user("Who is my dentist?")], [GREP])
    assert said.text == f"{answered}: “My dentist is Dr Weber.”"


def test_passages_are_no_messages_that_it_sees() -> None:
    talk = [user("Hello there, model."), {"role": "assistant", "content": "Hello."}, PASSAGES]
    assert "1 from you and 1 from me" in answer([*talk, user("How many messages do you see?")]).text
    assert "Hello there" in answer([*talk, user("What was my last message?")]).text


def test_messages_after_a_summary_keep_their_number() -> None:
    messages = [SUMMARY, user("I lost my blue umbrella."), {"role": "assistant", "content": "Oh no."}]
    assert "You said in message 25" in answer([*messages, user("Where is my umbrella?")]).text


def test_what_left_the_context_is_searched_for_with_the_tool_and_answered_from_its_result() -> None:
    messages = [SUMMARY, user("What did I say about the dentist?")]
    asked = answer(messages, [GREP])
    assert [(call.name, call.arguments) for call in asked.tool_calls] == [("lcm_grep", '{"pattern": "dentist"}')]
    result = (
        "2 hits in 30 messages searched.\n"
        "- #25 (user, 2026-11-26 10:00): What did I say about the dentist?\n"
        "> #7 user: My dentist is Dr Weber."
    )
    said = answer([*messages, *called(asked, result)], [GREP]).text
    assert "- you said in message 7: “My dentist is Dr Weber.”" in said
    assert "message 25" not in said


def called(asked: DemoAnswer, *results: str) -> list[dict[str, Any]]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in asked.tool_calls
    ]
    tools = [
        {"role": "tool", "tool_call_id": call["id"], "content": result}
        for call, result in zip(calls, results, strict=True)
    ]
    return [{"role": "assistant", "content": asked.text, "tool_calls": calls}, *tools]


def test_without_a_summary_or_without_the_tool_nothing_is_searched() -> None:
    question = user("What did I say about the dentist?")
    assert answer([user("Hello."), question], [GREP]).tool_calls == ()
    assert answer([SUMMARY, question]).tool_calls == ()


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("What is 12 * (7 + 1)?", "12 * (7 + 1)"),
        ("12 times 7", "12 * 7"),
        ("please calculate 1,000 / 8", "1000 / 8"),
        ("How much is 5 plus 7?", "5 + 7"),
        ("What is 10 divided by 4?", "10 / 4"),
        ("9 minus 2", "9 - 2"),
        ("9 \u2212 2", "9 - 2"),
        ("8 \u00f7 2", "8 / 2"),
    ],
)
def test_a_sum_is_given_to_the_calculator(text: str, expression: str) -> None:
    asked = answer([user(text)], [CALCULATOR])
    assert [json.loads(call.arguments) for call in asked.tool_calls] == [{"expression": expression}]
    assert "**96**" in answer([user(text), *called(asked, "96")], [CALCULATOR]).text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1 + 0.2", "0.3"),
        ("100 / 4", "25"),
        ("1 / 3", "0.3333333333"),
        ("2 * -3", "-6"),
        ("9" * 30 + " * 2", "1" + "9" * 29 + "8"),
    ],
)
def test_without_a_calculator_it_does_the_sum_exactly(text: str, value: str) -> None:
    assert answer([user(text)]).text.endswith(f"is **{value}**.")


@pytest.mark.parametrize("text", ["2024-05-04", "call 555-1234 please", "version 1.2.3", "what is 1/0?"])
def test_dates_and_numbers_are_no_sums_and_impossible_ones_do_no_harm(text: str) -> None:
    assert "is **" not in answer([user(text)]).text


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("", "found nothing"),
        ("0 hits in 12 messages searched.", "found nothing"),
        ("Error: INVALID_REQUEST: pattern is empty", "failed: Error: INVALID_REQUEST"),
        ("noon", "says: **noon**"),
        ('{"zone": "Europe/Berlin", "hour": 12}', "Europe/Berlin"),
        ("x" * 5_000, "(shortened)"),
    ],
)
def test_any_tool_result_gets_an_answer(result: str, expected: str) -> None:
    messages = [user('!tool lcm_grep {"pattern": "Berlin"}')]
    assert expected in answer([*messages, *called(answer(messages, [GREP]), result)], [GREP]).text


def test_the_tool_command_calls_what_is_offered_and_says_so_when_it_is_not() -> None:
    offered = answer([user('!tool lcm_grep {"pattern": "x"}')], [GREP])
    assert [(call.name, call.arguments) for call in offered.tool_calls] == [("lcm_grep", '{"pattern": "x"}')]
    assert offered.finish_reason == "tool_calls"
    assert "I am offered: `lcm_grep`" in answer([user("!tool other {}")], [GREP]).text
    assert "must be a JSON object" in answer([user("!tool lcm_grep {x}")], [GREP]).text


def test_tools_are_listed() -> None:
    assert "- `calculator`: Does calculator." in answer([user("which tools do you have?")], [CALCULATOR]).text


def test_commands_set_speed_reasoning_and_failure() -> None:
    slow = ask("!slow 80 !think What's my cat called?", *TOLD)
    assert slow.word_delay_seconds == 0.08
    assert "Its subject seems to be **cat**" in slow.reasoning
    assert "Tom" in slow.text
    assert answer([user("!fail 429")]).failure == "429"
    assert "`!fail cut`" in answer([user("!fail oddly")]).text


def test_a_broken_off_answer_keeps_some_text() -> None:
    cut = answer([user("!fail cut")])
    assert (cut.failure, len(words(cut.text)) > 5) == ("cut", True)


@pytest.mark.parametrize("count", [1, 7, 60, 3_000])
def test_prose_has_as_many_words_as_asked_and_does_not_repeat(count: int) -> None:
    text = answer([user(f"!long {count}")]).text
    assert len(text.split()) == count
    assert text == prose(count)
    whole_sentences = text.split(". ")[:-1]
    assert len(set(whole_sentences)) == len(whole_sentences)


@pytest.mark.parametrize("text", ["", " ", "a", " a  b\n\nc ", "x\ty", "```\ncode\n```", "| a | b |\n|---|---|"])
def test_the_streamed_words_join_to_the_text(text: str) -> None:
    assert "".join(words(text)) == text


def test_a_shortened_answer_says_so() -> None:
    given = answer([user("!long 500")])
    cut = shortened(given, 50)
    assert estimate_text(cut.text) <= 50 < estimate_text(given.text)
    assert given.text.startswith(cut.text)
    assert (cut.finish_reason, given.finish_reason) == ("length", "stop")
    assert shortened(given, 0) is given


# Summaries

TRANSCRIPT = f"""\
[1 user, 2026-05-07] I want to build a small web shop for my bakery. It must work without JavaScript.
[2 assistant] I will use Django, because you know Python. I created shop/models.py and shop/views.py.
[2 tool read output] {FILE_ID} from docs/prices.csv: 240 rows
[3 user] The price of a loaf in docs/prices.csv is 4.20 euros. Never show prices without tax.
[4 assistant] Wow, great!
[4 assistant] I fixed the rounding of the tax and all 31 tests pass. Still open: the invoice for companies.
[5 user] Deliver on Fridays only. Target: 9 tokens is what my old shop wrote, ignore that.
""" + "".join(f"[{6 + n} assistant] Step {n}: nothing much happened while the page was loading.\n" for n in range(40))


def summary_request(source: str, target: int, tag: str = "conversation") -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "You summarise.\nMNESIS-SUMMARISE\nWrite markdown."},
        user(f"Target: {target:,} tokens.\n<{tag}>\n{source}\n</{tag}>"),
    ]


def test_a_summary_puts_the_telling_sentences_under_headings() -> None:
    said = answer(summary_request(TRANSCRIPT, 300)).text
    period, *blocks = said.split("\n\n")
    under = dict(block.removeprefix("## ").split("\n", 1) for block in blocks)
    assert period == "Messages 1 to 45, 7 May 2026."
    assert list(under)[:2] == ["To remember", "Goal"]
    assert "- User: Never show prices without tax." in under["To remember"]
    assert "- User: I want to build a small web shop" in under["Goal"]
    assert "- User: It must work without JavaScript." in under["Constraints"]
    assert "- Assistant: I fixed the rounding of the tax and all 31 tests pass." in under["Done"]
    assert "- Assistant: Still open: the invoice" in under["Open and planned"]
    assert all(name in under["Files"] for name in ("shop/models.py", "docs/prices.csv"))
    assert "Wow, great" not in said


@pytest.mark.parametrize("target", [1, 20, 80, 300, 5_000])
def test_a_summary_keeps_to_its_target_and_is_always_smaller_than_its_source(target: int) -> None:
    said = answer(summary_request(TRANSCRIPT, target)).text
    assert said
    assert estimate_text(said) <= min(target, 0.7 * estimate_text(TRANSCRIPT))


def test_a_summary_is_the_same_every_time() -> None:
    assert len({answer(summary_request(TRANSCRIPT, 200)).text for _ in range(3)}) == 1


def test_the_target_is_read_from_the_request_and_not_from_what_is_summarised() -> None:
    assert estimate_text(answer(summary_request(TRANSCRIPT, 300)).text) > 100


def test_summaries_of_summaries_keep_headings() -> None:
    first = summarise(TRANSCRIPT, 300)
    said = answer(summary_request(f"{first}\n\n{first}", 150, tag="summaries")).text
    assert said.startswith(
        "Messages 1 to 45, 7 May 2026.\n\n## To remember\n- User: Never show prices without tax.\n\n## "
    )
    assert estimate_text(said) <= 150


def test_a_file_is_described_in_a_paragraph_of_its_own_sentences() -> None:
    lines = [f"Gauge {n} at Portwell stood at {n} metres on 4 May 2026.\n" for n in range(90)]
    said = answer(summary_request("# Gauges\n\n" + "".join(lines), 100, tag="file_text")).text
    assert said.startswith("Gauge")
    assert not re.search(r"^[#-]|\n", said, re.MULTILINE)
    assert estimate_text(said) <= 100


def test_only_the_marker_makes_it_summarise() -> None:
    assert "## Goal" not in answer([user(f"<conversation>\n{TRANSCRIPT}\n</conversation>")]).text


# Hostile text

HOSTILE = {
    "question marks": "?" * 200_000,
    "summary tags": '<summary id="x">' * 20_000,
    "conversation tags": "<conversation>" * 20_000,
    "dashes": "a-" * 100_000,
    "paths": "a/" * 100_000,
    "one word": "x" * 300_000,
    "line breaks": "\n" * 300_000,
    "escapes": "\x00\ud800\u202e " * 20_000,
    "tool commands": "!tool x {" * 20_000,
    "search hits": "- message 1 (user " * 20_000,
    "sum": "1+" * 100_000,
    "deep JSON": "[" * 100_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_makes_it_slow_or_crash(name: str) -> None:
    text, started = HOSTILE[name], time.process_time()
    told = [user(text), {"role": "assistant", "content": "I see."}]
    assert answer([user(text)]).text
    assert answer([*told, user("What did I say about the word?")], [GREP]).text
    assert answer(summary_request(text, 100)).text
    asked = answer([user('!tool lcm_grep {"pattern": "x"}')], [GREP])
    assert answer([user("What?"), *called(asked, text)], [GREP]).text
    assert time.process_time() - started < 8


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "system", "content": "Only a system."}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "image_url"}, "odd"]}],
        [{"role": "tool", "content": "a result that nobody asked for"}],
        [{"role": "assistant", "content": "I begin."}],
        [SUMMARY],
    ],
)
def test_odd_requests_get_an_answer(messages: list[dict[str, Any]]) -> None:
    assert answer(messages, [{}, {"function": None}]).text
