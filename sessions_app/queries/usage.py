"""What was used: tokens and money."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet, Sum

from mnesis_core.record import UsageRecord
from sessions_app.models import ModelCall, Turn


def usage_of_session(*session_ids: str) -> UsageRecord:
    """What a session's turns, or those of several together, have used so far; one query."""
    return _sum_of(Turn.objects.filter(session_id__in=session_ids))


def usage_of_files(*session_ids: str) -> UsageRecord:
    """What models that describe files have used in a session, or in several together; one query."""
    return _sum_of(ModelCall.objects.filter(session_id__in=session_ids, turn=None, purpose="file"))


def _sum_of(rows: QuerySet[Any]) -> UsageRecord:
    names = ("tokens_input", "tokens_output", "cost_micros")
    sums = rows.aggregate(**{name: Sum(name, default=0) for name in names})
    return UsageRecord(**sums)


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
