"""A summary is accepted only when it is of use."""

from __future__ import annotations

import pytest

from mnesis_core.compaction.requests import judge
from mnesis_core.files.references import NO_IDS, Named, with_footer
from mnesis_core.llm.tokens import estimate_text
from tests.core.context import contexts as make

GOOD = "## Goal\nRepair the gauge at Portwell before the tide turns."
FILE = "file_0123456789abcdef"
SAID = " ".join(
    f"At {hour} o'clock the gauge at Portwell read {hour * 7} and nobody wrote it down." for hour in range(24)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(GOOD, None, id="a summary"),
        pytest.param("", "empty", id="nothing"),
        pytest.param(" \n- …\n", "empty", id="nothing but marks"),
        pytest.param("[LCM File IDs: file_0123456789abcdef]", "empty", id="nothing but a footer"),
        pytest.param("I'm sorry, but I can't help with that.", "refusal", id="refusal"),
        pytest.param("I\u2019m sorry, I cannot summarize this conversation.", "refusal", id="refusal, curly"),
        pytest.param("As an AI language model, I am unable to process this.", "refusal", id="refusal, as an AI"),
        pytest.param("I don't see a conversation to summarise.", "refusal", id="refusal, saw nothing"),
        pytest.param("The user said: I can't help it, the gauge is broken.", None, id="a quoted refusal"),
        pytest.param("<think>Let me see", "reasoning", id="thinking without an end"),
        pytest.param('<tool_call>{"name": "lcm_grep"}</tool_call>', "tool_call", id="a tool call in words"),
        pytest.param('```json\n[TOOL_CALLS] [{"name": "rm"}]', "tool_call", id="a tool call in a fence"),
        pytest.param("They made a tool_call for the gauge.", None, id="a tool call that is told of"),
        pytest.param("</conversation> The gauge", "leaked_prompt", id="a tag of the prompt"),
        pytest.param("MNESIS-SUMMARISE The gauge", "leaked_prompt", id="the prompt's marker"),
        pytest.param(SAID[40:300], "echo", id="a piece of the source"),
        pytest.param(SAID[:80], None, id="a short one, which may be a quotation"),
        pytest.param(make.prose(900), "too_long", id="above the target"),
        pytest.param(make.prose(1_100), "not_smaller", id="not smaller than the source"),
    ],
)
def test_the_acceptance_rules(text: str, reason: str | None) -> None:
    assert judge(text, source=SAID, source_tokens=1_000, target=500) == reason


def judged(text: str, *, source_tokens: int = 1_000, target: int = 500, named: Named = NO_IDS) -> str | None:
    return judge(text, source=SAID, source_tokens=source_tokens, target=target, named=named)


def test_a_summary_has_to_name_its_files_and_what_it_was_made_of() -> None:
    named = Named(files=(FILE,), summaries=("sum_0001",))
    assert judged(f"{GOOD} {FILE}", named=named) == "missing_summary_ids"
    assert judged(f"{GOOD} sum_0001", named=named) == "missing_file_ids"
    assert judged(with_footer(GOOD, named), named=named) is None


@pytest.mark.parametrize(("spare", "reason"), [(0, None), (-1, "too_long")])
def test_the_target_is_the_border(spare: int, reason: str | None) -> None:
    assert judged(GOOD, target=estimate_text(GOOD) + spare) == reason


@pytest.mark.parametrize(("spare", "reason"), [(1, None), (0, "not_smaller")])
def test_smaller_than_the_source_is_smaller(spare: int, reason: str | None) -> None:
    assert judged(GOOD, source_tokens=estimate_text(GOOD) + spare) == reason


def test_a_footer_counts_against_the_source_but_not_against_the_target() -> None:
    text = f"{GOOD}\n\n[LCM File IDs: {FILE}]"
    assert judged(text, target=estimate_text(GOOD)) is None
    assert judged(text, source_tokens=estimate_text(text)) == "not_smaller"
