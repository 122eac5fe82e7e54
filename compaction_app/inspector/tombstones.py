"""The page of the tool outputs that a session's context has lost, each with why, and whether the model can still reach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from compaction_app.queries import covering_summaries, runs_that_pruned
from mnesis_core.errors import InvalidRequest
from mnesis_core.records import RunRecord
from mnesis_core.text import printable
from sessions_app.conf import session_config
from sessions_app.pages.lookup import LARGEST
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import inspected
from sessions_app.pages.transcript import load_whole_text
from sessions_app.pages.views import signed_in
from sessions_app.record.context_queries import (
    Place,
    Tombstone,
    list_tombstones,
    tally_tombstones,
    tools_of_tombstones,
)

PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneView:
    """One tombstone as the page shows it."""

    entry: Tombstone
    run: RunRecord | None
    """The compaction that pruned it, where the record says."""
    summary_id: str
    """The summary that stands for its message now, if the message has left the context."""


@signed_in
def tombstones(request: HttpRequest, session_id: str) -> HttpResponse:
    """Every tool output that was taken out of the context, the newest first."""
    return render(request, "compaction_app/inspect_tombstones.html", _context(request, session_id))


@signed_in
def tombstone_rows(request: HttpRequest, session_id: str) -> HttpResponse:
    """The next page of them."""
    return render(request, "compaction_app/_inspect_tombstone_rows.html", _context(request, session_id))


@signed_in
def original(request: HttpRequest, session_id: str, part_id: str) -> HttpResponse:
    """The whole output of a tool, as it was received."""
    about = inspected(request, session_id)
    text = load_whole_text(about.id, part_id, field="output")
    # "nosniff" (settings) keeps browsers from reading markup into it.
    return HttpResponse(printable(text), content_type="text/plain; charset=utf-8")


def _context(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """Read a page of tombstones; seven queries at the most."""
    about = inspected(request, session_id)
    tool, part_id = printable(request.GET.get("tool", "").strip()), request.GET.get("part", "")
    before = _parse_place(request.GET.get("before", ""))
    found = list_tombstones(about.id, tool=tool, part_id=part_id, before=before, limit=PAGE + 1)
    page = found[:PAGE]
    runs = runs_that_pruned(about.id, {entry.compacted_seq for entry in page}) if page else {}
    summaries = covering_summaries(about.id, [entry.message_seq for entry in page if not entry.is_in_context])
    more = {"tool": tool} if tool else {}
    if len(found) > PAGE:
        more["before"] = "-".join(map(str, page[-1].place))
    return {
        "about": about,
        "tab": "inspect-tombstones",
        "tool": tool,
        "part_id": part_id,
        "items": [
            TombstoneView(
                entry=entry,
                run=runs.get(entry.compacted_seq),
                summary_id=summaries.get(entry.message_seq, ""),
            )
            for entry in page
        ],
        "tally": tally_tombstones(about.id),
        "tools": [show_invisible(name) for name in tools_of_tombstones(about.id)],
        "more": urlencode(more) if len(found) > PAGE else "",
        # By this tool a model can read an original.
        "can_read": "lcm_read" in session_config(about.config).turn.tools,
    }


def _parse_place(text: str) -> Place | None:
    if not text:
        return None
    numbers = text.split("-")
    if len(numbers) != 3 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise InvalidRequest("this cursor is not one of ours", field="before")
    seq, message_seq, index = (min(int(number[:19]), LARGEST) for number in numbers)
    return seq, message_seq, min(index, 2**31 - 1)
