"""The ledger without a database: its event types, canonical bodies, commitments and hash chain.

Types are stable dotted names. A body holds ids, numbers, words of closed vocabularies and salted commitments, never content
or an unsalted hash of it (decisions 4, 133), so the ledger can be handed out while the words stay at home. Formats are
those of RFC 8785 for the values allowed here (strings, integers below 2**53, booleans, null, lists, objects; no floats),
hashed as exact bytes and never serialised again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson

FORMAT_VERSION = 2
"""The form of the entries written now, in each body as ``v``, and of exports. A body without it is of the first form."""
GENESIS = "0" * 64
_BODY_TAG = b"mnesis/body/1\x00"
_ENTRY_TAG = b"mnesis/entry/1\x00"
MAX_INTEGER = 2**53 - 1
_EXACT = frozenset({str, bool, type(None)})


def new_salt() -> str:
    """Return 32 random bytes in 43 characters (base64url without padding)."""
    return secrets.token_urlsafe(32)


def row_key(salt: str, *, table: str, id: str) -> bytes:
    """Return the key of all commitments to one row, 32 bytes. It reveals nothing about another row's key."""
    return hashlib.sha256(f"mnesis/row/1/{salt}/{table}/{id}".encode()).digest()


def row_commitment(key: bytes, columns: Mapping[str, str | int]) -> str:
    """Return the commitment to a row's columns, given in alphabetical order: 64 hexadecimal digits.

    ``docs/record.md`` says why it hides and binds.
    """
    # A tampered database may hold anything (SQLite keeps bytes in any column). It becomes an object, which no column
    # holds, so that the commitment differs from every genuine one.
    return hashlib.sha256(key + orjson.dumps(columns, lambda value: {type(value).__name__: repr(value)})).hexdigest()


def canonical_body(body: dict[str, Any], *, actor: str = "", rows: list[list[Any]] | None = None) -> str:
    """Return the one text of a body: keys sorted, no spaces.

    :param actor: who acts, as canonical JSON (``mnesis_core.actor``)
    :param rows: its commitments to rows

    :raises ValueError: a value is a float, an integer beyond 2**53 or of a type that JSON does not have.
    """
    _refuse_inexact(body)
    if actor:
        body = body | {"actor": orjson.Fragment(actor)}
    if rows:
        body = body | {"rows": rows}
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS).decode()


def entry_hash(*, prev_hash: str, seq: int, type: str, body: str) -> str:
    """Return the hash of an entry, over the hash of the one before it: 64 hexadecimal digits.

    Only the hash of type and body enters, so one entry can be proven without showing the others.
    """
    body_hash = hashlib.sha256(_BODY_TAG + type.encode() + b"\x00" + body.encode()).digest()
    return hashlib.sha256(_ENTRY_TAG + bytes.fromhex(prev_hash) + seq.to_bytes(8, "big") + body_hash).hexdigest()


def _refuse_inexact(value: Any) -> None:
    kind = type(value)
    if kind in _EXACT or isinstance(value, str):
        return
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise ValueError(f"{value} is beyond 2**53 and would not survive JSON")
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            if type(item) not in _EXACT:
                _refuse_inexact(item)
    else:
        raise ValueError(f"a ledger body holds no {kind.__name__}")


class DirectoryType(StrEnum):
    SESSION_CREATED = "session.created"
    SESSION_IMPORTED = "session.imported"
    SESSION_ENTERED = "session.entered"  # It existed before the directory did.
    SESSION_RECORDED = "session.recorded"  # The number of entries and the hash of the last one.
    SESSION_DELETED = "session.deleted"  # Moved to the trash, or deleted for good.
    SESSION_RESTORED = "session.restored"


class EventType(StrEnum):
    SESSION_CREATED = "session.created"
    SESSION_UPDATED = "session.updated"
    SESSION_ARCHIVED = "session.archived"
    SESSION_FORKED = "session.forked"
    SESSION_CLOSED = "session.closed"
    BRANCH_CREATED = "branch.created"
    BRANCH_CHOSEN = "branch.chosen"
    SHARE_CREATED = "share.created"
    SHARE_REVOKED = "share.revoked"
    SHARE_OPENED = "share.opened"
    MESSAGE_RATED = "message.rated"
    TURN_STARTED = "turn.started"
    TURN_SUSPENDED = "turn.suspended"
    TURN_RESUMED = "turn.resumed"
    TURN_INTERRUPT_REQUESTED = "turn.interrupt_requested"
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
    FACT_CREATED = "fact.created"
    FACT_SUPERSEDED = "fact.superseded"
    FACT_WITHDRAWN = "fact.withdrawn"
    FACT_FORBIDDEN = "fact.forbidden"
    FACT_ALLOWED = "fact.allowed"
    FACT_HELD = "fact.held"
    REFLECTION_REQUESTED = "reflection.requested"
    REFLECTION_COMPLETED = "reflection.completed"
    REFLECTION_FAILED = "reflection.failed"
    FIDELITY_MEASURED = "fidelity.measured"
    CLAIMS_ALIGNED = "claims.aligned"
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
