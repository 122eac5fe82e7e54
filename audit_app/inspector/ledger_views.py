"""The ledger of a session: its entries, one of them with its proof, and the verification of all."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from audit_app import verifying
from audit_app.entries import ACTORS, Wanted, find_entries, load_entry
from audit_app.queries import find_verification
from audit_app.showing import shown_entry, shown_lines, shown_verification
from mnesis_core.errors import NotFound
from mnesis_core.events import EventType
from mnesis_core.text import printable
from sessions_app.inspecting import Inspected, inspected
from sessions_app.places import LARGEST
from sessions_app.views import number_in, number_of, signed_in, signed_in_to_post

PAGE = 50
NEWER_SHOWN = 10
"""Entries above the one that was asked for."""


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
        "lines": shown_lines(page.lines, about),
        "page": page,
        "looked_to": None if page.looked_to is None else f"{page.looked_to:,}",
        "wanted": wanted,
        "shown_text": printable(wanted.text),
        "filters": _written(wanted),
        "types": _types(),
        "actors": list(ACTORS),
        "seq": seq,
        "entry": None if entry is None else shown_entry(entry, about),
        "entries": f"{about.event_seq:,}",
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
    """How far the verification is, and what the last one found: the strip alone."""
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
    shown = shown_verification(find_verification(about.id), about, now=timezone.now())
    return {"about": about, "verification": shown}


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
