"""Messages through a session's life: where one stands and which calls saw it, and the tool outputs that were pruned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_noop

from compaction_app.context.manifests import load_manifest, newest_beside, shown_beside
from compaction_app.context.state import load_ranges
from compaction_app.queries import (
    MessageLineage,
    SummaryHead,
    attempts_of_calls,
    covering_summaries,
    load_heads,
    runs_that_pruned,
    trace_message,
)
from mnesis_core.compaction.requests import form_of
from mnesis_core.compaction.transcript import pieces_of_message
from mnesis_core.context.branches import Path, branches_through, covering_span, path_to
from mnesis_core.context.entries import BESIDE, Row, read_manifest
from mnesis_core.errors import InvalidRequest
from mnesis_core.events import MAX_INTEGER
from mnesis_core.records import AttemptRecord
from mnesis_core.text import printable
from sessions_app.conf import session_config
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import inspected
from sessions_app.pages.transcript import LARGEST, MessageView, load_message, load_whole_text
from sessions_app.pages.views import signed_in
from sessions_app.record import context_queries, turn_queries
from sessions_app.record.branch_queries import load_branches, path_in
from sessions_app.record.context_queries import load_spans
from sessions_app.record.message_queries import tombstone_seqs
from sessions_app.record.timeline_queries import EventHeading, load_event_heading, load_stay, tools_of_session
from sessions_app.record.turn_queries import calls_between, turn_seq_at

PAGE = 50
MOST = 20  # summarising calls that are shown: the same may be summarised anew without end
MOST_SPANS = 5  # spans read in pieces that are searched for the piece with the message
MOST_TOMBSTONES = 5
# First and last of its messages, without its gaps, the tokens of a piece that it was read in, and its transcript's form.
Span = tuple[tuple[tuple[int, int], ...], int, int]


@signed_in
def tombstones(request: HttpRequest, session_id: str) -> HttpResponse:
    return render(request, "compaction_app/messages/tombstones.html", _tombstones_context(request, session_id))


@signed_in
def tombstone_rows(request: HttpRequest, session_id: str) -> HttpResponse:
    return render(request, "compaction_app/messages/_tombstone_rows.html", _tombstones_context(request, session_id))


@signed_in
def original(request: HttpRequest, session_id: str, part_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    text = load_whole_text(about.id, part_id, field="output")
    # "nosniff" (settings) keeps browsers from reading markup into it.
    return HttpResponse(printable(text), content_type="text/plain; charset=utf-8")


def _tombstones_context(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """Read a page of tombstones; seven queries at the most."""
    about = inspected(request, session_id)
    tool, part_id = printable(request.GET.get("tool", "").strip()), request.GET.get("part", "")
    before = _place(request.GET.get("before", ""))
    path = path_in(about)
    found = context_queries.list_tombstones(
        about.id, tool=tool, part_id=part_id, before=before, limit=PAGE + 1, path=path
    )
    page = found[:PAGE]
    runs = runs_that_pruned(about.id, {entry.compacted_seq for entry in page}) if page else {}
    out = [entry.message_seq for entry in page if entry.is_on_path and not entry.is_in_context]
    summaries = covering_summaries(about.id, out, path=path)
    more = {"tool": tool} if tool else {}
    if len(found) > PAGE:
        more["before"] = "-".join(map(str, page[-1].place))
    return {
        "about": about,
        "tab": "inspect-tombstones",
        "tool": tool,
        "part_id": part_id,
        "items": [
            {
                "entry": entry,
                "run": runs.get(entry.compacted_seq),  # the compaction that pruned it, where the record says
                # The summary that stands for its message now, if the message has left the context.
                "summary_id": summaries.get(entry.message_seq, ""),
            }
            for entry in page
        ],
        "tally": context_queries.tally_tombstones(about.id),
        "tools": [show_invisible(name) for name in tools_of_session(about.id, pruned=True)],
        "more": urlencode(more) if len(found) > PAGE else "",
        # By this tool a model can read an original.
        "can_read": "lcm_read" in session_config(about.config).turn.tools,
    }


def _place(cursor: str) -> context_queries.Place | None:
    if not cursor:
        return None
    numbers = cursor.split("-")
    if len(numbers) != 3 or not all(number.isascii() and number.isdigit() for number in numbers):
        raise InvalidRequest(gettext_noop("this cursor is not one of ours"), field="before")
    seq, message_seq, index = (min(int(number[:19]), LARGEST) for number in numbers)
    return seq, message_seq, min(index, 2**31 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    call: turn_queries.CallHeading
    number: int  # its number among all calls of the session
    attempt: AttemptRecord | None  # None while the call runs, or where its end was never written
    summary: SummaryHead | None
    """The summary that the call was for, whatever this attempt gave to it; ``None`` if it was never written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    calls: list[Reading]
    has_more: bool  # whether there are, or may be, others than these


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageStory:
    message: MessageView
    written_by: turn_queries.CallHeading | None
    added_seq: int | None  # the event that put it into the context; None if it never stood there
    removed: EventHeading | None
    removed_turn: int  # the turn that was the newest when it left
    replaced_by: str  # the summary that took its place
    is_on_path: bool  # whether it is on the way to the chosen branch; otherwise no model sees it at present
    lineage: MessageLineage
    seen: dict[str, Any]
    still_shown: str  # how the newest call showed it beside its context, a value of ``BESIDE``; or empty
    summarised_by: Readings
    """Calls that read it in order to summarise it or to find facts in it, while it stood in the context or, for a revision, later."""
    tombstones: list[dict[str, Any]]


