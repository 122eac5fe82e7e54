"""Reads of inboxes, of the MCP servers that bring tools, and of runs of operators with their items and attempts."""

# ruff: noqa: S608 - the names in these statements are the models' own

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeVar

from django.db.models import Exists, Max, OuterRef, Q, QuerySet
from django.db.models.functions import Length, Substr
from django.utils import timezone

from agents_app.models import InboxMessage as InboxRow
from agents_app.models import McpServer as ServerRow
from agents_app.models import McpServerGrant, OperatorBrake, OperatorItem, OperatorRun, OperatorShare, OperatorTry
from compaction_app import queries
from mnesis_core import errors
from mnesis_core.context.replay import Projection
from mnesis_core.maps import values as maps
from mnesis_core.maps.values import ItemState, RunState, StopReason
from mnesis_core.records import UsageRecord, record_of
from mnesis_core.text import ESCAPE, decode_text
from mnesis_core.turns.inbox import InboxMessage, MessageKind
from mnesis_core.turns.mcp_servers import AttachedServer, ServerAddress, read_listing
from sessions_app.conf import allowed_to
from sessions_app.database.tables import fetch, select_columns, time_of
from sessions_app.ownership import HOME, is_temporary, owned_by
from sessions_app.record.lease import expired, is_abandoned
from sessions_app.record.message_queries import usage_of
from sessions_app.record.turn_queries import begun_before, sum_usage

_WAITING_SESSIONS = (
    "SELECT DISTINCT inbox_messages.session_id FROM inbox_messages"
    " JOIN sessions ON sessions.id = inbox_messages.session_id"
    " WHERE inbox_messages.turn_id IS NULL AND inbox_messages.session_id > %s"
    " AND sessions.host_mode AND sessions.archived_at IS NULL AND sessions.deleted_at IS NULL"
    f" AND sessions.organisation_id = {HOME % 'sessions.owner_id'}"
    " AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session_id = sessions.id AND turns.ended_at IS NULL)"
    " ORDER BY inbox_messages.session_id LIMIT %s"
)
ITEM_COLUMNS = tuple(
    field.attname for field in OperatorItem._meta.concrete_fields if field.name not in ("id", "session")
)
MOST_RUNS_OF_PART = 20
_LIVE = [RunState.PENDING.value, RunState.RUNNING.value]
_ENDED = [state.value for state in ItemState if state.is_end]
_CUT_ESCAPE = re.compile(f"{ESCAPE}[0-9A-F]{{0,3}}$")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHead(maps.AttemptRecord):
    """An attempt with the beginnings of its texts; ``output_length`` counts the stored characters of the whole."""

    output_length: int


Attempt = TypeVar("Attempt", maps.AttemptRecord, AttemptHead)


def list_inbox(session_id: str, *, waiting: bool | None = None, after: int = 0, limit: int = 50) -> list[InboxMessage]:
    """Return messages of a session's inbox, oldest first: those that wait, those that were taken, or all."""
    rows = InboxRow.objects.filter(session_id=session_id, seq__gt=after)
    if waiting is not None:
        rows = rows.filter(turn__isnull=waiting)
    return [_message(row) for row in rows.order_by("seq")[:limit]]


def load_taken(session_id: str, turn_id: str) -> list[InboxMessage]:
    return [_message(row) for row in InboxRow.objects.filter(session_id=session_id, turn_id=turn_id).order_by("seq")]


def count_waiting(session_id: str) -> int:
    return InboxRow.objects.filter(session_id=session_id, turn__isnull=True).count()


def load_inbox_message(message_id: str, *, owner_id: int) -> InboxMessage:
    """:raises InboxMessageNotFoundError: no inbox of this person has it."""
    rows = InboxRow.objects.filter(owned_by(owner_id, "session__"), id=message_id, session__deleted_at__isnull=True)
    row = rows.first()
    if row is None:
        raise errors.InboxMessageNotFoundError(inbox_id=message_id)
    return _message(row)


def find_sent(session_id: str, idempotency_key: str) -> InboxMessage | None:
    row = InboxRow.objects.filter(session_id=session_id, idempotency_key=idempotency_key).first()
    return None if row is None else _message(row)


def spoken_at(session_id: str) -> datetime | None:
    """Return when the newest message came that waits and that no agent sent."""
    waiting = InboxRow.objects.filter(session_id=session_id, turn__isnull=True, sender_id="")
    return waiting.order_by("-created_at").values_list("created_at", flat=True).first()


