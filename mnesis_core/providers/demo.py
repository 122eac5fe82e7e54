"""The demo models ``demo/chat``, ``demo/embedding`` and ``demo/rerank``: offline, deterministic, shipped. An answer is
a pure function of the request.

It finds things in the conversation that it is shown and repeats them; it does sums, uses tools that it
is offered and summarises. It never invents. The last user message may hold commands, for trying things out:

* ``!slow N``: N milliseconds for each word
* ``!think``: some reasoning before the answer
* ``!long N``: N words of prose
* ``!tool NAME {json}``: call that tool with these arguments
* ``!fail 401``, ``429``, ``500``: refuse as a provider would; ``long``: refuse a prompt that takes more than half of the
  window; ``cut``: stop in the middle without a finish reason; ``empty``: end at once with nothing

A system message that holds the line ``MNESIS-SUMMARISE`` makes it summarise what stands between
``<conversation>``, ``<summaries>`` or ``<file_text>`` tags in the user message, within ``Target: N tokens``; if it also holds
``MNESIS-FACTS``, it answers with the facts there. One with the
line ``MNESIS-MAP`` makes it answer about one item of an operator, as the JSON Schema at its end requires; so does one that
asks for an answer in a JSON Schema. It takes ``stop``, ``tool_choice`` and ``reasoning_effort``, by which it thinks aloud.
"""

from __future__ import annotations

import asyncio
import json
import re
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import blake2b
from typing import Any

from mnesis_core.config import StreamConfig
from mnesis_core.errors import (
    ContextWindowExceeded,
    ModelAuthenticationFailed,
    ModelError,
    ModelRateLimited,
    ModelUnavailable,
    gettext_noop,
)
from mnesis_core.llm.interface import (
    LimitSource,
    ModelSpec,
    Prices,
    ReasoningDelta,
    Reply,
    Request,
    Source,
    StatedLimits,
    TextDelta,
    ToolCall,
    Usage,
)
from mnesis_core.llm.search_models import Embedded, checked_vectors
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.providers import demo_replies as replies
from mnesis_core.providers import demo_summary
from mnesis_core.providers.answer import (
    DeadlinePassed,
    PartialAnswer,
    before,
    deadline_of,
    estimate_payload,
    seconds_of,
    sendable,
    words,
)
from mnesis_core.providers.demo_summary import FILE_TAG, describe, find_source, find_target, summarise
from mnesis_core.providers.litellm_errors import out_of_time
from mnesis_core.search.words import fold

DEMO_LIMITS = StatedLimits(
    source=LimitSource.CONFIGURED, context_window=32_000, max_output_tokens=4_000, prices=Prices()
)
SUMMARISE_MARKER = "MNESIS-SUMMARISE"
MAP_MARKER = "MNESIS-MAP"
SCHEMA_FOLLOWS = "fits this JSON Schema, and with nothing before or after it:"
LONGEST_PROSE_WORDS = 20_000
SLOWEST_WORD_MS = 10_000
LONGEST_ITEM_TEXT = 200  # The most characters of an item's question that come back.
DEEPEST_SCHEMA = 8

_STATUS_FAILURES: dict[str, tuple[type[ModelError], str]] = {
    "401": (ModelAuthenticationFailed, gettext_noop("The demo model refuses this key, as it was asked to.")),
    "429": (ModelRateLimited, gettext_noop("The demo model has had too many requests, as it was asked to say.")),
    "500": (ModelUnavailable, gettext_noop("The demo model has an internal error, as it was asked to.")),
}
FAILURES = (*_STATUS_FAILURES, "long", "cut", "empty")

