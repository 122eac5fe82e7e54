"""Summarising models at their worst, for tests that no answer may stop a compaction or make it lie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mnesis_core.errors import ModelTimeout, ModelUnreachable
from mnesis_core.llm.interface import Request, Source, ToolCall, Usage
from mnesis_core.llm.tokens import characters_within
from mnesis_core.providers.scripted import Script, Step

GOOD = "## Goal\nRepair the gauge at Portwell before the tide turns."
LONG = "They spoke of the crane, the gauge and the tide, and of what is to be done about each of them. " * 1_500


def _asked(request: Request) -> str:
    return str(request.payload["messages"][1]["content"])


def _target(request: Request) -> int:
    return int(_asked(request).split("Target: ", 1)[1].split(" ", 1)[0])


def _of(tokens: int) -> str:
    return LONG[: characters_within(LONG, tokens)]


MODELS: dict[str, Callable[[Request], Script]] = {
    "good": lambda request: GOOD,
    "filling its target": lambda request: Step(text=(_of(_target(request)),)),
    "a little too long": lambda request: Step(text=(_of(_target(request) + 2),)),
    "verbose": lambda request: Step(text=(LONG,)),
    "empty": lambda request: "",
    "refusing": lambda request: "I'm sorry, but I can't help with that.",
    "echoing": lambda request: Step(text=(_asked(request),)),
    "echoing a piece": lambda request: Step(text=(_asked(request)[60:1_000],)),
    "lying about its size": lambda request: Step(
        text=(LONG,), usage=Usage(input_tokens=1, output_tokens=1, source=Source.PROVIDER)
    ),
    "leaking": lambda request: f"<conversation>{GOOD}",
    "thinking aloud": lambda request: "<think>What do they want?",
    "calling tools": lambda request: ToolCall(id="1", name="rm", arguments="{}"),
    "calling tools in words": lambda request: '<tool_call>{"name": "rm"}</tool_call>',
    "naming files of its own": lambda request: f"{GOOD}\n\n[LCM File IDs: file_ffffffff]\n[LCM Summary IDs: sum_0]",
    "failing": lambda request: ModelUnreachable(),
    "timing out": lambda request: ModelTimeout(),
    "cut off": lambda request: Step(text=GOOD, finish_reason="length"),
    "good at every second try": lambda request: "" if "five fields" not in _asked(request) else GOOD,
}
"""What each answers, by what is wrong with it."""


def hang(request: Request) -> Script:
    """Say nothing for ever; the caller has to end it."""
    return Step(gate=asyncio.Event(), gate_after=0)
