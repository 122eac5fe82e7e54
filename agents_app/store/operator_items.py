"""Items of runs of operators: claimed under leases, each with one accepted result.

Rows of many items are written together, with one event that binds them all: the ledger grows with the rounds that a worker
makes, at most a few a second where some answers take their time, and not with the items. Only a model that answers at once
makes as many rounds as the database takes.
"""
# ruff: noqa: S608 - the names in these statements are the models' own, nobody else's.

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from agents_app.models import OperatorItem, OperatorTry
from agents_app.queries.operators import ITEM_COLUMNS, item_of, owners_who_left
from agents_app.store.operators import COUNTED, LONGEST_ERROR, add_to_counts, require_run
from mnesis_core.endings import ModelCallAbandoned
from mnesis_core.events import EventType
from mnesis_core.ids import new_id
from mnesis_core.ledger import new_salt
from mnesis_core.llm import Outcome
from mnesis_core.operators.values import (
    Attempt,
    ItemRecord,
    ItemState,
    NewItem,
    RunState,
    Settlement,
)
from mnesis_core.record import MessageEnd, NewCall
from mnesis_core.text import encode_text
from sessions_app import store as record_store
from sessions_app.ledger import Change
from sessions_app.rows import usage_columns
from sessions_app.statements import Table, run, select_columns

_ITEMS, _TRIES = Table(OperatorItem), Table(OperatorTry)
_SUMS = ("tokens_input", "tokens_output", "cost_micros")
_NO_LEASE = {"lease_owner": "", "lease_expires_at": None, "call_id": ""}


def add_items(record: Change, run_id: str, items: Sequence[NewItem]) -> None:
    """Add lines of the input, as they are read.

    :raises OperatorRunNotInState: the run has all its items already.
    """
    require_run(record, run_id, RunState.PENDING)
    rows = [
        _ITEMS.row(run_id=run_id, number=item.number, line_offset=item.offset, line_length=item.length)
        for item in items
    ]
    record.insert(_ITEMS, *rows)


def claim_items(record: Change, run_id: str, *, worker: str, limit: int, lease_seconds: float) -> list[ItemRecord]:
    """Claim items that may be tried now for a worker, in the order of the input; none where the run is not running.

    No event tells of it: ``start_map_calls`` or ``note_claimed`` does, in the same change.
    """
    record.flush()
    # SQLite's writer is alone; elsewhere somebody may be renewing a lease of one of these rows.
    lock = "" if record.cursor.db.vendor == "sqlite" else " FOR UPDATE OF i SKIP LOCKED"
    # Chosen apart, and once: as a subquery of the UPDATE, PostgreSQL may choose again for each row, past the limit.
    sql = (
        "WITH chosen AS MATERIALIZED (SELECT i.id FROM operator_items i JOIN operator_runs r ON r.id = i.run_id"
        " WHERE i.run_id = %s AND r.session_id = %s AND r.state = 'running' AND i.state = 'pending'"
        f" AND (i.not_before IS NULL OR i.not_before <= %s) ORDER BY i.number LIMIT %s{lock})"
        " UPDATE operator_items SET state = 'running', attempts = attempts + 1, lease_owner = %s, lease_expires_at = %s,"
        " started_at = COALESCE(started_at, %s), not_before = NULL WHERE id IN (SELECT id FROM chosen)"
        f" RETURNING {select_columns(OperatorItem, 'operator_items', ITEM_COLUMNS)}"
    )
    now, until = _times(record, record.now, record.now + timedelta(seconds=lease_seconds))
    values = [run_id, record.session_id, now, limit, encode_text(worker)[:100], until, now]
    return sorted(map(item_of, run(record.cursor, sql, values).fetchall()), key=lambda item: item.number)


def start_map_calls(record: Change, run_id: str, calls: Mapping[int, NewCall]) -> dict[int, str]:
    """Record the questions for claimed items, by their numbers, before they are asked; returns the calls' ids likewise.

    One event tells of all of them.
    """
    ids = dict(zip(calls, record_store.start_calls(record, list(calls.values())), strict=True))
    record.update_each(_ITEMS, {item: {"call_id": id} for item, id in ids.items()}, key="number", run_id=run_id)
    record.publish(EventType.MAP_ITEMS_CLAIMED, run_id=run_id, items=sorted(ids), call_ids=list(ids.values()))
    return ids


