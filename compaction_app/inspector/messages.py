"""Story: which calls read a message in order to summarise it.

They had no context of the session: each was sent a span of messages, as its manifest says, or one of the pieces of a
span that is too long for one question. A call whose piece says nothing of the message did not read it, and neither did
those that merged the drafts of pieces or condensed summaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from compaction_app.lineage import MessageLineage, trace_message
from compaction_app.queries import SummaryHead, load_heads, tries_of_calls
from compaction_app.rebuild import load_ranges
from mnesis_core.compaction.dag import Node
from mnesis_core.compaction.transcript import pieces_of_message
from mnesis_core.context.manifest import read_manifest
from mnesis_core.ledger import MAX_INTEGER
from mnesis_core.records import AttemptRecord
from sessions_app.pages.permissions import Inspected, address_of, inspected
from sessions_app.pages.transcript import MessageView, load_message
from sessions_app.pages.views import signed_in
from sessions_app.record.call_queries import (
    CallHeading,
    call_of_message,
    calls_between,
    calls_over_span,
    load_call,
    load_headings,
    numbers_of_calls,
)
from sessions_app.record.context_queries import replaced_items
from sessions_app.record.inspect_queries import EventHeading, load_event_heading, load_stay
from sessions_app.record.message_queries import tombstone_seqs
from sessions_app.record.turn_queries import turn_seq_at

MOST = 20
"""Calls that are told of: the same may be summarised anew without end."""
MOST_SPANS = 5
"""Spans read in pieces, of which is looked up in which piece the message is."""
Span = tuple[tuple[tuple[int, int], ...], int]
"""First and last of its messages, without its gaps, and the tokens of a piece that it was read in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A call that was asked for a summary of a span, and read the message."""

    call: CallHeading
    number: int
    """Among all calls of the session."""
    attempt: AttemptRecord | None
    """What came of it; ``None``: it goes on, or nobody saw its end."""
    summary: SummaryHead | None
    """The one that it was asked for, whatever this attempt gave to it; ``None``: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Such calls, the oldest first."""

    calls: list[Reading]
    has_more: bool
    """There are, or there may be, others than these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What a call was sent: a piece of a span, as its manifest says."""

    call_id: str
    span: Span
    piece: int
    is_whole: bool


def list_readings(session_id: str, seq: int) -> Readings:
    """The calls that read the message ``seq`` in order to summarise it.

    Five queries, and one more for each stretch of a span that was read in pieces.
    """
    questions = [question for row in calls_over_span(session_id, seq) for question in _questions(row, seq)]
    spans = list(dict.fromkeys(question.span for question in questions if not question.is_whole))
    pieces = {span: _pieces_of(session_id, seq, span) for span in spans[:MOST_SPANS]}
    ids = [one.call_id for one in questions if one.is_whole or one.piece in pieces.get(one.span, ())]
    return Readings(calls=_readings(session_id, ids[:MOST]), has_more=len(ids) > MOST or len(spans) > MOST_SPANS)


def _readings(session_id: str, ids: list[str]) -> list[Reading]:
    numbers, tries = numbers_of_calls(session_id, ids), tries_of_calls(ids, session_id=session_id)
    heads = load_heads([attempt.summary_id for attempt in tries.values()], session_id=session_id)
    calls = load_headings(session_id, ids)
    return [_read(call, numbers[call.id], tries.get(call.id), heads) for call in calls]


def _read(call: CallHeading, number: int, attempt: AttemptRecord | None, heads: Mapping[str, SummaryHead]) -> Reading:
    summary = heads.get(attempt.summary_id) if attempt else None
    return Reading(call=call, number=number, attempt=attempt, summary=summary)


def _questions(row: tuple[str, Any], seq: int) -> Iterator[_Question]:
    """What a call was sent, if the message ``seq`` is in its span."""
    call_id, stored = row
    try:
        rows = {row["kind"]: row for row in read_manifest(stored)}
    except ValueError:
        return
    if not {"piece", "messages"} <= rows.keys():
        return
    piece, ranges = rows["piece"], tuple((first, last) for first, last in rows["messages"]["ranges"])
    if any(first <= seq <= last for first, last in ranges):
        yield _Question(
            call_id=call_id,
            span=(ranges, piece["limit"]),
            piece=piece["number"],
            is_whole=piece.get("count") == 1,
        )


def _pieces_of(session_id: str, seq: int, span: Span) -> set[int]:
    ranges, limit = span
    return pieces_of_message(load_ranges(session_id, ranges), seq, limit)


# The page of one message: where it stands, and which calls were shown it word for word: to answer, or to summarise it.
#
# The first is told by events: a message stood in the context from the one that added it until the one that removed it, and a
# call read the context as of one. The first and the last of these calls are looked up in their manifests as well, since
# what stands in a context may be left out of a prompt for lack of room.

MOST_TOMBSTONES = 5
"""Events that pruned outputs of one message, of which is told who saw the outputs whole."""
HOW = {
    "whole": "",
    "shortened": "shortened in its prompt",
    "left_out": "not in its prompt: there was no room, or nothing of it is sent to models",
    "unknown": "its manifest cannot be read",
}
"""What the manifest of a call says beside that the message stood in its context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBy:
    """A call of a turn that had the message in its context."""

    call: CallHeading
    number: int
    """Among all calls of the session."""
    how: str
    """``whole``, ``shortened``, ``left_out`` of its prompt, or ``unknown``: its manifest cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sightings:
    """The calls of turns that had something in their context, from the first to the last."""

    count: int
    first: SeenBy | None
    last: SeenBy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """An event that pruned outputs of the message."""

    seq: int
    turn_seq: int
    part_ids: list[str]
    whole_in: Sightings
    """Who had the outputs before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStory:
    """One message through its session's life."""

    message: MessageView
    written_by: CallHeading | None
    """The call whose answer it is."""
    added_seq: int | None
    """The event that put it into the context; ``None``: it never stood there."""
    removed: EventHeading | None
    removed_turn: int
    """The turn that was the newest when it left."""
    replaced_by: str
    """The summary that took its place."""
    lineage: MessageLineage
    seen: Sightings
    """By calls of turns."""
    summarised_by: Readings
    """Calls that read it in order to summarise it, while it stood in the context or, for a revision, later."""
    tombstones: list[Tombstone]


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


