"""The demo model as a model like every other: it streams, counts, and fails when it is asked to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from mnesis_core.config import StreamConfig
from mnesis_core.endings import (
    ContextWindowExceeded,
    ModelAuthenticationFailed,
    ModelError,
    ModelRateLimited,
    ModelUnavailable,
)
from mnesis_core.llm import ModelSpec, ReasoningDelta, Reply, Request, Source, TextDelta, Usage
from mnesis_core.providers.answer import PartialAnswer, estimate_payload, sendable
from mnesis_core.providers.deadline import DeadlinePassed, before, deadline_of, seconds_of
from mnesis_core.providers.demo import DemoAnswer, answer, answer_to_short, shortened, words
from mnesis_core.providers.litellm_faults import out_of_time
from mnesis_core.tokens import estimate_text

_FAILURES: dict[str, tuple[type[ModelError], str]] = {
    "401": (ModelAuthenticationFailed, "The demo model refuses this key, as it was asked to."),
    "429": (ModelRateLimited, "The demo model has had too many requests, as it was asked to say."),
    "500": (ModelUnavailable, "The demo model has an internal error, as it was asked to."),
}


class DemoModel:
    """See ``mnesis_core.llm.Model``. It is reached without litellm, which takes seconds to load and 200 MB to hold."""

    def __init__(self, spec: ModelSpec, *, max_answer_characters: int = StreamConfig().max_answer_characters) -> None:
        self.spec = spec
        self._limit = max_answer_characters

    async def stream(self, request: Request) -> AsyncIterator[TextDelta | ReasoningDelta | Reply]:
        """Answer, and yield the answer word by word."""
        partial = PartialAnswer(limit=request.max_characters or self._limit)
        deadline = deadline_of(self.spec, request)
        given, failure = DemoAnswer(), None
        try:
            # In a thread: a long context takes longer to search than the event loop may be held up.
            given = await before(deadline, asyncio.to_thread(_answer, request))
            if given.failure == "long" and (failure := _refusal(request, self.spec)) is None:
                given = answer_to_short(given)
            failure = failure or _failure(given, self.spec)
            for word in words(given.reasoning):
                for reasoning in partial.add_reasoning(word):
                    yield reasoning
                await before(deadline, asyncio.sleep(given.word_delay_seconds))
            for word in words(given.text):
                for text in partial.add_text(word):
                    yield text
                await before(deadline, asyncio.sleep(given.word_delay_seconds))
        except DeadlinePassed:
            failure = out_of_time(self.spec, seconds_of(self.spec, request), has_begun=partial.has_begun)
        yield _reply(request, given, partial, failure)


def _answer(request: Request) -> DemoAnswer:
    payload = sendable(request.payload)
    given = answer(payload["messages"], payload.get("tools"))
    return shortened(given, request.max_output_tokens)


def _failure(given: DemoAnswer, spec: ModelSpec) -> ModelError | None:
    if given.failure not in _FAILURES:
        return None
    kind, text = _FAILURES[given.failure]
    return kind(text, model=spec.alias, status=int(given.failure))


def _refusal(request: Request, spec: ModelSpec) -> ModelError | None:
    """The refusal of a prompt that takes more than half of the window."""
    tokens, most = estimate_payload(request.payload), spec.context_window // 2
    if tokens <= most:
        return None
    text = f'The demo model refuses this prompt, as it was asked to: "prompt is too long: {tokens} tokens > {most} maximum"'
    return ContextWindowExceeded(text, model=spec.alias, status=400)


def _reply(request: Request, given: DemoAnswer, partial: PartialAnswer, failure: ModelError | None) -> Reply:
    for index, call in enumerate(given.tool_calls):
        partial.add_fragment(index=index, id=call.id, name=call.name, arguments=call.arguments)
    is_whole = failure is None and not given.failure
    tokens = estimate_payload(request.payload)
    return partial.finish(
        finish_reason=given.finish_reason if is_whole else "",
        usage=_usage(tokens, given) if is_whole else None,
        request_tokens=tokens,
        failure=failure,
    )


def _usage(tokens: int, given: DemoAnswer) -> Usage:
    calls = "".join(call.name + call.arguments for call in given.tool_calls)
    written = estimate_text(given.text + given.reasoning + calls)
    return Usage(input_tokens=tokens, output_tokens=written, source=Source.PROVIDER)