def note_claimed(record: Change, run_id: str, child_session_ids: Mapping[int, str]) -> None:
    """Keep which child sessions work at claimed items, by their numbers, and tell of it in one event."""
    rows = {item: {"child_session_id": id} for item, id in child_session_ids.items()}
    record.update_each(_ITEMS, rows, key="number", run_id=run_id)
    record.publish(
        EventType.MAP_ITEMS_CLAIMED,
        run_id=run_id,
        items=sorted(child_session_ids),
        session_ids=[child_session_ids[item] for item in sorted(child_session_ids)],
    )


def settle_items(record: Change, run_id: str, *, worker: str, settled: Sequence[Settlement]) -> set[int]:
    """Write what came of tries, and what becomes of their items; returns the numbers of those that were the worker's.

    An item that somebody else has by now is left alone, and so is its call: whoever took it over has ended that.
    A try that is to be followed by another one is not, where the run was cancelled meanwhile.
    """
    state = require_run(record, run_id)
    if state is RunState.CANCELLED:
        settled = [_of_cancelled_run(one) for one in settled]
    held = held_items(record, run_id, worker=worker, items=[one.item for one in settled])
    mine = [one for one in settled if held.get(one.item) == one.number]
    if not mine:
        return set()
    ended = _finish_calls(record, mine)
    tries = _insert_tries(record, run_id, mine)
    record.update_each(
        _ITEMS,
        {one.item: _item_columns(record, one, tries.get(one.item, "")) for one in mine},
        key="number",
        add=("excused", *_SUMS, "duration_ms"),
        run_id=run_id,
    )
    _count(record, run_id, mine)
    record.publish(EventType.MAP_ITEM_COMPLETED, run_id=run_id, **_numbers(mine), **ended)
    return {one.item for one in mine}


def renew_items(run_id: str, *, worker: str, items: Collection[int], lease_seconds: float) -> set[int]:
    """Prolong a worker's hold on these items of a run, in no change; returns the numbers of those that it still has."""
    if not items:
        return set()
    mine = OperatorItem.objects.filter(
        run_id=run_id, number__in=list(items), state=ItemState.RUNNING.value, lease_owner=encode_text(worker)
    )
    # Written at a third of the lease, read at every beat: an idle heartbeat costs no commit.
    now = timezone.now()
    due = mine.filter(lease_expires_at__lt=now + timedelta(seconds=lease_seconds * 2 / 3))
    if due.exists():
        with transaction.atomic():
            # A change that writes a row of these takes its rows in another order: each would wait for the other.
            rows = list(due.select_for_update(skip_locked=True, of=("self",)).values_list("id", flat=True))
            OperatorItem.objects.filter(id__in=rows).update(lease_expires_at=now + timedelta(seconds=lease_seconds))
    return set(mine.values_list("number", flat=True))


def held_items(record: Change, run_id: str, *, worker: str, items: Collection[int]) -> dict[int, int]:
    """Which of these items a worker has, and the ``attempts`` of the try for which it has each.

    One that was lost and claimed again may be in its hands twice: only the later try is its.
    """
    record.flush()
    rows = OperatorItem.objects.filter(
        run_id=run_id, number__in=list(items), state=ItemState.RUNNING.value, lease_owner=encode_text(worker)
    )
    return dict(rows.values_list("number", "attempts"))


def release_expired(record: Change, run_id: str) -> list[int]:
    """Let items wait again whose worker left them; returns their numbers.

    Their calls are closed: nobody knows how they ended. The lost tries count for nothing. In a run that was cancelled
    the items are cancelled.
    """
    left = owners_who_left(run_id, record.now)
    return _release(record, run_id, Q(lease_expires_at__lt=record.now, lease_owner__in=left))


def give_back(record: Change, run_id: str, *, worker: str, items: Collection[int]) -> list[int]:
    """As ``release_expired``, of items that a worker holds and does not begin."""
    return _release(record, run_id, Q(lease_owner=encode_text(worker), number__in=list(items)))


def _of_cancelled_run(one: Settlement) -> Settlement:
    return replace(one, state=ItemState.CANCELLED, not_before=None) if one.state is ItemState.PENDING else one


def _finish_calls(record: Change, settled: Sequence[Settlement]) -> dict[str, list[str]]:
    ends = {
        one.attempt.call_id: (one.attempt.call_end, one.attempt.call_attempts)
        for one in settled
        if one.attempt is not None and one.attempt.call_id is not None and one.attempt.call_end is not None
    }
    return _by_end(ends, record_store.finish_calls(record, ends))