def trace(session_id: str, message_id: str) -> MessageStory:
    """Where a message stands and who saw it; a bounded number of reads, whatever the history.

    :raises MessageNotFoundError: the session has no such message.
    """
    message = load_message(session_id, message_id)
    stay = load_stay(session_id, message.id)
    added, removed = (None, None) if stay is None else (stay.added_seq, stay.removed_seq)
    event = None if removed is None else load_event_heading(session_id, removed)
    return MessageStory(
        message=message,
        written_by=call_of_message(session_id, message.id),
        added_seq=added,
        removed=event,
        removed_turn=_turn_of(session_id, event),
        replaced_by=replaced_items(session_id, [message.id]).get(message.id, "") if removed is not None else "",
        lineage=trace_message(message.id, session_id=session_id),
        seen=_sightings(session_id, message.id, added, removed),
        summarised_by=list_readings(session_id, message.seq),
        tombstones=_tombstones(session_id, message.id, added, removed),
    )


def _turn_of(session_id: str, event: EventHeading | None) -> int:
    return 0 if event is None else turn_seq_at(session_id, event.created_at)


def _tombstones(session_id: str, message_id: str, added: int | None, removed: int | None) -> list[Tombstone]:
    by_event = tombstone_seqs(session_id, message_id)
    return [
        Tombstone(
            seq=seq,
            turn_seq=_turn_of(session_id, load_event_heading(session_id, seq)),
            part_ids=by_event[seq],
            whole_in=_sightings(
                session_id, message_id, added, min(seq, removed or MAX_INTEGER), part_ids=by_event[seq]
            ),
        )
        for seq in sorted(by_event)[:MOST_TOMBSTONES]
    ]


def _sightings(
    session_id: str, message_id: str, added: int | None, end: int | None, *, part_ids: list[str] | None = None
) -> Sightings:
    if added is None:
        return Sightings(count=0, first=None, last=None)
    count, ends = calls_between(session_id, added, end)
    numbers = numbers_of_calls(session_id, [call.id for call in ends])
    seen = [
        SeenBy(call=call, number=numbers[call.id], how=how_shown(call.id, message_id, part_ids or [])) for call in ends
    ]
    return Sightings(count=count, first=seen[0] if seen else None, last=seen[-1] if seen else None)


def how_shown(call_id: str, message_id: str, part_ids: list[str]) -> str:
    """How the manifest of a call shows a message, or some parts of it; see ``SeenBy.how``."""
    try:
        manifest = read_manifest(load_call(call_id).manifest)
    except ValueError:
        return "unknown"
    row = next((row for row in manifest if row["kind"] == "message" and row["id"] == message_id), None)
    return "left_out" if row is None else _how(row, part_ids)


def _how(row: Any, part_ids: list[str]) -> str:
    omitted, cut = set(row["omitted"]), {shortened["part"] for shortened in row["shortened"]}
    if part_ids:
        omitted, cut = omitted.intersection(part_ids), cut.intersection(part_ids)
    return "shortened" if omitted or cut else "whole"
