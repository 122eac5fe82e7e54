"""Changes to the active context: rows are added and marked as removed, never deleted (decision 3)."""
# ruff: noqa: S608 - the names in these statements are ours; ids are passed as values.

from __future__ import annotations

from collections.abc import Sequence

from mnesis_core.errors import ContextChanged
from mnesis_core.events import EventType
from sessions_app.ledger import Change
from sessions_app.models import ContextItem
from sessions_app.statements import ROWS_A_STATEMENT, Table, run

_ITEMS = Table(ContextItem)


def swap_context_items(record: Change, *, removed_ids: Sequence[str], summary_id: str) -> int:
    """Replace items by one summary, at the place of the first of them; returns the event's ``seq``.

    :raises ContextChanged: one of them is not in the context any more, so the summary would stand for
        something that another one stands for already.
    """
    seq = record.next_seq
    positions = _remove(record, removed_ids, seq)
    if len(positions) != len(set(removed_ids)) or not positions:
        raise ContextChanged(session_id=record.session_id)
    first = min(positions)
    item = _ITEMS.row(
        session_id=record.session_id, item_type="summary", item_id=summary_id, position=first, added_seq=seq
    )
    record.insert(_ITEMS, item)
    return record.publish(EventType.CONTEXT_CHANGED, added=[summary_id], removed=sorted(removed_ids), position=first)


def _remove(record: Change, item_ids: Sequence[str], seq: int) -> list[int]:
    """Take items out of the context as of event ``seq``; returns where they stood."""
    record.flush()
    positions: list[int] = []
    for start in range(0, len(item_ids), ROWS_A_STATEMENT):
        some = item_ids[start : start + ROWS_A_STATEMENT]
        statement = (
            f"UPDATE {_ITEMS.name} SET removed_seq = %s WHERE session_id = %s AND removed_seq IS NULL"
            f" AND item_id IN ({', '.join(['%s'] * len(some))}) RETURNING position"
        )
        rows = run(record.cursor, statement, [seq, record.session_id, *some]).fetchall()
        positions += [position for (position,) in rows]
    return positions
