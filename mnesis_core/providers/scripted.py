"""A model that says what it was told to say: the double that tests use in place of a real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace

from mnesis_core.config import StreamConfig
from mnesis_core.errors import ContextWindowExceeded, ModelError, ModelTimeout
from mnesis_core.llm.interface import Item, ModelSpec, Reply, Request, Source, ToolCall, Usage
from mnesis_core.providers.answer import DeadlinePassed, PartialAnswer, before, deadline_of, estimate_payload, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens in one call, in this order: reasoning, refusal, text, tool calls, end."""

    text: str | tuple[str, ...] = ""  # A string is streamed word by word, a tuple piece by piece.
    reasoning: str = ""
    refusal: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    error: ModelError | None = None  # Breaks the stream after the text; the finish reason is then not said.
    # None for ``stop`` or ``tool_calls``. Empty: the stream ends without one, and so proves nothing.
    finish_reason: str | None = None
    usage: Usage | None = None  # None for an estimate
    usage_said: str = ""
    stop_sequence: str | None = None
    delay_seconds: float = 0.0
    gate: asyncio.Event | None = None  # When set, the stream waits for it after ``gate_after`` pieces of text.
    gate_after: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    window: int  # tokens of prompt and answer together
    ratio: float = 1.0  # its count divided by ours
    # What it says to a prompt that is too long.
    words: str = (
        "This model's maximum context length is {window} tokens. However, your messages resulted in {prompt} tokens."
    )
    refuses_all: bool = False

    def count(self, request: Request) -> int:
        return int(estimate_payload(request.payload) * self.ratio)

    def refusal(self, request: Request) -> Step | None:
        prompt = self.count(request)
        if prompt + request.max_output_tokens <= self.window and not self.refuses_all:
            return None
        says = self.words.format(window=self.window, prompt=prompt, total=prompt + request.max_output_tokens)
        return Step(error=ContextWindowExceeded(f'It is too long. The provider says: "{says}"'))


# A step, or an abbreviation of one: a text, an error before anything is streamed, a single tool call.
Script = Step | str | ModelError | ToolCall


@dataclass(slots=True)
class ScriptedModel:
    """See ``mnesis_core.llm.interface.Model``. Each call takes the next of ``replies``; a function answers every call.

    :raises AssertionError: (from ``stream``) it is asked more often than it has replies
    """

    spec: ModelSpec
    replies: Iterable[Script | Callable[[Request], Script]] | Callable[[Request], Script]
    requests: list[Request] = field(default_factory=list)
    at_gate: asyncio.Event = field(default_factory=asyncio.Event)  # set while a stream waits at a gate
    counting: Counting | None = None  # None when our own count is right and every prompt fits
    abandoned: int = 0  # streams that were closed or cancelled before their end

    def __post_init__(self) -> None:
        if not callable(self.replies):
            self.replies = list(self.replies)

    async def stream(self, request: Request) -> AsyncIterator[Item]:
        self.requests.append(request)
        step = (self.counting and self.counting.refusal(request)) or self._next_step(request)
        answer = PartialAnswer(limit=request.max_characters or StreamConfig().max_answer_characters)
        deadline = deadline_of(self.spec, request)
        is_whole = False
        try:
            for reasoning in answer.add_reasoning(step.reasoning):
                yield reasoning
            for refusal in answer.add_refusal(step.refusal):
                yield refusal
            for count, piece in enumerate(_pieces(step.text)):
                await before(deadline, self._pause(step, count))
                for text in answer.add_text(piece):
                    yield text
            await before(deadline, self._pause(step, len(_pieces(step.text))))
            is_whole = True
        except DeadlinePassed:
            step = replace(step, tool_calls=(), error=ModelTimeout())
        finally:
            self.abandoned += not is_whole
        if self.counting is not None and step.usage is None and step.error is None:
            counted = self.counting.count(request)
            usage = Usage(input_tokens=counted, output_tokens=len(step.text), source=Source.PROVIDER)
            step = replace(step, usage=usage)
        yield _reply(step, answer, request)

    def _next_step(self, request: Request) -> Step:
        scripted = self.replies
        if isinstance(scripted, list):
            if not scripted:
                raise AssertionError(f"the script is over, but request {len(self.requests)} came: {request.payload}")
            scripted = scripted.pop(0)
        script: object = scripted(request) if callable(scripted) else scripted
        match script:
            case Step():
                return script
            case str():
                return Step(text=script)
            case ModelError():
                return Step(error=script)
            case ToolCall():
                return Step(tool_calls=(script,))
        raise TypeError(f"not a step of a script: {script!r}")

    async def _pause(self, step: Step, count: int) -> None:
        await asyncio.sleep(step.delay_seconds)
        if step.gate is None or count != step.gate_after:
            return
        self.at_gate.set()
        try:
            await step.gate.wait()
        finally:
            self.at_gate.clear()


def _pieces(text: str | tuple[str, ...]) -> tuple[str, ...]:
    return text if isinstance(text, tuple) else tuple(words(text))


def _reply(step: Step, answer: PartialAnswer, request: Request) -> Reply:
    for index, call in enumerate(step.tool_calls):
        answer.add_fragment(index=index, id=call.id, name=call.name, arguments=call.arguments)
    said = step.finish_reason if step.finish_reason is not None else ("tool_calls" if step.tool_calls else "stop")
    return answer.finish(
        finish_reason="" if step.error else said,
        usage=step.usage,
        usage_said=step.usage_said,
        stop_sequence=step.stop_sequence,
        request_tokens=estimate_payload(request.payload),
        failure=step.error,
    )
