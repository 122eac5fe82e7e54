"""What was used: tokens and money."""

from __future__ import annotations

from typing import Any

from mnesis_core.record import UsageRecord
from sessions_app.models import Turn


def usage_of_session(session_id: str) -> UsageRecord:
    """What a session's turns have used so far."""
    rows = Turn.objects.filter(session_id=session_id).values_list("tokens_input", "tokens_output", "cost_micros")
    values = list(rows)
    return UsageRecord(
        tokens_input=sum(row[0] or 0 for row in values),
        tokens_output=sum(row[1] or 0 for row in values),
        cost_micros=sum(row[2] or 0 for row in values),
    )


def usage_of(row: Any) -> UsageRecord:
    """The usage columns of a row as a value."""
    return UsageRecord(
        tokens_input=row.tokens_input,
        tokens_output=row.tokens_output,
        tokens_cache_read=row.tokens_cache_read,
        tokens_cache_write=row.tokens_cache_write,
        usage_source=row.usage_source,
        cost_micros=row.cost_micros,
    )