def _by_end(ends: Mapping[str, tuple[MessageEnd, int]], ended: Collection[str]) -> dict[str, list[str]]:
    failed = {id for id, (end, _) in ends.items() if end.error_code is not None}
    return {"calls_completed": sorted(set(ended) - failed), "calls_failed": sorted(set(ended) & failed)}


def _insert_tries(record: Change, run_id: str, settled: Sequence[Settlement]) -> dict[int, str]:
    rows = [_try_row(record, run_id, one) for one in settled if one.attempt is not None]
    record.insert(_TRIES, *rows)
    return {row.item: row.id for row in rows}


def _try_row(record: Change, run_id: str, one: Settlement) -> Any:
    attempt = one.attempt or Attempt()
    return _TRIES.row(
        id=new_id("try"),
        session_id=record.session_id,
        run_id=run_id,
        item=one.item,
        number=one.number,
        call_id=attempt.call_id,
        child_turn_id=attempt.child_turn_id,
        output=encode_text(attempt.output),
        accepted=one.state is ItemState.COMPLETED,
        error_kind=one.error_kind or "",
        error=encode_text(one.error),
        duration_ms=attempt.duration_ms,
        created_at=record.now,
        salt=new_salt(),
        **usage_columns(attempt.usage),
    )


def _item_columns(record: Change, one: Settlement, try_id: str) -> dict[str, Any]:
    attempt = one.attempt or Attempt()
    return {
        "state": one.state.value,
        "not_before": one.not_before,
        "error_kind": (one.error_kind or "") if one.state is not ItemState.COMPLETED else "",
        "error": encode_text(one.error[:LONGEST_ERROR]) if one.state is not ItemState.COMPLETED else "",
        "accepted_try_id": try_id if one.state is ItemState.COMPLETED else "",
        "ended_at": record.now if one.state.is_end else None,
        "excused": int(one.excused),
        "duration_ms": attempt.duration_ms,
        **{name: getattr(attempt.usage, name) or 0 for name in _SUMS},
        **_NO_LEASE,
    }


def _count(record: Change, run_id: str, settled: Sequence[Settlement]) -> None:
    states = Counter(one.state for one in settled)
    attempts = [one.attempt for one in settled if one.attempt is not None]
    sums = {name: sum(getattr(attempt.usage, name) or 0 for attempt in attempts) for name in _SUMS}
    add_to_counts(record, run_id, states, try_count=len(attempts), **sums)


def _numbers(settled: Iterable[Settlement]) -> dict[str, list[int]]:
    """Item numbers by the word of what became of them; of those that wait again too."""
    found: dict[str, list[int]] = {word: [] for word in (*(state.value for state in COUNTED), "again")}
    for one in settled:
        found[one.state.value if one.state.is_end else "again"].append(one.item)
    return found


def _release(record: Change, run_id: str, which: Q) -> list[int]:
    state = require_run(record, run_id)
    lost = OperatorItem.objects.filter(which, run_id=run_id, state=ItemState.RUNNING.value)
    found = list(lost.order_by("number").values_list("number", "call_id"))
    numbers = [number for number, _ in found]
    if not numbers:
        return []
    is_over = state is RunState.CANCELLED
    OperatorItem.objects.filter(run_id=run_id, number__in=numbers).update(
        state=(ItemState.CANCELLED if is_over else ItemState.PENDING).value,
        ended_at=record.now if is_over else None,
        excused=F("excused") + 1,
        **_NO_LEASE,
    )
    add_to_counts(record, run_id, {ItemState.CANCELLED: len(numbers)} if is_over else {})
    ended = _close_calls(record, [call_id for _, call_id in found if call_id])
    word = "cancelled" if is_over else "again"
    record.publish(EventType.MAP_ITEMS_RELEASED, run_id=run_id, **{word: numbers}, **ended)
    return numbers


def _close_calls(record: Change, call_ids: Sequence[str]) -> dict[str, list[str]]:
    reason = ModelCallAbandoned()
    end = MessageEnd(outcome=Outcome.BROKEN.value, error_code=reason.code, error_message=reason.message)
    ends = dict.fromkeys(call_ids, (end, 1))
    return _by_end(ends, record_store.finish_calls(record, ends))


def _times(record: Change, *times: datetime) -> list[Any]:
    return [record.cursor.db.ops.adapt_datetimefield_value(time) for time in times]
