"""What the model saw: the calls of a session, one call in blocks and as its payload, and how it differs from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from compaction_app.inspector.call_presenter import CHANGES, facts_of, shares_of, signed, view_change
from compaction_app.inspector.calls import OpenedCall, compare, load_call_of, open_call, pretty
from compaction_app.inspector.occupancy import ScrubBar, call_at, draw, load_occupancy, place_of, size_of_call
from compaction_app.inspector.payload import may_see_payload, payload_file
from mnesis_core.errors import CallNotFoundError
from mnesis_core.providers.rendering.accepted import outgoing
from mnesis_core.records import CallRecord
from sessions_app.pages.markdown import PIECE, format_characters, show_invisible
from sessions_app.pages.permissions import Inspected, address_of, inspected
from sessions_app.pages.views import number_in, signed_in
from sessions_app.record.call_queries import (
    CallFilter,
    CallHeading,
    calls_beside,
    list_headings,
    load_heading_of_call,
    models_of_calls,
    numbers_of_calls,
)

PAGE = 50
BLOCKS = 100
CHANGES_SHOWN = 100
NEAR = 25
"""Calls that the picker of a comparison offers."""
HEAD = 20_000
"""Characters of a block's text or a payload that are shown at first."""
PURPOSES = ("turn", "summary", "file", "map")
STATES = ("running", "completed", "failed")
SECTIONS = (("blocks", "Blocks"), ("payload", "Payload"), ("difference", "Difference"))


@signed_in
def call_list(request: HttpRequest, session_id: str) -> HttpResponse:
    """The model calls of a session, newest first."""
    about = inspected(request, session_id)
    context = {"about": about, "tab": "inspect-calls", **_listed(request, about)}
    if request.headers.get("HX-Target") == "calls":
        return render(request, "compaction_app/_inspect_calls.html", context)
    return render(request, "compaction_app/inspect_calls.html", context | {"scrub": _scrub(about, None)})


@signed_in
def call_at_place(request: HttpRequest, session_id: str) -> HttpResponse:
    """The call that one column of the scrub bar shows.

    :raises Http404: no model was asked in this session.
    """
    about = inspected(request, session_id)
    call_id = call_at(about.id, number_in(request, "place") or 1)
    if call_id is None:
        raise Http404("no model was asked")
    section = request.GET.get("section", "")
    known = section if section in dict(SECTIONS) else ""
    return redirect(address_of("inspect-call", about.id, call_id, section=known))


