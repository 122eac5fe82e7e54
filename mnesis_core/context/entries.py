"""The neutral form of a prompt, which assembly decides and every renderer translates, and its manifest as it is stored.

A stored manifest is checked when it is read: through an import it may come from anyone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, TypeVar

from mnesis_core.errors import MessageNotFoundError, SummaryNotFoundError, gettext_noop
from mnesis_core.llm.interface import ToolCall, ToolSpec
from mnesis_core.messages import ProviderPart, Role, StoredMessage
from mnesis_core.values import dataclass

Row = Mapping[str, Any]
Schema = Mapping[str, Callable[[object], bool]]
SummaryKind = Literal["leaf", "condensed"]

_LARGEST_NUMBER = 2**53
# Kinds of rows for messages that a prompt shows, whole or quoted, although they are no items of its context.
BESIDE = ("pinned", "retrieved")
RAN = ":ran"  # The kind of what goes back of a ``ProviderToolPart``; no part has it.
EMPTY_MESSAGE = "[empty message]"  # What a model reads in place of a user's message that says nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture, a PDF or audio as a model is sent it: a content that the record keeps, so that a past prompt has the same bytes."""

    content_id: str
    media_type: str
    width: int
    height: int
    size: int  # bytes
    tokens: int  # by the rule of the provider's family, uncorrected
    pages: int = 0  # of a PDF, which has no width and height
    seconds: int = 0  # of audio, which has none either
    data: str = ""  # Base64; empty until it is read for a payload


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    call_id: str
    name: str
    text: str
    is_error: bool = False
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """What goes back to the provider that gave it, and its place in a message."""

    part: ProviderPart
    call_id: str = ""  # the call that it stands before; empty: before the text, or alone in the message
    part_id: str = ""

    @property
    def is_ran(self) -> bool:
        """Return whether it is a call that the provider ran, with its result."""
        return self.part.kind == RAN


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextMessage:
    """One message of a prompt. A call without its result was not answered when the prompt was made."""

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()  # Results of this same message's ``tool_calls``: a pair is never split.
    opaque: tuple[Opaque, ...] = ()
    pictures: tuple[Picture, ...] = ()  # behind the text, which names their files
    source_ids: tuple[str, ...] = ()  # the message or summary it stands for; none for the system prompt and for notes


def source_of_message(message: ContextMessage) -> str:
    return message.source_ids[0] if message.source_ids else ""


def only_ran(said: Iterable[ContextMessage]) -> list[ContextMessage]:
    """Return what a message of the record comes to where of all that it gave only the calls that its provider ran go back.

    Texts that only stood apart because of what stood between them are one again, as they will be read of its row.
    """
    found: list[ContextMessage] = []
    for message in said:
        kept = replace(message, opaque=tuple(opaque for opaque in message.opaque if opaque.is_ran))
        if not (kept.text or kept.tool_calls or kept.opaque or kept.pictures):
            continue
        is_apart = any(not opaque.call_id for opaque in kept.opaque)
        if found and found[-1].role == kept.role and not found[-1].tool_calls and not is_apart:
            last = found.pop()
            kept = replace(
                kept,
                text="\n".join(filter(None, (last.text, kept.text))),
                opaque=(*last.opaque, *kept.opaque),
                pictures=(*last.pictures, *kept.pictures),
            )
        found.append(kept)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    id: str
    # ``system``, ``tool`` (its id is its name), ``summary``, ``message``, ``part``, or ``picture`` (its text is there)
    kind: str
    reason: str  # ``over_budget``, or ``nothing_to_send`` for a message that holds nothing a model is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Where the usable tokens go; the sum of all is ``budget.usable``."""

    system: int
    tools: int
    facts: int
    summaries: int
    passages: int  # of earlier messages that may answer the newest question
    messages: int
    tool_outputs: int  # tool calls with their results
    files: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    messages: tuple[ContextMessage, ...]
    tools: tuple[ToolSpec, ...]  # The tools that fit: all of them unless the budget is very small.
    # Whether its model reads the pictures of results inside them; else it reads them in a message behind the results.
    in_results: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled(Prompt):
    used_tokens: int  # at most ``budget.usable``
    wanted_tokens: int  # What leaving nothing out would take: the number to compare with the thresholds.
    breakdown: Breakdown
    # JSON rows in the order of the prompt; ``assembly.rebuild`` makes the same prompt of them again.
    manifest: list[dict[str, Any]]
    left_out: tuple[LeftOut, ...]


# What stands in a session's context, in order: messages, and summaries in the place of older ones


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryEntry:
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
Sources = Mapping[str, ContextEntry]
_Entry = TypeVar("_Entry", SummaryEntry, MessageEntry)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRows:
    messages: list[MessageEntry]
    summaries: dict[str, int]  # Positions by id; a summary never changes, so its text can be read later.
    event_seq: int | None  # The session's last event at that moment; None for an empty context.
    unread_tokens: int = 0  # of messages before those that were read, by the record's own estimates


def in_order(entries: Sequence[ContextEntry]) -> list[ContextEntry]:
    return sorted(entries, key=attrgetter("position"))


