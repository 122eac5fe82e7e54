"""Reads of many model calls: each as a line, never with its manifest, however long a session is."""
# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from mnesis_core.calibration import read_measure
from mnesis_core.record import CallRecord, UsageRecord
from mnesis_core.text import decode_text, encode_text
from mnesis_core.values import dataclass
from sessions_app.models import ModelCall
from sessions_app.queries.calls import begun_before
from sessions_app.queries.usage import usage_of
from sessions_app.statements import fetch

_USAGE = ("tokens_input", "tokens_output", "tokens_cache_read", "tokens_cache_write", "usage_source", "cost_micros")
_COLUMNS = (
    "id", "turn_id", "message_id", "purpose", "model", "state", "outcome", "error_code", "context_seq",
    "estimated_tokens", "created_at", "ended_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHeading:
    """A model call as a line of a list."""

    id: str
    turn_id: str | None
    message_id: str | None
    purpose: str
    model: str
    state: str
    outcome: str | None
    error_code: str | None
    context_seq: int
    estimated_tokens: int
    created_at: datetime
    ended_at: datetime | None
    usage: UsageRecord

    @property
    def seconds(self) -> float | None:
        """How long it took, as far as that is known."""
        return None if self.ended_at is None else (self.ended_at - self.created_at).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSize:
    """How much of the window the prompt of a turn's call took. In the model's own tokens, as far as these are known."""

    id: str
    context_seq: int
    used: int
    """The estimate, corrected as it was when the call was made."""
    tools: int
    ratio: float
    """The model's own counts to our estimates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """Which calls of a session a list shows; an empty text: all."""

    purpose: str = ""
    state: str = ""
    model: str = ""


def list_headings(session_id: str, *, chosen: CallFilter, before: str = "", limit: int) -> list[CallHeading]:
    """Calls of a session, newest first: from the newest on, or those before the call ``before``.

    An id that is no call of the session is none: then the list begins with the newest.
    """
    rows = _chosen(session_id, chosen)
    place = _place(session_id, before) if before else None
    if place is not None:
        rows = rows.filter(begun_before(*place))
    return [_heading(row) for row in rows.order_by("-created_at", "-id").only(*_COLUMNS, *_USAGE)[:limit]]


def load_heading_of_call(session_id: str, call_id: str) -> CallHeading | None:
    """One call of a session as a line; ``None``: the session has no such call."""
    row = _calls(session_id).filter(id=encode_text(call_id)).only(*_COLUMNS, *_USAGE).first()
    return None if row is None else _heading(row)


def load_headings(session_id: str, ids: Sequence[str]) -> list[CallHeading]:
    """Those of these calls that are the session's, as lines, oldest first."""
    rows = _calls(session_id).filter(id__in=list(ids)).only(*_COLUMNS, *_USAGE)
    return [_heading(row) for row in rows.order_by("created_at", "id")]


def numbers_of_calls(session_id: str, ids: Sequence[str]) -> dict[str, int]:
    """The place of each of these calls among all of its session, from 1; one query."""
    if not ids:
        return {}
    places = ", ".join(["%s"] * len(ids))
    rows = fetch(
        "SELECT id, number FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY created_at, id) AS number FROM model_calls"
        f" WHERE session_id = %s) AS numbered WHERE id IN ({places})",
        [session_id, *ids],
    )
    return {id: int(number) for id, number in rows}


def models_of_calls(session_id: str) -> list[str]:
    """The models that a session has asked, by name."""
    names = _calls(session_id).order_by("model").values_list("model", flat=True).distinct()
    return [decode_text(name) for name in names]


def calls_beside(call: CallRecord) -> tuple[str, str]:
    """The ids of the calls of a session before and after this one; empty where there is none."""
    rows, place = _calls(call.session_id), (call.created_at, call.id)
    before = rows.filter(begun_before(*place)).order_by("-created_at", "-id").values_list("id", flat=True).first()
    after = rows.filter(_is_after(*place)).order_by("created_at", "id").values_list("id", flat=True).first()
    return before or "", after or ""


def list_turn_calls(session_id: str) -> list[tuple[str, int]]:
    """(id, estimated tokens) of every call of a turn, oldest first."""
    rows = _turn_calls(session_id).order_by("created_at", "id")
    return list(rows.values_list("id", "estimated_tokens"))


def count_turn_calls_until(call: CallRecord) -> int:
    """How many calls of turns a session had made by the time of this one, itself among them."""
    rows = _turn_calls(call.session_id)
    return rows.filter(begun_before(call.created_at, call.id) | Q(id=call.id)).count()


def sizes_of_calls(session_id: str, ids: Sequence[str]) -> list[CallSize]:
    """How much of the window some calls of turns took, in the order of ``ids``; those that are not there are left out."""
    rows = _calls(session_id).filter(id__in=list(ids))
    columns = ("id", "model", "parameters", "estimated_tokens", "context_seq")
    found = {row[0]: _size(*row) for row in rows.values_list(*columns)}
    return [found[id] for id in ids if id in found]


def call_of_message(session_id: str, message_id: str) -> CallHeading | None:
    """The newest call of a turn that wrote a message, or was to write it."""
    rows = _turn_calls(session_id).filter(message_id=encode_text(message_id))
    row = rows.order_by("-created_at", "-id").only(*_COLUMNS, *_USAGE).first()
    return None if row is None else _heading(row)


def calls_between(session_id: str, first_seq: int, end_seq: int | None) -> tuple[int, list[CallHeading]]:
    """How many calls of turns read their context as of an event from ``first_seq`` on, and before ``end_seq`` if there is
    one; and the first and the last of them."""
    rows = _turn_calls(session_id).filter(context_seq__gte=first_seq)
    if end_seq is not None:
        rows = rows.filter(context_seq__lt=end_seq)
    lines = rows.only(*_COLUMNS, *_USAGE)
    ends = [lines.order_by("created_at", "id").first(), lines.order_by("-created_at", "-id").first()]
    return rows.count(), [_heading(row) for row in ends if row is not None]


def calls_over_span(session_id: str, seq: int) -> list[tuple[str, Any]]:
    """Calls that were asked for a summary of a span around the message ``seq``, oldest first: (id, manifest).

    A span may have gaps, so that it is for the manifest to say whether the message is in it.
    """
    first = Q(manifest__2__ranges__0__0__lte=seq, manifest__2__ranges__0__1__gte=seq)
    rows = _calls(session_id).filter(first | Q(manifest__2__ranges__1__0__lte=seq), turn=None, purpose="summary")
    return list(rows.order_by("created_at", "id").values_list("id", "manifest"))


def _calls(session_id: str) -> QuerySet[Any]:
    return ModelCall.objects.filter(session_id=session_id)


def _turn_calls(session_id: str) -> QuerySet[Any]:
    return _calls(session_id).filter(purpose="turn")


def _chosen(session_id: str, chosen: CallFilter) -> QuerySet[Any]:
    wanted = {"purpose": chosen.purpose, "state": chosen.state, "model": chosen.model}
    return _calls(session_id).filter(**{name: encode_text(value) for name, value in wanted.items() if value})


def _place(session_id: str, call_id: str) -> tuple[datetime, str] | None:
    rows: QuerySet[Any] = _calls(session_id).filter(id=encode_text(call_id))
    place: tuple[datetime, str] | None = rows.values_list("created_at", "id").first()
    return place


def _is_after(created_at: datetime, id: str) -> Q:
    return Q(created_at__gt=created_at) | Q(created_at=created_at, id__gt=id)


def _heading(row: Any) -> CallHeading:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return CallHeading(**values | {"model": decode_text(row.model), "usage": usage_of(row)})


def _size(id: str, model: str, parameters: Any, estimated: int, context_seq: int) -> CallSize:
    measure = read_measure(
        parameters if isinstance(parameters, dict) else {}, model=model, estimated=estimated, reported=0
    )
    ratio = measure.calibration.ratio if measure.calibration else 1.0
    return CallSize(id=id, context_seq=context_seq, used=int(estimated * ratio), tools=measure.tool_tokens, ratio=ratio)
