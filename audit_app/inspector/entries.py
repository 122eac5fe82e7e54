"""Entries of a session's ledger to be looked at: a page of them, found by type, actor or id, and one with its proof."""
# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from audit_app.proof.bound_rows import BoundRows, entry_problem
from audit_app.proof.ledger_segments import UNREADABLE
from mnesis_core.events import EventType
from mnesis_core.ledger import GENESIS
from mnesis_core.text import encode_text
from sessions_app.database.commitments import time_in_sql
from sessions_app.database.fast_sql import fetch

WINDOW = 150_000
"""Entries that one request looks through for what was asked: of more, the next page goes on."""
ROWS_PROVEN = 50
"""Commitments of one entry that are compared with their rows at once: a row may have 20 MB."""
LARGEST, LEAST = 2**63 - 1, -(2**63)
HEAD, TAIL = 1_500, 700
"""Stored characters at either end of a body in which a list looks for ids. The names of a body are in the order of
the alphabet, and a batch of a run has thousands of ids in the middle."""
_HEX = re.compile(r"[0-9a-f]{8,64}")

_PLACES = {
    "msg_": "SELECT id, seq FROM messages WHERE session_id = %s AND id IN ({})",
    "part_": "SELECT p.id, m.seq FROM message_parts p JOIN messages m ON m.id = p.message_id"
    " WHERE p.session_id = %s AND p.id IN ({})",
}
ACTORS: Mapping[str, tuple[str, ...]] = {
    "person": ("session.*", "approval.*", "file.added"),
    "model": ("message.finalized", "part.created", "call.started", "call.completed", "call.failed"),
    "tool": ("part.state_changed", "part.answered_late"),
    "agent": ("turn.*", "call.retried", "context.*", "doom_loop.*", "budget.*", "file.explored"),
    "compaction": ("compaction.*", "prune.*", "summary.*", "part.compacted"),
    "operator": ("map.*",),
    "peer": ("inbox.*", "delegation.*"),
}
"""Who acts, by the types of entries that tell of it; of a message its role says so."""
ROLES = {"user": "person", "assistant": "model", "system": "agent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter of entries; an empty field does not restrict."""

    type: str = ""
    actor: str = ""
    text: str = ""
    """Part of an id, or the beginning of a hash."""

    @property
    def is_any(self) -> bool:
        return not (self.type or self.actor or self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLine:
    """An entry in a list."""

    seq: int
    type: str
    prev_hash: str
    hash: str
    at: datetime | None
    """When, as its row says; ``None`` where that is no time."""
    head: str
    tail: str
    """Both ends of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPage:
    """Entries, the newest first."""

    lines: Sequence[EntryLine]
    before: int | None
    """Where older ones begin; ``None`` where there are none."""
    after: int | None
    """Where newer ones do."""
    looked_to: int | None
    """Down to this entry was looked, and there may be more before it; ``None``: to the end of the page, or the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A commitment of an entry to a row, or to some columns of it."""

    table: str
    id: str
    commitment: str
    columns: Sequence[str]
    state: str
    """``fits``, ``differs``, ``last`` (the value may be set again, and the last commitment counts) or ``unread``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry, and whether it is what was written."""

    seq: int
    type: str
    body: str
    prev_hash: str
    hash: str
    at: datetime | None
    problem: str
    """Why it does not follow from the one before it; empty when it does."""
    told: Any
    """What its body says beside its commitments; ``None`` where it cannot be read."""
    bound: Sequence[Bound]
    bound_count: int


def find_entries(
    session_id: str, wanted: Wanted, *, before: int | None = None, after: int | None = None, limit: int
) -> EntryPage:
    """A page of entries before one or after one, or the newest; no request looks through more than ``WINDOW``."""
    newest = _newest(session_id)
    if after is not None:
        return _newer(session_id, wanted, after, newest, limit)
    top = min(newest + 1, LARGEST) if before is None else min(before, newest + 1)
    edge = None if wanted.is_any else _edge(session_id, "seq < %s ORDER BY seq DESC", top)
    bounds = [LEAST if edge is None else edge, top]
    lines = _lines(session_id, wanted, bounds, "DESC", limit + 1)
    is_full, page = len(lines) > limit, lines[:limit]
    looked_to = None if is_full or edge is None else edge + 1
    return EntryPage(
        lines=page,
        before=page[-1].seq if is_full else looked_to,
        after=top - 1 if top <= newest else None,
        looked_to=looked_to,
    )


def _newer(session_id: str, wanted: Wanted, after: int, newest: int, limit: int) -> EntryPage:
    after = min(after, newest)
    edge = None if wanted.is_any else _edge(session_id, "seq > %s ORDER BY seq", after)
    lines = _lines(session_id, wanted, [after, LARGEST if edge is None else edge], "ASC", limit)[::-1]
    last = lines[0].seq if len(lines) == limit else newest if edge is None else edge - 1
    return EntryPage(
        lines=lines, before=after + 1 if after else None, after=last if last < newest else None, looked_to=None
    )


def _edge(session_id: str, where: str, place: int) -> int | None:
    """The entry behind the ``WINDOW`` ones from a place on; ``None`` where there are no more.

    Counted, not reckoned: somebody may have put an entry far behind the others.
    """
    sql = f"SELECT seq FROM events WHERE session_id = %s AND {where} LIMIT 1 OFFSET %s"
    rows = fetch(sql, [session_id, place, WINDOW])
    return int(rows[0][0]) if rows else None


def load_entry(session_id: str, seq: int) -> Entry | None:
    """One entry with its proof, ``None`` where there is none of this number."""
    at = time_in_sql("created_at", connection.vendor)
    columns = f"SELECT seq, type, body, prev_hash, hash, {at} FROM events WHERE session_id = %s AND seq = %s"
    rows = fetch(columns, [session_id, seq])
    if not rows:
        return None
    [(seq, type, body, prev_hash, hash, told_at)] = rows
    told, bound = _read(body)
    return Entry(
        seq=seq,
        type=str(type),
        body=str(body),
        prev_hash=str(prev_hash),
        hash=str(hash),
        at=_time(told_at),
        problem=_problem(session_id, (seq, type, body, prev_hash, hash)),
        told=told,
        bound=_proven(session_id, seq, bound),
        bound_count=len(bound),
    )


def message_places(session_id: str, ids: Collection[str]) -> dict[str, int]:
    """The place in the session of each of these messages, and of the message of each of these parts."""
    found: dict[str, int] = {}
    for prefix, sql in _PLACES.items():
        among = [id for id in ids if id.startswith(prefix)]
        if among:
            found |= dict(fetch(sql.format(", ".join(["%s"] * len(among))), [session_id, *among]))
    return found


def actor_of(type: str, role: str = "") -> str:
    """Return the actor of an entry of this type; of a message, its ``role`` decides."""
    if type == EventType.MESSAGE_CREATED:
        return ROLES.get(role, "agent")
    kind, _, _ = type.partition(".")
    return next((actor for actor, types in ACTORS.items() if type in types or f"{kind}.*" in types), "")


def _newest(session_id: str) -> int:
    [(seq,)] = fetch("SELECT COALESCE(MAX(seq), 0) FROM events WHERE session_id = %s", [session_id])
    return seq if isinstance(seq, int) else LARGEST


def _lines(session_id: str, wanted: Wanted, bounds: Sequence[int], order: str, limit: int) -> list[EntryLine]:
    """Entries between two others."""
    vendor = connection.vendor
    tail = f"substr(body, -{TAIL})" if vendor == "sqlite" else f"right(body, {TAIL})"
    conditions, asked = _conditions(wanted, vendor)
    sql = (
        f"SELECT seq, type, prev_hash, hash, {time_in_sql('created_at', vendor)}, substr(body, 1, {HEAD}), {tail}"
        f" FROM events WHERE session_id = %s AND seq > %s AND seq < %s{conditions} ORDER BY seq {order} LIMIT %s"
    )
    return [
        EntryLine(
            seq=seq,
            type=str(type),
            prev_hash=str(prev_hash),
            hash=str(hash),
            at=_time(at),
            head=str(head),
            tail=str(tail),
        )
        for seq, type, prev_hash, hash, at, head, tail in fetch(sql, [session_id, *bounds, *asked, limit])
    ]


def _conditions(wanted: Wanted, vendor: str) -> tuple[str, list[Any]]:
    holds = "instr(body, %s) > 0" if vendor == "sqlite" else "strpos(body, %s) > 0"
    conditions: list[str] = []
    values: list[Any] = []
    if wanted.type:
        conditions.append("type = %s")
        values.append(wanted.type)
    if wanted.actor:
        types = [type.value for type in EventType if actor_of(type.value) == wanted.actor]
        types = [type for type in types if type != EventType.MESSAGE_CREATED]
        roles = [role for role, actor in ROLES.items() if actor == wanted.actor]
        spoken = "".join(f" OR (type = '{EventType.MESSAGE_CREATED}' AND {holds})" for _ in roles)
        conditions.append(f"(type IN ({', '.join(['%s'] * len(types))}){spoken})")
        values += [*types, *(f'"role":"{role}"' for role in roles)]
    if wanted.text:
        text = encode_text(wanted.text)
        is_hash = _HEX.fullmatch(text) is not None
        conditions.append(f"({holds} OR substr(hash, 1, %s) = %s)" if is_hash else holds)
        values += [text, len(text), text] if is_hash else [text]
    return "".join(f" AND {condition}" for condition in conditions), values


def _problem(session_id: str, entry: tuple[Any, ...]) -> str:
    seq = entry[0]
    before = "SELECT hash FROM events WHERE session_id = %s AND seq = %s"
    rows = fetch(before, [session_id, seq - 1]) if seq > 1 else [(GENESIS,)]
    if not rows:
        return f"entry {seq - 1} is missing"
    try:
        return entry_problem(seq - 1, rows[0][0], (seq, *entry[1:]))
    except (TypeError, AttributeError):  # SQLite keeps bytes in any column, where somebody puts them there
        return f"entry {seq} is not what was hashed"


def _read(body: Any) -> tuple[Any, list[Any]]:
    """Return a body without its commitments, and the commitments."""
    try:
        data = json.loads(body)
        return {name: value for name, value in data.items() if name != "rows"}, list(data.get("rows", ()))
    except (*UNREADABLE, RecursionError):
        return None, []


def _proven(session_id: str, seq: int, bound: Sequence[Any]) -> list[Bound]:
    """The first commitments of an entry, each compared with its row."""
    shown = bound[:ROWS_PROVEN]
    rows = BoundRows(session_id, using="default")
    try:
        rows.take(seq, shown)
        wrong = {finding.detail for finding in rows.check()}
    except (*UNREADABLE, RecursionError):
        return []
    latest = rows.accounts.latest
    return [_bound(one, wrong, latest) for one in shown]


def _bound(one: Sequence[Any], wrong: set[str], latest: Mapping[Any, Any]) -> Bound:
    table, id, commitment, *rest = one
    columns = tuple(map(str, rest[0])) if rest else ()
    words = f"{table} {id} {', '.join(columns)}".rstrip()
    if words in wrong or f"{table} {id}" in wrong or f"{table}: there is no such table or column" in wrong:
        state = "differs"
    else:
        state = "last" if len(columns) == 1 and (table, id, columns[0]) in latest else "fits"
    return Bound(table=str(table), id=str(id), commitment=str(commitment), columns=columns, state=state)


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except (ValueError, TypeError):
        return None
