"""What every provider takes: text as UTF-8, short names of plain letters, ids that pair, arguments as an object."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NoReturn, TypeVar

from mnesis_core.context.entries import EMPTY_MESSAGE, ContextMessage, ToolResult
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.text import printable

# Stands for a result that never came; providers refuse a call without one.
INTERRUPTED = "Error: interrupted: this call has no result."
# The user's first words in a history where the assistant spoke first, for providers that let only the user begin.
OPENING = "[The conversation begins with the assistant.]"
LONGEST_NAME = 64  # Characters of a tool's name and of a call's id; the least that a provider allows.
DEEPEST_ARGUMENTS = 64  # Levels: some providers read arguments into a form that may be nested a hundred deep.
Item = TypeVar("Item")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def outgoing(text: str) -> str:
    """Return text that can be written as UTF-8; the record keeps the exact text."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return printable(text)
    return text


def tool_name(name: str) -> str:
    return _NOT_IN_A_NAME.sub("_", name)[:LONGEST_NAME] or "unnamed"


def described(tool: ToolSpec, schema: str = "parameters") -> dict[str, Any]:
    """Return a tool's description, with its JSON Schema under the key ``schema``."""
    return {"name": tool_name(tool.name), "description": outgoing(tool.description), schema: tool.parameters}


def spoken(message: ContextMessage) -> str:
    """Return what a message says; empty where there is only white space, which some providers refuse.

    A user's message says at least that it is empty, since the answer is to it.
    """
    text = outgoing(message.text)
    if text.strip():
        return text
    return EMPTY_MESSAGE if message.role == "user" else ""


def spoken_by_two(message: ContextMessage) -> tuple[str, str]:
    """Return role and text for providers whose conversations have two sides only: the user says the system's messages."""
    text = spoken(message)
    if message.role == "system":
        return "user", f"[System message]\n{text}" if text else ""
    return message.role, text


def user_first(items: Iterable[tuple[str, Item]], opening: Item) -> Iterator[tuple[str, Item]]:
    """Yield (role, item) in order, with ``opening`` in front unless the user begins."""
    for index, (role, item) in enumerate(items):
        if index == 0 and role != "user":
            yield "user", opening
        yield role, item


def system_apart(messages: Sequence[ContextMessage]) -> tuple[str, Sequence[ContextMessage]]:
    """Return the system prompt, empty if there is none, and what comes after it.

    Only the first message is taken out: a later one that moved to the front would change what a cache knows.
    """
    if messages and messages[0].role == "system":
        return spoken(messages[0]), messages[1:]
    return "", messages


def answered_calls(message: ContextMessage) -> Iterator[tuple[ToolCall, ToolResult]]:
    results = {result.call_id: result for result in message.tool_results}
    for call in message.tool_calls:
        missing = ToolResult(call_id=call.id, name=call.name, text=INTERRUPTED, is_error=True)
        yield call, results.get(call.id, missing)


@dataclass(slots=True)
class CallIds:
    """Ids for the calls of one payload, no two the same, though the calls may come from several sources.

    An id depends on those before it only, so that a longer history gives the same ones again.
    """

    _taken: set[str] = field(default_factory=set)
    _used: Counter[str] = field(default_factory=Counter)  # id -> how often it was asked for

    def new(self, call_id: str) -> str:
        wanted = _NOT_IN_A_NAME.sub("_", call_id)[:LONGEST_NAME] or "call"
        unique = wanted
        while unique in self._taken:
            self._used[wanted] += 1
            number = f"_{self._used[wanted] + 1}"
            unique = wanted[: LONGEST_NAME - len(number)] + number
        self._taken.add(unique)
        return unique


def arguments_object(text: str) -> dict[str, Any]:
    """Return arguments as an object for providers that do not take them as text.

    What is no JSON object, or one that they cannot read, is sent whole as ``{"invalid_arguments": text}``.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_number_as(float), parse_int=_number_as(int))
        if isinstance(value, dict):
            return {outgoing(key): _plain(item, DEEPEST_ARGUMENTS) for key, item in value.items()}
    except (ValueError, RecursionError):
        pass
    return {"invalid_arguments": outgoing(text)} if text.strip() else {}


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what} is not a number that JSON can say")


def _number_as(kind: Callable[[str], float]) -> Callable[[str], float]:
    """Return a reader of numbers that refuses what does not fit a double, which is what most readers have."""
    return lambda text: kind(text) if isfinite(float(text)) else _refuse(text)


def _plain(value: Any, levels: int) -> Any:
    if levels == 0:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return outgoing(value)
    if isinstance(value, dict):
        return {outgoing(key): _plain(item, levels - 1) for key, item in value.items()}
    return [_plain(item, levels - 1) for item in value] if isinstance(value, list) else value
