"""Reads that only pages make: of a run's items a page, of long texts the beginning, whatever the size of the run."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.functions import Length, Substr

from agents_app.models import OperatorItem, OperatorRun, OperatorTry
from agents_app.queries.operators import list_items, load_items, load_run
from mnesis_core.errors import OperatorItemNotFoundError
from mnesis_core.operators.values import ErrorKind, ItemRecord, ItemState, RunRecord
from mnesis_core.text import ESCAPE, decode_text

_CUT_ESCAPE = re.compile(f"{ESCAPE}[0-9A-F]{{0,3}}$")
MOST_RUNS_OF_PART = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TryHead:
    """A try with the beginnings of what it said."""

    id: str
    number: int
    call_id: str
    child_turn_id: str
    accepted: bool
    error_kind: ErrorKind | None
    error: str
    output: str
    output_length: int
    """Stored characters of the whole."""
    tokens_input: int | None
    tokens_output: int | None
    cost_micros: int | None
    duration_ms: int
    created_at: datetime


def page_of_items(
    run_id: str, *, start: int = 1, before: int | None = None, state: ItemState | None = None, limit: int
) -> list[ItemRecord]:
    """Items from the number ``start`` on, or the last ones before ``before``; in the order of the input.

    :param state: only those in it
    """
    if before is None:
        return list_items(run_id, after=start - 1, limit=limit, states=[state] if state else ())
    rows = OperatorItem.objects.filter(run_id=run_id, number__lt=before)
    if state is not None:
        rows = rows.filter(state=state.value)
    return load_items(run_id, list(rows.order_by("-number").values_list("number", flat=True)[:limit]))


def count_running(run_id: str) -> int:
    """Items of a run that workers hold now."""
    return OperatorItem.objects.filter(run_id=run_id, state=ItemState.RUNNING.value).count()


def has_item_before(run_id: str, number: int, *, state: ItemState) -> bool:
    """Whether the run has an item in this state further up in the input."""
    return OperatorItem.objects.filter(run_id=run_id, state=state.value, number__lt=number).exists()


def load_result_heads(run_id: str, numbers: Collection[int], *, length: int) -> dict[int, str]:
    """How the results of these items begin, by their numbers; those without one are absent."""
    rows = OperatorTry.objects.filter(run_id=run_id, item__in=list(numbers), accepted=True)
    heads = rows.values_list("item", Substr("output", 1, length))
    return {item: _decoded(head) for item, head in heads}


def load_try_heads(run_id: str, number: int, *, length: int, most: int) -> list[TryHead]:
    """The last tries at an item, in their order, each with ``length`` stored characters of what it said at the most."""
    rows = _tries(run_id, number).annotate(
        output_head=Substr("output", 1, length), error_head=Substr("error", 1, length), size=Length("output")
    )
    return [_head(row) for row in rows.defer("output", "error").order_by("-number")[:most]][::-1]


def load_try_output(run_id: str, number: int, attempt: int) -> str:
    """What one try at an item said, word for word.

    :raises OperatorItemNotFoundError: there was no such try.
    """
    rows = _tries(run_id, number).filter(number=attempt) if 0 < attempt < 2**31 else OperatorTry.objects.none()
    output = rows.values_list("output", flat=True).first()
    if output is None:
        raise OperatorItemNotFoundError(run_id=run_id, item=number)
    return decode_text(output)


def load_try_call(run_id: str, number: int, attempt: int) -> str:
    """The id of the model call that a try made.

    :raises OperatorItemNotFoundError: there was no such try, or it made none.
    """
    rows = _tries(run_id, number).filter(number=attempt) if 0 < attempt < 2**31 else OperatorTry.objects.none()
    call_id = rows.values_list("call_id", flat=True).first()
    if not call_id:
        raise OperatorItemNotFoundError(run_id=run_id, item=number)
    return str(call_id)


def runs_of_part(session_id: str, part_id: str) -> list[RunRecord]:
    """The runs that a tool call of a session asked for, oldest first."""
    rows = OperatorRun.objects.filter(Q(session_id=session_id), Q(part_id=part_id) & ~Q(part_id=""))
    ids = rows.order_by("created_at", "id").values_list("id", flat=True)[:MOST_RUNS_OF_PART]
    return [load_run(run_id, session_id=session_id) for run_id in ids]


def _tries(run_id: str, number: int) -> QuerySet[OperatorTry]:
    if not 0 < number < 2**63:
        return OperatorTry.objects.none()
    return OperatorTry.objects.filter(run_id=run_id, item=number)


def _head(row: Any) -> TryHead:
    return TryHead(
        id=row.id,
        number=row.number,
        call_id=row.call_id or "",
        child_turn_id=row.child_turn_id,
        accepted=row.accepted,
        error_kind=ErrorKind(row.error_kind) if row.error_kind else None,
        error=_decoded(row.error_head),
        output=_decoded(row.output_head),
        output_length=row.size,
        tokens_input=row.tokens_input,
        tokens_output=row.tokens_output,
        cost_micros=row.cost_micros,
        duration_ms=row.duration_ms,
        created_at=row.created_at,
    )


def _decoded(head: str) -> str:
    """Without what is left of an escape that was cut."""
    return decode_text(_CUT_ESCAPE.sub("", head))
