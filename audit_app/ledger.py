"""The pages of a session's ledger: its entries, found by type, actor or id, and one of them with its proof."""

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
from django.utils.translation import gettext as _

from audit_app.proof import verify as verifying
from audit_app.proof.ledger import UNREADABLE, BoundRows, entry_problem
from audit_app.store import find_verification
from mnesis_core.actor import Actor, ActorKind, actor_in, read_actor
from mnesis_core.errors import NotFound
from mnesis_core.events import GENESIS, EventType
from mnesis_core.records import find_ids, is_id
from mnesis_core.text import encode_text, printable
from sessions_app.database.tables import fetch, time_in_sql
from sessions_app.pages.formats import format_number
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import Inspected, address_of, inspected, names_for
from sessions_app.pages.views import number_in, number_of, signed_in, signed_in_to_post

WINDOW = 150_000  # entries that one request looks through for what was asked: of more, the next page goes on
ROWS_PROVEN = 50  # commitments of one entry that are compared with their rows at once: a row may have 20 MB
LARGEST, LEAST = 2**63 - 1, -(2**63)
# Stored characters at either end of a body in which a list looks for ids. The names of a body are in the order of
# the alphabet, and a batch of a run has thousands of ids in the middle.
HEAD, TAIL = 1_500, 700
PAGE = 50
NEWER_SHOWN = 10
IDS_SHOWN, FACTS_SHOWN, SHORT = 2, 3, 7
LONGEST_BODY = 30_000  # characters of a body that are shown; the whole has an address of its own

_FACT_ACTS = ("fact.withdrawn", "fact.forbidden", "fact.allowed", "fact.held")
# Who acts, by the types of entries that tell of it; of a message its role says so.
ACTORS: Mapping[str, tuple[str, ...]] = {
    "person": ("session.*", "branch.*", "share.*", "message.rated", "approval.*", "file.added", *_FACT_ACTS),
    "model": ("message.finalized", "part.created", "call.started", "call.completed", "call.failed"),
    "tool": ("part.state_changed", "part.answered_late"),
    "agent": ("turn.*", "call.retried", "context.*", "doom_loop.*", "budget.*", "file.explored"),
    "compaction": (
        "compaction.*",
        "prune.*",
        "summary.*",
        "reflection.*",
        "fact.*",
        "claims.*",
        "fidelity.*",
        "part.compacted",
    ),
    "operator": ("map.*",),
    "peer": ("inbox.*", "delegation.*"),
}
BRANCH_ENTRIES = (EventType.BRANCH_CREATED, EventType.BRANCH_CHOSEN)
ROLES = {"user": "person", "assistant": "model", "system": "agent"}

