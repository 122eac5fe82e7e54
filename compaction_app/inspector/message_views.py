"""One message through its session's life: where it stands, what stands for it, and which calls saw it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from compaction_app.inspector.readings import Reading
from compaction_app.inspector.sightings import MessageStory, SeenBy, Sightings, trace
from mnesis_core.graph import Node
from sessions_app.inspecting import Inspected, address_of, inspected
from sessions_app.views import signed_in

HOW = {
    "whole": "",
    "shortened": "shortened in its prompt",
    "left_out": "not in its prompt: there was no room, or nothing of it is sent to models",
    "unknown": "its manifest cannot be read",
}
"""What the manifest of a call says beside that the message stood in its context."""


@signed_in
def message_page(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    """A message, the summaries that stand for it, and the calls that saw it."""
    about = inspected(request, session_id)
    story = trace(about.id, message_id)
    context = {
        "about": about,
        "tab": "inspect-calls",
        "session": about,
        "story": story,
        "message": story.message,
        "written_by_url": address_of("inspect-call", about.id, story.written_by.id) if story.written_by else "",
        "above": [_summary(about, node, story) for node in story.lineage.above],
        "seen": _seen(about, story.seen),
        "readings": [_reading(about, reading) for reading in story.summarised_by.calls],
        "has_more_readings": story.summarised_by.has_more,
        "tombstones": [(tombstone, _seen(about, tombstone.whole_in)) for tombstone in story.tombstones],
        "pruned": {part_id: one.seq for one in story.tombstones for part_id in one.part_ids},
    }
    return render(request, "compaction_app/inspect_message.html", context)


def _summary(about: Inspected, node: Node, story: MessageStory) -> tuple[Node, str, bool]:
    """A summary, its address, and whether it stands in the context now."""
    return node, address_of("inspect-summary", about.id, node.id), node.id == story.lineage.in_context


def _seen(about: Inspected, sightings: Sightings) -> dict[str, object]:
    ends = [sightings.first] if sightings.count == 1 else [sightings.first, sightings.last]
    return {"count": sightings.count, "ends": [_end(about, end) for end in ends if end]}


def _end(about: Inspected, seen: SeenBy) -> tuple[SeenBy, str, str]:
    return seen, address_of("inspect-call", about.id, seen.call.id), HOW[seen.how]


def _reading(about: Inspected, reading: Reading) -> tuple[Reading, str, str]:
    """A call that read the message to summarise it, its address, and that of the summary, if there is one."""
    summary_url = address_of("inspect-summary", about.id, reading.summary.id) if reading.summary else ""
    return reading, address_of("inspect-call", about.id, reading.call.id), summary_url
