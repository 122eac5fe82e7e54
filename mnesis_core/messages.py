"""Messages and their parts: frozen values without identity, equal when their contents are.

Ids, sequence numbers and times belong to the store (see ``StoredMessage``). The part types are those of seed 000
("ImmutableStore guarantees"), with ``DataPart`` for imported data that has no better place.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Literal

from mnesis_core.values import dataclass

Role = Literal["system", "user", "assistant"]


class ToolState(StrEnum):
    """How far a tool call is. It only moves forward."""

    PENDING = "pending"  # It waits to be run, for a person's approval, or for the caller's result.
    APPROVED = "approved"  # A person approved it; it runs when its turn waits for nothing else.
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"


UNANSWERED_STATES = (ToolState.PENDING, ToolState.APPROVED, ToolState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart:
    type: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPart:
    type: ClassVar[str] = "reasoning"
    text: str  # the model's thinking, which is kept and not sent back to a model


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPart:
    """One tool call with its result: a pair that is never split."""

    type: ClassVar[str] = "tool"
    tool_name: str
    tool_call_id: str
    input: str = "{}"  # The arguments exactly as received, usually JSON.
    output: str | None = None
    error: str | None = None
    state: ToolState = ToolState.PENDING
    # When the output was tombstoned: it stays in the record and leaves the context.
    compacted_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    decision_note: str | None = None  # from the person who approved or refused the call
    # What the tool answered after its call had been closed. It is kept here and never sent to a model.
    late_output: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRefPart:
    type: ClassVar[str] = "file_ref"
    file_id: str
    path: str = ""
    file_type: str = "unknown"
    token_count: int = 0
    exploration_summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionMarkerPart:
    """The place where the system that a history was imported from compacted it."""

    type: ClassVar[str] = "compaction"
    summary_id: str = ""
    level: int = 0
    compacted_message_count: int = 0
    compacted_token_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStartPart:
    type: ClassVar[str] = "step_start"
    step_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinishPart:
    type: ClassVar[str] = "step_finish"
    step_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchPart:
    type: ClassVar[str] = "patch"
    unified_diff: str
    files_changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPart:
    """Imported data of an unknown kind, kept whole under the name that it had there."""

    type: ClassVar[str] = "data"
    label: str
    text: str


Part = (
    TextPart
    | ReasoningPart
    | ToolPart
    | FileRefPart
    | CompactionMarkerPart
    | StepStartPart
    | StepFinishPart
    | PatchPart
    | DataPart
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: Role
    parts: tuple[Part, ...]
    is_summary: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    id: str
    index: int
    part: Part
    token_estimate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    id: str
    seq: int  # Place in the session, from 1. There is no other order.
    turn_id: str | None
    role: Role
    parts: tuple[StoredPart, ...]
    created_at: datetime
    is_summary: bool = False
    token_estimate: int = 0


def text_of(parts: tuple[Part, ...]) -> str:
    """Return the spoken text of some parts, in order, joined by line breaks."""
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
