"""Entries of a session's ledger to be looked at: a page of them, found by type, actor or id, and one with its proof."""

# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from audit_app.proof import verification as verifying
from audit_app.proof.ledger import UNREADABLE, BoundRows, entry_problem
from audit_app.queries import find_verification
from mnesis_core.errors import NotFound
from mnesis_core.events import GENESIS, EventType
from mnesis_core.text import encode_text, printable
from mnesis_core.values import find_ids, is_id
from sessions_app.database.commitments import time_in_sql
from sessions_app.database.fast_sql import fetch
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import Inspected, address_of, inspected
from sessions_app.pages.views import number_in, number_of, signed_in, signed_in_to_post

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


PAGE = 50
NEWER_SHOWN = 10
"""Entries above the one that was asked for."""
IDS_SHOWN, FACTS_SHOWN, SHORT = 2, 3, 7
LONGEST_BODY = 30_000
"""Characters of a body that are shown; the whole has an address of its own."""
_NAMED = re.compile(r'"([a-z_]{1,40})":\[?"([a-z]{2,8}_[0-9A-Z]{26})"')
_FACTS = re.compile(r'"(?:role|state|outcome|error_code|reason|trigger)":"([A-Za-z_]{1,40})"')
_ROLE = re.compile(r'"role":"([a-z]{1,20})"')
_FIRST = ("call_id", "summary_id", "message_id", "part_id", "part_ids", "file_id", "inbox_id", "preview_id", "run_id")
"""The names of what an entry is about, the closest first; it names what that belongs to as well."""
_PAGES = {"turn": "inspect-turn", "run": "inspect-compaction", "call": "inspect-call", "sum": "inspect-summary"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An id, and where what it names is to be seen."""

    id: str
    address: str
    """Empty where there is no page of it, or this reader has none."""

    @property
    def short(self) -> str:
        """The id for a narrow column: what it is, and how it ends."""
        kind, _, rest = self.id.partition("_")
        return f"{kind}_…{rest[-SHORT:]}" if len(rest) > SHORT else self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class LineView:
    """An entry in the list, with what it says in its row."""

    line: EntryLine
    actor: str
    about: list[Link]
    facts: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryView:
    """One entry with its body in lines, and links to everything that it names."""

    entry: Entry
    actor: str
    body: str
    is_cut: bool
    links: list[Link]
    commitments: list[tuple[Bound, Link]]
    previous: int | None
    next: int | None


@signed_in
def ledger(request: HttpRequest, session_id: str) -> HttpResponse:
    """Entries, the newest first, and the one of ``seq`` with its proof."""
    about = inspected(request, session_id)
    wanted, seq = _wanted(request), number_in(request, "seq")
    before, after = number_in(request, "before"), number_in(request, "after")
    if seq is not None and before is None and after is None:
        before = min(seq + NEWER_SHOWN + 1, LARGEST)
    page = find_entries(about.id, wanted, before=before, after=after, limit=PAGE)
    entry = None if seq is None else load_entry(about.id, seq)
    context = {
        "lines": _view_lines(page.lines, about),
        "page": page,
        "wanted": wanted,
        "shown_text": printable(wanted.text),
        "filters": _written(wanted),
        "types": _types(),
        "actors": list(ACTORS),
        "seq": seq,
        "entry": None if entry is None else _view_entry(entry, about),
    }
    return render(request, "audit_app/inspect_ledger.html", context | _verification(about) | {"tab": "inspect-ledger"})


@signed_in
def ledger_body(request: HttpRequest, session_id: str, seq: str) -> HttpResponse:
    """The body of an entry, byte for byte what was hashed."""
    about = inspected(request, session_id)
    entry = load_entry(about.id, number_of(seq, "seq"))
    if entry is None:
        raise NotFound(session_id=about.id)
    # "nosniff" (settings) keeps browsers from reading markup into it.
    return HttpResponse(printable(entry.body), content_type="text/plain; charset=utf-8")


@signed_in
def verification(request: HttpRequest, session_id: str) -> HttpResponse:
    """Render the strip with the progress of the verification and the findings of the last one."""
    about = inspected(request, session_id)
    return render(request, "audit_app/_verification.html", _verification(about))


@signed_in_to_post
def verify(request: HttpRequest, session_id: str) -> HttpResponse:
    """Have the session verified, unless that is on its way."""
    about = inspected(request, session_id)
    verifying.ask(about.id, entries=about.event_seq)
    if "HX-Request" in request.headers:
        return render(request, "audit_app/_verification.html", _verification(about))
    return redirect("inspect-ledger", about.id)


def _verification(about: Inspected) -> dict[str, Any]:
    return {"about": about, "verification": find_verification(about.id)}


def _wanted(request: HttpRequest) -> Wanted:
    type, actor = request.GET.get("type", ""), request.GET.get("actor", "")
    return Wanted(
        type=type if type in {one.value for one in EventType} else "",
        actor=actor if actor in ACTORS else "",
        text=request.GET.get("q", "").strip()[:80],
    )


def _written(wanted: Wanted) -> str:
    """The filters as the end of an address."""
    values = {"type": wanted.type, "actor": wanted.actor, "q": printable(wanted.text)}
    return urlencode({name: value for name, value in values.items() if value})


def _types() -> dict[str, list[str]]:
    """Types of entries by what they are about."""
    found: dict[str, list[str]] = {}
    for type in EventType:
        found.setdefault(type.value.partition(".")[0].replace("_", " "), []).append(type.value)
    return found


def _view_lines(lines: Sequence[EntryLine], about: Inspected) -> list[LineView]:
    """Return entries of a page with links to what they are about; two queries."""
    named = [_named(f"{line.head}\n{line.tail}") for line in lines]
    places = message_places(about.id, {id for ids in named for id in ids})
    views = []
    for line, ids in zip(lines, named, strict=True):
        role = _ROLE.search(line.head) or _ROLE.search(line.tail)
        facts = dict.fromkeys(_FACTS.findall(line.head) + _FACTS.findall(line.tail))
        views.append(
            LineView(
                line=line,
                actor=actor_of(line.type, role[1] if role else ""),
                about=[_link(id, about, places) for id in ids if id != about.id],
                facts=list(facts)[:FACTS_SHOWN],
            )
        )
    return views


def _view_entry(entry: Entry, about: Inspected) -> EntryView:
    text = entry.body if entry.told is None else json.dumps(entry.told, indent=2, ensure_ascii=False)
    ids = list(find_ids(text[:LONGEST_BODY]))[:30]
    places = message_places(about.id, {*ids, *(one.id for one in entry.bound if is_id(one.id))})
    role = entry.told.get("role", "") if isinstance(entry.told, dict) else ""
    return EntryView(
        entry=entry,
        actor=actor_of(entry.type, str(role)),
        body=show_invisible(text[:LONGEST_BODY]),
        is_cut=len(text) > LONGEST_BODY,
        links=[_link(id, about, places) for id in ids],
        commitments=[(one, _link(one.id, about, places)) for one in entry.bound],
        previous=entry.seq - 1 if entry.seq > 1 else None,
        next=entry.seq + 1 if entry.seq < about.event_seq else None,
    )


def _named(text: str) -> list[str]:
    """Return the ids that a body names, the closest first."""
    found = [(name, id) for name, id in _NAMED.findall(text) if is_id(id)]
    ranked = sorted(found, key=lambda one: _FIRST.index(one[0]) if one[0] in _FIRST else len(_FIRST))
    return list(dict.fromkeys(id for _, id in ranked))[:IDS_SHOWN]


def _link(id: str, about: Inspected, places: Mapping[str, int]) -> Link:
    return Link(id=show_invisible(id), address=_place_of(id, about, places) if is_id(id) else "")


def _place_of(id: str, about: Inspected, places: Mapping[str, int]) -> str:
    kind = id.partition("_")[0]
    if kind == "msg" and not about.is_own:
        return address_of("inspect-sightings", about.id, id)
    if kind in ("msg", "part"):
        seq = places.get(id)
        return f"{address_of('session', about.id)}?at={seq}#msg-{seq}" if seq and about.is_own else ""
    if kind in ("map", "file"):  # pages for whoever owns them
        return address_of({"map": "run", "file": "file"}[kind], id) if about.is_own else ""
    if kind in _PAGES:
        return address_of(_PAGES[kind], about.id, id)
    return address_of("inspect", id) if kind == "sess" else ""
