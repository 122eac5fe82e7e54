"""The page of tombstones, and the originals of tool outputs for those whose session it is not."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from compaction_app.inspector.tombstones import load_tombstones
from mnesis_core.errors import InvalidRequest
from mnesis_core.text import printable
from sessions_app.inspecting import inspected
from sessions_app.places import LARGEST
from sessions_app.queries.tombstones import Place
from sessions_app.transcript import load_whole_text
from sessions_app.views import signed_in


@signed_in
def tombstones(request: HttpRequest, session_id: str) -> HttpResponse:
    """Every tool output that was taken out of the context, the newest first."""
    return render(request, "compaction_app/inspect_tombstones.html", _found(request, session_id))


@signed_in
def tombstone_rows(request: HttpRequest, session_id: str) -> HttpResponse:
    """The next page of them."""
    return render(request, "compaction_app/_inspect_tombstone_rows.html", _found(request, session_id))


@signed_in
def original(request: HttpRequest, session_id: str, part_id: str) -> HttpResponse:
    """The whole output of a tool, as it was received."""
    about = inspected(request, session_id)
    text = load_whole_text(about.id, part_id, field="output")
    # "nosniff" (settings) keeps browsers from reading markup into it.
    return HttpResponse(printable(text), content_type="text/plain; charset=utf-8")


def _found(request: HttpRequest, session_id: str) -> dict[str, Any]:
    about = inspected(request, session_id)
    tool, part_id = printable(request.GET.get("tool", "").strip()), request.GET.get("part", "")
    found = load_tombstones(about, tool=tool, part_id=part_id, before=_place(request.GET.get("before", "")))
    return {"about": about, "tab": "inspect-tombstones", "found": found, "tool": tool, "part_id": part_id}


def _place(text: str) -> Place | None:
    if not text:
        return None
    numbers = text.split("-")
    if len(numbers) != 3 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise InvalidRequest("this cursor is not one of ours", field="before")
    seq, message_seq, index = (min(int(number[:19]), LARGEST) for number in numbers)
    return seq, message_seq, min(index, 2**31 - 1)
