"""Writes to inboxes, where one turn takes each message, to MCP servers, and to runs of operators and their items.

Items are claimed under leases, each with one accepted result. Rows of many items are written together, with one event that
commits to them all: the ledger grows with the rounds that workers make, a
few a second where answers take their time, and not with the items.
"""

# ruff: noqa: S608 - the names in these statements are the models' own

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop

from agents_app.models import (
    InboxMessage,
    McpServer,
    McpServerGrant,
    OperatorBrake,
    OperatorItem,
    OperatorRun,
    OperatorShare,
    OperatorTry,
)
from agents_app.queries import ITEM_COLUMNS, item_of, list_servers, owners_who_left, server_of
from mnesis_core import errors
from mnesis_core.config import OperatorConfig
from mnesis_core.events import EventType
from mnesis_core.llm.interface import Outcome
from mnesis_core.maps import values as maps
from mnesis_core.maps.throughput import Brake, Claim, braked, ceiling_now, permits
from mnesis_core.maps.values import ItemState, RunState, StopReason
from mnesis_core.records import MessageEnd, NewCall, new_id
from mnesis_core.text import encode_text
from mnesis_core.turns.inbox import Draft
from mnesis_core.turns.mcp_servers import Listing, ServerAddress, check_address, write_listing
from sessions_app.conf import host_lists
from sessions_app.database.tables import Table, run, select_columns
from sessions_app.llm.model_store import Audience
from sessions_app.record import turn_store
from sessions_app.record.change import Change
from sessions_app.record.lease import NO_LEASE, Lease, expired
from sessions_app.record.message_queries import usage_columns

_INBOX, _RUNS, _ITEMS, _ATTEMPTS = map(Table, (InboxMessage, OperatorRun, OperatorItem, OperatorTry))
COUNTED = (ItemState.COMPLETED, ItemState.FAILED, ItemState.CANCELLED)  # each has a counter in its run's row
LOCK = 0x6D6170  # a PostgreSQL advisory lock, which nothing else takes
LONGEST_ERROR = 4_000  # characters beside an item or a run; the whole error is with the attempt
LONGEST_PROBLEM = 2_000  # characters: a server may say anything of its failure
# From which states a person may send a run to a state.
_BEFORE: Mapping[RunState, tuple[RunState, ...]] = {
    RunState.PENDING: (RunState.PAUSED, RunState.CANCELLED),
    RunState.RUNNING: (RunState.PAUSED, RunState.CANCELLED),
    RunState.PAUSED: (RunState.PENDING, RunState.RUNNING),
    RunState.CANCELLED: (RunState.PENDING, RunState.RUNNING, RunState.PAUSED),
    RunState.COMPLETED: (),
    RunState.FAILED: (),
}
_SUMS = ("tokens_input", "tokens_output", "cost_micros")


def receive_message(record: Change, draft: Draft, *, idempotency_key: str | None = None) -> str:
    row = _INBOX.row(
        id=new_id("inbox"),
        session_id=record.session_id,
        seq=record.next_seq,
        sender_id=draft.sender,
        sender_turn_id=draft.sender_turn,
        kind=draft.kind.value,
        in_reply_to=draft.in_reply_to,
        text=draft.text,
        hops=draft.hops,
        idempotency_key=idempotency_key,
        created_at=record.now,
    )
    record.insert(_INBOX, row)
    record.publish(EventType.INBOX_RECEIVED, inbox_id=row.id, sender_id=draft.sender, hops=draft.hops)
    return str(row.id)


def take_messages(record: Change, message_ids: Sequence[str], *, turn_id: str) -> None:
    """Give messages that wait to a turn of the change's session, all or none.

    :raises Conflict: another turn has one of them.
    """
    for id in message_ids:
        if not record.update(_INBOX, {"turn_id": turn_id}, id=id, session_id=record.session_id, turn_id=None):
            raise errors.Conflict(gettext_noop("another turn has taken this message"), inbox_id=id)
    record.publish(EventType.INBOX_TAKEN, turn_id=turn_id, inbox_ids=list(message_ids))