@signed_in
def message_page(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    story = trace(about.id, message_id, path=path_in(about))
    context = {
        "about": about,
        "tab": "inspect-calls",
        "session": about,
        "story": story,
        "message": story.message,
        "pruned": {part_id: one["seq"] for one in story.tombstones for part_id in one["part_ids"]},
    }
    return render(request, "compaction_app/messages/message.html", context)


def trace(session_id: str, message_id: str, *, path: Path | None = None) -> MessageStory:
    """Return where a message stands and which calls saw it; a bounded number of reads, whatever the history.

    :param path: that of the chosen branch, in a session with branches
    :raises MessageNotFoundError: the session has no such message.
    """
    message = load_message(session_id, message_id)
    stay = load_stay(session_id, message.id)
    added, removed = (None, None) if stay is None else (stay.added_seq, stay.removed_seq)
    replaced_by, seen_by = "", calls_between
    if path is not None:
        span = covering_span(path, load_spans(session_id), message.branch, message.seq)
        removed, replaced_by = (None, "") if span is None else (span.added_seq, span.id)
        seen_by = partial(_calls_of_branches, message=message)
    elif removed is not None:
        replaced_by = context_queries.replaced_items(session_id, [message.id]).get(message.id, "")
    beside = [] if added is None else list(shown_beside(session_id, message.id, added))
    sightings = partial(_sightings, session_id, message.id, seen_by=seen_by, beside=beside)
    event = None if removed is None else load_event_heading(session_id, removed)
    pruned = tombstone_seqs(session_id, message.id)
    return MessageStory(
        message=message,
        written_by=turn_queries.call_of_message(session_id, message.id),
        added_seq=added,
        removed=event,
        removed_turn=_turn_of(session_id, event),
        replaced_by=replaced_by,
        is_on_path=path is None or path.has(message.branch, message.seq),
        lineage=trace_message(message.id, session_id=session_id),
        # In a tree, a summary of one branch hides nothing from the calls of another.
        seen=sightings(added, removed if path is None else None),
        still_shown=newest_beside([session_id]).get(message.id, {}).get("kind", ""),
        summarised_by=list_readings(session_id, message.seq),
        tombstones=[
            {
                "seq": seq,
                "turn_seq": _turn_of(session_id, load_event_heading(session_id, seq)),
                "part_ids": pruned[seq],
                # The calls that had the outputs before that.
                "whole_in": sightings(
                    added,
                    seq if path is not None else min(seq, removed or MAX_INTEGER),
                    beside=[shown for shown in beside if shown[1] < seq],
                    part_ids=pruned[seq],
                ),
            }
            for seq in sorted(pruned)[:MOST_TOMBSTONES]
        ],
    )


def _turn_of(session_id: str, event: EventHeading | None) -> int:
    return 0 if event is None else turn_seq_at(session_id, event.created_at)


def _calls_of_branches(
    session_id: str, first_seq: int, end_seq: int | None, *, message: MessageView
) -> tuple[int, list[turn_queries.CallHeading]]:
    """Count the calls that had a message of a tree in their context, as ``calls_between`` does; five queries."""
    branches, spans = load_branches(session_id), load_spans(session_id)
    through = branches_through(branches, message.branch, message.seq - 1)
    until: dict[int, int] = {}  # by branch
    ids = []
    for id, context_seq, branch in turn_queries.turn_calls_from(session_id, first_seq):
        if branch in through and branch not in until:
            span = covering_span(path_to(branches, branch), spans, message.branch, message.seq)
            until[branch] = min(MAX_INTEGER if span is None else span.added_seq, end_seq or MAX_INTEGER)
        if context_seq < until.get(branch, 0):
            ids.append(id)
    return len(ids), turn_queries.load_headings(session_id, ids[:1]) + turn_queries.load_headings(session_id, ids[-1:])


def _sightings(
    session_id: str,
    message_id: str,
    added: int | None,
    end: int | None,
    *,
    seen_by: Callable[..., tuple[int, list[turn_queries.CallHeading]]],
    beside: Sequence[tuple[str, int, Row]],
    part_ids: Collection[str] = (),
) -> dict[str, Any]:
    """Return the number (``count``) of calls that had a message in their context, with the first and the last (``ends``).

    ``beside`` has the same of the calls that showed it beside their context, for each kind of rows.
    """
    kinds = [[shown for shown in beside if shown[2]["kind"] == kind] for kind in BESIDE]
    count, ends = (0, []) if added is None else seen_by(session_id, added, end)
    numbers = turn_queries.numbers_of_calls(session_id, [call.id for call in ends])
    # Of one call, calls_between gives the heading twice: it is the first and the last.
    # What stands in a context may be left out of a prompt for lack of room, so these calls' manifests are read.
    return {
        "count": count,
        "ends": [
            {"call": call, "number": numbers[call.id], "how": how_shown(call.id, message_id, part_ids)}
            for call in ends[:count]
        ],
        "beside": [_seen_beside(session_id, shown, part_ids) for shown in kinds if shown],
    }


def _seen_beside(session_id: str, shown: Sequence[tuple[str, int, Row]], part_ids: Collection[str]) -> dict[str, Any]:
    rows = {call_id: row for call_id, _, row in shown}
    ends = turn_queries.load_headings(session_id, [shown[0][0], shown[-1][0]])
    numbers = turn_queries.numbers_of_calls(session_id, [call.id for call in ends])
    return {
        "kind": shown[0][2]["kind"],
        "count": len(rows),
        "ends": [{"call": call, "number": numbers[call.id], "how": _how(rows[call.id], part_ids)} for call in ends],
    }


def how_shown(call_id: str, message_id: str, part_ids: Collection[str]) -> str:
    """Return how the manifest of a call shows a message of its context, or some parts of it.

    ``whole``, ``shortened``, ``left_out`` of its prompt, or ``unknown``: its manifest cannot be read.
    """
    try:
        manifest = load_manifest(turn_queries.load_call(call_id))
    except ValueError:
        return "unknown"
    row = next((row for row in manifest if row["kind"] == "message" and row["id"] == message_id), None)
    return "left_out" if row is None else _how(row, part_ids)


def _how(row: Row, part_ids: Collection[str]) -> str:
    if row["kind"] == "retrieved":
        return "quoted"
    changed = {*row["omitted"], *(shortened["part"] for shortened in row["shortened"])}
    return "shortened" if (changed.intersection(part_ids) if part_ids else changed) else "whole"


def list_readings(session_id: str, seq: int) -> Readings:
    """Return the calls that read the message ``seq`` in order to summarise it or to find facts in it.

    A call whose piece does not have the message did not read it, nor did those that merged drafts or condensed summaries.
    Five queries, and one more for each stretch of a span that was read in pieces.
    """
    # (call, span that it was sent, number of the piece of it; None for all of it) where the message is in the span
    questions: list[tuple[str, Span, int | None]] = []
    for call_id, manifest in turn_queries.calls_over_span(session_id, seq):
        try:
            rows = {row["kind"]: row for row in read_manifest(manifest)}
        except ValueError:
            continue
        if {"piece", "messages"} <= rows.keys():
            piece, ranges = rows["piece"], tuple((first, last) for first, last in rows["messages"]["ranges"])
            if any(first <= seq <= last for first, last in ranges):
                number = None if piece.get("count") == 1 else piece["number"]
                questions.append((call_id, (ranges, piece["limit"], form_of(piece)), number))

    spans = list(dict.fromkeys(span for _, span, number in questions if number is not None))
    pieces = {
        (ranges, limit, form): pieces_of_message(load_ranges(session_id, ranges), seq, limit, form=form)
        for ranges, limit, form in spans[:MOST_SPANS]
    }
    found = [call_id for call_id, span, number in questions if number is None or number in pieces.get(span, ())]
    ids = found[:MOST]
    numbers, attempts = turn_queries.numbers_of_calls(session_id, ids), attempts_of_calls(ids, session_id=session_id)
    heads = load_heads([attempt.summary_id for attempt in attempts.values()], session_id=session_id)
    calls = []
    for call in turn_queries.load_headings(session_id, ids):
        attempt = attempts.get(call.id)
        summary = heads.get(attempt.summary_id) if attempt else None
        calls.append(Reading(call=call, number=numbers[call.id], attempt=attempt, summary=summary))
    return Readings(calls=calls, has_more=len(found) > MOST or len(spans) > MOST_SPANS)
