"""The ledger of a session: its entries, one of them with its proof, and the verification of all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from audit_app.inspector.entries import (
    ACTORS,
    Bound,
    Entry,
    EntryLine,
    Wanted,
    actor_of,
    find_entries,
    load_entry,
    message_places,
)
from audit_app.proof import verification as verifying
from audit_app.queries import find_verification
from mnesis_core.errors import NotFound
from mnesis_core.events import EventType
from mnesis_core.text import printable
from mnesis_core.values import find_ids, is_id
from sessions_app.pages.lookup import LARGEST
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import Inspected, address_of, inspected
from sessions_app.pages.views import number_in, number_of, signed_in, signed_in_to_post

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
