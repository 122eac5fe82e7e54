"""The neutral form of a prompt: what assembly decides and every renderer translates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.messages import Role, StoredMessage
from mnesis_core.values import dataclass

EMPTY_MESSAGE = "[empty message]"  # What a model reads in place of a user's message that says nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
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
    tool_results: tuple[ToolResult, ...] = ()  # Results of this same message's ``tool_calls``: a pair is never split.
    source_ids: tuple[str, ...] = ()  # the message or summary it stands for; none for the system prompt and for notes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    id: str
    kind: str  # ``system``, ``tool`` (its id is its name), ``summary``, ``message`` or ``part``
    reason: str  # ``over_budget``, or ``nothing_to_send`` for a message that holds nothing a model is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where the usable tokens go; the sum of all is ``budget.usable``."""

    system: int
    tools: int
    summaries: int
    messages: int
    tool_outputs: int  # tool calls with their results
    files: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    messages: tuple[ContextMessage, ...]
    tools: tuple[ToolSpec, ...]  # The tools that fit: all of them unless the budget is very small.


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled(Prompt):
    """Exactly what a model will see, and what it will not and why."""

    used_tokens: int  # at most ``budget.usable``
    wanted_tokens: int  # What leaving nothing out would take: the number to compare with the thresholds.
    breakdown: Breakdown
    # JSON rows in the order of the prompt; ``assembly.rebuild`` makes the same prompt of them again.
    manifest: list[dict[str, Any]]
    left_out: tuple[LeftOut, ...]


# What stands in a session's context, in order: messages, and summaries in the place of older ones

SummaryKind = Literal["leaf", "condensed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEntry:
    """A summary node that stands for the messages ``first_seq`` to ``last_seq``."""

    position: int  # Only its order means anything.
    id: str
    kind: SummaryKind  # ``leaf`` over messages, ``condensed`` over summaries
    depth: int  # 0 for a leaf, else one more than the deepest source
    level: int  # the escalation level that wrote it, 1 to 3
    text: str
    token_count: int
    first_seq: int
    last_seq: int
    message_count: int
    file_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEntry:
    position: int
    message: StoredMessage


ContextEntry = SummaryEntry | MessageEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRows:
    messages: list[MessageEntry]
    summaries: dict[str, int]  # Positions by id; a summary never changes, so its text can be read later.
    event_seq: int | None  # The session's last event at that moment; None for an empty context.
    unread_tokens: int = 0  # of messages before those that were read, by the record's own estimates


def in_order(entries: Sequence[ContextEntry]) -> list[ContextEntry]:
    return sorted(entries, key=attrgetter("position"))


def message_runs(entries: Sequence[ContextEntry]) -> list[list[StoredMessage]]:
    """Return the stretches of plain messages between summaries, oldest first."""
    groups = groupby(in_order(entries), key=lambda entry: isinstance(entry, MessageEntry))
    return [
        [entry.message for entry in group if isinstance(entry, MessageEntry)]
        for is_message, group in groups
        if is_message
    ]


def summary_runs(entries: Sequence[ContextEntry]) -> list[list[SummaryEntry]]:
    groups = groupby(in_order(entries), key=lambda entry: isinstance(entry, SummaryEntry))
    return [[entry for entry in group if isinstance(entry, SummaryEntry)] for is_summary, group in groups if is_summary]


def whole_turns(messages: Sequence[StoredMessage]) -> list[list[StoredMessage]]:
    """Group neighbouring messages so that no group boundary lies inside a turn.

    Turns that overlap (a late result among the next turn's messages) form one group. A message without a turn begins a
    group when the user said it, else it belongs to what came before.
    """
    last_places = {message.turn_id: index for index, message in enumerate(messages)}
    groups: list[list[StoredMessage]] = []
    open_until = -1
    for index, message in enumerate(messages):
        if groups and (index <= open_until or (message.turn_id is None and message.role != "user")):
            groups[-1].append(message)
        else:
            groups.append([message])
        open_until = max(open_until, index if message.turn_id is None else last_places[message.turn_id])
    return groups
