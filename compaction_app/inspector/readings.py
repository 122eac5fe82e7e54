"""Story: which calls read a message in order to summarise it.

They had no context of the session: each was sent a span of messages, as its manifest says, or one of the pieces of a
span that is too long for one question. A call whose piece says nothing of the message did not read it, and neither did
those that merged the drafts of pieces or condensed summaries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from compaction_app.inspect_queries import SummaryHead, load_heads, tries_of_calls
from compaction_app.rebuilding import load_ranges
from mnesis_core.assembly.manifest import read_manifest
from mnesis_core.compaction import pieces_of_message
from mnesis_core.lineage import TryRecord
from sessions_app.queries.call_headings import CallHeading, calls_over_span, load_headings, numbers_of_calls

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
    attempt: TryRecord | None
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
    return [_reading(call, numbers[call.id], tries.get(call.id), heads) for call in calls]


def _reading(call: CallHeading, number: int, attempt: TryRecord | None, heads: Mapping[str, SummaryHead]) -> Reading:
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
