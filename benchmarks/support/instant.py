"""A model and a tool that answer instantly, so that the time of a turn is all ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import count
from random import Random
from time import perf_counter

from django.conf import settings

from agents_app.tools.registry import ToolContext, tool
from benchmarks.support.talk import make_text
from mnesis_core.llm.interface import (
    Model,
    ModelSpec,
    ReasoningDelta,
    Reply,
    Request,
    Source,
    TextDelta,
    ToolCall,
    Usage,
)

WORDS_A_DELTA = 20
_random = Random(2)
_TEXTS = [make_text(_random, 400) for _ in range(50)]
_RESULTS = [make_text(_random, 1_000) for _ in range(50)]
_number = count()
asked_at: dict[str, float] = {}
"""When the newest call of a turn was made, by ``perf_counter``."""


@tool(read_only=True)
def read_page(context: ToolContext, page: int) -> str:
    """Read a page of 1,000 tokens."""
    return _RESULTS[page % len(_RESULTS)]


class InstantModel:
    """A ``mnesis_core.llm.interface.Model`` that asks for two pages if offered the tool, then answers in 400 tokens."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def stream(self, request: Request) -> AsyncIterator[TextDelta | ReasoningDelta | Reply]:
        """Stream the answer without pauses."""
        number = next(_number)
        if task := asyncio.current_task():
            asked_at[task.get_name()] = perf_counter()
        usage = Usage(input_tokens=12_000, output_tokens=420, source=Source.PROVIDER)
        if "tools" in request.payload and request.payload["messages"][-1]["role"] == "user":
            calls = tuple(
                ToolCall(id=f"call_{number}_{page}", name="read_page", arguments=f'{{"page": {number + page}}}')
                for page in range(2)
            )
            yield Reply(text="", tool_calls=calls, finish_reason="tool_calls", usage=usage)
            return
        text = _TEXTS[number % len(_TEXTS)]
        words = text.split(" ")
        for start in range(0, len(words), WORDS_A_DELTA):
            yield TextDelta(text=" ".join(words[start : start + WORDS_A_DELTA]) + " ")
        yield Reply(text=text, finish_reason="stop", usage=usage)


def make_model(spec: ModelSpec) -> Model:
    return InstantModel(spec)


def answer_at_once(*, texts: Sequence[str] = (), results: Sequence[str] = ()) -> None:
    """Make every model of this process answer instantly, and say other texts and tool results if they are given."""
    _TEXTS[:], _RESULTS[:] = texts or _TEXTS, results or _RESULTS
    settings.MNESIS = {**settings.MNESIS, "MODEL_FACTORY": "benchmarks.support.instant.make_model"}
