"""What the rows say of a session's context, states and counters, to be compared with its replayed ledger."""

from __future__ import annotations

from typing import Any

from mnesis_core.replay import Item, Projection
from sessions_app.statements import fetch

_COUNTERS = "SELECT message_seq, turn_seq FROM sessions WHERE id = %s"
_ITEMS = (
    "SELECT item_id, item_type, position, added_seq, removed_seq FROM context_items WHERE session_id = %s ORDER BY id"
)
_TURNS = "SELECT id, state FROM turns WHERE session_id = %s"
_CALLS = "SELECT id, state FROM model_calls WHERE session_id = %s"
_PARTS = (
    "SELECT id, tool_state, compacted_seq FROM message_parts"
    " WHERE session_id = %s AND (tool_state IS NOT NULL OR compacted_seq IS NOT NULL)"
)


def load_projection(session_id: str, *, using: str = "default") -> Projection:
    """The record's own part of it; that of the compactions is theirs."""

    def rows(sql: str) -> list[Any]:
        return fetch(sql, [session_id], using=using)

    parts = rows(_PARTS)
    [(message_seq, turn_seq)] = rows(_COUNTERS)
    return Projection(
        message_seq=message_seq,
        turn_seq=turn_seq,
        items={id: Item._make(item) for id, *item in rows(_ITEMS)},
        turns=dict(rows(_TURNS)),
        calls=dict(rows(_CALLS)),
        tools={id: state for id, state, _ in parts if state is not None},
        tombstones={id: seq for id, _, seq in parts if seq is not None},
    )