def put_server(address: ServerAddress) -> str:
    """Attach a server, in place of the one with this name if there is one, and return the new row's id.

    Its audience stays. Its listing does not, nor do the marks of its read-only tools if it is reached in another way,
    which may mean another server.

    :raises InvalidRequest: a value is missing or out of its bounds.
    """
    check_address(address)
    columns = asdict(address) | {"argv": list(address.argv)}
    row = McpServer(id=new_id("mcp"), created_at=timezone.now(), **columns)
    with transaction.atomic():
        replaced = _attached(address.name).select_for_update().first()
        if replaced is not None:
            row.is_restricted = replaced.is_restricted
            if server_of(replaced).address.reached == address.reached:
                row.read_only_tools = replaced.read_only_tools
            _attached(address.name).update(removed_at=row.created_at)
        row.save()
        McpServerGrant.objects.filter(server=replaced).update(server=row)
    return str(row.id)


def enter_server(address: ServerAddress, *, audience: Audience | None) -> str:
    """Attach a server from a page, for an audience (``None``: every user), and return the new row's id.

    :raises InvalidRequest: a value is missing or out of its bounds.
    :raises NotListed: how it is reached is not as a command on the host entered it, nor on the host's lists.
    """
    # In one transaction: at no moment is a restricted server there for all.
    with transaction.atomic():
        _attached(address.name).select_for_update().first()
        id = put_server(replace(address, entered_on_host=check_entered(address)))
        McpServer.objects.filter(id=id).update(is_restricted=audience is not None)
        McpServerGrant.objects.filter(server_id=id).delete()
        members = [] if audience is None else audience.members
        McpServerGrant.objects.bulk_create(McpServerGrant(server_id=id, **member) for member in members)
    return id


def check_entered(address: ServerAddress) -> bool:
    """Return whether a page leaves the way a server is reached as a command on the host entered it.

    :raises NotListed: it does not, and the host's lists do not hold the new way; ``field`` names the value.
    """
    known = list_servers([address.name])
    if known and known[0].address.entered_on_host and known[0].address.reached == address.reached:
        return True
    host_lists().check_server(address.argv, address.url, address.secrets)
    return False


def remove_server(name: str) -> None:
    """Detach a server from all sessions. Its row stays.

    :raises ToolServerNotFound: no attached server has this name.
    """
    if not _attached(name).update(removed_at=timezone.now()):
        raise errors.ToolServerNotFound(server=name)


def put_listing(server_id: str, listing: Listing) -> None:
    McpServer.objects.filter(id=server_id).update(
        listing=write_listing(listing), listed_at=timezone.now(), problem="", unreachable_since=None
    )


def mark_read_only(server_id: str, digests: Mapping[str, str]) -> None:
    """Write the tools that change nothing, by digest of what the administrator saw listed; all other marks are removed."""
    McpServer.objects.filter(id=server_id).update(read_only_tools=dict(digests))


def note_answer(server_id: str) -> None:
    McpServer.objects.filter(id=server_id, unreachable_since__isnull=False).update(unreachable_since=None, problem="")


def note_problem(server_id: str, problem: str) -> None:
    found = McpServer.objects.filter(id=server_id)
    found.filter(unreachable_since__isnull=True).update(unreachable_since=timezone.now())
    found.update(problem=problem[:LONGEST_PROBLEM])


def _attached(name: str) -> QuerySet[Any]:
    return McpServer.objects.filter(name=name, removed_at__isnull=True)


