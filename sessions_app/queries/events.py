"""Reads of the ledger."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from mnesis_core.events import LedgerEvent
from sessions_app.models import Event


def load_events(session_id: str, *, after: int = 0, limit: int = 500) -> list[LedgerEvent]:
    """Events of a session in order."""
    rows = Event.objects.filter(session_id=session_id, seq__gt=after).order_by("seq")[:limit]
    return [_event(row) for row in rows]


def load_events_at(session_id: str, seqs: Collection[int]) -> list[LedgerEvent]:
    """The events of a session with these numbers, in order."""
    rows = Event.objects.filter(session_id=session_id, seq__in=list(seqs)).order_by("seq")
    return [_event(row) for row in rows]


def _event(row: Event) -> LedgerEvent:
    return LedgerEvent(
        session_id=row.session_id, seq=row.seq, type=row.type, data=_told(row.body), created_at=row.created_at
    )


def _told(body: str) -> dict[str, Any]:
    """A body without what is for proof alone: the commitments to rows, and the time, which the event has as well."""
    return {key: value for key, value in json.loads(body).items() if key not in ("rows", "at")}
