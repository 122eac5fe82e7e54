"""What a caller sends: JSON objects with known fields, as the server takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict


class Tool(TypedDict):
    """A tool that the caller runs; ``parameters`` is JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolResult(TypedDict):
    """What a tool of the caller's answered: ``output``, or ``error``."""

    tool_call_id: str
    output: NotRequired[str]
    error: NotRequired[str]


class SessionValues(TypedDict, total=False):
    """What a session is made with; all of it may be left out."""

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
    """What may change about a session."""

    title: str
    labels: dict[str, str]
    config: dict[str, Any]
    host_mode: bool
    peer_name: str


class SessionFilters(TypedDict, total=False):
    """Which sessions are listed."""

    label: str
    """``key=value``."""
    q: str
    """A word of the title."""
    archived: bool
    parent_id: str
    sub_agents: bool
    """True: only what turns have launched; false: nothing of it."""


class Limits(TypedDict, total=False):
    """The most that a turn may use."""

    tokens: int
    cost_micros: int
    seconds: float
    tool_calls: int


class TurnOptions(TypedDict, total=False):
    """How a turn differs from its session; ``files`` are ids of files that go with the message."""

    files: Sequence[str]
    tools: Sequence[Tool]
    """Tools that the caller runs: a call of one suspends the turn until ``answer_tools``."""
    system_prompt: str
    limits: Limits
    on_doom_loop: Literal["continue", "stop"]
    host_mode: bool
    """Whether the session stays alive for messages of peers from now on; left out: as it does already."""
    model: str
    """Who is asked this turn in place of the session's model."""
    idempotency_key: str
    """Made, if it is not given."""


Spoken = str | list[dict[str, Any]]
"""A text, or parts: ``text``, ``reasoning``, ``tool`` with its result, ``file_ref``."""


class Tokens(TypedDict, total=False):
    """What the caller's provider counted; ``input`` is the whole prompt."""

    input: int
    output: int
    cache_read: int
    cache_write: int


class RecordedValues(TypedDict, total=False):
    """What is known of a turn that the caller ran."""

    tokens: Tokens
    cost: float
    """In the currency unit of the model's price."""
    finish_reason: str | None
    model: str
    idempotency_key: str
    """Made, if it is not given."""


class SearchOptions(TypedDict, total=False):
    """How a search is made."""

    mode: Literal["text", "regex"]
    scope: str
    summary_id: str
    limit: int
    cursor: str
