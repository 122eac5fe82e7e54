"""Reads of model calls."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from mnesis_core.calibration import CallMeasure, read_measure
from mnesis_core.endings import ContextWindowExceeded
from mnesis_core.errors import CallNotFoundError
from mnesis_core.llm import Source
from mnesis_core.record import CallRecord
from mnesis_core.spending import Spent, highest_of
from mnesis_core.text import decode_text, encode_text
from sessions_app.compiled import Asked, CompiledQuery
from sessions_app.models import ModelCall, PromptText
from sessions_app.queries.usage import usage_of

_MEASURED = ("model", "parameters", "estimated_tokens", "tokens_input", "usage_source", "error_code", "error_message")
_NEWEST = CompiledQuery(
    lambda: (
        ModelCall.objects.filter(session_id=Asked("session_id"), purpose="turn")
        .order_by("-created_at")
        .only(*_MEASURED)[:1]
    )
)


def begun_before(created_at: datetime, id: str) -> Q:
    """Rows that began before another one, by time and id: times alone may be the same."""
    return Q(created_at__lt=created_at) | Q(created_at=created_at, id__lt=encode_text(id))


def load_call(call_id: str, *, owner_id: int | None = None) -> CallRecord:
    """One model call; with ``owner_id``, only of that person's sessions.

    :raises CallNotFoundError: there is no such call, or it belongs to somebody else.
    """
    rows = ModelCall.objects.filter(id=encode_text(call_id))
    if owner_id is not None:
        rows = rows.filter(session__owner_id=owner_id, session__deleted_at__isnull=True)
    row = rows.first()
    if row is None:
        raise CallNotFoundError(call_id=call_id)
    return _call(row)


def load_call_before(call: CallRecord) -> CallRecord | None:
    """The call of the same kind that a session made before this one; ``None`` when it was the first."""
    rows = ModelCall.objects.filter(session_id=call.session_id, purpose=call.purpose, created_at__lte=call.created_at)
    row = (
        rows.exclude(id=call.id)
        .exclude(created_at=call.created_at, id__gt=call.id)
        .order_by("-created_at", "-id")
        .first()
    )
    return None if row is None else _call(row)


def load_prompt_texts(session_id: str, digests: Collection[str]) -> dict[str, str]:
    """Texts that prompts of a session were made with, by their digests; those that were not kept are absent."""
    rows = PromptText.objects.filter(session_id=session_id, digest__in=list(digests))
    return {digest: decode_text(content) for digest, content in rows.values_list("digest", "content")}


def list_calls(session_id: str, *, limit: int = 100, before: tuple[datetime, str] | None = None) -> list[CallRecord]:
    """Model calls of a session, newest first, after the cursor ``before`` (time and id)."""
    rows = ModelCall.objects.filter(session_id=session_id).order_by("-created_at", "-id")
    if before is not None:
        rows = rows.filter(begun_before(*before))
    return [_call(row) for row in rows[:limit]]


def running_calls(turn_id: str) -> list[str]:
    """Model calls of a turn that have not ended."""
    return list(ModelCall.objects.filter(turn_id=turn_id, state="running").values_list("id", flat=True))


def running_summary_calls(session_id: str, run_id: str) -> list[str]:
    """Calls to a summarising model that one compaction made and that have not ended."""
    rows = _running_summary_calls(session_id).filter(parameters__run_id=run_id)
    return list(rows.order_by("created_at", "id").values_list("id", flat=True))


def running_preview_calls(session_id: str, *, before: datetime) -> list[str]:
    """Calls to a summarising model for previews that began before then and have not ended."""
    rows = _running_summary_calls(session_id).filter(parameters__run_id=None, created_at__lt=before)
    return list(rows.order_by("created_at", "id").values_list("id", flat=True))


def running_file_calls(session_id: str, file_id: str) -> dict[str, datetime]:
    """Calls to a model that describes a file, which have not ended, and when each began."""
    rows = ModelCall.objects.filter(session_id=session_id, turn__isnull=True, purpose="file", state="running")
    rows = rows.filter(parameters__file_id=file_id).order_by("created_at", "id")
    return dict(rows.values_list("id", "created_at"))


def _running_summary_calls(session_id: str) -> QuerySet[Any]:
    return ModelCall.objects.filter(session_id=session_id, turn__isnull=True, purpose="summary", state="running")


def newest_call(session_id: str) -> CallMeasure | None:
    """The newest call of a turn and what is known of its size; None when there was none."""
    row = _NEWEST.one(session_id=session_id)
    if row is None:
        return None
    reported = row.tokens_input if row.usage_source == Source.PROVIDER else 0
    is_refused = row.error_code == ContextWindowExceeded.code
    return read_measure(
        row.parameters,
        model=row.model,
        estimated=row.estimated_tokens,
        reported=reported,
        refusal=decode_text(row.error_message or "") if is_refused else "",
    )


def _call(row: ModelCall) -> CallRecord:
    return CallRecord(
        id=row.id,
        session_id=row.session_id,
        turn_id=row.turn_id,
        message_id=row.message_id,
        purpose=row.purpose,
        state=row.state,
        model=row.model,
        provider_model=row.provider_model,
        parameters=row.parameters,
        manifest=row.manifest,
        context_seq=row.context_seq,
        digest=row.digest,
        estimated_tokens=row.estimated_tokens,
        attempts=row.attempts,
        outcome=row.outcome,
        finish_reason=row.finish_reason,
        error_code=row.error_code,
        error_message=None if row.error_message is None else decode_text(row.error_message),
        created_at=row.created_at,
        ended_at=row.ended_at,
        usage=usage_of(row),
        usage_said=None if row.usage_said is None else decode_text(row.usage_said),
    )


def most_of_calls(call_ids: Collection[str]) -> Spent:
    """The most that these calls can take together, as it was written with them."""
    rows = ModelCall.objects.filter(id__in=list(call_ids)).values_list("parameters", flat=True)
    most = [(parameters.get("most_tokens") or 0, parameters.get("most_micros")) for parameters in rows]
    return sum((highest_of(tokens, micros) for tokens, micros in most), Spent())
