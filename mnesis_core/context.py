"""The neutral form of a prompt: what assembly decides and every renderer translates."""

from __future__ import annotations

from typing import Any

from mnesis_core.llm import ToolCall, ToolSpec
from mnesis_core.messages import Role
from mnesis_core.values import dataclass

EMPTY_MESSAGE = "[empty message]"
"""What a model reads in place of a user's message that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool call gave."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextMessage:
    """One message of a prompt. A call without its result was not answered when the prompt was made."""

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    """Results of this same message's ``tool_calls``: a pair is never split."""
    source_ids: tuple[str, ...] = ()
    """The message or summary it stands for; none for the system prompt and for notes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something of the context that the prompt does not hold."""

    id: str
    kind: str
    """``system``, ``tool`` (its id is its name), ``summary``, ``message`` or ``part``."""
    reason: str
    """``over_budget``, or ``nothing_to_send`` for a message that holds nothing a model is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where the usable tokens go; the sum of all is ``budget.usable``."""

    system: int
    tools: int
    summaries: int
    messages: int
    tool_outputs: int
    """Tool calls with their results."""
    files: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a renderer translates."""

    messages: tuple[ContextMessage, ...]
    """The system prompt first, if there is one."""
    tools: tuple[ToolSpec, ...]
    """The tools that fit: all of them unless the budget is very small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled(Prompt):
    """Exactly what a model will see, and what it will not and why."""

    used_tokens: int
    """At most ``budget.usable``."""
    wanted_tokens: int
    """What leaving nothing out would take: the number to compare with the thresholds."""
    breakdown: Breakdown
    manifest: list[dict[str, Any]]
    """JSON rows in the order of the prompt; ``assembly.rebuild`` makes the same prompt of them again."""
    left_out: tuple[LeftOut, ...]