_COMMAND = re.compile(r"(?<!\S)!(?:(slow|long|fail)[ \t]+(\w+)|(fail|think)\b)", re.IGNORECASE)
_TOOL_COMMAND = re.compile(r"(?<!\S)!tool[ \t]+([\w.-]+)\s*(\{.*\})?", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,9}")
DIMENSIONS = 64
BEGINNING = 5
"""Characters of a word that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoAnswer:
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    word_delay_seconds: float = 0.0
    failure: str = ""
    is_shortened: bool = False

    @property
    def finish_reason(self) -> str:
        if self.is_shortened:
            return "length"
        return "tool_calls" if self.tool_calls else "stop"

    def cut_at(self, stops: Iterable[str]) -> DemoAnswer:
        places = [place for stop in stops if (place := self.text.find(stop)) >= 0]
        return replace(self, text=self.text[: min(places)]) if places else self


class DemoModel:
    """See ``mnesis_core.llm.interface.Model``. It is reached without litellm, which takes seconds to load and 200 MB to hold."""

    def __init__(self, spec: ModelSpec, *, max_answer_characters: int = StreamConfig().max_answer_characters) -> None:
        self.spec = spec
        self._limit = max_answer_characters

    async def stream(self, request: Request) -> AsyncIterator[TextDelta | ReasoningDelta | Reply]:
        partial = PartialAnswer(limit=request.max_characters or self._limit)
        deadline = deadline_of(self.spec, request)
        given, failure = DemoAnswer(), None
        try:
            # In a thread: a long context takes longer to search than the event loop may be held up.
            given = await before(deadline, asyncio.to_thread(_answer_request, request))
            given, failure = _failure(given, request, self.spec)
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
        for index, call in enumerate(given.tool_calls):
            partial.add_fragment(index=index, id=call.id, name=call.name, arguments=call.arguments)
        yield _finished(request, given, partial, failure)


def answer(
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None = None,
    *,
    tool_choice: Any = None,
    reasoning_effort: str = "none",
    **_: Any,
) -> DemoAnswer:
    """Answer a request in the shape of OpenAI Chat Completions."""
    texts = [(message.get("role"), replies.text_of(message)) for message in messages]
    if any(role in ("system", "developer") and SUMMARISE_MARKER in text for role, text in texts):
        found = (find_source(text) for _, text in reversed(texts))
        tag, source = next((given for given in found if given[1]), ("", texts[-1][1]))
        if any(demo_summary.MARKER in text for role, text in texts if role in ("system", "developer")):
            return DemoAnswer(text=demo_summary.facts_in(source))
        # The target is not read from the source, which may itself speak of one.
        target = find_target("\n".join(text.replace(source, "") for _, text in texts))
        return DemoAnswer(text=describe(source, target) if tag == FILE_TAG else summarise(source, target))
    shown = replies.conversation(messages)
    asked = [said.text for said in shown if said.role == "user" and not said.is_summary]
    text, commands = _read_commands(asked[-1] if asked else "")
    thinks = "think" in commands or reasoning_effort != "none"
    asked_for = None
    if "fail" not in commands:
        asked_for = _forced_call(tool_choice, text, tools or [], len(messages)) or _in_format(messages, text)
    return replace(
        asked_for or _reply(messages, text, commands, tools or []),
        reasoning=replies.reasoning(text, shown) if thinks else "",
        word_delay_seconds=_number(commands.get("slow", ""), SLOWEST_WORD_MS) / 1000,
    )


def shortened(given: DemoAnswer, max_tokens: int) -> DemoAnswer:
    """Cut an answer at a word to ``max_tokens``; 0 means no limit."""
    if not max_tokens or estimate_text(given.text) <= max_tokens:
        return given
    pieces = words(given.text)
    fitting = bisect_right(range(1, len(pieces)), max_tokens, key=lambda count: estimate_text("".join(pieces[:count])))
    return replace(given, text="".join(pieces[:fitting]), is_shortened=True)


def _answer_request(request: Request) -> DemoAnswer:
    payload = sendable(request.payload)
    return shortened(answer(**payload).cut_at(payload.get("stop", ())), request.max_output_tokens)


def _failure(given: DemoAnswer, request: Request, spec: ModelSpec) -> tuple[DemoAnswer, ModelError | None]:
    if given.failure in _STATUS_FAILURES:
        kind, text = _STATUS_FAILURES[given.failure]
        return given, kind(text, model=spec.alias, status=int(given.failure))
    if given.failure == "long":
        tokens, most = estimate_payload(request.payload), spec.context_window // 2
        if tokens <= most:
            return replace(given, text="This prompt fits into half of my window, so I take it.", failure=""), None
        said = f"prompt is too long: {tokens} tokens > {most} maximum"
        text = gettext_noop('The demo model refuses this prompt, as it was asked to: "%(says)s"')
        return given, ContextWindowExceeded(text, {"says": said}, model=spec.alias, status=400)
    return given, None


def _finished(request: Request, given: DemoAnswer, partial: PartialAnswer, failure: ModelError | None) -> Reply:
    tokens = estimate_payload(request.payload)
    if failure or given.failure:
        return partial.finish(finish_reason="", usage=None, request_tokens=tokens, failure=failure)
    calls = "".join(call.name + call.arguments for call in given.tool_calls)
    written = estimate_text(given.text + given.reasoning + calls)
    usage = Usage(input_tokens=tokens, output_tokens=written, source=Source.PROVIDER)
    return partial.finish(finish_reason=given.finish_reason, usage=usage, request_tokens=tokens, failure=None)


def _read_commands(text: str) -> tuple[str, dict[str, str]]:
    found = {(name or bare).lower(): value.lower() for name, value, bare in _COMMAND.findall(text)}
    return (_COMMAND.sub("", text).strip() if found else text), found


def _number(digits: str, largest: int) -> int:
    return min(largest, int(digits[:9])) if digits.isascii() and digits.isdigit() else 0


def _reply(
    messages: list[dict[str, Any]], text: str, commands: dict[str, str], tools: list[dict[str, Any]]
) -> DemoAnswer:
    is_told = bool(messages) and messages[-1].get("role") == "tool"
    first = next((replies.text_of(message) for message in messages if message.get("role") == "user"), "")
    first, _ = _read_commands(first)
    task, asks, schema = first.rpartition(SCHEMA_FOLLOWS)
    if asks and "fail" not in commands:  # the task of a sub-agent, which ends with the JSON Schema of its answer
        if not is_told and (wanted := _TOOL_COMMAND.search(task)):
            return _tool_command(wanted, tools, len(messages))
        return DemoAnswer(text=_item_answer(schema, replies.text_of(messages[-1]) if is_told else task))
    wanted = _TOOL_COMMAND.search(text)
    if is_told:
        return DemoAnswer(
            text=replies.from_tool_results(replies.readable(wanted[2] or "") if wanted else text, messages)
        )
    if "fail" in commands:
        if (kind := commands["fail"]) not in FAILURES:
            return DemoAnswer(text=f"I can fail in these ways: {', '.join(f'`!fail {name}`' for name in FAILURES)}.")
        said = "I begin an answer, as asked, and then the line goes" if kind == "cut" else ""
        return DemoAnswer(text=said, failure=kind)
    systems = (replies.text_of(message) for message in messages if message.get("role") == "system")
    if system := next((said for said in systems if MAP_MARKER in said), ""):
        return DemoAnswer(text=_item_answer(system, first))
    if wanted:
        return _tool_command(wanted, tools, len(messages))
    if count := _number(commands.get("long", ""), LONGEST_PROSE_WORDS):
        return DemoAnswer(text=replies.prose(count))
    return _from_words(messages, text, tools) if text.strip() else DemoAnswer(text=replies.GREETING)


def _forced_call(choice: Any, text: str, tools: list[dict[str, Any]], place: int) -> DemoAnswer | None:
    """Return a call of the tool that has to be called, with the smallest arguments that fit it; None where none has to."""
    named = choice["function"]["name"] if isinstance(choice, dict) else ""
    functions = [each for each in replies.functions(tools) if not named or each.get("name") == named]
    if (not named and choice != "required") or not functions:
        return None
    if (wanted := _TOOL_COMMAND.search(text)) and wanted[1] in [each.get("name") for each in functions]:
        return _tool_command(wanted, tools, place)
    schema = functions[0].get("parameters") or {"type": "object"}
    said = _TOOL_COMMAND.sub("", text).strip()[:LONGEST_ITEM_TEXT]
    try:
        arguments = json.dumps(_value(schema, schema, said, DEEPEST_SCHEMA), ensure_ascii=False)
    except (AttributeError, LookupError, TypeError, ValueError):  # The schema of a tool may be anything.
        arguments = "{}"
    call = ToolCall(id=f"call_demo_{place}", name=str(functions[0].get("name", "")), arguments=arguments)
    return DemoAnswer(tool_calls=(call,))


def _in_format(messages: list[dict[str, Any]], text: str) -> DemoAnswer | None:
    """Return an answer in the format that a system message asks for in words; None where none does."""
    systems = (replies.text_of(message) for message in messages if message.get("role") == "system")
    asking = next((said for said in systems if SCHEMA_FOLLOWS in said and MAP_MARKER not in said), "")
    wanted = _TOOL_COMMAND.search(text)
    if not asking or (wanted and messages[-1].get("role") != "tool"):
        return None
    return DemoAnswer(text=_item_answer(asking, text))


def _tool_command(wanted: re.Match[str], tools: list[dict[str, Any]], place: int) -> DemoAnswer:
    name, arguments = wanted[1], wanted[2] or "{}"
    offered = [str(function.get("name", "")) for function in replies.functions(tools)]
    if name not in offered:
        known = ", ".join(f"`{tool}`" for tool in offered) or "none"
        return DemoAnswer(text=f"I am not offered a tool called `{name}`. I am offered: {known}.")
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return DemoAnswer(text=f'The arguments of `!tool {name}` must be a JSON object, such as `{{"pattern": "x"}}`.')
    return DemoAnswer(tool_calls=(ToolCall(id=f"call_demo_{place}", name=name, arguments=arguments),))


def _from_words(messages: list[dict[str, Any]], text: str, tools: list[dict[str, Any]]) -> DemoAnswer:
    shown = replies.conversation(messages)
    earlier = shown[:-1] if shown and not shown[-1].is_summary else shown
    if known := (
        replies.small_talk(text) or replies.about_conversation(text, earlier) or replies.list_tools(text, tools)
    ):
        return DemoAnswer(text=known)
    if expression := replies.expression_in(text):
        call = _call("calculator", expression, tools, len(messages))
        return DemoAnswer(tool_calls=(call,)) if call else DemoAnswer(text=replies.calculated(expression))
    if not replies.wants_recall(text):
        return DemoAnswer(text=replies.beyond_me(text) or replies.reflection(text, earlier))
    found = replies.recalled(text, earlier) or replies.beyond_me(text)
    pattern = replies.search_pattern(text)
    is_elsewhere = not found and any(said.is_summary for said in earlier)
    if is_elsewhere and pattern and (call := _call("lcm_grep", pattern, tools, len(messages))):
        return DemoAnswer(text="I do not see that any more, so I search the whole record. ", tool_calls=(call,))
    return DemoAnswer(text=found or replies.not_found(text, earlier))


def _call(tool: str, value: str, tools: list[dict[str, Any]], place: int) -> ToolCall | None:
    """Return a call with one argument, the first of the tool's parameters; None if the tool is not offered."""
    function = next((each for each in replies.functions(tools) if each.get("name") == tool), None)
    if function is None:
        return None
    parameters = function.get("parameters") or {}
    names = [*(parameters.get("required") or ()), *(parameters.get("properties") or ()), "expression"]
    arguments = json.dumps({str(names[0]): value}, ensure_ascii=False)
    return ToolCall(id=f"call_demo_{place}", name=tool, arguments=arguments)


