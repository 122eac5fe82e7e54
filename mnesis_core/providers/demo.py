"""The demo model ``demo/chat``: offline, deterministic, shipped. What it answers is a pure function.

It finds things in the conversation that it is shown and repeats them; it does sums, uses tools that it
is offered and summarises. It never invents. Commands inside the last user message, for trying things out:

* ``!slow N``: N milliseconds for each word
* ``!think``: some reasoning before the answer
* ``!long N``: N words of prose
* ``!tool NAME {json}``: call that tool with these arguments
* ``!fail 401``, ``429``, ``500``: refuse as a provider would; ``long``: refuse a prompt that takes more than half of the
  window; ``cut``: stop in the middle without a finish reason; ``empty``: end at once with nothing

A system message that holds the line ``MNESIS-SUMMARISE`` makes it summarise what stands between
``<conversation>``, ``<summaries>`` or ``<file_text>`` tags in the user message, within ``Target: N tokens``. One with the
line ``MNESIS-MAP`` makes it answer about one item of an operator, as the JSON Schema at its end wants it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

from mnesis_core.limits import StatedLimits
from mnesis_core.llm import LimitSource, Prices, ToolCall
from mnesis_core.providers import demo_replies
from mnesis_core.providers.demo_extract import find_source, find_target, summarise
from mnesis_core.providers.demo_map import map_answer
from mnesis_core.providers.demo_prose import GREETING, prose
from mnesis_core.providers.demo_recall import conversation, text_of
from mnesis_core.tokens import estimate_text

DEMO_LIMITS = StatedLimits(
    source=LimitSource.CONFIGURED, context_window=32_000, max_output_tokens=4_000, prices=Prices()
)
SUMMARISE_MARKER = "MNESIS-SUMMARISE"
MAP_MARKER = "MNESIS-MAP"
SCHEMA_FOLLOWS = "fits this JSON Schema, and with nothing before or after it:"
FAILURES = ("401", "429", "500", "long", "cut", "empty")
LONGEST_PROSE = 20_000
"""Words."""
SLOWEST_WORD = 10_000
"""Milliseconds."""

_COMMAND = re.compile(r"(?<!\S)!(?:(slow|long|fail)[ \t]+(\w+)|(fail|think)\b)", re.IGNORECASE)
_TOOL_COMMAND = re.compile(r"(?<!\S)!tool[ \t]+([\w.-]+)\s*(\{.*\})?", re.DOTALL)
_WORD = re.compile(r"\s*\S+\s*?(?=\s|$)|\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoAnswer:
    """What the demo model does in one call."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    word_delay_seconds: float = 0.0
    failure: str = ""
    """One of ``FAILURES``, or empty."""
    is_shortened: bool = False

    @property
    def finish_reason(self) -> str:
        """What it says at its end."""
        if self.is_shortened:
            return "length"
        return "tool_calls" if self.tool_calls else "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Commands:
    """What the last user message asks for beside its words."""

    text: str
    slow: int = 0
    long: int = 0
    fail: str = ""
    think: bool = False


