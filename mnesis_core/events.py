"""The event types of the ledger: stable dotted names (``design/api`` "Event types").

A body holds ids, numbers and salted commitments, never content (decision 4), so the ledger can be handed out while the
words stay at home.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class DirectoryType(StrEnum):
    SESSION_CREATED = "session.created"
    SESSION_IMPORTED = "session.imported"
    SESSION_ENTERED = "session.entered"  # It existed before the directory did.
    SESSION_RECORDED = "session.recorded"  # The number of entries and the hash of the last one.
    SESSION_DELETED = "session.deleted"


class EventType(StrEnum):
    SESSION_CREATED = "session.created"
    SESSION_UPDATED = "session.updated"
    SESSION_ARCHIVED = "session.archived"
    SESSION_FORKED = "session.forked"
    SESSION_CLOSED = "session.closed"
    TURN_STARTED = "turn.started"
    TURN_SUSPENDED = "turn.suspended"
    TURN_RESUMED = "turn.resumed"
    TURN_COMPLETED = "turn.completed"
    TURN_CANCELLED = "turn.cancelled"
    TURN_INTERRUPTED = "turn.interrupted"
    TURN_FAILED = "turn.failed"
    TURN_INCOMPLETE = "turn.incomplete"
    MESSAGE_CREATED = "message.created"
    MESSAGE_FINALIZED = "message.finalized"
    PART_CREATED = "part.created"
    PART_STATE_CHANGED = "part.state_changed"
    PART_COMPACTED = "part.compacted"
    PART_ANSWERED_LATE = "part.answered_late"
    APPROVAL_DECIDED = "approval.decided"
    CALL_STARTED = "call.started"
    CALL_COMPLETED = "call.completed"
    CALL_FAILED = "call.failed"
    CALL_RETRIED = "call.retried"
    CONTEXT_CHANGED = "context.changed"
    COMPACTION_REQUESTED = "compaction.requested"
    COMPACTION_TRIGGERED = "compaction.triggered"
    COMPACTION_SKIPPED = "compaction.skipped"
    COMPACTION_STARTED = "compaction.started"
    COMPACTION_COMPLETED = "compaction.completed"
    COMPACTION_FAILED = "compaction.failed"
    COMPACTION_SUPERSEDED = "compaction.superseded"
    PRUNE_COMPLETED = "prune.completed"
    SUMMARY_TRIED = "summary.tried"
    SUMMARY_CREATED = "summary.created"
    SUMMARY_PREVIEWED = "summary.previewed"
    SUMMARY_SUPERSEDED = "summary.superseded"
    SUMMARY_FRESHNESS_CHANGED = "summary.freshness_changed"
    FILE_ADDED = "file.added"
    FILE_EXPLORED = "file.explored"
    INBOX_RECEIVED = "inbox.received"
    INBOX_TAKEN = "inbox.taken"
    MAP_STARTED = "map.started"
    MAP_ITEMS_CLAIMED = "map.items_claimed"
    MAP_ITEM_COMPLETED = "map.item_completed"
    MAP_ITEMS_RELEASED = "map.items_released"
    MAP_STATE_CHANGED = "map.state_changed"
    MAP_COMPLETED = "map.completed"
    DELEGATION_STARTED = "delegation.started"
    DELEGATION_SUSPENDED = "delegation.suspended"
    DELEGATION_RESUMED = "delegation.resumed"
    DELEGATION_ENDED = "delegation.ended"
    DOOM_LOOP_DETECTED = "doom_loop.detected"
    BUDGET_WARNING = "budget.warning"
    BUDGET_EXHAUSTED = "budget.exhausted"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEvent:
    session_id: str
    seq: int
    type: str
    data: dict[str, Any]
    created_at: datetime
