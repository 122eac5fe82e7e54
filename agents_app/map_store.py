"""Runs of operators: begun once, paused, gone on with, ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Q
from django.utils import timezone

from agents_app.map_queries import ITEM_COLUMNS, item_of, owners_who_left
from agents_app.models import OperatorBrake, OperatorItem, OperatorRun, OperatorShare, OperatorTry
from mnesis_core.config import OperatorConfig
from mnesis_core.errors import MnesisError, ModelCallAbandoned, OperatorRunNotFoundError, OperatorRunNotInState
from mnesis_core.events import EventType
from mnesis_core.ledger import new_salt
from mnesis_core.llm.interface import Outcome
from mnesis_core.maps.concurrency import Brake, Claim, braked, ceiling_now, permits
from mnesis_core.maps.values import (
    AttemptOutcome,
    ItemRecord,
    ItemState,
    NewItem,
    OperatorKind,
    OperatorSpec,
    RunState,
    Settlement,
    StopReason,
    write_spec,
)
from mnesis_core.records import MessageEnd, NewCall
from mnesis_core.text import encode_text
from mnesis_core.values import new_id
from sessions_app.database.fast_sql import Table, run, select_columns
from sessions_app.record import call_store
from sessions_app.record.change import Change
from sessions_app.record.lease import NO_LEASE, Lease, expired
from sessions_app.record.rows import usage_columns

_RUNS = Table(OperatorRun)
COUNTED = (ItemState.COMPLETED, ItemState.FAILED, ItemState.CANCELLED)
"""States of items that are counted with their run."""
LONGEST_ERROR = 4_000
"""Characters of what is kept beside an item or a run of why it failed; the whole is with the try."""


def start_run(
    record: Change,
    *,
    kind: OperatorKind,
    spec: OperatorSpec,
    input_file_id: str,
    turn_id: str = "",
    part_id: str = "",
    idempotency_key: str | None = None,
) -> str:
    """Begin a run, whose input is still to be read; returns its id.

    :raises IntegrityError: the session has a run with this key.
    """
    row = _RUNS.row(
        id=new_id("map"),
        session_id=record.session_id,
        turn_id=turn_id,
        part_id=part_id,
        kind=kind.value,
        spec=write_spec(spec),
        input_file_id=input_file_id,
        idempotency_key=idempotency_key,
        created_at=record.now,
        salt=new_salt(),
    )
    record.insert(_RUNS, row)
    record.publish(EventType.MAP_STARTED, run_id=row.id, kind=row.kind, turn_id=turn_id, part_id=part_id)
    return str(row.id)


def begin_run(record: Change, run_id: str, *, items: int) -> None:
    """All lines are read: from now on items may be claimed.

    :raises OperatorRunNotInState: it is not pending any more.
    """
    values = {"state": RunState.RUNNING.value, "item_count": items, "started_at": record.now}
    _step(record, run_id, (RunState.PENDING,), values)
    record.publish(EventType.MAP_STATE_CHANGED, run_id=run_id, state=RunState.RUNNING.value, reason="", items=items)


def fail_run(record: Change, run_id: str, error: MnesisError) -> None:
    """End a run whose input cannot be read.

    :raises OperatorRunNotInState: it is not pending any more.
    """
    values = {
        "state": RunState.FAILED.value,
        "reason": "error",
        "error_code": error.code,
        "error_message": error.message[:LONGEST_ERROR],
        "ended_at": record.now,
    }
    _step(record, run_id, (RunState.PENDING,), values)
    record.publish(
        EventType.MAP_STATE_CHANGED, run_id=run_id, state=RunState.FAILED.value, reason="error", error_code=error.code
    )


def set_run_state(record: Change, run_id: str, state: RunState, *, reason: str = "") -> RunState:
    """Pause a run, go on with it, or cancel it with all items that no worker has; returns the state it has then.

    What is cancelled may go on: the items that were cancelled wait again. One whose input was not read to its end is
    pending again.

    :raises OperatorRunNotInState: it cannot go there from the state that it is in.
    """
    row = _row(record, run_id)
    if state is RunState.RUNNING and row.item_count is None:
        state = RunState.PENDING
    values: dict[str, Any] = {"state": state.value, "reason": reason}
    if state is RunState.CANCELLED or reason == StopReason.BUDGET:
        values["output_file_id"] = ""  # what is done until now is written to a new one
    if state is RunState.CANCELLED:
        values["ended_at"] = record.now
    elif row.ended_at is not None:
        values["ended_at"] = None
    _step(record, run_id, _BEFORE[state], values)
    moved: dict[str, Any] = {}
    if state is RunState.CANCELLED:
        moved["cancelled"] = _ranges(_move_items(record, run_id, ItemState.PENDING, ItemState.CANCELLED))
    elif state in (RunState.RUNNING, RunState.PENDING) and row.state == RunState.CANCELLED:
        moved["again"] = _ranges(_move_items(record, run_id, ItemState.CANCELLED, ItemState.PENDING))
    record.publish(EventType.MAP_STATE_CHANGED, run_id=run_id, state=state.value, reason=reason, **moved)
    return state


def retry_failed(record: Change, run_id: str) -> int:
    """Let the items that failed be tried again, as if for the first time; returns how many they are.

    :raises OperatorRunNotInState: its input was not read, or the run was cancelled: then it may be resumed first.
    """
    require_run(record, run_id, RunState.RUNNING, RunState.PAUSED, RunState.COMPLETED)
    row = _row(record, run_id)
    again = _move_items(record, run_id, ItemState.FAILED, ItemState.PENDING)
    if again and row.state == RunState.COMPLETED:
        _step(record, run_id, (RunState.COMPLETED,), {"state": RunState.RUNNING.value, "reason": "", "ended_at": None})
    if again:
        state = RunState.RUNNING if row.state == RunState.COMPLETED else RunState(row.state)
        record.publish(EventType.MAP_STATE_CHANGED, run_id=run_id, state=state.value, reason="", again=_ranges(again))
    return len(again)


def finish_run(record: Change, run_id: str, *, output_file_id: str) -> None:
    """End a run of which every item has ended.

    :raises OperatorRunNotInState: items are left, or it is neither running nor paused.
    """
    row = _row(record, run_id)
    ended = row.completed_count + row.failed_count + row.cancelled_count
    if row.item_count is None or ended < row.item_count:
        raise OperatorRunNotInState(run_id=run_id, state=row.state)
    values = {
        "state": RunState.COMPLETED.value,
        "reason": "",
        "ended_at": record.now,
        "output_file_id": output_file_id,
    }
    _step(record, run_id, (RunState.RUNNING, RunState.PAUSED), values)
    record.publish(
        EventType.MAP_COMPLETED,
        run_id=run_id,
        output_file_id=output_file_id,
        completed=row.completed_count,
        failed=row.failed_count,
        cancelled=row.cancelled_count,
    )


def keep_output(record: Change, run_id: str, *, output_file_id: str) -> None:
    """Name the file that holds what a run has so far, as when it was cancelled."""
    state = require_run(record, run_id)
    record.update(_RUNS, {"output_file_id": output_file_id}, id=run_id, session_id=record.session_id)
    record.publish(
        EventType.MAP_STATE_CHANGED,
        run_id=run_id,
        state=state.value,
        reason=_row(record, run_id).reason,
        output_file_id=output_file_id,
    )


_BEFORE: Mapping[RunState, tuple[RunState, ...]] = {
    RunState.PENDING: (RunState.PAUSED, RunState.CANCELLED),
    RunState.RUNNING: (RunState.PAUSED, RunState.CANCELLED),
    RunState.PAUSED: (RunState.PENDING, RunState.RUNNING),
    RunState.CANCELLED: (RunState.PENDING, RunState.RUNNING, RunState.PAUSED),
    RunState.COMPLETED: (),
    RunState.FAILED: (),
}
"""From where somebody may send a run there."""


def _step(record: Change, run_id: str, before: Collection[RunState], values: dict[str, Any]) -> None:
    """:raises OperatorRunNotInState: the run is in none of the states ``before``."""
    for state in before:
        if record.update(_RUNS, values, id=run_id, session_id=record.session_id, state=state):
            return
    row = _row(record, run_id)
    raise OperatorRunNotInState(
        f"the run is {row.state}, so it cannot become {values['state']}", run_id=run_id, state=row.state
    )


def _row(record: Change, run_id: str) -> Any:
    """:raises OperatorRunNotFoundError: the session has no such run."""
    row = OperatorRun.objects.filter(id=run_id, session_id=record.session_id).first()
    if row is None:
        raise OperatorRunNotFoundError(run_id=run_id)
    return row


def require_run(record: Change, run_id: str, *states: RunState) -> RunState:
    """The state of a run of the change's session.

    :raises OperatorRunNotFoundError: the session has no such run.
    :raises OperatorRunNotInState: it is in none of these states.
    """
    found = record.find(_RUNS, "state", id=run_id, session_id=record.session_id)
    if found is None:
        raise OperatorRunNotFoundError(run_id=run_id)
    if states and found[0] not in states:
        raise OperatorRunNotInState(run_id=run_id, state=found[0])
    return RunState(found[0])


def add_to_counts(record: Change, run_id: str, states: Mapping[ItemState, int], **more: int) -> None:
    """Add to what is counted of a run: items that came to a state, by it, and other counters by their names."""
    changes = {f"{state.value}_count": states.get(state, 0) for state in COUNTED} | more
    OperatorRun.objects.filter(id=run_id).update(**{name: F(name) + value for name, value in changes.items() if value})


def _move_items(record: Change, run_id: str, before: ItemState, after: ItemState) -> list[int]:
    """Move every item of a run from one state to another; returns their numbers, in order."""
    rows = OperatorItem.objects.filter(run_id=run_id, state=before.value)
    numbers = list(rows.order_by("number").values_list("number", flat=True))
    # Nobody else moves them meanwhile: the session is this change's.
    ends: dict[str, Any] = {"ended_at": record.now if after.is_end else None}
    if not after.is_end:
        ends |= {"excused": F("attempts"), "not_before": None, "error_kind": "", "error": ""}
    rows.update(state=after.value, **ends)
    add_to_counts(record, run_id, {before: -len(numbers), after: len(numbers)})
    return numbers


def _ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers in order as [first, last] of each stretch without a gap."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


# What workers may have in flight, and which models are braked: rows that only workers read, no part of the record.
#
# Each renewal is one short transaction under one lock, so that the sums never pass a limit, whoever renews when.

LOCK = 0x6D6170
"""Of PostgreSQL's advisory locks: ours alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a worker wants of one run."""

    run_id: str
    wanted: int
    in_flight: int
    """What it has: until that has ended nobody else gets it."""
    concurrency: int
    """Of the run, of all workers together."""
    model: str
    provider: str
    owner_id: int


