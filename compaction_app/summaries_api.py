"""Summaries at the REST door: described, expanded, their lineage, and whether a context stands for everything."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from compaction_app import lineage, queries
from mnesis_core.errors import InvalidRequest
from mnesis_core.file_ids import find_file_ids
from mnesis_core.graph import Node
from mnesis_core.lineage import SummaryRecord
from mnesis_core.text import printable
from sessions_app.asking import owner_id
from sessions_app.queries import load_message_rows, load_session
from sessions_app.schemas import ErrorOut, MessageOut, message_out

router = Router(tags=["context"])

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
Limit = Annotated[int, Query(ge=1, le=500)]


class SummaryOut(Schema):
    """A summary."""

    id: str
    kind: str
    depth: int
    level: int
    text: str
    token_count: int
    source_tokens: int
    first_seq: int
    last_seq: int
    message_count: int
    source_ids: list[str]
    file_ids: list[str]
    model: str
    prompt_version: str
    tokens_input: int
    tokens_output: int
    cost_micros: int
    duration_ms: int
    revises: str | None
    restores: str | None
    superseded: bool
    superseded_by: str | None
    freshness: str
    created_at: datetime


class SummaryList(Schema):
    """Every summary of a session, in the order they were made."""

    items: list[SummaryOut]
    next_cursor: None = None


class NodeOut(Schema):
    """A summary without its text."""

    id: str
    kind: str
    depth: int
    level: int
    first_seq: int
    last_seq: int
    message_count: int
    token_count: int
    source_tokens: int
    tokens_input: int
    tokens_output: int
    cost_micros: int
    freshness: str


class RevisionOut(NodeOut):
    """One revision of a summary."""

    revises: str | None
    restores: str | None
    superseded: bool


class CostOut(Schema):
    """What a summary and all under it took, and how much text they have."""

    summaries: int
    leaves: int
    messages: int
    token_count: int
    tokens_input: int
    tokens_output: int
    cost_micros: int


class DescriptionOut(SummaryOut):
    """A summary, what stands for it (the nearest first), and which of these is in the context now."""

    session_id: str
    revisions: list[RevisionOut]
    above: list[NodeOut]
    in_context: str | None
    subtree: CostOut


class BelowOut(NodeOut):
    """A summary under another one, some steps down."""

    steps: int


class LineageOut(Schema):
    """What stands for a summary, the nearest first, and all under it in order, itself among them."""

    id: str
    above: list[NodeOut]
    below: list[BelowOut]
    in_context: str | None
    next_cursor: str | None


class MessageLineageOut(Schema):
    """What stands for a message, the nearest first."""

    id: str
    seq: int
    above: list[NodeOut]
    in_context: str | None


class SourceOut(SummaryOut):
    """A source in its newest revision; ``source_id`` is the one that was read when the summary was made."""

    source_id: str


class ExpandedOut(Schema):
    """What a summary stands for: ``messages``, or the ``summaries`` it was condensed from."""

    kind: str
    items: list[MessageOut] | list[SourceOut]
    next_cursor: str | None


Run = Annotated[list[int], Field(min_length=2, max_length=2)]
"""The first and the last message's place."""


class CoverOut(Schema):
    """Whether a context stands for every message exactly once, in order. Runs of messages are (first, last)."""

    ok: bool
    messages: int
    verbatim: int
    summarised: int
    missing: list[Run]
    twice: list[Run]
    out_of_order: list[Run]
    miscounted: list[str]