def waiting_sessions(*, after: str = "", limit: int) -> list[str]:
    """Return sessions in host mode that are idle while messages wait, by id, after the id given."""
    return [id for (id,) in fetch(_WAITING_SESSIONS, [after, limit])]


def _message(row: InboxRow) -> InboxMessage:
    return record_of(InboxMessage, row, sender=row.sender_id, kind=MessageKind(row.kind))


def list_servers(names: Iterable[str] | None = None, *, user_id: int | None = None) -> list[AttachedServer]:
    """Return the attached servers, by name; with ``names`` only these, with ``user_id`` only those for this person."""
    rows = ServerRow.objects.filter(removed_at__isnull=True)
    if user_id is not None:
        rows = rows.filter(allowed_to(user_id, McpServerGrant.objects.values("server")))
    if names is not None:
        rows = rows.filter(name__in=list(names))
    return [server_of(row) for row in rows.order_by("name")]


def load_server(name: str) -> AttachedServer:
    """:raises ToolServerNotFound: no attached server has this name."""
    found = list_servers([name])
    if not found:
        raise errors.ToolServerNotFound(server=name)
    return found[0]


def audiences_of(server_ids: Collection[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return by server the names of the groups and users that may be offered its tools; in one query."""
    found: dict[str, tuple[list[str], list[str]]] = {id: ([], []) for id in server_ids}
    grants = McpServerGrant.objects.filter(server_id__in=list(server_ids)).select_related("group", "user")
    for grant in grants.order_by("group__name", "user__username"):
        groups, users = found[grant.server_id]
        if grant.group is not None:
            groups.append(grant.group.name)
        if grant.user is not None:
            users.append(grant.user.get_username())
    return found


def server_of(row: ServerRow) -> AttachedServer:
    return record_of(
        AttachedServer,
        row,
        address=record_of(ServerAddress, row, argv=tuple(row.argv), secrets=dict(row.secrets)),
        listing=read_listing(row.listing),
        read_only_tools=dict(row.read_only_tools),
    )


def load_run(run_id: str, *, owner_id: int | None = None, session_id: str | None = None) -> maps.RunRecord:
    """Return a run, only of a person's sessions with ``owner_id`` and only of one session with ``session_id``.

    :raises OperatorRunNotFoundError: there is no such run, or it belongs to another person.
    """
    rows = OperatorRun.objects.filter(id=run_id)
    if owner_id is not None:
        rows = rows.filter(owned_by(owner_id, "session__"), session__deleted_at__isnull=True)
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    row = rows.select_related("session").first()
    if row is None:
        raise errors.OperatorRunNotFoundError(run_id=run_id)
    return _run(row)


def list_runs(
    *,
    owner_id: int | None = None,
    session_id: str | None = None,
    limit: int | None = 50,
    before: tuple[datetime, str] | None = None,
) -> list[maps.RunRecord]:
    """Return runs of a person's sessions but temporary chats, or of one session (none without either), newest first.

    ``before`` is a cursor: the time and id of the last run of the page before.
    """
    if owner_id is None and session_id is None:
        return []
    rows = OperatorRun.objects.filter(session__deleted_at__isnull=True)
    if owner_id is not None:
        rows = rows.filter(owned_by(owner_id, "session__"))
    rows = rows.exclude(is_temporary("session__")) if session_id is None else rows.filter(session_id=session_id)
    if before is not None:
        rows = rows.filter(begun_before(*before))
    return [_run(row) for row in rows.select_related("session").order_by("-created_at", "-id")[:limit]]


def find_run_by_key(session_id: str, idempotency_key: str) -> maps.RunRecord | None:
    rows = OperatorRun.objects.filter(session_id=session_id, idempotency_key=idempotency_key)
    row = rows.select_related("session").first()
    return None if row is None else _run(row)


def live_runs() -> list[maps.RunRecord]:
    """Return the pending and running runs of all users, oldest first."""
    rows = OperatorRun.objects.filter(state__in=_LIVE, session__deleted_at__isnull=True)
    return [_run(row) for row in rows.select_related("session").order_by("created_at", "id")]


def live_runs_of(session_id: str) -> list[str]:
    rows = OperatorRun.objects.filter(session_id=session_id, state__in=_LIVE)
    return list(rows.order_by("created_at", "id").values_list("id", flat=True))


def runs_of_part(session_id: str, part_id: str) -> list[maps.RunRecord]:
    rows = OperatorRun.objects.filter(session_id=session_id, part_id=part_id).exclude(part_id="")
    return [_run(row) for row in rows.select_related("session").order_by("created_at", "id")[:MOST_RUNS_OF_PART]]


def usage_of_maps(*session_ids: str) -> UsageRecord:
    """Sum the usage of an ``llm_map``'s calls in these sessions; the calls of sub-agents count in sessions of their own."""
    return sum_usage(OperatorRun.objects.filter(session_id__in=session_ids, kind=maps.OperatorKind.LLM.value))


def seq_before(run_id: str) -> int:
    """Return the number of its session's last event before a run was created."""
    sql = (
        "SELECT COALESCE(MIN(e.seq), 1) - 1 FROM operator_runs r JOIN events e ON e.session_id = r.session_id"
        " WHERE r.id = %s AND e.created_at >= r.created_at"
    )
    [(seq,)] = fetch(sql, [run_id])
    return int(seq)


def _run(row: OperatorRun) -> maps.RunRecord:
    sums = {name: getattr(row, f"{name}_count") for name in ("completed", "failed", "cancelled")}
    return record_of(
        maps.RunRecord,
        row,
        owner_id=row.session.owner_id,
        kind=maps.OperatorKind(row.kind),
        spec=maps.read_spec(row.spec),
        state=RunState(row.state),
        counts=record_of(maps.Counts, row, items=row.item_count, tries=row.try_count, **sums),
    )


def load_projection(session_id: str, *, using: str = "default") -> Projection:
    runs = OperatorRun.objects.using(using).filter(session_id=session_id)
    ended = OperatorItem.objects.using(using).filter(run__session_id=session_id, state__in=_ENDED)
    states = ended.values_list("run_id", "number", "state").iterator()
    helped = OperatorItem.objects.using(using).filter(run__session_id=session_id).exclude(child_session_id="")
    children = helped.values_list("run_id", "number", "child_session_id").iterator()
    return replace(
        queries.load_projection(session_id, using=using),
        maps=dict(runs.values_list("id", "state")),
        map_items={f"{run_id} {number}": state for run_id, number, state in states},
        map_children={f"{run_id} {number}": child_id for run_id, number, child_id in children},
    )


def list_items(
    run_id: str, *, after: int = 0, limit: int = 100, states: Collection[ItemState] = ()
) -> list[maps.ItemRecord]:
    """Return items of a run after a number, in the order of the input, in one of ``states`` or in any."""
    chosen = f" AND state IN ({', '.join(['%s'] * len(states))})" if states else ""
    where = f"run_id = %s AND number > %s{chosen} ORDER BY number LIMIT %s"
    return _items(where, [run_id, after, *(state.value for state in states), limit])


def load_items(run_id: str, numbers: Collection[int]) -> list[maps.ItemRecord]:
    """Return the existing ones of these items, in the order of the input."""
    if not numbers:
        return []
    where = f"run_id = %s AND number IN ({', '.join(['%s'] * len(numbers))}) ORDER BY number"
    return _items(where, [run_id, *numbers])


def load_item(run_id: str, number: int) -> maps.ItemRecord:
    """:raises OperatorItemNotFoundError: the run has no item of this number."""
    found = load_items(run_id, [number]) if 0 < number < 2**63 else []
    if not found:
        raise errors.OperatorItemNotFoundError(run_id=run_id, item=number)
    return found[0]


def last_item(run_id: str) -> tuple[int, int]:
    """Return the number of a run's last item and the offset of the byte after its line; (0, 0) where it has none yet."""
    rows = OperatorItem.objects.filter(run_id=run_id).order_by("-number")
    number, offset, length = rows.values_list("number", "line_offset", "line_length").first() or (0, 0, 0)
    return number, offset + length


def attempts_of_item(run_id: str, number: int) -> list[maps.AttemptRecord]:
    return load_attempts(run_id, [number]).get(number, [])


def load_attempts(run_id: str, numbers: Collection[int]) -> dict[int, list[maps.AttemptRecord]]:
    """Return the attempts at these items by item number, in the order in which they were made."""
    attempts: dict[int, list[maps.AttemptRecord]] = defaultdict(list)
    for row in OperatorTry.objects.filter(run_id=run_id, item__in=list(numbers)).order_by("item", "number"):
        attempts[row.item].append(_attempt(row, maps.AttemptRecord))
    return dict(attempts)


def accepted_outputs(run_id: str, *, after: int = 0, limit: int = 500) -> list[maps.ItemResult]:
    """Return items of a run after a number with their results, or why they have none, in the order of the input."""
    # Numbers have no gaps. With LIMIT a PostgreSQL that has not counted the rows yet sorts all of them for each page.
    return _results("i.number > %s AND i.number <= %s ORDER BY i.number", [run_id, after, after + limit])


def load_results(run_id: str, numbers: Sequence[int]) -> list[maps.ItemResult]:
    among = ", ".join(["%s"] * len(numbers))
    return _results(f"i.number IN ({among}) ORDER BY i.number", [run_id, *numbers]) if numbers else []


def _results(which: str, values: Sequence[Any]) -> list[maps.ItemResult]:
    sql = (
        "SELECT i.number, i.line_offset, i.line_length, i.state, t.output, i.error_kind, i.error FROM operator_items i"
        " LEFT JOIN operator_tries t ON t.id = i.accepted_try_id"
        f" WHERE i.run_id = %s AND {which}"
    )
    return [
        maps.ItemResult(
            number=number,
            offset=offset,
            length=length,
            state=ItemState(state),
            output=None if output is None else decode_text(output),
            error_kind=maps.ErrorKind(kind) if kind else None,
            error=decode_text(error),
        )
        for number, offset, length, state, output, kind, error in fetch(sql, values)
    ]


def item_of(columns: Sequence[Any]) -> maps.ItemRecord:
    """Return the item of a row whose columns are ``ITEM_COLUMNS``, in this order."""
    values = dict(zip(ITEM_COLUMNS, columns, strict=True))
    values |= {"offset": values.pop("line_offset"), "length": values.pop("line_length")}
    for name in ("not_before", "lease_expires_at", "started_at", "ended_at"):
        values[name] = values[name] and time_of(values[name])
    values["state"] = ItemState(values["state"])
    values["error_kind"] = maps.ErrorKind(values["error_kind"]) if values["error_kind"] else None
    values["error"] = decode_text(values["error"])
    return maps.ItemRecord(**values)


def _items(where: str, values: Sequence[Any]) -> list[maps.ItemRecord]:
    columns = select_columns(OperatorItem, "i", ITEM_COLUMNS)
    return [item_of(row) for row in fetch(f"SELECT {columns} FROM operator_items i WHERE {where}", values)]


def _attempt(row: OperatorTry, kind: type[Attempt], /, **columns: Any) -> Attempt:
    columns["error_kind"] = maps.ErrorKind(row.error_kind) if row.error_kind else None
    return record_of(kind, row, usage=usage_of(row), **columns)


def has_claimable_items(run_id: str) -> bool:
    waiting = OperatorItem.objects.filter(run_id=run_id, state=ItemState.PENDING.value)
    now = timezone.now()
    return waiting.filter(Q(not_before__isnull=True) | Q(not_before__lte=now)).exists()


def run_states(run_ids: Collection[str]) -> dict[str, RunState]:
    """Return the states of these runs without those of deleted sessions."""
    rows = OperatorRun.objects.filter(id__in=run_ids, session__deleted_at__isnull=True)
    return {run_id: RunState(state) for run_id, state in rows.values_list("id", "state")}


def call_ids_in_flight(run_id: str) -> list[str]:
    running = OperatorItem.objects.filter(run_id=run_id, state=ItemState.RUNNING.value)
    return list(running.exclude(call_id="").values_list("call_id", flat=True))


def sessions_of_runs(run_ids: Collection[str]) -> dict[str, str]:
    return dict(OperatorRun.objects.filter(id__in=run_ids).values_list("id", "session_id"))


def has_forsaken_runs() -> bool:
    """Return whether a live run has no worker, a dead worker holds items, or a stopped run has no output yet."""
    alive = OperatorShare.objects.filter(run_id=OuterRef("id"), lease_expires_at__gt=timezone.now())
    live = OperatorRun.objects.filter(state__in=_LIVE, session__deleted_at__isnull=True)
    return live.exclude(Exists(alive)).exists() or bool(forgotten_runs()) or bool(runs_without_output())


def forgotten_runs(now: datetime | None = None) -> list[str]:
    """Return the runs, in any state, that have items of dead workers."""
    return sorted({run_id for run_id, _ in _dead_leases(now or timezone.now(), run__session__deleted_at__isnull=True)})


def owners_who_left(run_id: str, now: datetime) -> list[str]:
    """Return the dead workers, as stored, that hold items of a run: their leases expired, and they are not only slow."""
    return [owner for _, owner in _dead_leases(now, run_id=run_id)]


def _dead_leases(now: datetime, **which: Any) -> list[tuple[str, str]]:
    items = OperatorItem.objects.filter(expired(now), state=ItemState.RUNNING.value, **which)
    leases = items.values_list("run_id", "lease_owner").annotate(Max("lease_expires_at"))
    return [(run_id, owner) for run_id, owner, at in leases if is_abandoned(owner, expired_at=at, now=now)]


def runs_without_output() -> list[str]:
    """Return stopped runs that have results, nothing in flight and no output file."""
    return list(_due().values_list("id", flat=True)[:100])


def is_output_due(run_id: str) -> bool:
    return bool(_due().filter(id=run_id).exists())


def _due() -> QuerySet[Any]:
    stopped = Q(state=RunState.CANCELLED.value) | Q(state=RunState.PAUSED.value, reason=StopReason.BUDGET.value)
    done = Q(completed_count__gt=0) | Q(failed_count__gt=0)
    running = OperatorItem.objects.filter(run_id=OuterRef("id"), state=ItemState.RUNNING.value)
    rows = OperatorRun.objects.filter(stopped, done, output_file_id="", session__deleted_at__isnull=True)
    return rows.exclude(Exists(running))


def braked_until(aliases: Collection[str]) -> dict[str, datetime]:
    """Return until when models may not be asked; those that may are absent."""
    rows = OperatorBrake.objects.filter(model__in=list(aliases), until__gt=timezone.now())
    return {row.model: row.until for row in rows if row.until is not None}


def page_of_items(
    run_id: str, *, start: int = 1, before: int | None = None, state: ItemState | None = None, limit: int
) -> list[maps.ItemRecord]:
    """Return items from the number ``start`` on, or the last ones before ``before``, in the order of the input."""
    if before is None:
        return list_items(run_id, after=start - 1, limit=limit, states=[state] if state else ())
    rows = OperatorItem.objects.filter(run_id=run_id, number__lt=before)
    if state is not None:
        rows = rows.filter(state=state.value)
    return load_items(run_id, list(rows.order_by("-number").values_list("number", flat=True)[:limit]))


def count_running(run_id: str) -> int:
    return OperatorItem.objects.filter(run_id=run_id, state=ItemState.RUNNING.value).count()


def has_item_before(run_id: str, number: int, *, state: ItemState) -> bool:
    return OperatorItem.objects.filter(run_id=run_id, state=state.value, number__lt=number).exists()


def load_result_heads(run_id: str, numbers: Collection[int], *, length: int) -> dict[int, str]:
    """Return the beginnings of these items' results by item number; items without a result are absent."""
    rows = OperatorTry.objects.filter(run_id=run_id, item__in=list(numbers), accepted=True)
    heads = rows.values_list("item", Substr("output", 1, length))
    return {item: _decoded(head) for item, head in heads}


def load_attempt_heads(run_id: str, number: int, *, length: int, most: int) -> list[AttemptHead]:
    """Return the last attempts at an item, in order, with at most ``length`` stored characters of each text."""
    rows = _attempts(run_id, number).annotate(
        output_head=Substr("output", 1, length), error_head=Substr("error", 1, length), size=Length("output")
    )
    heads = []
    for row in rows.defer("output", "error").order_by("-number")[:most]:
        texts = {"output": _decoded(row.output_head), "error": _decoded(row.error_head)}
        heads.append(_attempt(row, AttemptHead, output_length=row.size, **texts))
    return heads[::-1]


def load_attempt_text(run_id: str, number: int, attempt: int, column: Literal["output", "call_id"]) -> str:
    """Return what an attempt answered, or the id of the call that it made.

    :raises OperatorItemNotFoundError: there was no such attempt, or it made no call.
    """
    text: str | None = _attempts(run_id, number, attempt).values_list(column, flat=True).first()
    if text is None:
        raise errors.OperatorItemNotFoundError(run_id=run_id, item=number)
    return text


def _attempts(run_id: str, number: int, attempt: int | None = None) -> QuerySet[OperatorTry]:
    if not 0 < number < 2**63 or not 0 < (attempt or 1) < 2**31:
        return OperatorTry.objects.none()
    rows = OperatorTry.objects.filter(run_id=run_id, item=number)
    return rows if attempt is None else rows.filter(number=attempt)


def _decoded(head: str) -> str:
    """Decode the beginning of a text, without an escape that was cut in two."""
    return decode_text(_CUT_ESCAPE.sub("", head))