def renew_shares(worker: str, demands: Sequence[Demand], config: OperatorConfig) -> dict[str, int]:
    """How many items of each run a worker may have in flight from now on, until its lease ends; others' runs it gives back."""
    now = timezone.now()
    with _alone():
        OperatorShare.objects.filter(expired(now)).delete()
        OperatorShare.objects.filter(worker=worker).exclude(run_id__in=[one.run_id for one in demands]).delete()
        shares = list(OperatorShare.objects.all())
        brakes = _brakes({demand.model for demand in demands})
        return {
            demand.run_id: _renew(worker, demand, shares, brakes.get(demand.model), config, now) for demand in demands
        }


def drop_shares(worker: str) -> None:
    """Give back all that a worker has."""
    OperatorShare.objects.filter(worker=worker).delete()


def brake_model(model: str, *, seconds: float, began: datetime) -> datetime:
    """A model refused a call that was made at ``began``: nobody asks it for so long; returns until when."""
    now = timezone.now()
    with _alone():
        live = OperatorShare.objects.filter(model=model, lease_expires_at__gt=now)
        in_flight = sum(live.values_list("permits", flat=True))
        brake = braked(_brakes({model}).get(model), in_flight=max(1, in_flight), seconds=seconds, began=began, now=now)
        values = {"until": brake.until, "ceiling": brake.ceiling, "since": brake.since}
        OperatorBrake.objects.update_or_create(model=model, defaults=values)
    return brake.until