_HEX = re.compile(r"[0-9a-f]{8,64}")
_NAMED = re.compile(r'"([a-z_]{1,40})":\[?"([a-z]{2,8}_[0-9A-Z]{26})"')
_FACTS = re.compile(r'"(?:role|state|outcome|error_code|reason|trigger)":"([A-Za-z_]{1,40})"')
_NUMBERS = re.compile(r'"(branch|parent|after_seq)":(\d{1,18})\b')
_ROLE = re.compile(r'"role":"([a-z]{1,20})"')
# The names of what an entry is about, the closest first; it names what that belongs to as well.
_FIRST = ("call_id", "summary_id", "message_id", "part_id", "part_ids", "file_id", "inbox_id", "preview_id", "run_id")
_PAGES = {"turn": "inspect-turn", "run": "inspect-compaction", "call": "inspect-call", "sum": "inspect-summary"}
_PLACES = {
    "msg_": "SELECT id, seq FROM messages WHERE session_id = %s AND id IN ({})",
    "part_": "SELECT p.id, m.seq FROM message_parts p JOIN messages m ON m.id = p.message_id"
    " WHERE p.session_id = %s AND p.id IN ({})",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A filter of entries; an empty field does not restrict."""

    type: str = ""
    actor: str = ""
    text: str = ""  # part of an id, or the beginning of a hash

    @property
    def is_any(self) -> bool:
        return not (self.type or self.actor or self.text)


@dataclass(frozen=True, slots=True)
class EntryLine:
    seq: int
    type: str
    prev_hash: str
    hash: str
    at: datetime | None  # None where the row holds no time
    head: str  # both ends of the body
    tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPage:
    lines: Sequence[EntryLine]
    before: int | None  # where older ones begin, and where newer ones do; None where there are none
    after: int | None
    # Entries were looked through down to this one, and there may be more before it; None: to the end of the page, or the first.
    looked_to: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A commitment to a row, or to some columns of it."""

    table: str
    id: str
    commitment: str
    columns: Sequence[str]
    state: str  # fits, differs, or last (the value may be set again, and the last commitment counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    seq: int
    type: str
    body: str
    prev_hash: str
    hash: str
    at: datetime | None
    problem: str  # why it does not follow from the one before it; empty when it does
    told: Any  # what its body says beside its commitments; None where it cannot be read
    bound: Sequence[Bound]
    bound_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchTold:
    words: str
    address: str  # of the branch among the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An id, and the page of what it names; without an address there is no page, or not for this reader."""

    id: str
    address: str

    @property
    def short(self) -> str:
        kind, _, rest = self.id.partition("_")
        return f"{kind}_…{rest[-SHORT:]}" if len(rest) > SHORT else self.id


def find_entries(
    session_id: str, wanted: Wanted, *, before: int | None = None, after: int | None = None, limit: int
) -> EntryPage:
    """Return a page of entries before one or after one, or the newest; no request looks through more than ``WINDOW``."""
    [(newest,)] = fetch("SELECT COALESCE(MAX(seq), 0) FROM events WHERE session_id = %s", [session_id])
    newest = newest if isinstance(newest, int) else LARGEST
    if after is not None:
        after = min(after, newest)
        edge = None if wanted.is_any else _edge(session_id, "seq > %s ORDER BY seq", after)
        lines = _lines(session_id, wanted, [after, LARGEST if edge is None else edge], "ASC", limit)[::-1]
        last = lines[0].seq if len(lines) == limit else newest if edge is None else edge - 1
        older, newer = after + 1 if after else None, last if last < newest else None
        return EntryPage(lines=lines, before=older, after=newer, looked_to=None)

    top = min(newest + 1, LARGEST) if before is None else min(before, newest + 1)
    edge = None if wanted.is_any else _edge(session_id, "seq < %s ORDER BY seq DESC", top)
    lines = _lines(session_id, wanted, [LEAST if edge is None else edge, top], "DESC", limit + 1)
    is_full, page = len(lines) > limit, lines[:limit]
    looked_to = None if is_full or edge is None else edge + 1
    return EntryPage(
        lines=page,
        before=page[-1].seq if is_full else looked_to,
        after=top - 1 if top <= newest else None,
        looked_to=looked_to,
    )


def _edge(session_id: str, where: str, place: int) -> int | None:
    """Return the entry behind the ``WINDOW`` ones from a place on, or ``None`` if there are no more.

    Counted, not calculated: an entry may have been put far behind the others.
    """
    sql = f"SELECT seq FROM events WHERE session_id = %s AND {where} LIMIT 1 OFFSET %s"
    rows = fetch(sql, [session_id, place, WINDOW])
    return int(rows[0][0]) if rows else None


def _lines(session_id: str, wanted: Wanted, bounds: Sequence[int], order: str, limit: int) -> list[EntryLine]:
    vendor = connection.vendor
    tail = f"substr(body, -{TAIL})" if vendor == "sqlite" else f"right(body, {TAIL})"
    holds = "instr(body, %s) > 0" if vendor == "sqlite" else "strpos(body, %s) > 0"
    conditions = ""
    values: list[Any] = []
    if wanted.type:
        conditions += " AND type = %s"
        values.append(wanted.type)
    if wanted.actor:
        types = [type.value for type in EventType if actor_of(type.value) == wanted.actor]
        types = [type for type in types if type != EventType.MESSAGE_CREATED]
        roles = [role for role, actor in ROLES.items() if actor == wanted.actor]
        spoken = "".join(f" OR (type = '{EventType.MESSAGE_CREATED}' AND {holds})" for _ in roles)
        conditions += f" AND (type IN ({', '.join(['%s'] * len(types))}){spoken})"
        values += [*types, *(f'"role":"{role}"' for role in roles)]
    if wanted.text:
        text = encode_text(wanted.text)
        is_hash = _HEX.fullmatch(text) is not None
        conditions += f" AND ({holds} OR substr(hash, 1, %s) = %s)" if is_hash else f" AND {holds}"
        values += [text, len(text), text] if is_hash else [text]
    sql = (
        f"SELECT seq, type, prev_hash, hash, {time_in_sql('created_at', vendor)}, substr(body, 1, {HEAD}), {tail}"
        f" FROM events WHERE session_id = %s AND seq > %s AND seq < %s{conditions} ORDER BY seq {order} LIMIT %s"
    )
    return [
        EntryLine(seq, str(type), str(prev_hash), str(hash), at=_time(at), head=str(head), tail=str(tail))
        for seq, type, prev_hash, hash, at, head, tail in fetch(sql, [session_id, *bounds, *values, limit])
    ]


def actor_of(type: str, role: str = "") -> str:
    """Return the actor of an entry of this type; of a message, its ``role`` decides."""
    if type == EventType.MESSAGE_CREATED:
        return ROLES.get(role, "agent")
    kind, _, _ = type.partition(".")
    return next((actor for actor, types in ACTORS.items() if type in types or f"{kind}.*" in types), "")


def load_entry(session_id: str, seq: int) -> Entry | None:
    at = time_in_sql("created_at", connection.vendor)
    columns = f"SELECT seq, type, body, prev_hash, hash, {at} FROM events WHERE session_id = %s AND seq = %s"
    rows = fetch(columns, [session_id, seq])
    if not rows:
        return None
    [(seq, type, body, prev_hash, hash, told_at)] = rows
    try:
        told = json.loads(body)
        bound = list(told.get("rows", ()))
        told = {name: value for name, value in told.items() if name != "rows"}
    except (*UNREADABLE, RecursionError):
        told, bound = None, []
    return Entry(
        seq=seq,
        type=str(type),
        body=str(body),
        prev_hash=str(prev_hash),
        hash=str(hash),
        at=_time(told_at),
        problem=_problem(session_id, (seq, type, body, prev_hash, hash)),
        told=told,
        bound=_compare_with_rows(session_id, seq, bound[:ROWS_PROVEN]),
        bound_count=len(bound),
    )


def _problem(session_id: str, entry: tuple[Any, ...]) -> str:
    seq = entry[0]
    before = "SELECT hash FROM events WHERE session_id = %s AND seq = %s"
    rows = fetch(before, [session_id, seq - 1]) if seq > 1 else [(GENESIS,)]
    if not rows:
        return _("entry %(number)s is missing") % {"number": seq - 1}
    try:
        return entry_problem(seq - 1, rows[0][0], (seq, *entry[1:]))
    except (TypeError, AttributeError):  # SQLite keeps bytes in any column, if they were put there
        return _("entry %(number)s is not what was hashed") % {"number": seq}


def _compare_with_rows(session_id: str, seq: int, commitments: Sequence[Any]) -> list[Bound]:
    rows = BoundRows(session_id, using="default")
    try:
        rows.take(seq, commitments)
        wrong = {finding.detail for finding in rows.check()}
    except (*UNREADABLE, RecursionError):
        return []
    compared = []
    for table, id, commitment, *rest in commitments:
        columns = tuple(map(str, rest[0])) if rest else ()
        names = {f"{table} {id} {', '.join(columns)}".rstrip(), f"{table} {id}"}
        state = "last" if len(columns) == 1 and (table, id, columns[0]) in rows.accounts.latest else "fits"
        if wrong & (names | {f"{table}: there is no such table or column"}):
            state = "differs"
        compared.append(Bound(table=str(table), id=str(id), commitment=str(commitment), columns=columns, state=state))
    return compared


def _time(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except (ValueError, TypeError):
        return None


@signed_in
def ledger(request: HttpRequest, session_id: str) -> HttpResponse:
    about, types = inspected(request, session_id), [type.value for type in EventType]
    type, actor = request.GET.get("type", ""), request.GET.get("actor", "")
    wanted = Wanted(
        type=type if type in types else "",
        actor=actor if actor in ACTORS else "",
        text=request.GET.get("q", "").strip()[:80],
    )
    seq, before, after = (number_in(request, name) for name in ("seq", "before", "after"))
    if seq is not None and before is None and after is None:
        before = min(seq + NEWER_SHOWN + 1, LARGEST)
    page = find_entries(about.id, wanted, before=before, after=after, limit=PAGE)
    entry = None if seq is None else load_entry(about.id, seq)

    filters = {"type": wanted.type, "actor": wanted.actor, "q": printable(wanted.text)}
    groups: dict[str, list[str]] = {}
    for name in types:
        groups.setdefault(name.partition(".")[0].replace("_", " "), []).append(name)
    context = {
        "tab": "inspect-ledger",
        "lines": _view_lines(request, page.lines, about),
        "page": page,
        "wanted": wanted,
        "shown_text": filters["q"],
        "filters": urlencode({name: value for name, value in filters.items() if value}),
        "types": groups,
        "actors": list(ACTORS),
        "seq": seq,
        "entry": None if entry is None else _view_entry(request, entry, about),
    }
    return render(request, "audit_app/ledger/ledger.html", context | _verification(about))


@signed_in
def ledger_body(request: HttpRequest, session_id: str, seq: str) -> HttpResponse:
    about = inspected(request, session_id)
    entry = load_entry(about.id, number_of(seq, "seq"))
    if entry is None:
        raise NotFound(session_id=about.id)
    # "nosniff" (settings) keeps browsers from reading markup into it.
    return HttpResponse(printable(entry.body), content_type="text/plain; charset=utf-8")


@signed_in
def verification(request: HttpRequest, session_id: str) -> HttpResponse:
    return render(request, "audit_app/ledger/_verification.html", _verification(inspected(request, session_id)))


@signed_in_to_post
def verify(request: HttpRequest, session_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    verifying.ask(about.id, entries=about.event_seq)
    if "HX-Request" in request.headers:
        return render(request, "audit_app/ledger/_verification.html", _verification(about))
    return redirect("inspect-ledger", about.id)


def _verification(about: Inspected) -> dict[str, Any]:
    return {"about": about, "verification": find_verification(about.id)}


def _view_lines(request: HttpRequest, lines: Sequence[EntryLine], about: Inspected) -> list[dict[str, Any]]:
    named = []
    for line in lines:
        pairs = [
            (name, id)
            for name, id in _NAMED.findall(f"{line.head}\n{line.tail}")
            if name != "organisation" and is_id(id)
        ]
        pairs.sort(key=lambda pair: _FIRST.index(pair[0]) if pair[0] in _FIRST else len(_FIRST))
        named.append(list(dict.fromkeys(id for _, id in pairs))[:IDS_SHOWN])
    places = message_places(about.id, {id for ids in named for id in ids})
    actors = [actor_in(line.head) for line in lines]
    names = names_for(request, {actor.person for actor in actors})
    views = []
    for line, ids, actor in zip(lines, named, actors, strict=True):
        role = _ROLE.search(line.head) or _ROLE.search(line.tail)
        facts = dict.fromkeys(_FACTS.findall(line.head) + _FACTS.findall(line.tail))
        views.append(
            {
                "line": line,
                "actor": actor_of(line.type, role[1] if role else ""),
                "by": actor_in_words(actor, names),
                "about": [_link(id, about, places) for id in ids if id != about.id],
                "facts": list(facts)[:FACTS_SHOWN],
                "branch": _branch_told(line.type, line.head, about),
            }
        )
    return views


def actor_in_words(actor: Actor, names: Mapping[str, str]) -> str:
    """Return who acts, as ``describe_actor`` says it; empty where no one is named."""
    person = names.get(actor.person, actor.person)
    if actor.kind == ActorKind.USER:
        return person
    kinds = {
        ActorKind.KEY: _("API key %(name)s") % {"name": actor.ref},
        ActorKind.WORKER: _("worker (%(task)s)") % {"task": actor.ref},
        ActorKind.COMMAND: f"manage.py {actor.ref}",
        ActorKind.MODEL: _("another agent"),
        ActorKind.VISITOR: _("a visitor who is not signed in"),
        ActorKind.SYSTEM: _("the system"),
    }
    who = next((words for kind, words in kinds.items() if kind == actor.kind), actor.kind)
    return _("%(who)s for %(person)s") % {"who": who, "person": person} if person else who


def _branch_told(type: str, head: str, about: Inspected) -> BranchTold | None:
    """Return what an entry of a branch says: its body is short, so the beginning is all of it."""
    told = dict(_NUMBERS.findall(head))
    if type not in BRANCH_ENTRIES or "branch" not in told:
        return None
    number, after = int(told["branch"]), int(told.get("after_seq", 0))
    shown = {"branch": number, "message": after, "parent": int(told.get("parent", 0))}
    words = _("branch %(branch)s goes on")
    if type == EventType.BRANCH_CREATED:
        words = _("branch %(branch)s begins before the first message")
        if after:
            words = _("branch %(branch)s begins after message %(message)s of branch %(parent)s")
    words %= {name: format_number(value) for name, value in shown.items()}
    page = address_of("inspect-branches", about.id)
    return BranchTold(words=words, address=f"{page}?from={number}#branch-{number}" if page else "")


def _view_entry(request: HttpRequest, entry: Entry, about: Inspected) -> dict[str, Any]:
    text = entry.body if entry.told is None else json.dumps(entry.told, indent=2, ensure_ascii=False)
    ids = list(find_ids(text[:LONGEST_BODY]))[:30]
    places = message_places(about.id, {*ids, *(one.id for one in entry.bound if is_id(one.id))})
    told = entry.told if isinstance(entry.told, dict) else {}
    actor, role = read_actor(told.get("actor")), told.get("role", "")
    return {
        "entry": entry,
        "actor": actor_of(entry.type, str(role)),
        "by": actor_in_words(actor, names_for(request, {actor.person})),
        "via": actor.via,
        "request_id": actor.request,
        "body": show_invisible(text[:LONGEST_BODY]),
        "is_cut": len(text) > LONGEST_BODY,
        "links": [_link(id, about, places) for id in ids],
        "branch": _branch_told(entry.type, entry.body[:HEAD], about),
        "commitments": [(one, _link(one.id, about, places)) for one in entry.bound],
        "previous": entry.seq - 1 if entry.seq > 1 else None,
        "next": entry.seq + 1 if entry.seq < about.event_seq else None,
    }


def message_places(session_id: str, ids: Collection[str]) -> dict[str, int]:
    """Return the seq of each of these messages, and of the message of each of these parts."""
    found: dict[str, int] = {}
    for prefix, sql in _PLACES.items():
        among = [id for id in ids if id.startswith(prefix)]
        if among:
            found |= dict(fetch(sql.format(", ".join(["%s"] * len(among))), [session_id, *among]))
    return found


def _link(id: str, about: Inspected, places: Mapping[str, int]) -> Link:
    kind, address, seq = id.partition("_")[0], "", places.get(id)
    if not is_id(id):
        kind = ""
    if kind == "msg" and not about.is_own:
        address = address_of("inspect-sightings", about.id, id)
    elif kind in ("msg", "part") and seq and about.is_own:
        address = f"{address_of('session', about.id)}?at={seq}#msg-{seq}"
    elif kind in ("map", "file") and about.is_own:
        address = address_of({"map": "run", "file": "file"}[kind], id)
    elif kind in _PAGES:
        address = address_of(_PAGES[kind], about.id, id)
    elif kind == "sess":
        address = address_of("inspect", id)
    return Link(id=show_invisible(id), address=address)