def start_run(
    record: Change,
    *,
    kind: maps.OperatorKind,
    spec: maps.OperatorSpec,
    input_file_id: str,
    turn_id: str = "",
    part_id: str = "",
    idempotency_key: str | None = None,
) -> str:
    """Create a run, whose input is still to be read; return its id.

    :raises IntegrityError: the session has a run with this key.
    """
    row = _RUNS.row(
        id=new_id("map"),
        session_id=record.session_id,
        turn_id=turn_id,
        part_id=part_id,
        actor=record.actor,
        kind=kind.value,
        spec=maps.write_spec(spec),
        input_file_id=input_file_id,
        idempotency_key=idempotency_key,
        created_at=record.now,
    )
    record.insert(_RUNS, row)
    record.publish(EventType.MAP_STARTED, run_id=row.id, kind=row.kind, turn_id=turn_id, part_id=part_id)
    return str(row.id)


def begin_run(record: Change, run_id: str, *, items: int) -> None:
    """:raises OperatorRunNotInState: the run is not pending any more."""
    _step(record, run_id, [RunState.PENDING], RunState.RUNNING, item_count=items, started_at=record.now)
    _publish_state(record, run_id, RunState.RUNNING, items=items)


def fail_run(record: Change, run_id: str, error: errors.MnesisError) -> None:
    """:raises OperatorRunNotInState: the run is not pending any more."""
    values = {"reason": "error", "error_code": error.code, "error_message": error.message[:LONGEST_ERROR]}
    _step(record, run_id, [RunState.PENDING], RunState.FAILED, **values, ended_at=record.now)
    _publish_state(record, run_id, RunState.FAILED, reason="error", error_code=error.code)


def set_run_state(record: Change, run_id: str, state: RunState, *, reason: str = "") -> RunState:
    """Pause, resume or cancel a run, with all items that no worker holds; return its new state.

    A cancelled run may be resumed: the items that were cancelled wait again. A run whose input was not read to its end
    becomes pending again.

    :raises OperatorRunNotInState: the run cannot get there from the state that it is in.
    """
    row = _row(record, run_id)
    if state is RunState.RUNNING and row.item_count is None:
        state = RunState.PENDING
    values: dict[str, Any] = {"reason": reason}
    if state is RunState.CANCELLED or reason == StopReason.BUDGET:
        values["output_file_id"] = ""  # what is done until now is written to a new one
    if state is RunState.CANCELLED:
        values["ended_at"] = record.now
    elif row.ended_at is not None:
        values["ended_at"] = None
    _step(record, run_id, _BEFORE[state], state, **values)
    moved: dict[str, Any] = {}
    if state is RunState.CANCELLED:
        moved["cancelled"] = _ranges(_move_items(record, run_id, ItemState.PENDING, ItemState.CANCELLED))
    elif state in (RunState.RUNNING, RunState.PENDING) and row.state == RunState.CANCELLED:
        moved["again"] = _ranges(_move_items(record, run_id, ItemState.CANCELLED, ItemState.PENDING))
    _publish_state(record, run_id, state, reason=reason, **moved)
    return state


def retry_failed(record: Change, run_id: str) -> int:
    """Let the failed items be attempted again, as if for the first time; return their number.

    :raises OperatorRunNotInState: the input was not read, or the run was cancelled and must be resumed first.
    """
    state = require_run(record, run_id, RunState.RUNNING, RunState.PAUSED, RunState.COMPLETED)
    again = _move_items(record, run_id, ItemState.FAILED, ItemState.PENDING)
    if again and state is RunState.COMPLETED:
        state = RunState.RUNNING
        _step(record, run_id, [RunState.COMPLETED], state, reason="", ended_at=None)
    if again:
        _publish_state(record, run_id, state, again=_ranges(again))
    return len(again)


def finish_run(record: Change, run_id: str, *, output_file_id: str) -> None:
    """:raises OperatorRunNotInState: items are left, or the run is neither running nor paused."""
    row = _row(record, run_id)
    ended = row.completed_count + row.failed_count + row.cancelled_count
    if row.item_count is None or ended < row.item_count:
        raise errors.OperatorRunNotInState(run_id=run_id, state=row.state)
    values = {"reason": "", "ended_at": record.now, "output_file_id": output_file_id}
    _step(record, run_id, [RunState.RUNNING, RunState.PAUSED], RunState.COMPLETED, **values)
    record.publish(
        EventType.MAP_COMPLETED,
        run_id=run_id,
        output_file_id=output_file_id,
        completed=row.completed_count,
        failed=row.failed_count,
        cancelled=row.cancelled_count,
    )