@signed_in
def call_page(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    """One call: facts, and the section that is asked for."""
    about = inspected(request, session_id)
    call = _call(request, about, call_id)
    opened = open_call(call)
    section = _section(request)
    context = {
        "about": about,
        "tab": "inspect-calls",
        **_facts(about, opened),
        "section": section,
        "sections": _sections(about, opened, section),
        **_BODIES[section](request, about, opened),
    }
    if request.headers.get("HX-Target") == "call":
        return render(request, "compaction_app/_inspect_call_swap.html", context)
    return render(request, "compaction_app/inspect_call.html", context | {"scrub": _scrub(about, call)})


@signed_in
def call_block(request: HttpRequest, session_id: str, call_id: str, number: int) -> HttpResponse:
    """The text of one block as the model read it; a page of its own, or the part of one that htmx asks for.

    :raises Http404: the call has no such block.
    """
    about = inspected(request, session_id)
    opened = open_call(_call(request, about, call_id))
    if not 0 < number <= len(opened.blocks):
        raise Http404("there is no such block")
    here = address_of("inspect-block", about.id, opened.record.id, str(number))
    offset, only = number_in(request, "offset") or 0, request.GET.get("text", "")
    texts = [
        (name, _stretch(outgoing(text), f"{here}?text={name}&", offset=offset))
        for name, text in opened.blocks[number - 1].texts
        if only in ("", name)
    ]
    context = {
        "about": about,
        "tab": "inspect-calls",
        "call_url": address_of("inspect-call", about.id, opened.record.id),
        # Not "block": inside {% block %} that name is the template's own.
        "shown": opened.blocks[number - 1],
        "number": number,
        "texts": texts,
    }
    is_part = "HX-Request" in request.headers
    return render(request, f"compaction_app/{'_inspect_block' if is_part else 'inspect_block'}.html", context)


@signed_in
def call_payload(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    """The next stretch of a payload.

    :raises Http404: it cannot be rebuilt.
    """
    about = inspected(request, session_id)
    opened = open_call(_call(request, about, call_id))
    if opened.rebuilt.payload is None:
        raise Http404("this payload cannot be rebuilt")
    stretch = _payload(about, opened, offset=number_in(request, "offset") or 0)["payload"]
    return render(request, "compaction_app/_inspect_text.html", {"stretch": stretch, "label": "Payload"})


@signed_in
def call_payload_file(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    """The whole payload as a file of JSON.

    :raises Http404: it cannot be rebuilt.
    """
    about = inspected(request, session_id)
    opened = open_call(_call(request, about, call_id))
    return payload_file(opened.record, opened.rebuilt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of a long text."""

    text: str
    """Ready to be shown."""
    next_url: str
    """Where the next one is; empty at the end."""
    next_size: str
    size: str
    """Of the whole text."""


def _stretch(text: str, here: str, *, offset: int) -> Stretch:
    """``here`` is an address that waits for ``offset=``."""
    end = min(len(text), offset + (PIECE if offset else HEAD))
    return Stretch(
        text=show_invisible(text[offset:end]),
        next_url=f"{here}offset={end}" if end < len(text) else "",
        next_size=format_characters(min(len(text) - end, PIECE)),
        size=format_characters(len(text)),
    )


def _call(request: HttpRequest, about: Inspected, call_id: str) -> CallRecord:
    """:raises CallNotFoundError: the session has no such call, or this reader may not see all that it was sent."""
    call = load_call_of(about, call_id)
    if not about.is_own and not may_see_payload(request.user, call.purpose):
        raise CallNotFoundError(call_id=call_id)
    return call


def _listed(request: HttpRequest, about: Inspected) -> dict[str, Any]:
    chosen = CallFilter(**{name: request.GET.get(name, "") for name in ("purpose", "state", "model")})
    before = request.GET.get("before", "")
    found = list_headings(about.id, chosen=chosen, before=before, limit=PAGE + 1)
    page = found[:PAGE]
    kept = {"purpose": chosen.purpose, "state": chosen.state, "model": chosen.model}
    older = page[-1].id if len(found) > PAGE else ""
    return {
        "calls": _numbered(about, page),
        "purposes": PURPOSES,
        "states": STATES,
        "models": models_of_calls(about.id),
        "chosen": chosen,
        "is_filtered": chosen != CallFilter(),
        "is_newest": not before,
        "newest_url": address_of("inspect-calls", about.id, **kept),
        "older_url": address_of("inspect-calls", about.id, before=older, **kept) if older else "",
    }


def _numbered(about: Inspected, calls: list[CallHeading]) -> list[tuple[CallHeading, int]]:
    numbers = numbers_of_calls(about.id, [call.id for call in calls])
    return [(call, numbers[call.id]) for call in calls]


def _scrub(about: Inspected, call: CallRecord | None) -> ScrubBar | None:
    occupancy = load_occupancy(about.id)
    if occupancy is None:
        return None
    if call is None:
        return draw(occupancy)
    number = numbers_of_calls(about.id, [call.id])[call.id]
    shown = (number, size_of_call(call)) if call.purpose == "turn" else None
    return draw(occupancy, place=place_of(call, occupancy.calls), shown=shown)


def _section(request: HttpRequest) -> str:
    section = request.GET.get("section", "")
    if section in dict(SECTIONS):
        return section
    return "difference" if request.GET.get("compare") else "blocks"


def _facts(about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    call = opened.record
    heading = load_heading_of_call(about.id, call.id)
    if heading is None:
        raise CallNotFoundError(call_id=call.id)
    before, after = calls_beside(call)
    number = numbers_of_calls(about.id, [call.id])[call.id]
    return {
        "call": heading,
        "record": call,
        "ended_at": call.ended_at,
        "facts": facts_of(call),
        "number": number,
        "rebuilt": opened.rebuilt,
        "problems": [show_invisible(problem) for problem in opened.rebuilt.problems],
        "message_url": address_of("inspect-sightings", about.id, call.message_id) if call.message_id else "",
        "before_url": address_of("inspect-call", about.id, before) if before else "",
        "after_url": address_of("inspect-call", about.id, after) if after else "",
        "file_url": address_of("inspect-payload-file", about.id, call.id),
    }


def _sections(about: Inspected, opened: OpenedCall, chosen: str) -> list[tuple[str, str, bool]]:
    """(address, name, whether it is shown) of each section that this call has."""
    return [
        (address_of("inspect-call", about.id, opened.record.id, section=name), label, name == chosen)
        for name, label in SECTIONS
        if name != "difference" or opened.is_of_turn
    ]


def _blocks_body(request: HttpRequest, about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    first = min(number_in(request, "from") or 0, max(len(opened.blocks) - 1, 0))
    end = min(first + BLOCKS, len(opened.blocks))
    here = opened.record.id
    return {
        "shares": shares_of(opened.blocks),
        "blocks": [
            (number, block, address_of("inspect-block", about.id, here, str(number)))
            for number, block in enumerate(opened.blocks[first:end], start=first + 1)
        ],
        "prompt_tokens": sum(block.tokens for block in opened.blocks),
        "total": len(opened.blocks),
        "first": first + 1,
        "last": end,
        "earlier_url": _page_url(about, here, first - BLOCKS) if first else "",
        "later_url": _page_url(about, here, end) if end < len(opened.blocks) else "",
    }


def _page_url(about: Inspected, call_id: str, first: int) -> str:
    return address_of("inspect-call", about.id, call_id, section="blocks", **{"from": max(first, 0)})


def _payload_body(request: HttpRequest, about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    return _payload(about, opened, offset=0)


def _payload(about: Inspected, opened: OpenedCall, *, offset: int) -> dict[str, Any]:
    if opened.rebuilt.payload is None:
        return {"payload": None}
    here = address_of("inspect-payload", about.id, opened.record.id)
    return {"payload": _stretch(pretty(opened.rebuilt.payload), f"{here}?", offset=offset)}


def _difference_body(request: HttpRequest, about: Inspected, opened: OpenedCall) -> dict[str, Any]:
    if not opened.is_of_turn:
        return {"comparison": None}
    wanted = request.GET.get("compare", "")
    comparison = compare(opened, owner_id=about.owner_id, earlier_id=wanted or None)
    compared, kind = comparison.compared, request.GET.get("change", "")
    chosen = [change for change in comparison.changes if kind in ("", change.difference.change)]
    first = number_in(request, "from") or 0
    end = first + CHANGES_SHOWN

    def here(**query: Any) -> str:
        return address_of("inspect-call", about.id, opened.record.id, section="difference", compare=wanted, **query)

    earlier = compared.earlier
    picked = list_headings(about.id, chosen=CallFilter(purpose="turn"), before=opened.record.id, limit=NEAR)
    return {
        "comparison": comparison,
        "earlier": earlier and _named(about, earlier),
        "earlier_id": earlier.id if earlier else "",
        "picked": _numbered(about, picked),
        "is_far": earlier is not None and earlier.id not in {call.id for call in picked},
        "counts": [(CHANGES[name], count, here(change=name), name == kind) for name, count in compared.counts.items()],
        "all_url": here() if kind else "",
        "total": compared.total,
        "untold": compared.total - len(compared.changes),
        "changes": [view_change(change, about.id) for change in chosen[first:end]],
        "earlier_url": here(change=kind, **{"from": max(first - CHANGES_SHOWN, 0) or None}) if first else "",
        "later_url": here(change=kind, **{"from": end}) if end < len(chosen) else "",
        "growth": signed(opened.record.estimated_tokens - (earlier.estimated_tokens if earlier else 0)),
    }


def _named(about: Inspected, call: CallRecord) -> tuple[int, str]:
    """The number and the address of a call."""
    return numbers_of_calls(about.id, [call.id])[call.id], address_of("inspect-call", about.id, call.id)


_BODIES = {"blocks": _blocks_body, "payload": _payload_body, "difference": _difference_body}