def runs_of_kind(entries: Sequence[ContextEntry], kind: type[_Entry]) -> list[list[_Entry]]:
    groups = groupby(in_order(entries), key=lambda entry: isinstance(entry, kind))
    return [[entry for entry in group if isinstance(entry, kind)] for is_kind, group in groups if is_kind]


def message_runs(entries: Sequence[ContextEntry]) -> list[list[StoredMessage]]:
    return [[entry.message for entry in run] for run in runs_of_kind(entries, MessageEntry)]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_NUMBER


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_ranges(value: object) -> bool:
    if not isinstance(value, list) or not all(isinstance(span, list) and len(span) == 2 for span in value):
        return False
    ends = [end for span in value for end in span]
    return all(map(_is_number, ends)) and ends == sorted(ends)


_ENDS: Schema = {"head": _is_number, "tail": _is_number}
_CUT: Schema = {"part": _is_text, "field": _is_text, **_ENDS}
_PICTURE: Schema = {
    **dict.fromkeys(("part", "content_id", "media_type"), _is_text),
    **dict.fromkeys(("width", "height", "size", "tokens"), _is_number),
}


def _is_picture(value: object) -> bool:
    if not isinstance(value, dict) or not _has(value, _PICTURE):
        return False
    return all(_is_number(value.get(name, 0)) for name in ("pages", "seconds"))


# A key -> the keys that come with it.
_OPTIONAL: Mapping[str, Schema] = {
    "branch": {"branch": _is_number},
    "head": _ENDS,
    "naming": {"naming": _are_texts},
    "opaque": {"opaque": _are_texts},
    "pictures": {"pictures": lambda value: isinstance(value, list) and all(map(_is_picture, value))},
    "prompt": {"prompt": _is_text},
}
_MESSAGE: Schema = {
    "id": _is_text,
    "seq": _is_number,
    "parts": _is_number,
    "tombstoned": _are_texts,
    "unanswered": _are_texts,
    "omitted": _are_texts,
    "shortened": lambda value: isinstance(value, list) and all(_has(cut, _CUT) for cut in value),
}
_LINE: Schema = {"id": _is_text, "part": _is_text, "field": _is_text, "start": _is_number, "end": _is_number}
_SCHEMAS: Mapping[str, Schema] = {
    "system": {"id": _is_text},
    "tools": {"names": _are_texts},
    "summary": {"id": _is_text, "first_seq": _is_number, "last_seq": _is_number},
    "message": _MESSAGE,
    "pinned": _MESSAGE,  # a message that is shown although a summary stands in its place
    "facts": {"ids": _are_texts},
    # passages of messages that a summary stands for
    "retrieved": {"lines": lambda value: isinstance(value, list) and all(_has(line, _LINE) for line in value)},
    "prompt": {"id": _is_text, "target": _is_number},
    "piece": {"number": _is_number, "limit": _is_number},
    "messages": {"ranges": _are_ranges},
    "try": {"id": _is_text},
    "file": {"content_id": _is_text, "offset": _is_number, "bytes": _is_number},
    "map": {"run_id": _is_text, "item": _is_number, "attempt": _is_number},
    "gap": dict.fromkeys(("messages", "summaries", "first_seq", "last_seq"), _is_number),
    "context": dict.fromkeys(("form", "items", "parts"), _is_number),
}


def read_manifest(stored: object) -> list[Row]:
    """Return the rows of a stored manifest, checked for every key that a prompt is made with.

    :raises ValueError: it is not a manifest; the message says which row.
    """
    if not isinstance(stored, list):
        raise ValueError("the manifest is not a list")
    for place, row in enumerate(stored, start=1):
        schema = _SCHEMAS.get(str(row.get("kind"))) if isinstance(row, dict) else None
        optional = [fields for key, fields in _OPTIONAL.items() if isinstance(row, dict) and key in row]
        if schema is None or not all(_has(row, fields) for fields in (schema, *optional)):
            raise ValueError(f"no prompt can be made of row {place} of the manifest")
    return stored


def _has(value: object, schema: Schema) -> bool:
    return isinstance(value, dict) and all(name in value and fits(value[name]) for name, fits in schema.items())


def sources_of(entries: Iterable[ContextEntry]) -> Sources:
    return {entry.id if isinstance(entry, SummaryEntry) else entry.message.id: entry for entry in entries}


def find_summary(sources: Sources, summary_id: str) -> SummaryEntry:
    """:raises SummaryNotFoundError: the prompt's sources do not hold it."""
    entry = sources.get(summary_id)
    if not isinstance(entry, SummaryEntry):
        raise SummaryNotFoundError(
            gettext_noop("the prompt holds summary %(summary_id)s, which is not there"),
            {"summary_id": summary_id},
            id=summary_id,
        )
    return entry


def find_message(sources: Sources, message_id: str) -> StoredMessage:
    """:raises MessageNotFoundError: the prompt's sources do not hold it."""
    entry = sources.get(message_id)
    if not isinstance(entry, MessageEntry):
        raise MessageNotFoundError(
            gettext_noop("the prompt holds message %(message_id)s, which is not there"),
            {"message_id": message_id},
            id=message_id,
        )
    return entry.message