def keep_output(record: Change, run_id: str, *, output_file_id: str) -> None:
    """Name the file that holds the results so far of a run that was stopped."""
    state = require_run(record, run_id)
    record.update(_RUNS, {"output_file_id": output_file_id}, id=run_id, session_id=record.session_id)
    _publish_state(record, run_id, state, reason=_row(record, run_id).reason, output_file_id=output_file_id)


def _step(record: Change, run_id: str, before: Collection[RunState], after: RunState, **values: Any) -> None:
    """:raises OperatorRunNotInState: the run is in none of the states ``before``."""
    values["state"] = after.value
    for state in before:
        if record.update(_RUNS, values, id=run_id, session_id=record.session_id, state=state):
            return
    row = _row(record, run_id)
    raise errors.OperatorRunNotInState(
        gettext_noop("the run is %(state)s, so it cannot become %(after)s"),
        {"state": row.state, "after": after},
        run_id=run_id,
        state=row.state,
    )


def _publish_state(record: Change, run_id: str, state: RunState, *, reason: str = "", **more: Any) -> None:
    record.publish(EventType.MAP_STATE_CHANGED, run_id=run_id, state=state.value, reason=reason, **more)


def _row(record: Change, run_id: str) -> Any:
    """:raises OperatorRunNotFoundError: the session has no such run."""
    row = OperatorRun.objects.filter(id=run_id, session_id=record.session_id).first()
    if row is None:
        raise errors.OperatorRunNotFoundError(run_id=run_id)
    return row


def require_run(record: Change, run_id: str, *states: RunState) -> RunState:
    """:raises OperatorRunNotFoundError: the session has no such run.
    :raises OperatorRunNotInState: the run is in none of these states.
    """
    found = record.find(_RUNS, "state", id=run_id, session_id=record.session_id)
    if found is None:
        raise errors.OperatorRunNotFoundError(run_id=run_id)
    if states and found[0] not in states:
        raise errors.OperatorRunNotInState(run_id=run_id, state=found[0])
    return RunState(found[0])


def add_to_counts(record: Change, run_id: str, states: Mapping[ItemState, int], **more: int) -> None:
    """Add to a run's counters: numbers of items by the state that they came to, and ``more`` by column."""
    changes = {f"{state.value}_count": states.get(state, 0) for state in COUNTED} | more
    OperatorRun.objects.filter(id=run_id).update(**{name: F(name) + value for name, value in changes.items() if value})


def _move_items(record: Change, run_id: str, before: ItemState, after: ItemState) -> list[int]:
    """Move every item of a run from one state to another; return their numbers in order."""
    rows = OperatorItem.objects.filter(run_id=run_id, state=before.value)
    numbers = list(rows.order_by("number").values_list("number", flat=True))
    # Nothing else moves them meanwhile, because this change holds the session.
    ends: dict[str, Any] = {"ended_at": record.now if after.is_end else None}
    if not after.is_end:
        ends |= {"excused": F("attempts"), "not_before": None, "error_kind": "", "error": ""}
    rows.update(state=after.value, **ends)
    add_to_counts(record, run_id, {before: -len(numbers), after: len(numbers)})
    return numbers


def _ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Return sorted numbers as [first, last] of each range without a gap."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ranges


