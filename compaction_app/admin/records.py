"""Compactions and summaries; the pages that draw a session's DAG and show its context at any time."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.gzip import gzip_page

from compaction_app.admin.context import view_context
from compaction_app.admin.graph import load_nodes
from compaction_app.admin.outline import outline_of, span_name
from compaction_app.admin.payload import payload_file_view, payload_view
from compaction_app.drawing import load_drawing
from compaction_app.models import CompactionRun, SummaryEdge, SummaryNode, SummaryPreview, SummaryTry
from compaction_app.queries import load_graph
from mnesis_core.compaction import Outcome
from mnesis_core.graph import Graph, Node, Span
from mnesis_core.text import decode_text, encode_text
from mnesis_core.visible import excerpt
from sessions_app.admin.facts import Fact, Link
from sessions_app.admin.filters import fixed_filter, presence_filter
from sessions_app.admin.messages import context_facts
from sessions_app.admin.pages import page_of
from sessions_app.admin.read_only import ReadOnlyAdmin, list_url
from sessions_app.admin.texts import TextColumn
from sessions_app.inspect_queries import (
    NOW,
    MessagePreview,
    SessionHeading,
    id_of_message,
    load_context_summaries,
    load_heading,
    preview_messages,
)

LISTED_NODES = 500
"""Of the outline, which comes with its page; the drawing has all."""
SOURCES_PER_PAGE = 200
CHOSEN_TEXT = 600
"""Characters that are shown of what was chosen in the drawing."""
_SEES_CONTEXT = (
    "sessions_app.view_contextitem", "sessions_app.view_message", "sessions_app.view_messagepart",
    "compaction_app.view_summarynode",
)  # fmt: skip


@admin.register(CompactionRun)
class CompactionRunAdmin(ReadOnlyAdmin):
    """Compactions: why, what was tried, what came of it."""

    list_display = (
        "shown_id", "in_session", "trigger", "state", "outcome", "level", "tokens_before", "tokens_after", "source_count",
        "pruned_parts", "created",
    )  # fmt: skip
    list_filter = (
        "state",
        "trigger",
        fixed_filter("outcome", "outcome", tuple(Outcome)),
        fixed_filter("level", "level", ("0", "1", "2", "3")),
    )
    related = ("session",)
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="error_message", label="Error"),
        TextColumn(name="summary_ids", label="Summaries written"),
    )

    def page(self, request: HttpRequest, row: CompactionRun) -> dict[str, Any]:
        """Where its summaries are, and the context right after it."""
        links = [
            Link(label="Its summaries", url=list_url(SummaryNode, run=row.id)),
            Link(label="What was tried", url=list_url(SummaryTry, run=row.id)),
        ]
        if row.end_seq is not None:
            url = f"{reverse('admin:inspect_context', args=[row.session_id])}?at={row.end_seq}"
            links.append(Link(label="The context when it ended", url=url))
        return {"links": links}


@admin.register(SummaryTry)
class SummaryTryAdmin(ReadOnlyAdmin):
    """Attempts at summaries, the rejected ones included."""

    list_display = (
        "shown_id", "in_session", "kind", "level", "piece", "accepted", "reason", "tokens_input", "tokens_output",
        "cost_micros", "created",
    )  # fmt: skip
    list_filter = ("accepted", fixed_filter("level", "level", ("1", "2", "3")), "reason")
    related = ("session",)
    link_lookups = ("session", "run", "summary_id")
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="text", label="Reply"),
        TextColumn(name="reasoning", label="Reasoning"),
        TextColumn(name="tool_calls", label="Tool calls"),
    )


@admin.register(SummaryNode)
class SummaryNodeAdmin(ReadOnlyAdmin):
    """Summaries, each with its sources in order."""

    list_display = (
        "shown_id", "in_session", "kind", "depth", "level", "messages", "token_count", "source_tokens", "superseded_seq",
        "freshness", "created",
    )  # fmt: skip
    list_filter = (
        "kind",
        fixed_filter("level", "level", ("1", "2", "3")),
        "model",
        presence_filter("superseded_seq", "superseded"),
        "freshness",
    )
    related = ("session",)
    link_lookups = ("session", "run")
    session_ordering = ("pk",)
    texts = (TextColumn(name="text", label="Text"),)
    page_template = "admin/inspector/summary.html"

    @admin.display(description="Stands for", ordering="first_seq")
    def messages(self, row: SummaryNode) -> str:
        """The messages it stands for."""
        return span_name((row.first_seq, row.last_seq))

    def page_title(self, row: SummaryNode) -> str:
        """Its kind and the messages it stands for."""
        return f"{row.kind.capitalize()} summary of {self.messages(row)}"

    def facts(self, row: SummaryNode) -> list[Fact]:
        """The columns, and where the summary stands in the context."""
        return [*super().facts(row), *context_facts(row.session_id, row.id)]

    def page(self, request: HttpRequest, row: SummaryNode) -> dict[str, Any]:
        """Its revisions, its sources a page at a time, and the summaries that stand for it."""
        graph = load_graph(row.session_id)
        edges = SummaryEdge.objects.filter(node_id=row.id)
        page = page_of(request.GET.get("page", ""), total=edges.count(), size=SOURCES_PER_PAGE)
        chosen = list(edges.order_by("position")[page.first : page.first + page.size])
        return {
            "page": page,
            "revisions": [_shown_revision(node, row.id) for node in graph.history(row.id)],
            "sources": _shown_sources(chosen, graph, may_preview=request.user.has_perms(_SEES_CONTEXT)),
            "parents": [(_url(node.id), span_name((node.first_seq, node.last_seq))) for node in graph.parents(row.id)],
            "links": [Link(label="Its previews", url=list_url(SummaryPreview, summary=row.id))],
        }

    def get_urls(self) -> list[URLPattern]:
        """The admin's own, the two pages about a session, and what a call was sent."""
        wrap = self.admin_site.admin_view
        payload, payload_file = partial(payload_view, self), payload_file_view
        return [
            path("inspect/<path:call_id>/payload/", wrap(payload), name="inspect_payload"),
            path("inspect/<path:call_id>/payload.json", wrap(payload_file), name="inspect_payload_file"),
            path("inspect/<path:session_id>/context/", wrap(self.context_view), name="inspect_context"),
            path("inspect/<path:session_id>/summaries/", wrap(self.drawing_view), name="inspect_summaries"),
            path("inspect/<path:session_id>/summaries/drawing.json", wrap(drawing_values_view), name="inspect_drawing"),
            path("inspect/<path:session_id>/summaries/messages/<int:seq>/", wrap(message_view), name="inspect_message"),
            path("inspect/<path:session_id>/summaries/<str:summary_id>/", wrap(summary_view), name="inspect_summary"),
            *super().get_urls(),
        ]

    def context_view(self, request: HttpRequest, session_id: str) -> HttpResponse:
        """The active context, now or as of the event ``?at=``.

        :raises PermissionDenied: something was sent, or this person may not see contexts.
        :raises Http404: there is no such session.
        """
        about = _session(request, session_id)
        view = view_context(about, at=request.GET.get("at", ""), page=request.GET.get("page", ""))
        return self._page(
            request, "context.html", about, "Context", {"view": view, "page": view.page, "keep": f"at={view.at}&"}
        )

    def drawing_view(self, request: HttpRequest, session_id: str) -> HttpResponse:
        """The summary DAG, drawn and as a list.

        :raises PermissionDenied: something was sent, or this person may not see summaries.
        :raises Http404: there is no such session.
        """
        about = _session(request, session_id)
        active = set(load_context_summaries(about.id, at=about.event_seq))
        nodes = load_nodes(about.id, active=active, limit=LISTED_NODES)

        def span_url(span: Span) -> str:
            return _messages_url(about.id, span)

        context = {
            "outline": outline_of(nodes, span_url),
            "count": len(nodes),
            "total": SummaryNode.objects.filter(session_id=about.id).count(),
        }
        return self._page(request, "summaries.html", about, "Summaries", context)

    def _page(
        self, request: HttpRequest, template: str, about: SessionHeading, title: str, context: dict[str, Any]
    ) -> HttpResponse:
        common = {**self.admin_site.each_context(request), "opts": self.opts, "about": about, "title": title}
        return TemplateResponse(request, f"admin/inspector/{template}", {**common, **context})


