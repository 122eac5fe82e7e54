"""The tool outputs that a session's context has lost, each with why, and whether the model can still reach it."""

from __future__ import annotations

from collections.abc import Sequence
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
from sessions_app.pages.markdown import format_characters, format_counted, show_invisible
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
OUTPUT = 240
"""Characters of the first words."""
READS = "lcm_read"
"""The tool by which a model reads an original."""
TRIGGERS = {
    "soft": "the context was above its soft threshold",
    "hard": "the context did not fit any more",
    "manual": "somebody asked for a compaction",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTombstone:
    """One tombstone as the page shows it."""

    entry: Tombstone
    tool: str
    input: str
    first_words: str
    size: str
    tokens: str
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

    items: list[ShownTombstone]
    tally: TombstoneTally
    tools: list[str]
    more: str
    """The query of the next page; empty where there is none."""

    @property
    def words(self) -> dict[str, str]:
        """The numbers of all of them together, as words."""
        return {
            "count": format_counted(self.tally.count, "tool output"),
            "events": format_counted(self.tally.events, "compaction"),
            "tokens": format_counted(self.tally.tokens, "token"),
        }


def load_tombstones(about: Inspected, *, tool: str = "", part_id: str = "", before: Place | None = None) -> Tombstones:
    """A page of the tombstones of a session, the newest first; seven queries at the most."""
    found = list_tombstones(about.id, tool=tool, part_id=part_id, before=before, limit=PAGE + 1)
    page = found[:PAGE]
    runs = runs_that_pruned(about.id, {entry.compacted_seq for entry in page}) if page else {}
    gone = [entry.message_seq for entry in page if not entry.is_in_context]
    summaries = covering_summaries(about.id, gone)
    can_read = READS in session_config(about.config).turn.tools
    return Tombstones(
        items=[
            shown_tombstone(
                entry, runs.get(entry.compacted_seq), summaries.get(entry.message_seq, ""), can_read=can_read
            )
            for entry in page
        ],
        tally=tally_tombstones(about.id),
        tools=[show_invisible(name) for name in tools_of_tombstones(about.id)],
        more=_more(page, tool) if len(found) > PAGE else "",
    )


def shown_tombstone(entry: Tombstone, run: RunRecord | None, summary_id: str, *, can_read: bool) -> ShownTombstone:
    """A tombstone in words; ``can_read``: the session's model is offered the tool that reads originals."""
    return ShownTombstone(
        entry=entry,
        tool=show_invisible(entry.tool_name) or "unnamed tool",
        input=excerpt(first_words(entry.input), INPUT),
        first_words=excerpt(entry.output, OUTPUT),
        size=format_characters(entry.characters),
        tokens=f"{entry.tokens:,}",
        run=run,
        why=TRIGGERS.get(run.trigger, "") if run else "",
        summary_id=summary_id,
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


# The page of tombstones, and the originals of tool outputs for those whose session it is not.


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