def _item_answer(system: str, question: str) -> str:
    """Answer about one item of an operator: the smallest value that fits the schema in the last line of ``system``."""
    text = " ".join(question.split())[:LONGEST_ITEM_TEXT]
    last = system.strip().rpartition("\n")[2]
    try:
        schema = json.loads(last) if last.startswith("{") else None
    except (ValueError, RecursionError):
        schema = None
    if schema is None:
        return text or "Nothing is asked."
    return json.dumps(_value(schema, schema, text, DEEPEST_SCHEMA), ensure_ascii=False)


def _value(schema: Any, root: Any, text: str, depth: int) -> Any:
    if not isinstance(schema, dict) or depth == 0:
        return None
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum"):
        return next((one for one in choices if str(one).lower() in text.lower()), choices[0])
    any_of = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if isinstance(any_of, list) and any_of:
        return _value(any_of[0], root, text, depth - 1)
    if "$ref" in schema:
        steps = str(schema["$ref"]).split("/")[1:]
        referred = reduce(lambda found, step: found.get(step) if isinstance(found, dict) else None, steps, root)
        return _value(referred, root, text, depth - 1)
    return _value_of_type(schema, root, text, depth)


def _value_of_type(schema: dict[str, Any], root: Any, text: str, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            return {name: _value(inner, root, text, depth - 1) for name, inner in schema.get("properties", {}).items()}
        case "array":
            least = min(10, max(0, int(schema.get("minItems", 0))))
            return [_value(schema.get("items", {}), root, text, depth - 1) for _ in range(least)]
        case "integer" | "number":
            number = _NUMBER.search(text)
            return max(int(number[0]) if number else 0, int(schema.get("minimum", -(10**9))))
        case "string":
            return text[: int(schema.get("maxLength", LONGEST_ITEM_TEXT))]
        case "boolean":
            return False
        case _:
            return None


# The demo models of search, ``demo/embedding`` and ``demo/rerank``: offline, deterministic, without knowledge of
# meaning.
#
# In an embedding each word adds a few numbers that are drawn from a hash of its beginning, so texts with the same or
# similarly beginning words are near. It shows what an embedding model does to a search and what it costs, not how much
# one helps.


class DemoEmbedder:
    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def embed(self, texts: Sequence[str], *, seconds: float) -> Embedded:
        vectors = checked_vectors([_numbers(text) for text in texts], self.spec, count=len(texts))
        tokens = sum(map(estimate_text, texts))
        return Embedded(vectors=vectors, usage=Usage(input_tokens=tokens, output_tokens=0, source=Source.ESTIMATED))


def _numbers(text: str) -> list[float]:
    numbers = [0.01] * DIMENSIONS  # A text without words has a direction, too.
    for word in fold(text).split():
        # Two bits of the hash for each number: -1, 0, 0 or 1.
        drawn = int.from_bytes(blake2b(word[:BEGINNING].encode(), digest_size=DIMENSIONS // 4).digest())
        for place in range(DIMENSIONS):
            numbers[place] += (-1, 0, 0, 1)[drawn >> 2 * place & 3]
    return numbers


class DemoReranker:
    """Scores a text by the share of the question's words that it has. It shows the option, not what a reranker gains."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def rerank(self, question: str, texts: Sequence[str], *, seconds: float) -> tuple[float, ...]:
        words = {*fold(question).split()}
        return tuple(len(words & {*fold(text).split()}) / max(1, len(words)) for text in texts)