@gzip_page
def drawing_values_view(request: HttpRequest, session_id: str) -> HttpResponse:
    """What the drawing draws, as JSON.

    :raises PermissionDenied: something was sent, or this person may not see summaries.
    :raises Http404: there is no such session.
    """
    about = _session(request, session_id)
    values = load_drawing(about.id, at=about.event_seq, last_seq=about.message_seq)
    return JsonResponse(values, json_dumps_params={"separators": (",", ":")})


def summary_view(request: HttpRequest, session_id: str, summary_id: str) -> HttpResponse:
    """A summary that was chosen in the drawing: where its record is.

    :raises PermissionDenied: something was sent, or this person may not see summaries.
    :raises Http404: there is no such session, or it has no such summary.
    """
    about = _session(request, session_id)
    row = get_object_or_404(SummaryNode.objects.filter(session_id=about.id), pk=encode_text(summary_id))
    name = f"{row.kind.capitalize()} summary of {span_name((row.first_seq, row.last_seq))}"
    context = {"name": name, "url": _url(row.id), "text": excerpt(decode_text(row.text), CHOSEN_TEXT)}
    return TemplateResponse(request, "admin/inspector/_chosen.html", context)


def message_view(request: HttpRequest, session_id: str, seq: int) -> HttpResponse:
    """A message that was chosen in the drawing: where its record is.

    :raises PermissionDenied: something was sent, or this person may not see messages.
    :raises Http404: there is no such session, or it has no such message.
    """
    about = _session(request, session_id)
    message_id = id_of_message(about.id, seq) if seq <= about.message_seq else None
    if message_id is None:
        raise Http404("there is no message of this number")
    preview = preview_messages([message_id], at=NOW)[message_id]
    url = reverse("admin:sessions_app_message_change", args=[quote(message_id)])
    context = {"name": f"Message {seq} · {preview.role}", "url": url, "text": excerpt(preview.text, CHOSEN_TEXT)}
    return TemplateResponse(request, "admin/inspector/_chosen.html", context)