# What workers may have in flight, and which models are braked: rows that only workers read, no part of the record.
# Each renewal is one short transaction under one lock, so that the sums never pass a limit.


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a worker wants of one run. ``concurrency`` is the run's, of all workers together.

    What is ``in_flight`` goes to no other worker until it has ended.
    """

    run_id: str
    wanted: int
    in_flight: int
    concurrency: int
    model: str
    provider: str
    owner_id: int


def renew_shares(worker: str, demands: Sequence[Demand], config: OperatorConfig) -> dict[str, int]:
    """Return how many items of each run a worker may have in flight until its lease ends.

    The worker's shares of other runs are given back.
    """
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
    OperatorShare.objects.filter(worker=worker).delete()


def brake_model(model: str, *, seconds: float, began: datetime) -> datetime:
    """Keep every worker from asking a model that refused a call made at ``began``; return until when."""
    now = timezone.now()
    with _alone():
        live = OperatorShare.objects.filter(model=model, lease_expires_at__gt=now)
        in_flight = sum(live.values_list("permits", flat=True))
        brake = braked(_brakes({model}).get(model), in_flight=max(1, in_flight), seconds=seconds, began=began, now=now)
        values = {"until": brake.until, "ceiling": brake.ceiling, "since": brake.since}
        OperatorBrake.objects.update_or_create(model=model, defaults=values)
    return brake.until


def _renew(
    worker: str, demand: Demand, shares: list[OperatorShare], brake: Brake | None, config: OperatorConfig, now: datetime
) -> int:
    own = next((share for share in shares if (share.worker, share.run_id) == (worker, demand.run_id)), None)

    def claims(name: str) -> list[Claim]:
        # Of other workers, on the same run, model, provider or owner.
        others = (share for share in shares if share is not own and getattr(share, name) == getattr(demand, name))
        return [Claim(held=share.permits, wanted=share.wanted) for share in others]

    per_model = config.per_model if brake is None else min(config.per_model, ceiling_now(brake, now))
    limits = [
        (demand.concurrency, claims("run_id")),
        (per_model, claims("model")),
        (config.per_provider, claims("provider")),
        (config.per_owner, claims("owner_id")),
    ]
    granted = permits(demand.wanted, limits)
    if own is None:
        place = {"model": demand.model, "provider": demand.provider, "owner_id": demand.owner_id}
        own = OperatorShare(worker=worker, run_id=demand.run_id, **place)
        shares.append(own)
    own.permits, own.wanted = max(granted, demand.in_flight), demand.wanted
    own.lease_expires_at = Lease(owner=worker, seconds=config.lease_seconds).expires_at(now)
    own.save()
    return granted


def _brakes(aliases: Collection[str]) -> dict[str, Brake]:
    return {
        row.model: Brake(until=row.until or row.since, ceiling=row.ceiling, since=row.since)
        for row in OperatorBrake.objects.filter(model__in=list(aliases))
        if row.ceiling is not None
    }


@contextmanager
def _alone() -> Iterator[None]:
    """Open a transaction beside which no other of these runs."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        yield


# Items: part of the record again.


def add_items(record: Change, run_id: str, items: Sequence[maps.NewItem]) -> None:
    """:raises OperatorRunNotInState: the run has all its items already."""
    require_run(record, run_id, RunState.PENDING)
    rows = [
        _ITEMS.row(
            session_id=record.session_id,
            run_id=run_id,
            number=item.number,
            line_offset=item.offset,
            line_length=item.length,
        )
        for item in items
    ]
    record.insert(_ITEMS, *rows)


def claim_items(record: Change, run_id: str, *, worker: str, limit: int, lease_seconds: float) -> list[maps.ItemRecord]:
    """Claim items that may be attempted now for a worker, in the order of the input; none where the run is not running.

    No event is published: ``start_map_calls`` or ``note_claimed`` does that in the same change.
    """
    record.flush()
    # SQLite has one writer; elsewhere another process may be renewing a lease of one of these rows.
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
    to_column = record.cursor.db.ops.adapt_datetimefield_value
    now, until = to_column(record.now), to_column(lease.expires_at(record.now))
    values = [run_id, record.session_id, now, limit, lease.owner, until, now]
    return sorted(map(item_of, run(record.cursor, sql, values).fetchall()), key=lambda item: item.number)


