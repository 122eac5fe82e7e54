"""Search at the REST door: here and not with the record, since a hit names the summary that stands for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from compaction_app.queries import covering_summaries, load_summary
from mnesis_core.text import printable
from sessions_app.asking import owner_id
from sessions_app.queries import load_session
from sessions_app.schemas import ErrorOut
from sessions_app.search import Hit, Kind, Mode, Scope, SearchResult, search

router = Router(tags=["search"])

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
Asked = Annotated[str, Query(min_length=1, max_length=1_000)]
Limit = Annotated[int, Query(ge=1, le=100)]


class HitOut(Schema):
    """One place that matches. ``matches`` are places in the snippet: (first, after the last) character."""

    session_id: str
    session_title: str
    kind: str
    message_id: str | None
    message_seq: int
    last_seq: int
    role: str
    part_id: str | None
    part_type: str
    field: str
    summary_id: str | None
    file_id: str | None
    covered_by: str | None
    snippet: str
    matches: list[Annotated[list[int], Field(min_length=2, max_length=2)]]


class SearchOut(Schema):
    """What was found, and how much was searched for it."""

    items: list[HitOut]
    messages_searched: int
    messages_total: int
    cut_off: bool
    more: bool
    next_cursor: str | None


@router.get("/sessions/{session_id}/search", response={200: SearchOut, **ERRORS}, summary="Search one session")
def search_session(
    request: HttpRequest,
    session_id: str,
    q: Asked,
    mode: Mode = "text",
    scope: Kind = "all",
    summary_id: str | None = None,
    limit: Limit = 20,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Find words or a pattern in everything that was said, in context or not.

    Words must all be there; "in quotes" side by side; begin* of words. Patterns are RE2's. With ``summary_id`` only
    the messages that this summary stands for.
    """
    where = where_to_search(owner_id(request), scope, session_id=session_id, summary_id=summary_id)
    return search_out(search(where, q, mode=mode, limit=limit, cursor=cursor))


@router.get("/search", response={200: SearchOut, **ERRORS}, summary="Search all sessions")
def search_all(
    request: HttpRequest,
    q: Asked,
    mode: Mode = "text",
    scope: Kind = "all",
    summary_id: str | None = None,
    limit: Limit = 20,
    cursor: str | None = None,
) -> dict[str, Any]:
    """The same in every session of the caller."""
    where = where_to_search(owner_id(request), scope, session_id=None, summary_id=summary_id)
    return search_out(search(where, q, mode=mode, limit=limit, cursor=cursor))


def where_to_search(owner_id: int, kind: Kind, *, session_id: str | None, summary_id: str | None) -> Scope:
    """All sessions of a person, one of them, or the messages that a summary stands for.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SummaryNotFoundError: there is no such summary there.
    """
    if session_id is not None:
        load_session(session_id, owner_id=owner_id)
    where = Scope(owner_id=owner_id, session_id=session_id, kind=kind)
    if summary_id is None:
        return where
    summary = load_summary(summary_id, session_id=session_id, owner_id=owner_id)
    return replace(where, session_id=summary.session_id, first_seq=summary.first_seq, last_seq=summary.last_seq)


def search_out(result: SearchResult) -> dict[str, Any]:
    """A page of hits as JSON."""
    covering = _covering(result.hits)
    return {
        "items": [hit_out(hit, covering.get((hit.session_id, hit.message_seq))) for hit in result.hits],
        "messages_searched": result.messages_searched,
        "messages_total": result.messages_total,
        "cut_off": result.cut_off,
        "more": result.more,
        "next_cursor": result.next_cursor,
    }


def hit_out(hit: Hit, covered_by: str | None) -> dict[str, Any]:
    """A hit as JSON."""
    names = ("session_id", "kind", "message_id", "message_seq", "last_seq", "role", "part_type", "field", "matches")
    return {name: getattr(hit, name) for name in names} | {
        "session_title": printable(hit.session_title),
        "snippet": printable(hit.snippet),
        "part_id": hit.source_id if hit.message_id else None,
        "summary_id": hit.source_id if hit.kind == "summaries" else None,
        "file_id": hit.source_id if hit.kind == "files" else None,
        "covered_by": covered_by if hit.message_id else None,
    }


def _covering(hits: tuple[Hit, ...]) -> dict[tuple[str, int], str]:
    seqs: dict[str, list[int]] = defaultdict(list)
    for hit in hits:
        seqs[hit.session_id].append(hit.message_seq)
    return {(id, seq): leaf for id in seqs for seq, leaf in covering_summaries(id, seqs[id]).items()}