def _session(request: HttpRequest, session_id: str) -> SessionHeading:
    if request.method not in ("GET", "HEAD") or not request.user.has_perms(_SEES_CONTEXT):
        raise PermissionDenied
    about = load_heading(session_id)
    if about is None:
        raise Http404("there is no session of this id")
    return about


def _shown_revision(node: Node, shown_id: str) -> dict[str, Any]:
    origin = f"with the text of {node.restores_id}" if node.restores_id else ""
    ended = "in place now" if node.superseded_seq is None else f"superseded at event {node.superseded_seq}"
    return {
        "name": node.id,
        "url": _url(node.id),
        "is_this": node.id == shown_id,
        "text": ", ".join(words for words in (ended, origin) if words),
    }


def _shown_sources(edges: list[SummaryEdge], graph: Graph, *, may_preview: bool) -> list[dict[str, str]]:
    ids = [edge.source_id for edge in edges if edge.source_type == "message"]
    previews = preview_messages(ids, at=NOW) if may_preview and ids else {}
    return [_shown_source(edge, graph, previews.get(edge.source_id)) for edge in edges]


def _shown_source(edge: SummaryEdge, graph: Graph, preview: MessagePreview | None) -> dict[str, str]:
    if edge.source_type == "summary":
        is_newest = graph.find(edge.source_id).superseded_seq is None
        text = "" if is_newest else "revised since"
        return {"name": f"summary {edge.source_id}", "url": _url(edge.source_id), "text": text}
    return {
        "name": f"message {preview.seq} · {preview.role}" if preview else f"message {edge.source_id}",
        "url": reverse("admin:sessions_app_message_change", args=[quote(edge.source_id)]),
        "text": excerpt(preview.text, 160) if preview else "",
    }


def _url(summary_id: str) -> str:
    return reverse("admin:compaction_app_summarynode_change", args=[quote(summary_id)])


def _messages_url(session_id: str, span: Span) -> str:
    base = reverse("admin:sessions_app_message_changelist")
    return f"{base}?session={session_id}&seq__gte={span[0]}&seq__lte={span[1]}"
