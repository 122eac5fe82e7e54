"""What was used: tokens and money."""

from __future__ import annotations

from typing import Any

from django.db.models import Sum

from mnesis_core.record import UsageRecord
from sessions_app.models import Turn


def usage_of_session(*session_ids: str) -> UsageRecord:
    """What a session's turns, or those of several together, have used so far; one query."""
    sums = Turn.objects.filter(session_id__in=session_ids).aggregate(
        tokens_input=Sum("tokens_input"), tokens_output=Sum("tokens_output"), cost_micros=Sum("cost_micros")
    )
    return UsageRecord(
        tokens_input=sums["tokens_input"] or 0,
        tokens_output=sums["tokens_output"] or 0,
        cost_micros=sums["cost_micros"] or 0,
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
