"""The JSON objects that a caller sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict


class Tool(TypedDict):
    """A tool that the caller runs; ``parameters`` is JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolResult(TypedDict):
    """The result of one of the caller's tools: ``output`` or ``error``."""

    tool_call_id: str
    output: NotRequired[str]
    error: NotRequired[str]


class SessionValues(TypedDict, total=False):
    model: str
    title: str
    agent: str
    system_prompt: str
    labels: dict[str, str]
    config: dict[str, Any]
    parent_id: str
    host_mode: bool
    peer_name: str


class SessionChanges(TypedDict, total=False):
    title: str
    labels: dict[str, str]
    config: dict[str, Any]
    host_mode: bool
    peer_name: str


class SessionFilters(TypedDict, total=False):
    label: str
    """``key=value``."""
    q: str
    """A word in the title."""
    archived: bool
    parent_id: str
    sub_agents: bool
    """True for only the sessions that turns have launched, false for only the others."""


class Limits(TypedDict, total=False):
    tokens: int
    cost_micros: int
    seconds: float
    tool_calls: int


class TurnOptions(TypedDict, total=False):
    """Options of one turn. ``files`` are the ids of files that go with the message."""

    files: Sequence[str]
    tools: Sequence[Tool]
    """Tools that the caller runs. A call to one suspends the turn until ``answer_tools``."""
    system_prompt: str
    limits: Limits
    on_doom_loop: Literal["continue", "stop"]
    host_mode: bool
    """Switch the host mode of the session on or off, from this turn on."""
    model: str
    """The model to ask in this turn in place of the session's."""
    idempotency_key: str
    """A random one by default."""


Spoken = str | list[dict[str, Any]]
"""A text, or parts: ``text``, ``reasoning``, ``tool`` with its result, ``file_ref``."""


class Tokens(TypedDict, total=False):
    """The counts of the caller's provider. ``input`` is the whole prompt, cached or not."""

    input: int
    output: int
    cache_read: int
    cache_write: int


class RecordedValues(TypedDict, total=False):
    tokens: Tokens
    cost: float
    """In the currency unit of the model's price."""
    finish_reason: str | None
    model: str
    idempotency_key: str
    """A random one by default."""


class SearchOptions(TypedDict, total=False):
    mode: Literal["text", "regex"]
    scope: str
    summary_id: str
    limit: int
    cursor: str


class FileSearchOptions(TypedDict, total=False):
    mode: Literal["text", "regex"]
    limit: int
    cursor: str


class MapValues(TypedDict, total=False):
    """Values of a new run. Either ``file_id`` or ``items`` is required."""

    file_id: str
    items: Sequence[Any]
    session_id: str
    output_schema: dict[str, Any]
    native_schema: bool
    model: str
    system_prompt: str
    concurrency: int
    max_retries: int
    timeout_seconds: float
    temperature: float
    limits: Limits
    idempotency_key: str
    """A random one by default."""


class AgenticMapValues(MapValues, total=False):
    read_only: bool
    tools: Sequence[str]
    max_turns: int