def _renew(
    worker: str,
    demand: Demand,
    shares: list[OperatorShare],
    brake: Brake | None,
    config: OperatorConfig,
    now: datetime,
) -> int:
    own = next((share for share in shares if (share.worker, share.run_id) == (worker, demand.run_id)), None)
    others = [share for share in shares if share is not own]
    granted = permits(demand.wanted, _limits(demand, others, brake, config, now))
    if own is None:
        own = OperatorShare(worker=worker, run_id=demand.run_id, model=demand.model)
        own.provider, own.owner_id = demand.provider, demand.owner_id
        shares.append(own)
    own.permits, own.wanted = max(granted, demand.in_flight), demand.wanted
    own.lease_expires_at = Lease(owner=worker, seconds=config.lease_seconds).expires_at(now)
    own.save()
    return granted


def _limits(
    demand: Demand, others: Sequence[OperatorShare], brake: Brake | None, config: OperatorConfig, now: datetime
) -> Iterator[tuple[int, list[Claim]]]:
    def claims(is_same: Callable[[OperatorShare], bool]) -> list[Claim]:
        return [Claim(held=share.permits, wanted=share.wanted) for share in others if is_same(share)]

    per_model = config.per_model if brake is None else min(config.per_model, ceiling_now(brake, now))
    yield demand.concurrency, claims(lambda share: share.run_id == demand.run_id)
    yield per_model, claims(lambda share: share.model == demand.model)
    yield config.per_provider, claims(lambda share: share.provider == demand.provider)
    yield config.per_owner, claims(lambda share: share.owner_id == demand.owner_id)