@router.get("/sessions/{session_id}/summaries", response={200: SummaryList, **ERRORS}, summary="List summaries")
def list_summaries(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """The summary DAG: each node with its sources, those that were superseded among them."""
    load_session(session_id, owner_id=owner_id(request))
    summaries = queries.list_summaries(session_id)
    later = {summary.revises: summary.id for summary in summaries}
    return {"items": [summary_out(summary, superseded_by=later.get(summary.id)) for summary in summaries]}


@router.get("/sessions/{session_id}/cover", response={200: CoverOut, **ERRORS}, summary="Check that nothing is lost")
def read_cover(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """Expand the whole context: does it give every message of the session once, in order? Names those that it does not."""
    load_session(session_id, owner_id=owner_id(request))
    found = lineage.cover(session_id)
    return asdict(found) | {"ok": found.ok}


@router.get(
    "/sessions/{session_id}/messages/{message_id}/lineage",
    response={200: MessageLineageOut, **ERRORS},
    summary="Find what stands for a message",
)
def trace_message(request: HttpRequest, session_id: str, message_id: str) -> dict[str, Any]:
    """The summaries that stand for a message, and what of them is in the context now, if not the message itself."""
    load_session(session_id, owner_id=owner_id(request))
    traced = lineage.trace_message(message_id, session_id=session_id)
    above = [node_out(node) for node in traced.above]
    return {"id": message_id, "seq": traced.seq, "above": above, "in_context": traced.in_context}


@router.get("/summaries/{summary_id}", response={200: DescriptionOut, **ERRORS}, summary="Describe a summary")
def read_summary(request: HttpRequest, summary_id: str) -> dict[str, Any]:
    """One summary: text, level, span and sources, what stands for it, and what it and all under it took."""
    found = lineage.describe(queries.load_summary(summary_id, owner_id=owner_id(request)))
    later = next((node.id for node in found.revisions if node.revises_id == summary_id), None)
    return summary_out(found.summary, superseded_by=later) | {
        "session_id": found.summary.session_id,
        "revisions": [_revision_out(node) for node in found.revisions],
        "above": [node_out(node) for node in found.above],
        "in_context": found.in_context,
        "subtree": asdict(found.cost),
    }


@router.get("/summaries/{summary_id}/lineage", response={200: LineageOut, **ERRORS}, summary="Trace a summary")
def read_lineage(
    request: HttpRequest, summary_id: str, limit: Limit = 500, cursor: str | None = None
) -> dict[str, Any]:
    """What stands for a summary, and every summary under it, a page at a time, each with its cost."""
    offset = parse_offset(cursor)
    found = lineage.describe(queries.load_summary(summary_id, owner_id=owner_id(request)))
    page = found.below[offset : offset + limit]
    return {
        "id": found.summary.id,
        "above": [node_out(node) for node in found.above],
        "below": [node_out(node) | {"steps": steps} for steps, node in page],
        "in_context": found.in_context,
        "next_cursor": str(offset + limit) if offset + limit < len(found.below) else None,
    }


@router.get("/summaries/{summary_id}/expand", response={200: ExpandedOut, **ERRORS}, summary="Expand a summary")
def expand_summary(
    request: HttpRequest, summary_id: str, deep: bool = False, limit: Limit = 100, cursor: str | None = None
) -> dict[str, Any]:
    """What a summary stands for, one step down, or with ``deep`` the original messages through all steps."""
    offset = parse_offset(cursor)
    summary = queries.load_summary(summary_id, owner_id=owner_id(request))
    if summary.kind == "condensed" and not deep:
        items = [summary_out(source) | {"source_id": read} for read, source in lineage.expand_step(summary)]
        return {"kind": "summaries", "items": items, "next_cursor": None}
    page = lineage.expand_messages(summary, offset=offset, limit=limit)
    rows = load_message_rows(summary.session_id, [message.id for message in page.messages])
    return {
        "kind": "messages",
        "items": [message_out(message, rows[message.id]) for message in page.messages],
        "next_cursor": None if page.next_offset is None else str(page.next_offset),
    }


def summary_out(summary: SummaryRecord, *, superseded_by: str | None = None) -> dict[str, Any]:
    """A summary as JSON."""
    hidden = ("session_id", "run_id", "source_ids", "superseded_seq", "text")
    return {name: value for name, value in asdict(summary).items() if name not in hidden} | {
        "text": printable(summary.text),
        "source_ids": [id for _, id in summary.source_ids],
        "file_ids": list(find_file_ids(summary.text)),
        "superseded": summary.superseded_seq is not None,
        "superseded_by": superseded_by,
    }


def _revision_out(node: Node) -> dict[str, Any]:
    superseded = node.superseded_seq is not None
    return asdict(node) | {"revises": node.revises_id, "restores": node.restores_id, "superseded": superseded}


def node_out(node: Node) -> dict[str, Any]:
    """A summary without its text as JSON."""
    return asdict(node)


def parse_offset(cursor: str | None) -> int:
    """How many items came before this page.

    :raises InvalidRequest: the cursor is none of ours.
    """
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise InvalidRequest("cursor must be the next_cursor of the page before", field="cursor")
    return int(cursor)
