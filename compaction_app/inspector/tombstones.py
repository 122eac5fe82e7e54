"""The page of the tool outputs that a session's context has lost, each with why, and whether the model can still reach it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from compaction_app.queries import covering_summaries, runs_that_pruned
from mnesis_core.errors import InvalidRequest
from mnesis_core.records import RunRecord
from mnesis_core.text import excerpt, printable
from sessions_app.conf import session_config
from sessions_app.pages.lookup import LARGEST
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import Inspected, inspected
from sessions_app.pages.transcript import first_words, load_whole_text
from sessions_app.pages.views import signed_in
from sessions_app.record.context_queries import (
    Place,
    Tombstone,
    TombstoneTally,
    list_tombstones,
    tally_tombstones,
    tools_of_tombstones,
)

PAGE = 50
INPUT = 140
"""Characters of the first words."""
READS = "lcm_read"
"""The tool by which a model reads an original."""
TRIGGERS = {
    "soft": "the context was above its soft threshold",
    "hard": "the context did not fit any more",
    "manual": "somebody asked for a compaction",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneView:
    """One tombstone as the page shows it."""

    entry: Tombstone
    input: str
    """The first words of what the tool was asked."""
    run: RunRecord | None
    """The compaction that pruned it, where the record says."""
    why: str
    summary_id: str
    """The summary that stands for its message now, if the message has left the context."""
    reach: str
    """Whether and how the model can still reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstones:
    """A page of tombstones."""

    items: list[TombstoneView]
    tally: TombstoneTally
    tools: list[str]
    more: str
    """The query of the next page; empty where there is none."""


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
    found = _load_tombstones(about, tool=tool, part_id=part_id, before=_place(request.GET.get("before", "")))
    return {"about": about, "tab": "inspect-tombstones", "found": found, "tool": tool, "part_id": part_id}


def _place(text: str) -> Place | None:
    if not text:
        return None
    numbers = text.split("-")
    if len(numbers) != 3 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise InvalidRequest("this cursor is not one of ours", field="before")
    seq, message_seq, index = (min(int(number[:19]), LARGEST) for number in numbers)
    return seq, message_seq, min(index, 2**31 - 1)


def _load_tombstones(about: Inspected, *, tool: str = "", part_id: str = "", before: Place | None = None) -> Tombstones:
    """A page of the tombstones of a session, the newest first; seven queries at the most."""
    found = list_tombstones(about.id, tool=tool, part_id=part_id, before=before, limit=PAGE + 1)
    page = found[:PAGE]
    runs = runs_that_pruned(about.id, {entry.compacted_seq for entry in page}) if page else {}
    gone = [entry.message_seq for entry in page if not entry.is_in_context]
    summaries = covering_summaries(about.id, gone)
    can_read = READS in session_config(about.config).turn.tools
    return Tombstones(
        items=[_view(entry, runs.get(entry.compacted_seq), summaries, can_read=can_read) for entry in page],
        tally=tally_tombstones(about.id),
        tools=[show_invisible(name) for name in tools_of_tombstones(about.id)],
        more=_more(page, tool) if len(found) > PAGE else "",
    )


def _view(entry: Tombstone, run: RunRecord | None, summaries: Mapping[int, str], *, can_read: bool) -> TombstoneView:
    """:param can_read: whether the session's model is offered the tool that reads originals"""
    return TombstoneView(
        entry=entry,
        input=excerpt(first_words(entry.input), INPUT),
        run=run,
        why=TRIGGERS.get(run.trigger, "") if run else "",
        summary_id=summaries.get(entry.message_seq, ""),
        reach=_reach(entry, can_read=can_read),
    )


def _reach(entry: Tombstone, *, can_read: bool) -> str:
    seen = "The model sees a mark in its place" if entry.is_in_context else "The model sees a summary of that stretch"
    if can_read:
        return f"{seen}; {READS} with the part's id reads the original."
    return f"{seen}, and has no tool that reads the original: {READS} is not among its tools."


def _more(page: Sequence[Tombstone], tool: str) -> str:
    before = "-".join(map(str, page[-1].place))
    return urlencode({"tool": tool, "before": before} if tool else {"before": before})