def _brakes(models: Collection[str]) -> dict[str, Brake]:
    return {
        row.model: Brake(until=row.until or row.since, ceiling=row.ceiling, since=row.since)
        for row in OperatorBrake.objects.filter(model__in=list(models))
        if row.ceiling is not None
    }


@contextmanager
def _alone() -> Iterator[None]:
    """A transaction that no other one of these runs beside."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        yield


# Items of runs of operators: claimed under leases, each with one accepted result.
#
# Rows of many items are written together, with one event that binds them all: the ledger grows with the rounds that a worker
# makes, at most a few a second where some answers take their time, and not with the items. Only a model that answers at once
# makes as many rounds as the database takes.

# ruff: noqa: S608 - the names in these statements are the models' own, nobody else's.


_ITEMS, _TRIES = Table(OperatorItem), Table(OperatorTry)
_SUMS = ("tokens_input", "tokens_output", "cost_micros")
_NO_LEASE = NO_LEASE | {"call_id": ""}


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
    lease = Lease(owner=encode_text(worker)[:100], seconds=lease_seconds)
    now, until = _times(record, record.now, lease.expires_at(record.now))
    values = [run_id, record.session_id, now, limit, lease.owner, until, now]
    return sorted(map(item_of, run(record.cursor, sql, values).fetchall()), key=lambda item: item.number)


def start_map_calls(record: Change, run_id: str, calls: Mapping[int, NewCall]) -> dict[int, str]:
    """Record the questions for claimed items, by their numbers, before they are asked; returns the calls' ids likewise.

    One event tells of all of them.
    """
    ids = dict(zip(calls, call_store.start_calls(record, list(calls.values())), strict=True))
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
    """Renew a worker's lease of these items of a run, in no change; return the numbers of those that it still has."""
    if not items:
        return set()
    mine = OperatorItem.objects.filter(
        run_id=run_id, number__in=list(items), state=ItemState.RUNNING.value, lease_owner=worker
    )
    lease, now = Lease(owner=worker, seconds=lease_seconds), timezone.now()
    due = lease.due(mine, now)
    if due.exists():
        with transaction.atomic():
            # A change that writes a row of these takes its rows in another order: each would wait for the other.
            rows = list(due.select_for_update(skip_locked=True, of=("self",)).values_list("id", flat=True))
            lease.renew(OperatorItem.objects.filter(id__in=rows), now)
    return set(mine.values_list("number", flat=True))


