"""Level 1, then 2, then 3: whatever the model says, there is a summary that is proven useful."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import pytest

from mnesis_core.compaction.requests import SHIPPED
from mnesis_core.compaction.selection import Condensation
from mnesis_core.compaction.summarise import SummaryResult, summarise
from mnesis_core.compaction.transcript import message_quotables, summary_quotables, transcript_pieces
from mnesis_core.config import Config, override
from mnesis_core.errors import ModelAuthenticationFailed, ModelUnreachable
from mnesis_core.files.references import Named
from mnesis_core.llm.interface import Request, Source, ToolCall, Usage
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.providers.scripted import Counting, Script, ScriptedModel, Step
from tests.core.context import contexts as make
from tests.core.context.contexts import conversation, summaries
from tests.support.providers.unrecorded import Unrecorded

CONFIG = Config()
GOOD = "## Goal\nRepair the gauge at Portwell before the tide turns."
FILE = "file_0123456789abcdef"
MANIFEST = "file_01HZY3K9QV5T7W8X2C4D6F8G0J"
MESSAGES = conversation(10, tokens=500)
PIECES = transcript_pieces(MESSAGES, 50_000)
SOURCE = sum(estimate_text(piece) for piece in PIECES)


def model(*replies: Script | Callable[[Request], Script]) -> ScriptedModel:
    return ScriptedModel(spec=make.spec(), replies=replies)


def always(answer: Callable[[Request], Script], window: int = 32_000) -> ScriptedModel:
    return ScriptedModel(spec=make.spec(window), replies=answer)


async def summary_of(asked: ScriptedModel | None, pieces: Sequence[str] = PIECES, **values: object) -> SummaryResult:
    quotables, recorder = message_quotables(MESSAGES), Unrecorded(asked)
    arguments = {"kind": "leaf", "manifest_id": MANIFEST, "quotables": quotables, "recorder": recorder} | values
    config = arguments.pop("config", CONFIG)
    budget = arguments.pop("budget", make.budget(30_000))
    return await summarise(pieces, SOURCE, asked, config, budget, **arguments)  # type: ignore[arg-type]


async def test_a_good_answer_is_accepted_at_level_1() -> None:
    asked = model(Step(text=GOOD, usage=Usage(input_tokens=9_000, output_tokens=20, source=Source.PROVIDER)))
    result = await summary_of(asked)
    assert (result.text, result.level, result.prompt_version) == (GOOD, 1, "level1.2")
    assert result.token_count == estimate_text(GOOD)
    assert result.usage == Usage(input_tokens=9_000, output_tokens=20, source=Source.PROVIDER)
    assert [asdict(attempt) for attempt in result.tries] == [
        {
            "level": 1,
            "accepted": True,
            "reason": "",
            "usage": asdict(result.usage),
            "piece": 1,
            "pieces": 1,
        }
    ]


async def test_the_request_marks_itself_and_quotes_the_whole_transcript() -> None:
    asked = model(GOOD)
    await summary_of(asked)
    system, user = asked.requests[0].payload["messages"]
    assert "MNESIS-SUMMARISE" in system["content"].splitlines()
    assert f"<conversation>\n{PIECES[0]}\n</conversation>" in user["content"]
    assert user["content"].startswith("Target: 2000 tokens\n")
    assert json.dumps(asked.requests[0].payload)


async def test_in_a_small_window_several_summaries_fit_below_the_low_mark() -> None:
    asked, budget = model(GOOD), make.budget(4_000)
    await summary_of(asked, budget=budget)
    assert f"Target: {budget.target // 7} tokens\n" in asked.requests[0].payload["messages"][1]["content"]


async def test_level_2_is_asked_for_half() -> None:
    asked = model("", GOOD)
    result = await summary_of(asked)
    assert (result.level, result.prompt_version) == (2, "level2.1")
    assert "Target: 1000 tokens" in asked.requests[1].payload["messages"][1]["content"]


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("", "empty"),
        (Step(text=" ", finish_reason="stop"), "empty"),
        ("I'm sorry, but I can't help with that.", "refusal"),
        (make.prose(SOURCE + 200), "not_smaller"),
        (make.prose(4_000), "too_long"),
        (PIECES[0], "echo"),
        (Step(text=GOOD, finish_reason="length"), "cut_off"),
        (Step(text=GOOD, tool_calls=(ToolCall(id="1", name="lcm_grep", arguments="{}"),)), "tool_call"),
        (Step(text=GOOD, finish_reason=""), "MODEL_REPLY_INCOMPLETE"),
        (Step(text=GOOD, error=ModelUnreachable()), "MODEL_UNREACHABLE"),
        (ModelAuthenticationFailed(), "MODEL_AUTHENTICATION_FAILED"),
    ],
)
async def test_a_useless_answer_is_recorded_with_its_reason_and_the_next_level_tried(
    first: Script, reason: str
) -> None:
    result = await summary_of(model(first, GOOD))
    assert [(attempt.level, attempt.accepted, attempt.reason) for attempt in result.tries] == [
        (1, False, reason),
        (2, True, ""),
    ]
    assert result.text == GOOD


async def test_thinking_in_front_of_a_summary_is_taken_off() -> None:
    assert (await summary_of(model(f"<think>{GOOD} perhaps</think>\n{GOOD}"))).text == GOOD


async def test_when_both_levels_fail_level_3_quotes_the_span() -> None:
    result = await summary_of(model("I cannot help with that.", "I cannot help with that."))
    assert [(attempt.level, attempt.accepted) for attempt in result.tries] == [(1, False), (2, False), (3, True)]
    assert (result.level, result.prompt_version) == (3, "excerpt.1")
    assert result.token_count <= 512
    assert "[1 user] the tide gauge" in result.text


async def test_level_2_can_be_switched_off() -> None:
    config = override(CONFIG, {"compaction": {"level2_enabled": False}})
    result = await summary_of(model("I cannot help with that."), config=config)
    assert [attempt.level for attempt in result.tries] == [1, 3]


async def test_without_a_model_level_3_is_used_at_once() -> None:
    result = await summary_of(None)
    assert [attempt.level for attempt in result.tries] == [3]
    assert result.usage == Usage(input_tokens=0, output_tokens=0, source=Source.ESTIMATED)


async def test_the_engine_writes_the_file_ids_whatever_the_model_wrote() -> None:
    result = await summary_of(model(f"{GOOD}\n\n[LCM File IDs: file_ffffffff]"), named=Named(files=(FILE,)))
    assert result.text == f"{GOOD}\n\n[LCM File IDs: {FILE}]"
    assert (result.level, len(result.tries)) == (1, 1)
    worst = await summary_of(None, named=Named(files=(FILE,)))
    assert worst.text.endswith(f"[LCM File IDs: {FILE}]")


@pytest.mark.parametrize("asked", [model(GOOD), model("", GOOD), None], ids=["level 1", "level 2", "level 3"])
async def test_a_condensed_summary_names_what_it_stands_for_at_every_level(asked: ScriptedModel | None) -> None:
    merged = Condensation(summaries=tuple(summaries(0, 0, 0)), tokens=SOURCE)
    quotables = summary_quotables(merged.summaries)
    result = await summary_of(asked, kind="condensed", quotables=quotables, named=merged.named)
    assert result.text.endswith("\n\n[LCM Summary IDs: sum_0001, sum_0002, sum_0003]")


async def test_a_small_source_is_asked_for_a_small_summary() -> None:
    asked = model("They spoke of the gauge.")
    await summarise(
        ["[1 user] " + make.prose(200)],
        200,
        asked,
        CONFIG,
        make.budget(20_000),
        kind="leaf",
        manifest_id=MANIFEST,
        recorder=Unrecorded(asked),
    )
    assert "Target: 70 tokens" in asked.requests[0].payload["messages"][1]["content"]


async def test_a_summary_that_its_frame_makes_larger_than_its_source_is_not_accepted() -> None:
    text = f"So {make.prose(100)}"
    asked = model(text, text)
    result = await summarise(
        [make.prose(200)],
        estimate_text(text) + 50,
        asked,
        CONFIG,
        make.budget(20_000),
        kind="leaf",
        manifest_id=MANIFEST,
        recorder=Unrecorded(asked),
    )
    assert [attempt.reason for attempt in result.tries] == ["not_smaller", "not_smaller", ""]
    assert result.token_count < 50


async def test_each_piece_is_summarised_to_its_share_and_the_summaries_joined() -> None:
    pieces = transcript_pieces(MESSAGES, 2_500)
    asked = always(lambda request: f"Part: {request.payload['messages'][1]['content'].count('gauge')} gauges.")
    result = await summary_of(asked, pieces)
    assert len(asked.requests) == len(pieces) == len(result.tries) > 3
    assert all(piece in asked.requests[index].payload["messages"][1]["content"] for index, piece in enumerate(pieces))
    assert f"Target: {2_000 // len(pieces) - 2} tokens" in asked.requests[0].payload["messages"][1]["content"]
    assert result.text.count("Part:") == len(pieces)
    assert [attempt.piece for attempt in result.tries] == list(range(1, len(pieces) + 1))


async def test_joined_summaries_that_are_too_large_are_merged_once_more() -> None:
    pieces = transcript_pieces(MESSAGES, 1_000)
    merges, part = "<summaries>", f"So {make.prose(40)}"
    asked = always(lambda request: GOOD if merges in request.payload["messages"][1]["content"] else part)
    result = await summary_of(asked, pieces, config=override(CONFIG, {"compaction": {"summary_target_tokens": 64}}))
    assert len(asked.requests) == len(pieces) + 1
    assert part in asked.requests[-1].payload["messages"][1]["content"]
    assert (result.text, result.level) == (GOOD, 1)


async def test_one_bad_piece_does_not_cost_the_good_ones() -> None:
    pieces = transcript_pieces(MESSAGES, 2_500)
    refusal = "I cannot help with that."
    asked = always(
        lambda request: refusal if pieces[1] in request.payload["messages"][1]["content"] else "They spoke of it."
    )
    result = await summary_of(asked, pieces, named=Named(files=(FILE,)))
    assert (result.level, result.prompt_version) == (3, "level1.2")
    assert result.text.count("They spoke of it.") == len(pieces) - 1
    assert "[Level 3 excerpt" in result.text
    assert result.text.endswith(f"\n\n[LCM File IDs: {FILE}]")


async def test_a_model_that_only_fails_is_not_asked_again() -> None:
    pieces = transcript_pieces(MESSAGES, 1_000)
    asked = always(lambda request: ModelUnreachable())
    result = await summary_of(asked, pieces)
    assert len(asked.requests) == 1
    assert result.level == 3
    assert "[1 user]" in result.text


@pytest.mark.parametrize("kind", ["leaf", "condensed"])
async def test_summaries_escalate_like_messages_with_prompts_of_their_own(kind: str) -> None:
    asked = model("", "")
    result = await summary_of(asked, kind=kind)
    assert [("<summaries>" in request.payload["messages"][1]["content"]) for request in asked.requests] == [
        kind == "condensed"
    ] * 2
    assert [attempt.level for attempt in result.tries] == [1, 2, 3]
    versions = [(await summary_of(model(*replies), kind=kind)).prompt_version for replies in ([GOOD], ["", GOOD])]
    assert versions == (["condense.1", "condense2.1"] if kind == "condensed" else ["level1.2", "level2.1"])


async def test_the_prompts_that_are_given_are_asked() -> None:
    own = replace(SHIPPED, level1=replace(SHIPPED.level1, version="level1.own", system="MNESIS-SUMMARISE in verse"))
    asked = model(GOOD)
    result = await summary_of(asked, prompts=own)
    assert result.prompt_version == "level1.own"
    assert asked.requests[0].payload["messages"][0]["content"] == "MNESIS-SUMMARISE in verse"


def fussy(takes: int) -> ScriptedModel:
    """A model whose entry says 32,000 tokens, and that takes fewer."""
    asked = always(lambda _: GOOD)
    asked.counting = Counting(window=takes)
    return asked


@pytest.mark.parametrize("takes", [4_500, 3_000])
async def test_a_model_that_refuses_a_piece_as_too_long_reads_shorter_ones(takes: int) -> None:
    asked = fussy(takes)
    result = await summary_of(asked, cut=lambda limit: transcript_pieces(MESSAGES, limit), limit=SOURCE + 100)
    reasons = [attempt.reason for attempt in result.tries]
    assert result.level < 3
    assert reasons[0] == "CONTEXT_WINDOW_EXCEEDED"
    assert reasons.count("CONTEXT_WINDOW_EXCEEDED") < 4
    assert all(attempt.usage.input_tokens == 0 for attempt in result.tries if attempt.reason)


async def test_a_model_that_refuses_pieces_of_any_length_leaves_an_excerpt_after_a_few_calls() -> None:
    asked = fussy(1)
    result = await summary_of(asked, cut=lambda limit: transcript_pieces(MESSAGES, limit), limit=SOURCE + 100)
    assert (result.level, len(asked.requests), result.usage.total_tokens) == (3, 4, 0)