def start_map_calls(record: Change, run_id: str, calls: Mapping[int, NewCall]) -> dict[int, str]:
    """Record the calls for claimed items before they are made; both ``calls`` and the returned ids are by item number."""
    ids = dict(zip(calls, turn_store.start_calls(record, list(calls.values())), strict=True))
    record.update_each(_ITEMS, {item: {"call_id": id} for item, id in ids.items()}, key="number", run_id=run_id)
    record.publish(EventType.MAP_ITEMS_CLAIMED, run_id=run_id, items=sorted(ids), call_ids=list(ids.values()))
    return ids


def note_claimed(record: Change, run_id: str, child_session_ids: Mapping[int, str]) -> None:
    """Record which child sessions work at claimed items, by item number."""
    rows = {item: {"child_session_id": id} for item, id in child_session_ids.items()}
    record.update_each(_ITEMS, rows, key="number", run_id=run_id)
    record.publish(
        EventType.MAP_ITEMS_CLAIMED,
        run_id=run_id,
        items=sorted(child_session_ids),
        session_ids=[child_session_ids[item] for item in sorted(child_session_ids)],
    )


def settle_items(record: Change, run_id: str, *, worker: str, settled: Sequence[maps.Settlement]) -> set[int]:
    """Record attempts and what becomes of their items; return the numbers of those that were the worker's.

    An item that another worker has by now is left alone, and so is its call, which that worker has ended. No attempt
    follows where the run was cancelled meanwhile.
    """
    if require_run(record, run_id) is RunState.CANCELLED:
        settled = [
            replace(one, state=ItemState.CANCELLED, not_before=None) if one.state is ItemState.PENDING else one
            for one in settled
        ]
    held = held_items(record, run_id, worker=worker, items=[one.item for one in settled])
    mine = [one for one in settled if held.get(one.item) == one.number]
    if not mine:
        return set()
    attempts = [one.attempt for one in mine if one.attempt is not None]
    ends = {one.call_id: (one.call_end, one.call_attempts) for one in attempts if one.call_id and one.call_end}
    calls = _finish_calls(record, ends)
    _write_attempts(record, run_id, mine)
    sums = {name: sum(getattr(one.usage, name) or 0 for one in attempts) for name in _SUMS}
    add_to_counts(record, run_id, Counter(one.state for one in mine), try_count=len(attempts), **sums)
    numbers: dict[str, list[int]] = {word: [] for word in (*(state.value for state in COUNTED), "again")}
    for one in mine:
        numbers[one.state.value if one.state.is_end else "again"].append(one.item)
    record.publish(EventType.MAP_ITEM_COMPLETED, run_id=run_id, **numbers, **calls)
    return {one.item for one in mine}


def renew_items(run_id: str, *, worker: str, items: Collection[int], lease_seconds: float) -> set[int]:
    """Renew a worker's leases of these items of a run, outside a change; return the numbers of those that it still has."""
    if not items:
        return set()
    mine = _items_of(worker, run_id, items)
    lease, now = Lease(owner=worker, seconds=lease_seconds), timezone.now()
    due = lease.due(mine, now)
    if due.exists():
        with transaction.atomic():
            # Rows that a change has locked are skipped: it takes them in another order, and each would wait for the other.
            rows = list(due.select_for_update(skip_locked=True, of=("self",)).values_list("id", flat=True))
            lease.renew(OperatorItem.objects.filter(id__in=rows), now)
    return set(mine.values_list("number", flat=True))


def held_items(record: Change, run_id: str, *, worker: str, items: Collection[int]) -> dict[int, int]:
    """Return which of these items a worker holds, each with the ``attempts`` for which it holds it.

    A worker may lose an item and claim it again while the first attempt is still in flight: only the later one counts.
    """
    record.flush()
    return dict(_items_of(worker, run_id, items).values_list("number", "attempts"))


def _items_of(worker: str, run_id: str, items: Collection[int]) -> QuerySet[OperatorItem]:
    running = OperatorItem.objects.filter(run_id=run_id, state=ItemState.RUNNING.value)
    return running.filter(number__in=list(items), lease_owner=worker)


