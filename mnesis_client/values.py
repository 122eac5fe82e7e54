"""What the server answers, as it sends it: JSON objects with known fields. Fields may be added, none is renamed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

Item = TypeVar("Item")


class Page(TypedDict, Generic[Item]):
    """Some items, and what to ask for the next ones with."""

    items: list[Item]
    next_cursor: str | int | None


class ErrorInfo(TypedDict):
    """Why something ended badly."""

    code: str
    message: str
    details: NotRequired[dict[str, Any]]


class Usage(TypedDict):
    """Tokens, and money in millionths of the currency unit; ``source`` says who counted."""

    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    source: str | None
    cost_micros: int | None


class Session(TypedDict):
    """A session. What reading one adds is below; lists leave it out."""

    id: str
    state: str
    model: str
    agent: str
    title: str
    archived: bool
    labels: dict[str, str]
    config: dict[str, Any]
    origin: str
    parent_id: str | None
    host_mode: bool
    peer_name: str
    running_turn_id: str | None
    last_seq: int
    message_count: int
    turn_count: int
    created_at: str
    updated_at: str
    system_prompt: NotRequired[str]
    context: NotRequired[dict[str, Any]]
    billing: NotRequired[dict[str, Any]]
    turn_id: NotRequired[str | None]


class Waiting(TypedDict):
    """A tool call that a suspended turn waits for: ``reason`` is ``caller`` or ``approval``."""

    part_id: str
    tool_call_id: str
    tool_name: str
    input: str
    reason: str


class Turn(TypedDict):
    """A turn."""

    id: str
    session_id: str
    seq: int
    state: str
    model: str
    error: ErrorInfo | None
    message_ids: list[str]
    usage: Usage
    cost_micros: int | None
    created_at: str
    ended_at: str | None
    waits_for: NotRequired[list[Waiting]]


class InboxMessage(TypedDict):
    """A message to a session in host mode; ``turn_id`` is the turn that took it, ``sender_id`` the session that sent it."""

    id: str
    session_id: str
    seq: int
    sender_id: str | None
    kind: Literal["message", "request", "response"]
    in_reply_to: str | None
    text: str
    hops: int
    turn_id: str | None
    created_at: str


class Part(TypedDict):
    """A part of a message; which fields say something depends on ``type``."""

    id: str
    index: int
    type: str
    token_estimate: int
    text: NotRequired[str | None]
    tool_name: NotRequired[str | None]
    tool_call_id: NotRequired[str | None]
    input: NotRequired[str | None]
    output: NotRequired[str | None]
    error: NotRequired[str | None]
    state: NotRequired[str | None]
    compacted_at: NotRequired[str | None]
    file_id: NotRequired[str | None]


class Message(TypedDict):
    """A message of the record."""

    id: str
    seq: int
    turn_id: str | None
    role: Literal["system", "user", "assistant"]
    is_summary: bool
    created_at: str
    parts: list[Part]
    usage: Usage
    finish_reason: str | None
    outcome: str | None
    error: ErrorInfo | None


class ModelCall(TypedDict):
    """A call to a model."""

    id: str
    session_id: str
    turn_id: str | None
    message_id: str | None
    purpose: str
    state: str
    model: str
    provider_model: str
    manifest: list[Any]
    context_seq: int
    digest: str
    estimated_tokens: int
    usage: Usage
    usage_said: str | None
    """What the provider said of tokens, as JSON, whether it can be true or not."""
    outcome: str | None
    finish_reason: str | None
    error: ErrorInfo | None
    created_at: str
    ended_at: str | None
    digest_matches: NotRequired[bool]


class Event(TypedDict):
    """An entry of a session's ledger."""

    seq: int
    type: str
    data: dict[str, Any]
    created_at: str


class Frame(TypedDict):
    """What following a session brings: an event, ``caught_up``, or a ``delta`` with more text of a running answer."""

    type: str
    seq: NotRequired[int]
    data: NotRequired[dict[str, Any]]
    message_id: NotRequired[str]
    part_index: NotRequired[int]
    part_type: NotRequired[str]
    offset: NotRequired[int]
    text: NotRequired[str]


class Context(TypedDict):
    """What the model would see; ``payload`` in a provider's format, else ``messages``."""

    budget: dict[str, Any]
    breakdown: dict[str, int]
    manifest: list[dict[str, Any]]
    digest: str
    left_out: list[dict[str, Any]]
    payload: NotRequired[dict[str, Any]]
    messages: NotRequired[list[dict[str, Any]]]


class Hit(TypedDict):
    """Something that a search found."""

    session_id: str
    session_title: str
    kind: str
    message_id: str | None
    message_seq: int
    part_id: str | None
    summary_id: str | None
    file_id: str | None
    covered_by: str | None
    snippet: str
    matches: list[tuple[int, int]]


class Found(TypedDict):
    """A page of hits, and how much was searched for them."""

    items: list[Hit]
    messages_searched: int
    messages_total: int
    cut_off: bool
    more: bool
    next_cursor: str | None


class Summary(TypedDict):
    """A summary."""

    id: str
    kind: str
    depth: int
    level: int
    text: str
    token_count: int
    first_seq: int
    last_seq: int
    message_count: int
    source_ids: list[str]
    file_ids: list[str]


class Expanded(TypedDict):
    """What a summary stands for: messages or summaries, as ``kind`` says."""

    kind: str
    items: list[Any]
    next_cursor: str | None


class Compaction(TypedDict):
    """A compaction."""

    id: str
    state: str
    trigger: str
    outcome: str | None
    level: int | None
    tries: list[dict[str, Any]]
    tokens_before: int | None
    tokens_after: int | None
    summary_ids: list[str]
    cost_micros: int | None
    error: ErrorInfo | None


class Model(TypedDict):
    """A model that may be chosen."""

    alias: str
    litellm_model: str
    context_window: int
    max_output_tokens: int


class Verified(TypedDict):
    """Whether a session's record is as it was written."""

    ok: bool
    checked: dict[str, Any]
    problems: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A turn that has stopped, and what the model said in it."""

    turn: Turn
    text: str
