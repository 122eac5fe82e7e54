"""Runs of operators: begun once, paused, gone on with, ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db.models import F

from agents_app.models import OperatorItem, OperatorRun
from mnesis_core.errors import MnesisError, OperatorRunNotFoundError, OperatorRunNotInState
from mnesis_core.events import EventType
from mnesis_core.ids import new_id
from mnesis_core.ledger import new_salt
from mnesis_core.operators.values import (
    ItemState,
    OperatorKind,
    OperatorSpec,
    RunState,
    StopReason,
    write_spec,
)
from mnesis_core.text import encode_text
from sessions_app.ledger import Change
from sessions_app.statements import Table

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
        idempotency_key=None if idempotency_key is None else encode_text(idempotency_key),
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
        "error_message": encode_text(error.message[:LONGEST_ERROR]),
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
