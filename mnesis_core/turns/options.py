"""A caller's options for one turn, checked, and as a text that is stored with the turn.

A suspended turn may be resumed days later by another process, so its row holds everything that it was started with.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mnesis_core.config import CHOICES
from mnesis_core.errors import InvalidRequest, RequestTooLarge
from mnesis_core.llm.interface import DEEPEST_SCHEMA, ToolSpec
from mnesis_core.spending import TurnLimits
from mnesis_core.text import nests_within

# The most of the caller's own tools that providers take.
MOST_TOOLS = 128
# Characters of all descriptions as JSON: more would leave no room for the conversation.
LONGEST_DESCRIPTIONS = 400_000
# What every provider allows; another name would come back changed.
TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOptions:
    # Tools that the caller runs itself: a call of one suspends the turn until its result comes.
    tools: tuple[ToolSpec, ...] = ()
    # Replaces the session's; None keeps it.
    system_prompt: str | None = None
    limits: TurnLimits | None = None
    # ``continue`` or ``stop``; None for the configured action.
    on_doom_loop: str | None = None
    # Whether the session stays alive for peers' messages from this turn on; None keeps the setting.
    host_mode: bool | None = None
    # Replaces the session's; empty keeps it.
    model: str = ""
    # None for the model's default.
    temperature: float | None = None

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)


def check_options(options: TurnOptions, *, characters: int) -> None:
    """Make sure that a turn can be run so.

    :param characters: the most that a system prompt may have
    :raises InvalidRequest: a value is out of its bounds; names the field
    :raises RequestTooLarge: a text is too long
    """
    _check_tools(options.tools)
    if len(options.system_prompt or "") > characters:
        raise RequestTooLarge(f"system_prompt may have {characters:,} characters, not more", field="system_prompt")
    choices = CHOICES["turn.on_doom_loop"]
    if options.on_doom_loop is not None and options.on_doom_loop not in choices:
        raise InvalidRequest(f"on_doom_loop must be one of {', '.join(choices)}", field="on_doom_loop")


def _check_tools(tools: Sequence[ToolSpec]) -> None:
    if len(tools) > MOST_TOOLS:
        raise InvalidRequest(f"tools are {len(tools):,}; {MOST_TOOLS} are allowed", field="tools")
    names: set[str] = set()
    for place, tool in enumerate(tools):
        if not TOOL_NAME.fullmatch(tool.name):
            field = f"tools.{place}.name"
            raise InvalidRequest(f"{field} must be 1 to 64 letters, digits, _ and -", field=field)
        if tool.name in names:
            raise InvalidRequest(f"two tools are called {tool.name}", field=f"tools.{place}.name")
        if not nests_within(tool.parameters, DEEPEST_SCHEMA):
            field = f"tools.{place}.parameters"
            raise InvalidRequest(f"{field} may be nested {DEEPEST_SCHEMA} deep, not more", field=field)
        names.add(tool.name)
    if tools and len(_text({"tools": [_plain(tool) for tool in tools]})) > LONGEST_DESCRIPTIONS:
        raise RequestTooLarge(f"tools may have {LONGEST_DESCRIPTIONS:,} characters together, not more", field="tools")


def write_options(options: TurnOptions) -> str:
    """Return options as a text for ``read_options``; empty without any."""
    asked: dict[str, Any] = {}
    if options.tools:
        asked["tools"] = [_plain(tool) for tool in options.tools]
    if options.system_prompt is not None:
        asked["system_prompt"] = options.system_prompt
    if options.limits is not None:
        asked["limits"] = asdict(options.limits)
    if options.on_doom_loop is not None:
        asked["on_doom_loop"] = options.on_doom_loop
    if options.host_mode is not None:
        asked["host_mode"] = options.host_mode
    if options.model:
        asked["model"] = options.model
    if options.temperature is not None:
        asked["temperature"] = options.temperature
    return _text(asked) if asked else ""


def read_options(text: str) -> TurnOptions:
    if not text:
        return TurnOptions()
    asked = json.loads(text)
    limits = asked.get("limits")
    return TurnOptions(
        tools=tuple(ToolSpec(**tool) for tool in asked.get("tools", ())),
        system_prompt=asked.get("system_prompt"),
        limits=None if limits is None else TurnLimits(**limits),
        on_doom_loop=asked.get("on_doom_loop"),
        host_mode=asked.get("host_mode"),
        model=asked.get("model", ""),
        temperature=asked.get("temperature"),
    )


def _plain(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _text(asked: dict[str, Any]) -> str:
    # ASCII, so that every database accepts it.
    try:
        return json.dumps(asked, sort_keys=True, allow_nan=False)
    except (ValueError, TypeError):
        raise InvalidRequest("tools must be JSON", field="tools") from None
