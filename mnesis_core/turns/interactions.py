"""A tool call paired with its result: a view of the record for people and programs, derived and never stored (seed 004, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mnesis_core.messages import UNANSWERED_STATES, ToolState


class InteractionStatus(StrEnum):
    PENDING = "PENDING"  # It has not ended: it waits or runs.
    SUCCESS = "SUCCESS"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInteraction:
    tool_call_id: str
    turn_id: str
    tool_name: str
    arguments: str  # as the model wrote them, which is JSON if it wrote what it was asked for
    result: str | None  # whole, even where prompts have a tombstone in its place; also one that came late
    error: str | None
    state: str
    part_id: str
    part_index: int
    message_id: str
    seq: int
    started_at: datetime | None
    completed_at: datetime | None

    @property
    def status(self) -> InteractionStatus:
        return next(status for status, states in STATES.items() if self.state in states)


STATES: dict[InteractionStatus, tuple[ToolState, ...]] = {
    InteractionStatus.PENDING: UNANSWERED_STATES,
    InteractionStatus.SUCCESS: (ToolState.COMPLETED,),
    InteractionStatus.ERROR: (ToolState.ERROR,),
}
