"""The summaries of a session: drawn, as a tree of rows, and each one beside its sources."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.cache import get_conditional_response
from django.views.decorators.gzip import gzip_page

from compaction_app.inspector.summaries import load_drawing, load_roots, load_under, load_view, open_sources
from compaction_app.lineage import trace_message
from compaction_app.queries import count_summaries, load_reply, load_summary
from mnesis_core.errors import MessageNotFoundError, SessionNotFoundError, SummaryNotFoundError
from mnesis_core.records import SummaryRecord
from mnesis_core.text import printable
from sessions_app.pages import transcript
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import Inspected, inspected
from sessions_app.pages.views import number_in, signed_in
from sessions_app.record.inspect_queries import NOW, id_of_message, preview_messages

TAB = "inspect-summaries"
VIEWS = ("drawing", "table")
DEEPEST = 10_000


@signed_in
def summaries(request: HttpRequest, session_id: str) -> HttpResponse:
    """Every summary of a session, as a drawing or as a table (``view``), with one chosen (``id``, or ``seq`` of a message)."""
    about = inspected(request, session_id)
    view = request.GET.get("view", "")
    kept = {name: printable(request.GET[name]) for name in ("id", "seq") if request.GET.get(name)}
    context = {
        "about": about,
        "tab": TAB,
        "view": view if view in VIEWS else VIEWS[0],
        "counts": count_summaries(about.id),
        "chosen": _chosen(request, about),
        "seq": number_in(request, "seq"),
        "links": [(name, f"?{urlencode({'view': name} | kept)}") for name in VIEWS],
    }
    if context["view"] == "table":
        context |= {"rows": load_roots(about, offset=0), "level": 1}
    return render(request, "compaction_app/inspect_summaries.html", context)


@signed_in
@gzip_page
def drawing(request: HttpRequest, session_id: str) -> HttpResponse:
    """What the drawing draws, as JSON; the browser keeps it until something happens in the session."""
    about = inspected(request, session_id)
    etag = f'"{about.id}:{about.event_seq}"'
    unchanged = get_conditional_response(request, etag=etag)
    if unchanged is not None:
        return unchanged
    values = load_drawing(about.id, at=about.event_seq, last_seq=about.message_seq)
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    return JsonResponse(values, json_dumps_params={"separators": (",", ":")}, headers=headers)


@signed_in
def rows(request: HttpRequest, session_id: str) -> HttpResponse:
    """More rows of the table: what stands under a summary (``under``), or the rest of a level (``offset``)."""
    about = inspected(request, session_id)
    under, offset = request.GET.get("under", ""), number_in(request, "offset") or 0
    found = load_under(about, under, offset=offset) if under else load_roots(about, offset=offset)
    level = min(number_in(request, "level") or 1, DEEPEST)
    context = {"about": about, "rows": found, "level": level, "under": printable(under)}
    return render(request, "compaction_app/_inspect_summary_rows.html", context)


@signed_in
def summary(request: HttpRequest, session_id: str, summary_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    return _summary(request, about, load_summary(summary_id, session_id=about.id))


@signed_in
def sources(request: HttpRequest, session_id: str, summary_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    node = load_summary(summary_id, session_id=about.id)
    found = open_sources(node, offset=number_in(request, "offset") or 0)
    context = {"about": about, "summary": node, "sources": found}
    return render(request, "compaction_app/_summary_sources.html", context)


@signed_in
def source(request: HttpRequest, session_id: str, summary_id: str, source_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    node = load_summary(summary_id, session_id=about.id)
    kind = {id: kind for kind, id in node.source_ids}.get(source_id)
    if kind is None:
        raise MessageNotFoundError(message_id=source_id)
    context: dict[str, Any] = {"about": about}
    if kind == "summary":
        context["summary"] = load_summary(source_id, session_id=about.id)
    else:
        context["message"] = transcript.load_message(about.id, source_id)
    return render(request, "compaction_app/_summary_source.html", context)


@signed_in
def reply(request: HttpRequest, session_id: str, try_id: str) -> HttpResponse:
    about = inspected(request, session_id)
    found = load_reply(try_id, session_id=about.id)
    calls = json.dumps(found.tool_calls, indent=2, ensure_ascii=False) if found.tool_calls else ""
    texts = {"text": found.text, "reasoning": found.reasoning, "tool_calls": calls}
    context = {name: show_invisible(text) for name, text in texts.items()}
    return render(request, "compaction_app/_summary_reply.html", context)


@signed_in
def message(request: HttpRequest, session_id: str, seq: int) -> HttpResponse:
    """Which summaries stand for a message, beside the drawing."""
    about = inspected(request, session_id)
    message_id = id_of_message(about.id, seq) if seq <= about.message_seq else None
    if message_id is None:
        raise MessageNotFoundError(message_id=str(seq))
    traced = trace_message(message_id, session_id=about.id)
    context = {
        "about": about,
        "preview": preview_messages([message_id], at=NOW)[message_id],
        "above": traced.above,
        "in_context": traced.in_context,
        "is_active": traced.in_context == message_id,
        "message": transcript.load_message(about.id, message_id),
    }
    return render(request, "compaction_app/_inspect_message.html", context)


@signed_in
def anywhere(request: HttpRequest, summary_id: str) -> HttpResponse:
    """A summary by its id alone: its page in the inspector of its session."""
    node = load_summary(summary_id)
    try:
        about = inspected(request, node.session_id)
    except SessionNotFoundError:
        # Not even the id of another person's session may be seen.
        raise SummaryNotFoundError(summary_id=summary_id) from None
    if "HX-Request" in request.headers:
        return _summary(request, about, node)
    return redirect("inspect-summary", about.id, node.id)


def _summary(request: HttpRequest, about: Inspected, node: SummaryRecord) -> HttpResponse:
    context = {"about": about, "tab": TAB} | _context(node)
    is_part = "HX-Request" in request.headers
    return render(request, f"compaction_app/{'_summary' if is_part else 'inspect_summary'}.html", context)


def _chosen(request: HttpRequest, about: Inspected) -> dict[str, Any] | None:
    wanted = request.GET.get("id", "")
    if not wanted:
        return None
    try:
        return _context(load_summary(wanted, session_id=about.id))
    except SummaryNotFoundError:
        return {"missing": printable(wanted)[:100]}


def _context(node: SummaryRecord) -> dict[str, Any]:
    view = load_view(node)
    rejected = sum(not attempt.accepted for attempt in view.tries)
    return {"view": view, "summary": node, "sources": view.sources, "rejected": rejected}