def release_expired(record: Change, run_id: str) -> list[int]:
    """Let the items of dead workers wait again, or cancel them with a cancelled run; return their numbers.

    Their calls are closed as broken, and the lost attempts are excused.
    """
    left = owners_who_left(run_id, record.now)
    return _release(record, run_id, Q(expired(record.now), lease_owner__in=left))


def give_back(record: Change, run_id: str, *, worker: str, items: Collection[int]) -> list[int]:
    """Release items that a worker holds and does not start, as ``release_expired`` does."""
    return _release(record, run_id, Q(lease_owner=worker, number__in=list(items)))


def _finish_calls(record: Change, ends: Mapping[str, tuple[MessageEnd, int]]) -> dict[str, list[str]]:
    """Finish calls by id, each with its number of requests; return those that ended by it, for an event."""
    ended = set(turn_store.finish_calls(record, ends))
    failed = {id for id, (end, _) in ends.items() if end.error_code is not None}
    return {"calls_completed": sorted(ended - failed), "calls_failed": sorted(ended & failed)}


def _write_attempts(record: Change, run_id: str, settled: Sequence[maps.Settlement]) -> None:
    rows, columns = [], {}
    for one in settled:
        attempt, is_completed = one.attempt or maps.AttemptOutcome(), one.state is ItemState.COMPLETED
        attempt_id = ""
        if one.attempt is not None:
            attempt_id = new_id("try")
            row = _ATTEMPTS.row(
                id=attempt_id,
                session_id=record.session_id,
                run_id=run_id,
                item=one.item,
                number=one.number,
                call_id=attempt.call_id,
                child_turn_id=attempt.child_turn_id,
                output=attempt.output,
                accepted=is_completed,
                error_kind=one.error_kind or "",
                error=one.error,
                duration_ms=attempt.duration_ms,
                created_at=record.now,
                **usage_columns(attempt.usage),
            )
            rows.append(row)
        columns[one.item] = {
            "state": one.state.value,
            "not_before": one.not_before,
            "error_kind": "" if is_completed else one.error_kind or "",
            "error": "" if is_completed else one.error[:LONGEST_ERROR],
            "accepted_try_id": attempt_id if is_completed else "",
            "ended_at": record.now if one.state.is_end else None,
            "excused": int(one.excused),
            "duration_ms": attempt.duration_ms,
            **{name: getattr(attempt.usage, name) or 0 for name in _SUMS},
            **NO_LEASE,
            "call_id": "",
        }
    record.insert(_ATTEMPTS, *rows)
    record.update_each(_ITEMS, columns, key="number", add=("excused", *_SUMS, "duration_ms"), run_id=run_id)


def _release(record: Change, run_id: str, which: Q) -> list[int]:
    state = require_run(record, run_id)
    lost = OperatorItem.objects.filter(which, run_id=run_id, state=ItemState.RUNNING.value)
    call_ids = dict(lost.order_by("number").values_list("number", "call_id"))
    numbers = list(call_ids)
    if not numbers:
        return []
    is_over = state is RunState.CANCELLED
    OperatorItem.objects.filter(run_id=run_id, number__in=numbers).update(
        state=(ItemState.CANCELLED if is_over else ItemState.PENDING).value,
        ended_at=record.now if is_over else None,
        excused=F("excused") + 1,
        **NO_LEASE,
        call_id="",
    )
    add_to_counts(record, run_id, {ItemState.CANCELLED: len(numbers)} if is_over else {})
    reason = errors.ModelCallAbandoned()
    end = MessageEnd(outcome=Outcome.BROKEN.value, error_code=reason.code, error_message=reason.message)
    calls = _finish_calls(record, dict.fromkeys(filter(None, call_ids.values()), (end, 1)))
    word = "cancelled" if is_over else "again"
    record.publish(EventType.MAP_ITEMS_RELEASED, run_id=run_id, **{word: numbers}, **calls)
    return numbers