def answer(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> DemoAnswer:
    """What the demo model says to messages and tools in the shape of OpenAI Chat Completions."""
    if _is_summary_request(messages):
        return DemoAnswer(text=_summary(messages))
    shown = conversation(messages)
    asked = [said.text for said in shown if said.role == "user" and not said.is_summary]
    commands = _read_commands(asked[-1] if asked else "")
    reply = _reply(messages, commands, tools or [])
    return replace(
        reply,
        reasoning=demo_replies.reasoning(commands.text, shown) if commands.think else "",
        word_delay_seconds=commands.slow / 1000,
    )


def words(text: str) -> list[str]:
    """The text in the pieces that are streamed: words with the space before them. Joined, they are the text."""
    return _WORD.findall(text)


def shortened(given: DemoAnswer, max_tokens: int) -> DemoAnswer:
    """The answer cut at a word to ``max_tokens``; 0 means no limit."""
    if not max_tokens or estimate_text(given.text) <= max_tokens:
        return given
    pieces = words(given.text)
    fitting = bisect_right(range(1, len(pieces)), max_tokens, key=lambda count: estimate_text("".join(pieces[:count])))
    return replace(given, text="".join(pieces[:fitting]), is_shortened=True)


def _reply(messages: list[dict[str, Any]], commands: _Commands, tools: list[dict[str, Any]]) -> DemoAnswer:
    if not commands.fail and (answered := _reply_of_sub_agent(messages, tools)):
        return answered
    if messages and messages[-1].get("role") == "tool":
        wanted = _TOOL_COMMAND.search(commands.text)
        question = demo_replies.readable(wanted[2] or "") if wanted else commands.text
        return DemoAnswer(text=demo_replies.from_tool_results(question, messages))
    if commands.fail:
        return _failing(commands.fail)
    if system := _map_system(messages):
        return DemoAnswer(text=map_answer(system, _first_question(messages)))
    if wanted := _TOOL_COMMAND.search(commands.text):
        return _tool_command(wanted[1], wanted[2] or "{}", tools, len(messages))
    if commands.long:
        return DemoAnswer(text=prose(commands.long))
    if not commands.text.strip():
        return DemoAnswer(text=GREETING)
    return _from_words(messages, commands.text, tools)


def _from_words(messages: list[dict[str, Any]], text: str, tools: list[dict[str, Any]]) -> DemoAnswer:
    shown = conversation(messages)
    earlier = shown[:-1] if shown and not shown[-1].is_summary else shown
    if known := demo_replies.small_talk(text) or demo_replies.about_conversation(text, earlier):
        return DemoAnswer(text=known)
    if tools and demo_replies.asks_for_tools(text):
        return DemoAnswer(text=demo_replies.list_tools(tools))
    if expression := demo_replies.expression_in(text):
        if call := _call("calculator", expression, tools, len(messages)):
            return DemoAnswer(tool_calls=(call,))
        return DemoAnswer(text=demo_replies.calculated(expression))
    if not demo_replies.wants_recall(text):
        return DemoAnswer(text=demo_replies.beyond_me(text) or demo_replies.reflection(text, earlier))
    found = demo_replies.recalled(text, earlier) or demo_replies.beyond_me(text)
    pattern = demo_replies.search_pattern(text)
    is_elsewhere = not found and any(said.is_summary for said in earlier)
    if is_elsewhere and pattern and (call := _call("lcm_grep", pattern, tools, len(messages), name="pattern")):
        return DemoAnswer(text="I do not see that any more, so I search the whole record. ", tool_calls=(call,))
    return DemoAnswer(text=found or demo_replies.not_found(text, earlier))


def _is_summary_request(messages: list[dict[str, Any]]) -> bool:
    return any(
        message.get("role") in ("system", "developer") and SUMMARISE_MARKER in text_of(message) for message in messages
    )


def _map_system(messages: list[dict[str, Any]]) -> str:
    """What an operator says of how to answer; empty where none asks."""
    systems = [text_of(message) for message in messages if message.get("role") == "system"]
    return next((text for text in systems if MAP_MARKER in text), "")


def _reply_of_sub_agent(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> DemoAnswer | None:
    """What is said to a task that ends with the JSON Schema of its answer; ``None`` where there is no such task."""
    task, asks, schema = _first_question(messages).rpartition(SCHEMA_FOLLOWS)
    if not asks:
        return None
    is_told = messages[-1].get("role") == "tool"
    if not is_told and (wanted := _TOOL_COMMAND.search(task)):
        return _tool_command(wanted[1], wanted[2] or "{}", tools, len(messages))
    return DemoAnswer(text=map_answer(schema, text_of(messages[-1]) if is_told else task))


def _first_question(messages: list[dict[str, Any]]) -> str:
    asked = next((text_of(message) for message in messages if message.get("role") == "user"), "")
    return _read_commands(asked).text


def _summary(messages: list[dict[str, Any]]) -> str:
    texts = [text_of(message) for message in messages]
    source = next((found for text in reversed(texts) if (found := find_source(text))), texts[-1])
    # Without its source, which may itself speak of a target.
    asked = "\n".join(text.replace(source, "") for text in texts)
    return summarise(source, find_target(asked))


def _read_commands(text: str) -> _Commands:
    found = {(name or bare).lower(): value.lower() for name, value, bare in _COMMAND.findall(text)}
    return _Commands(
        text=_COMMAND.sub("", text).strip() if found else text,
        slow=_number(found.get("slow", ""), SLOWEST_WORD),
        long=_number(found.get("long", ""), LONGEST_PROSE),
        fail=found.get("fail") or ("?" if "fail" in found else ""),
        think="think" in found,
    )


def _number(digits: str, largest: int) -> int:
    return min(largest, int(digits[:9])) if digits.isascii() and digits.isdigit() else 0


def _failing(kind: str) -> DemoAnswer:
    if kind not in FAILURES:
        return DemoAnswer(text=f"I can fail in these ways: {', '.join(f'`!fail {name}`' for name in FAILURES)}.")
    text = "I begin an answer, as asked, and then the line goes" if kind == "cut" else ""
    return DemoAnswer(text=text, failure=kind)


def answer_to_short(given: DemoAnswer) -> DemoAnswer:
    """What is said in place of a refusal of a prompt that is not too long."""
    return replace(given, text="This prompt fits into half of my window, so I take it.", failure="")


def _tool_command(name: str, arguments: str, tools: list[dict[str, Any]], place: int) -> DemoAnswer:
    offered = demo_replies.tool_names(tools)
    if name not in offered:
        known = ", ".join(f"`{tool}`" for tool in offered) or "none"
        return DemoAnswer(text=f"I am not offered a tool called `{name}`. I am offered: {known}.")
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return DemoAnswer(text=f'The arguments of `!tool {name}` must be a JSON object, such as `{{"pattern": "x"}}`.')
    return DemoAnswer(tool_calls=(ToolCall(id=f"call_demo_{place}", name=name, arguments=arguments),))


def _call(tool: str, value: str, tools: list[dict[str, Any]], place: int, *, name: str = "") -> ToolCall | None:
    """A call of the tool with one argument, when it is offered."""
    for function in demo_replies.functions(tools):
        if function.get("name") == tool:
            argument = name or demo_replies.first_parameter(function)
            arguments = json.dumps({argument: value}, ensure_ascii=False)
            return ToolCall(id=f"call_demo_{place}", name=tool, arguments=arguments)
    return None
