"""Search at the REST endpoint and on its page; not with the record, since a hit names the summary that stands for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from ninja import Field, Query, Router, Schema

from compaction_app.context.manifests import newest_beside
from compaction_app.queries import covering_summaries, leaves_of_messages, load_summary, within_summary
from mnesis_core.context.entries import Row
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import (
    AudioPart,
    CitationPart,
    DocumentPart,
    FileRefPart,
    ImagePart,
    PatchPart,
    ReasoningPart,
    RefusalPart,
)
from mnesis_core.records import PartPlace
from mnesis_core.search.ranking import LONGEST_QUESTION
from mnesis_core.text import printable
from sessions_app.callers import Asker, owner_id
from sessions_app.operations import by_name
from sessions_app.pages.formats import error_text, format_number
from sessions_app.pages.markdown import show_invisible, shown_title
from sessions_app.pages.views import reader_of, signed_in
from sessions_app.record.message_queries import places_of_parts
from sessions_app.record.project_store import load_project
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import ErrorOut, Out, Text
from sessions_app.search.index import CALLS
from sessions_app.search.ranked import MOST_AROUND, answer
from sessions_app.search.search import EVERYTHING, Filters, Hit, Kind, Line, Mode, Scope, SearchResult, read_filters

router = Router(tags=["search"])

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
LONGEST_PAGE_QUERY = 4_000  # characters that an address can hold
PAGE, FIRST = 20, 5  # hits of a page, and of the few that stand below the list of sessions
KINDS = {
    "all": _("Everything"),
    "messages": _("Messages"),
    "tools": _("Tool calls"),
    "summaries": _("Summaries"),
    "files": _("Files"),
}
MODES = {"ranked": _("Best answers"), "text": _("Every word"), "regex": _("Pattern (RE2)")}
# Columns of a tool call that are searched, in words.
FIELDS = {
    "tool_input": pgettext_lazy("part of a tool call", "input"),
    "output": pgettext_lazy("part of a tool call", "output"),
    "error_message": pgettext_lazy("part of a tool call", "error"),
}
SPEAKERS = {
    "user": pgettext_lazy("who says a message", "You"),
    "assistant": pgettext_lazy("who says a message", "Assistant"),
    "system": pgettext_lazy("who says a message", "System"),
}
# What a hit in a part is called, where it is not just what the speaker said.
WHAT = {
    ReasoningPart.type: _("Reasoning"),
    PatchPart.type: _("Change to files"),
    CitationPart.type: _("A source"),
    RefusalPart.type: _("%(speaker)s, a refusal"),
    FileRefPart.type: _("%(speaker)s, a file"),
    ImagePart.type: _("%(speaker)s, a picture"),
    AudioPart.type: _("%(speaker)s, a sound"),
    DocumentPart.type: _("%(speaker)s, a document"),
}
Asked = Annotated[str, Query(min_length=1, max_length=LONGEST_QUESTION)]
Limit = Annotated[int, Query(ge=1, le=100)]
Around = Annotated[int | None, Query(ge=0, le=MOST_AROUND)]
MaxTokens = Annotated[int | None, Query(ge=1, le=100_000)]


class SearchFilters(Schema):
    since: str = ""
    until: str = ""
    speaker: str = ""
    tool: str = ""
    file: str = ""
    branch: int | None = None
    project_id: Annotated[str, Query(max_length=100)] = ""
    compacted: bool | None = None


class PassageLineOut(Out):
    """One message of a passage, as one line; ``handle`` stands for its id at every memory tool."""

    handle: str
    message_id: str
    seq: int
    role: str
    speaker: Text
    tool_name: Text
    said_at: datetime
    text: Text
    is_hit: bool


class HitOut(Out):
    """One place that matches. ``matches`` are places in the snippet: (first, after the last) character.

    ``branch`` is that of the message; of a summary the one that it was made for.
    """

    session_id: str
    session_title: Text
    kind: str
    message_id: str | None
    message_seq: int
    last_seq: int
    branch: int
    role: str
    part_id: str | None
    part_type: str
    field: str
    summary_id: str | None
    file_id: str | None
    covered_by: str | None
    snippet: Text
    matches: list[Annotated[list[int], Field(min_length=2, max_length=2)]]
    passage: list[PassageLineOut]


class SearchOut(Out):
    """The hits of a search, and how much was searched."""

    mode: Mode
    note: str
    items: list[HitOut]
    messages_searched: int
    messages_total: int
    cut_off: bool
    more: bool
    next_cursor: str | None


@by_name("search", session_id=None)
@router.get("/sessions/{session_id}/search", response={200: SearchOut, **ERRORS}, summary="Search one session")
def search_session(
    request: Asker,
    session_id: str,
    q: Asked,
    mode: Mode = "ranked",
    scope: Kind = "all",
    summary_id: str | None = None,
    limit: Limit = 20,
    cursor: str | None = None,
    around: Around = None,
    max_tokens: MaxTokens = None,
    *,
    narrowed: Query[SearchFilters],
) -> dict[str, Any]:
    """Answer a question, or find words or a pattern, in everything that was said, in context or not.

    Mode ``ranked`` returns the passages that answer best, each with the messages around it. Mode ``text`` wants every
    word; "in quotes" side by side; begin* of words. Patterns (``regex``) are RE2's. With ``summary_id`` only the
    messages that this summary stands for. Times are ISO 8601 (``2026-11-26``); a speaker is a role, or a name that the
    session's labels tell; a file is a part of its path; ``compacted`` asks for what has left the context, or has not.
    """
    filters = read_filters(**narrowed.model_dump())
    where = where_to_search(owner_id(request), scope, session_id=session_id, summary_id=summary_id, filters=filters)
    return search_out(_answer(where, q, mode=mode, limit=limit, cursor=cursor, around=around, max_tokens=max_tokens))


@router.get("/search", response={200: SearchOut, **ERRORS}, summary="Search all sessions")
def search_all(
    request: HttpRequest,
    q: Asked,
    mode: Mode = "ranked",
    scope: Kind = "all",
    summary_id: str | None = None,
    limit: Limit = 20,
    cursor: str | None = None,
    around: Around = None,
    max_tokens: MaxTokens = None,
    *,
    narrowed: Query[SearchFilters],
) -> dict[str, Any]:
    """Find words or a pattern in everything that was said in any session of yours, or in those in one project."""
    filters = read_filters(**narrowed.model_dump())
    where = where_to_search(owner_id(request), scope, session_id=None, summary_id=summary_id, filters=filters)
    return search_out(_answer(where, q, mode=mode, limit=limit, cursor=cursor, around=around, max_tokens=max_tokens))


def where_to_search(
    owner_id: int, kind: Kind, *, session_id: str | None, summary_id: str | None, filters: Filters = EVERYTHING
) -> Scope:
    """Return the scope of all sessions of a person, of one, or of the messages that a summary stands for.

    :raises SessionNotFoundError: it is not there, or belongs to another person.
    :raises SummaryNotFoundError: there is no such summary there.
    :raises ProjectNotFoundError: there is no such project, or the person is not a member of it.
    """
    if filters.project_id:
        load_project(filters.project_id, user_id=owner_id)
    if session_id is not None:
        load_session(session_id, owner_id=owner_id)
    where = Scope(owner_id=owner_id, session_id=session_id, kind=kind, filters=filters)
    if summary_id is None:
        return where
    summary = load_summary(summary_id, session_id=session_id, owner_id=owner_id)
    return within_summary(where, summary)


def _answer(where: Scope, text: str, *, limit: int, max_tokens: int | None, **how: Any) -> SearchResult:
    """Search, and return as many of the hits as have at most ``max_tokens`` together, but always one."""
    result = answer(where, text, limit=limit, **how)
    if max_tokens is None or not result.hits:
        return result
    sizes = accumulate(
        estimate_text(" ".join([hit.snippet, *(line.text for line in hit.passage)])) for hit in result.hits
    )
    fitting = max(1, sum(size <= max_tokens for size in sizes))
    return result if fitting == len(result.hits) else answer(where, text, limit=fitting, **how)


def search_out(result: SearchResult) -> dict[str, Any]:
    """Return what ``SearchOut`` reads: each hit with the summary that stands for it."""
    seqs: dict[str, list[int]] = defaultdict(list)
    for hit in result.hits:
        seqs[hit.session_id].append(hit.message_seq)
    covering = {id: covering_summaries(id, seqs[id]) for id in seqs}
    items = [
        asdict(hit)
        | {
            "passage": [asdict(line) | {"handle": f"#{line.seq}"} for line in hit.passage],
            "part_id": hit.source_id if hit.message_id else None,
            "summary_id": hit.source_id if hit.kind == "summaries" else None,
            "file_id": hit.source_id if hit.kind == "files" else None,
            "covered_by": covering[hit.session_id].get(hit.message_seq) if hit.message_id else None,
        }
        for hit in result.hits
    ]
    return asdict(result) | {"items": items, "more": result.more}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    query: str
    mode: Mode
    kind: Kind
    session: str  # an id; empty for all sessions
    cursor: str
    project: str = ""  # an id; empty for all sessions

    @property
    def address(self) -> str:
        wanted = {
            "q": self.query,
            "mode": self.mode,
            "kind": self.kind,
            "session": self.session,
            "project": self.project,
        }
        usual = {"mode": "ranked", "kind": "all"}
        return reverse("search", query={k: value for k, value in wanted.items() if value and value != usual.get(k)})


@signed_in
def search_page(request: HttpRequest) -> HttpResponse:
    """Search in all texts, or in those of one session; htmx asks for the hits alone, ``brief`` for a few of them."""
    mode, kind = request.GET.get("mode"), request.GET.get("kind")
    asked = PageQuery(
        query=printable(request.GET.get("q", "").strip()),
        mode=next((known for known in get_args(Mode) if known == mode), "ranked"),
        kind=next((known for known in get_args(Kind) if known == kind), "all"),
        session=request.GET.get("session", ""),
        cursor=request.GET.get("cursor", ""),
        project=request.GET.get("project", ""),
    )
    if request.GET.get("brief") == "1":
        # The last word may not be complete yet.
        typed = f"{asked.query}*" if asked.query[-1:].isalnum() else asked.query
        found = _search(replace(asked, query=typed), reader_of(request), limit=FIRST)
        return render(request, "compaction_app/search/_first_hits.html", found)
    found = _search(asked, reader_of(request), limit=PAGE)
    if "HX-Request" not in request.headers:
        return render(request, "compaction_app/search/search.html", found)
    response = render(request, "compaction_app/search/_hits.html", found)
    if not asked.cursor:
        response.headers["HX-Replace-Url"] = asked.address
    return response


def _search(asked: PageQuery, owner_id: int, *, limit: int) -> dict[str, Any]:
    session = load_session(asked.session, owner_id=owner_id) if asked.session else None
    project = load_project(asked.project, user_id=owner_id) if asked.project else None
    context: dict[str, Any] = {
        "asked": asked,
        "kinds": KINDS.items(),
        "modes": MODES.items(),
        "longest": LONGEST_PAGE_QUERY,
        "session": session,
        "project": project,
        "session_title": "" if session is None else shown_title(session.title),
        "hits": [],
    }
    if not asked.query:
        return context
    filters = Filters(project_id=project.id) if project else EVERYTHING
    session_id = None if session is None else session.id
    scope = Scope(owner_id=owner_id, session_id=session_id, kind=asked.kind, filters=filters)
    try:
        result = answer(scope, asked.query, mode=asked.mode, limit=limit, cursor=asked.cursor or None)
    except InvalidRequest as error:
        return context | {"problem": show_invisible(error_text(error))}
    places = places_of_parts({hit.source_id for hit in result.hits if hit.message_id})
    covering = leaves_of_messages({hit.message_id: hit.session_id for hit in result.hits if hit.message_id})
    left = {
        hit.session_id for hit in result.hits if (place := places.get(hit.source_id)) and place.left_turn is not None
    }
    beside = newest_beside(left)
    searched = gettext("Searched %(searched)s of %(total)s messages.")
    if result.cut_off:
        searched = gettext("Searched %(searched)s of %(total)s messages. That took long, so it stopped here.")
    numbers = {"searched": format_number(result.messages_searched), "total": format_number(result.messages_total)}
    return context | {
        "result": result,
        "hits": [
            _view(hit, places.get(hit.source_id), covering.get(hit.message_id or ""), beside.get(hit.message_id or ""))
            for hit in result.hits
        ],
        "searched": searched % numbers,
        # The address always has a query: without words nothing is searched.
        "next_address": f"{asked.address}&{urlencode({'cursor': result.next_cursor})}" if result.next_cursor else "",
    }


def _view(hit: Hit, place: PartPlace | None, covered_by: str | None, row: Row | None) -> dict[str, Any]:
    left = place.left_turn if place else None
    is_result = hit.field in ("output", "error_message")
    pruned = place.pruned_turn if place and is_result else None
    is_pruned = pruned is not None and (left is None or pruned <= left)
    hidden = [*row.get("omitted", ()), *(row.get("tombstoned", ()) if is_result else ())] if row else []
    beside = [line for line in hit.passage if not line.is_hit]
    return {
        "hit": hit,
        "before": [_beside(line) for line in beside if line.seq < hit.message_seq],
        "after": [_beside(line) for line in beside if line.seq > hit.message_seq],
        "title": shown_title(hit.session_title),
        "what": _what(hit, place),
        # The snippet in order: a piece, and whether it matches.
        "pieces": [(show_invisible(text), matches) for text, matches in _pieces(hit)],
        "said_at": place.said_at if place else None,
        # The turn since when a model no longer reads the text as it was said.
        "left_turn": pruned if is_pruned else left,
        "is_pruned": is_pruned,
        # How the newest call showed it all the same.
        "still_shown": row["kind"] if row and hit.source_id not in hidden else "",
        "covered_by": covered_by if left is not None else None,
    }


def _what(hit: Hit, place: PartPlace | None) -> str:
    if hit.kind == "summaries":
        span = {"first": format_number(hit.message_seq), "last": format_number(hit.last_seq)}
        return gettext("Summary of messages %(first)s to %(last)s") % span
    if hit.kind == "files":
        return gettext("What a file holds")
    if hit.part_type in CALLS:
        name = show_invisible(place.tool_name) if place and place.tool_name else gettext("a tool")
        return f"{name}, {FIELDS.get(hit.field) or pgettext('part of a tool call', 'call')}"
    own = next((line for line in hit.passage if line.is_hit), None)
    speaker = show_invisible(own.speaker) if own and own.speaker else str(SPEAKERS.get(hit.role, hit.role))
    return str(WHAT.get(hit.part_type, "%(speaker)s")) % {"speaker": speaker}


def _pieces(hit: Hit) -> Iterator[tuple[str, bool]]:
    end = 0
    for first, last in hit.matches:
        yield hit.snippet[end:first], False
        yield hit.snippet[first:last], True
        end = last
    yield hit.snippet[end:], False


def _beside(line: Line) -> dict[str, Any]:
    who = line.tool_name or line.speaker or str(SPEAKERS.get(line.role, line.role))
    return {"seq": line.seq, "who": show_invisible(who), "text": show_invisible(line.text)}
