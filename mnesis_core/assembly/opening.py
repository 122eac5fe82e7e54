"""System prompt and tools: what every prompt begins with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from mnesis_core.assembly.reading import ends_within, with_middle_left_out
from mnesis_core.context import ContextMessage, LeftOut
from mnesis_core.llm import ToolSpec
from mnesis_core.tokens import MESSAGE_FRAMING, TOOL_FRAMING, estimate_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """System prompt and tools with their cost."""

    rows: list[dict[str, Any]]
    """Their manifest rows; the system prompt's has ``head`` and ``tail`` (characters kept) when it is shortened."""
    system_tokens: int
    tool_tokens: int
    tools: tuple[ToolSpec, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def tokens(self) -> int:
        """Both."""
        return self.system_tokens + self.tool_tokens


def whole_opening(system_prompt: str, tools: Sequence[ToolSpec]) -> Opening:
    """Everything, whatever it costs."""
    return Opening(
        rows=_rows({"kind": "system", "id": ""} if system_prompt else None, tools),
        system_tokens=MESSAGE_FRAMING + estimate_text(system_prompt) if system_prompt else 0,
        tool_tokens=sum(map(size_of_tool, tools)),
        tools=tuple(tools),
    )


def fit_opening(opening: Opening, system_prompt: str, room: int) -> Opening:
    """The opening in ``room`` tokens: the first tools that fit beside half of it, the system prompt's head and tail."""
    if opening.tokens <= room:
        return opening
    room = max(0, room)
    sums = list(accumulate(map(size_of_tool, opening.tools)))
    count = sum(1 for total in sums if total <= room - min(opening.system_tokens, room // 2))
    tool_tokens = sums[count - 1] if count else 0
    row, system_tokens = _fit_system(system_prompt, opening.system_tokens, room - tool_tokens)
    dropped = [LeftOut(id=tool.name, kind="tool", reason="over_budget") for tool in opening.tools[count:]]
    if system_prompt and row is None:
        dropped.insert(0, LeftOut(id="", kind="system", reason="over_budget"))
    return Opening(
        rows=_rows(row, opening.tools[:count]),
        system_tokens=system_tokens,
        tool_tokens=tool_tokens,
        tools=opening.tools[:count],
        left_out=tuple(dropped),
    )


def _fit_system(system_prompt: str, tokens: int, room: int) -> tuple[dict[str, Any] | None, int]:
    if not system_prompt:
        return None, 0
    if tokens <= room:
        return {"kind": "system", "id": ""}, tokens
    limit = room - MESSAGE_FRAMING
    head, tail = ends_within(system_prompt, limit, lambda head, tail: _shortened(system_prompt, head, tail))
    size = estimate_text(_shortened(system_prompt, head, tail))
    if size > limit:
        return None, 0
    return {"kind": "system", "id": "", "head": head, "tail": tail}, MESSAGE_FRAMING + size


def _rows(system: dict[str, Any] | None, tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    names = [{"kind": "tools", "id": "", "names": [tool.name for tool in tools]}] if tools else []
    return [system, *names] if system else names


def size_of_tool(tool: ToolSpec) -> int:
    """Tokens of a tool's description."""
    return TOOL_FRAMING + estimate_text(read_tool(tool))


def read_tool(tool: ToolSpec, *, indent: int | None = None) -> str:
    """A tool as JSON, much as every provider sends it to its model."""
    shape = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return json.dumps(shape, ensure_ascii=False, indent=indent)


def read_system(row: Mapping[str, Any], system_prompt: str) -> ContextMessage:
    """The system prompt as its manifest row says."""
    text = _shortened(system_prompt, row["head"], row["tail"]) if "head" in row else system_prompt
    return ContextMessage(role="system", text=text)


def _shortened(system_prompt: str, head: int, tail: int) -> str:
    return with_middle_left_out(system_prompt, head, tail, "the system prompt")