def held_items(record: Change, run_id: str, *, worker: str, items: Collection[int]) -> dict[int, int]:
    """Which of these items a worker has, and the ``attempts`` of the try for which it has each.

    One that was lost and claimed again may be in its hands twice: only the later try is its.
    """
    record.flush()
    rows = OperatorItem.objects.filter(
        run_id=run_id, number__in=list(items), state=ItemState.RUNNING.value, lease_owner=worker
    )
    return dict(rows.values_list("number", "attempts"))


def release_expired(record: Change, run_id: str) -> list[int]:
    """Let items wait again whose worker left them; returns their numbers.

    Their calls are closed: nobody knows how they ended. The lost tries count for nothing. In a run that was cancelled
    the items are cancelled.
    """
    left = owners_who_left(run_id, record.now)
    return _release(record, run_id, Q(expired(record.now), lease_owner__in=left))


def give_back(record: Change, run_id: str, *, worker: str, items: Collection[int]) -> list[int]:
    """As ``release_expired``, of items that a worker holds and does not begin."""
    return _release(record, run_id, Q(lease_owner=worker, number__in=list(items)))


def _of_cancelled_run(one: Settlement) -> Settlement:
    return replace(one, state=ItemState.CANCELLED, not_before=None) if one.state is ItemState.PENDING else one


def _finish_calls(record: Change, settled: Sequence[Settlement]) -> dict[str, list[str]]:
    ends = {
        one.attempt.call_id: (one.attempt.call_end, one.attempt.call_attempts)
        for one in settled
        if one.attempt is not None and one.attempt.call_id is not None and one.attempt.call_end is not None
    }
    return _by_end(ends, call_store.finish_calls(record, ends))


def _by_end(ends: Mapping[str, tuple[MessageEnd, int]], ended: Collection[str]) -> dict[str, list[str]]:
    failed = {id for id, (end, _) in ends.items() if end.error_code is not None}
    return {"calls_completed": sorted(set(ended) - failed), "calls_failed": sorted(set(ended) & failed)}


def _insert_tries(record: Change, run_id: str, settled: Sequence[Settlement]) -> dict[int, str]:
    rows = [_try_row(record, run_id, one) for one in settled if one.attempt is not None]
    record.insert(_TRIES, *rows)
    return {row.item: row.id for row in rows}


def _try_row(record: Change, run_id: str, one: Settlement) -> Any:
    attempt = one.attempt or AttemptOutcome()
    return _TRIES.row(
        id=new_id("try"),
        session_id=record.session_id,
        run_id=run_id,
        item=one.item,
        number=one.number,
        call_id=attempt.call_id,
        child_turn_id=attempt.child_turn_id,
        output=attempt.output,
        accepted=one.state is ItemState.COMPLETED,
        error_kind=one.error_kind or "",
        error=one.error,
        duration_ms=attempt.duration_ms,
        created_at=record.now,
        salt=new_salt(),
        **usage_columns(attempt.usage),
    )


def _item_columns(record: Change, one: Settlement, try_id: str) -> dict[str, Any]:
    attempt = one.attempt or AttemptOutcome()
    return {
        "state": one.state.value,
        "not_before": one.not_before,
        "error_kind": (one.error_kind or "") if one.state is not ItemState.COMPLETED else "",
        "error": one.error[:LONGEST_ERROR] if one.state is not ItemState.COMPLETED else "",
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
    return _by_end(ends, call_store.finish_calls(record, ends))


def _times(record: Change, *times: datetime) -> list[Any]:
    return [record.cursor.db.ops.adapt_datetimefield_value(time) for time in times]
