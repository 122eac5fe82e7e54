"""Compactions and summaries in the admin, the drawing of a session's summaries, and its context at any event."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_noop
from django.views.decorators.gzip import gzip_page

from compaction_app import models
from compaction_app.context.state import load_frame, rebuild_payload
from compaction_app.inspector.calls import SEES_PAYLOADS, may_see_payload, payload_file
from compaction_app.inspector.summaries import SOURCES, load_drawing, open_sources
from compaction_app.models import (
    Claim,
    CompactionRun,
    FactSource,
    Reflection,
    SummaryNode,
    SummaryPreview,
    SummaryTry,
)
from compaction_app.queries import load_graph, load_heads, load_summary
from compaction_app.templatetags.compaction import span_name, summary_name
from mnesis_core.compaction.dag import Node, difference
from mnesis_core.compaction.selection import Outcome
from mnesis_core.errors import CallNotFoundError, SessionNotFoundError
from mnesis_core.facts import state_of
from mnesis_core.llm.tokens import describe_count
from mnesis_core.records import CallRecord, ContextItemRecord
from mnesis_core.text import excerpt
from sessions_app.admin.read_only import (
    Fact,
    ReadOnlyAdmin,
    TextColumn,
    column,
    fixed_filter,
    list_url,
    page_of,
    parse_seq,
    presence_filter,
    record_url,
    require_reading,
    show_text,
)
from sessions_app.admin.records import context_facts
from sessions_app.pages.permissions import address_of, inspected, look_at
from sessions_app.record import timeline_queries
from sessions_app.record.branch_queries import path_in
from sessions_app.record.timeline_queries import NOW, SessionHeading, load_heading, preview_messages
from sessions_app.record.turn_queries import load_call

ITEMS_PER_PAGE = 200
CHANGES_SHOWN = 50
PREVIEW = 160
CHOSEN_TEXT = 600
BATCH = 1000  # SQLite allows 32,766 variables in one statement
SEES_CONTEXT = (
    "sessions_app.view_contextitem", "sessions_app.view_message", "sessions_app.view_messagepart",
    "compaction_app.view_summarynode",
)  # fmt: skip
LEVELS = fixed_filter("level", gettext_noop("level"), ("1", "2", "3"))


@admin.register(CompactionRun)
class CompactionRunAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "trigger", "state", "outcome", "level", "tokens_before", "tokens_after", "source_count",
        "pruned_parts", "created",
    )  # fmt: skip
    list_filter = (
        "state",
        "trigger",
        fixed_filter("outcome", gettext_noop("outcome"), tuple(Outcome)),
        fixed_filter("level", gettext_noop("level"), ("0", "1", "2", "3")),
    )
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="error_message", label=gettext_noop("Error")),
        TextColumn(name="summary_ids", label=gettext_noop("Summaries written")),
    )

    def page(self, request: HttpRequest, row: CompactionRun) -> dict[str, Any]:
        links: list[Any] = [
            (gettext("Its summaries"), list_url(SummaryNode, run=row.id), None),
            (gettext("Attempts"), list_url(SummaryTry, run=row.id), None),
        ]
        if row.end_seq is not None:
            url = reverse("admin:inspect_context", args=[row.session_id], query={"at": row.end_seq})
            links.append((gettext("The context when it ended"), url, None))
        return {"links": links}


@admin.register(SummaryTry)
class SummaryTryAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "kind", "level", "piece", "accepted", "reason", "tokens_input", "tokens_output",
        "cost_micros", "created",
    )  # fmt: skip
    list_filter = ("accepted", LEVELS, "reason")
    link_lookups = ("session", "run", "summary_id")
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="text", label=gettext_noop("Reply")),
        TextColumn(name="reasoning", label=gettext_noop("Reasoning")),
        TextColumn(name="tool_calls", label=gettext_noop("Tool calls")),
    )


@admin.register(SummaryPreview)
class SummaryPreviewAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "summary_id", "level", "model", "prompt_version", "token_count", "cost_micros", "applied",
        "created",
    )  # fmt: skip
    list_filter = ("model",)
    link_lookups = ("session", "summary", "batch_id")
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="text", label=gettext_noop("Text")),
        TextColumn(name="source_ids", label=gettext_noop("What was read")),
    )
    applied = column(gettext_noop("Applied"), lambda row: "yes" if row.is_applied else "")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        revision = SummaryNode.objects.filter(id=OuterRef("pk"))
        rows: QuerySet[Any] = super().get_queryset(request).annotate(is_applied=Exists(revision))
        return rows

    def page_title(self, row: SummaryPreview) -> str:
        return f"Preview of the summary of {_span(row.summary)}"

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        lines = difference(row.summary.text, row.text)
        links = [(gettext("All that is applied together"), list_url(SummaryPreview, batch_id=row.batch_id), None)]
        if row.is_applied:
            links.append((gettext("The revision"), record_url(SummaryNode, row.id), None))
        label = gettext("Difference from the summary whose place it would take")
        return {"links": links, "more_texts": [show_text("\n".join(lines) or "The same text.", label=label)]}


@admin.register(Reflection)
class ReflectionAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "summary_id", "state", "model", "found", "refused", "tokens_input", "tokens_output",
        "cost_micros", "error_code", "created",
    )  # fmt: skip
    list_filter = ("state", "error_code")
    link_lookups = ("session", "summary")
    session_ordering = ("pk",)

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"links": [(gettext("Facts that it found"), list_url(models.Fact, reflection=row.id), None)]}


@admin.register(Claim)
class ClaimAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "summary_id", "number", "support", "share", "text_start", "text_end", "method", "created",
    )  # fmt: skip
    list_filter = ("support", "method")
    link_lookups = ("session", "summary")
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="places", label=gettext_noop("Rests on")),
        TextColumn(name="missing", label=gettext_noop("Not said there")),
    )


@admin.register(models.Fact)
class FactAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "kind", "state", "method", "model", "salience", "said_at", "held_for", "of_fact_id",
        "superseded_seq", "withdrawn_seq", "created",
    )  # fmt: skip
    link_lookups = ("session", "reflection")
    list_filter = (
        "kind",
        "method",
        presence_filter("superseded_seq", gettext_noop("superseded")),
        presence_filter("withdrawn_seq", gettext_noop("withdrawn")),
        "ban",
        "held_for",
    )
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="statement", label=gettext_noop("Statement")),
        TextColumn(name="subject", label=gettext_noop("Subject")),
    )
    state = column(
        gettext_noop("State"),
        lambda row: state_of(superseded_seq=row.superseded_seq, withdrawn_seq=row.withdrawn_seq, ban=row.ban).value,
    )

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"links": [(gettext("What it quotes"), list_url(FactSource, fact=row.id), None)]}


@admin.register(FactSource)
class FactSourceAdmin(ReadOnlyAdmin):
    list_display = ("shown_id", "in_session", "fact_id", "part_id", "quote_start", "quote_end")
    link_lookups = ("session", "fact")
    session_ordering = ("pk",)


@admin.register(SummaryNode)
class SummaryNodeAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "kind", "depth", "level", "messages", "token_count", "source_tokens", "superseded_seq",
        "freshness", "created",
    )  # fmt: skip
    list_filter = ("kind", LEVELS, "model", presence_filter("superseded_seq", gettext_noop("superseded")), "freshness")
    link_lookups = ("session", "run")
    session_ordering = ("pk",)
    texts = (TextColumn(name="text", label=gettext_noop("Text")),)
    messages = column(gettext_noop("Stands for"), lambda row: _span(row), "first_seq")

    def page_title(self, row: SummaryNode) -> str:
        return f"{row.kind.capitalize()} summary of {_span(row)}"

    def facts(self, row: SummaryNode) -> list[Fact]:
        return [*super().facts(row), *context_facts(row.session_id, row.id)]

    def page(self, request: HttpRequest, row: SummaryNode) -> dict[str, Any]:
        graph, summary = load_graph(row.session_id), load_summary(row.id)
        page = page_of(request, summary.source_ids, SOURCES)
        sources = open_sources(summary, offset=page.start_index() - 1).items if page.object_list else []
        may_preview = request.user.has_perms(SEES_CONTEXT)
        story = address_of("inspect-summary", row.session_id, row.id)
        return {
            "page": page,
            "groups": [
                (gettext("Revisions"), [_revision(node) for node in graph.history(row.id) if node.id != row.id]),
                (gettext("Summaries that stand for this one"), [_revision(node) for node in graph.parents(row.id)]),
                (
                    f"Sources ({page.paginator.count:,})",
                    [
                        (_item_url(s.type, s.id), *((s.name, s.text) if may_preview else (f"{s.type} {s.id}", "")))
                        for s in sources
                    ],
                ),
            ],
            "links": [
                (gettext("Its previews"), list_url(SummaryPreview, summary=row.id), None),
                (gettext("Its sentences"), list_url(Claim, summary=row.id), None),
                *([(gettext("How it was written"), story, None)] if story else []),
            ],
        }

    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("inspect/<path:call_id>/payload/", wrap(payload_view), name="inspect_payload"),
            path("inspect/<path:call_id>/payload.json", wrap(payload_file_view), name="inspect_payload_file"),
            path("inspect/<path:session_id>/context/", wrap(self.context_view), name="inspect_context"),
            path("inspect/<path:session_id>/summaries/", wrap(self.drawing_view), name="inspect_summaries"),
            path("inspect/<path:session_id>/summaries/drawing.json", wrap(drawing_values_view), name="inspect_drawing"),
            path("inspect/<path:session_id>/summaries/messages/<int:seq>/", wrap(message_view), name="inspect_message"),
            path("inspect/<path:session_id>/summaries/<str:summary_id>/", wrap(summary_view), name="inspect_summary"),
            *super().get_urls(),
        ]

    def context_view(self, request: HttpRequest, session_id: str) -> HttpResponse:
        about = _session(request, session_id)
        return self._page(request, "context", about, "Context", _context(request, about))

    def drawing_view(self, request: HttpRequest, session_id: str) -> HttpResponse:
        about = _session(request, session_id)
        total = SummaryNode.objects.filter(session_id=about.id).count()
        context = {"total": total, "list_url": list_url(SummaryNode, session=about.id)}
        return self._page(request, "summaries", about, "Summaries", context)

    def _page(
        self, request: HttpRequest, template: str, about: SessionHeading, title: str, context: dict[str, Any]
    ) -> HttpResponse:
        common = {**self.admin_site.each_context(request), "opts": self.opts, "about": about, "title": title}
        return TemplateResponse(request, f"admin/inspector/{template}.html", {**common, **context})


@gzip_page
def drawing_values_view(request: HttpRequest, session_id: str) -> HttpResponse:
    about = _session(request, session_id)
    values = load_drawing(about.id, at=about.event_seq, last_seq=about.message_seq, path=path_in(about))
    return JsonResponse(values, json_dumps_params={"separators": (",", ":")})


def summary_view(request: HttpRequest, session_id: str, summary_id: str) -> HttpResponse:
    about = _session(request, session_id)
    row = get_object_or_404(SummaryNode.objects.filter(session_id=about.id), pk=summary_id)
    name = f"{row.kind.capitalize()} summary of {_span(row)}"
    return _chosen(name, _item_url("summary", row.id), row.text)


def message_view(request: HttpRequest, session_id: str, seq: int) -> HttpResponse:
    about = _session(request, session_id)
    message_id = timeline_queries.id_of_message(about.id, seq) if seq <= about.message_seq else None
    if message_id is None:
        raise Http404("there is no message of this number")
    preview = preview_messages([message_id], at=NOW)[message_id]
    return _chosen(f"Message {seq} · {preview.role}", _item_url("message", message_id), preview.text)


def _chosen(name: str, url: str, text: str) -> HttpResponse:
    html = '<h2><a href="{0}">{1}</a></h2><p><bdi>{2}</bdi></p><p><a href="{0}">Open the record</a></p>'
    return HttpResponse(format_html(html, url, name, excerpt(text, CHOSEN_TEXT)))


def payload_view(request: HttpRequest, call_id: str) -> HttpResponse:
    """Lead to the payload in the session's inspector, or to its file where this person cannot open that."""
    call = _call(request, call_id)
    try:
        url = address_of("inspect-call", inspected(request, call.session_id).id, call.id, section="payload")
    except SessionNotFoundError:
        url = ""
    return redirect(url or reverse("admin:inspect_payload_file", args=[call.id]))


def payload_file_view(request: HttpRequest, call_id: str) -> HttpResponse:
    call = _call(request, call_id)
    return payload_file(call, rebuild_payload(call))


def _call(request: HttpRequest, call_id: str) -> CallRecord:
    require_reading(request, may_look=request.user.has_perms(SEES_PAYLOADS))
    try:
        call = load_call(call_id)
    except CallNotFoundError as error:
        raise Http404("there is no call of this id") from error
    if not may_see_payload(request.user, call.purpose):
        raise PermissionDenied
    look_at(request, call.session_id, may_look=True)
    return call


def _session(request: HttpRequest, session_id: str) -> SessionHeading:
    require_reading(request, may_look=request.user.has_perms(SEES_CONTEXT))
    about = load_heading(session_id)
    if about is None:
        raise Http404("there is no session of this id")
    look_at(request, about.id, may_look=True)
    return about


def _context(request: HttpRequest, about: SessionHeading) -> dict[str, Any]:
    at = request.GET.get("at", "")
    wanted = parse_seq(at)
    seq = about.event_seq if wanted is None else min(wanted, about.event_seq)
    event = timeline_queries.load_event_heading(about.id, seq)
    path = path_in(about, at=seq)
    total = timeline_queries.count_context(about.id, at=seq, path=path)
    page = page_of(request, range(total), ITEMS_PER_PAGE)
    first = max(page.start_index() - 1, 0)
    records = timeline_queries.load_context_page(about.id, at=seq, path=path, offset=first, limit=ITEMS_PER_PAGE)
    page.object_list = _items(about.id, records, at=seq)
    ids = timeline_queries.load_context_summaries(about.id, at=seq, path=path)
    batches = [SummaryNode.objects.filter(id__in=ids[i : i + BATCH]) for i in range(0, len(ids), BATCH)]
    tokens = timeline_queries.sum_message_tokens(about.id, at=seq, path=path)
    tokens += sum(batch.aggregate(total=Sum("token_count", default=0))["total"] for batch in batches)
    before, after = timeline_queries.context_changes_beside(about.id, at=seq)
    changes = []
    for verb in ("removed", "added"):
        total, records = timeline_queries.load_context_change(about.id, verb, at=seq, limit=CHANGES_SHOWN)
        if total:
            changes.append((verb, total, _items(about.id, records, at=seq)))
    return {
        "at": seq,
        "is_now": seq == about.event_seq,
        "branch": path.branch if path else None,
        "missing": at if at and wanted != seq else "",
        "event": event,
        "event_url": reverse("admin:sessions_app_event_change", args=[event.id]) if event else "",
        "page": page,
        "keep": f"at={seq}&",
        "tokens": tokens,
        "measured": _measured(about.id),
        "tables": [*changes, ("", page.paginator.count, page.object_list)],
        "steps": [
            (gettext("Previous change"), before),
            (gettext("Previous event"), seq - 1 if seq > 0 else None),
            (gettext("Next event"), seq + 1 if seq < about.event_seq else None),
            (gettext("Next change"), after),
        ],
    }


def _measured(session_id: str) -> str:
    try:
        frame = load_frame(session_id)
    except SessionNotFoundError:  # it was deleted
        return ""
    spec = frame.spec
    return (
        f"Window {spec.context_window:,} ({spec.context_window_source}), "
        f"answer up to {spec.max_output_tokens:,} ({spec.max_output_source}), usable {frame.budget.usable:,}. "
        f"{describe_count(**frame.calibration.as_dict())}"
    )


def _items(session_id: str, records: list[ContextItemRecord], *, at: int) -> list[dict[str, Any]]:
    # Two queries whatever the items are; a removed one is shown as it was right before.
    previews = preview_messages([r.item_id for r in records if r.item_type == "message"], at=at)
    summaries = [r.item_id for r in records if r.item_type == "summary"]
    heads = load_heads(summaries, session_id=session_id) if summaries else {}
    items = []
    for record in records:
        kind, span, tokens, text = "missing", "", 0, "There is no such message."
        head, preview = heads.get(record.item_id), previews.get(record.item_id)
        if head is not None:
            kind, span, tokens, text = f"{head.kind} summary", _span(head), head.token_count, head.text
        elif preview is not None:
            kind, span, tokens, text = preview.role, f"message {preview.seq}", preview.tokens, preview.text
        shown = {"kind": kind, "span": span, "tokens": tokens, "text": excerpt(text, PREVIEW)}
        url = _item_url(record.item_type, record.item_id)
        items.append({"record": record, "url": url, "level": head and head.level} | shown)
    return items


def _revision(node: Node) -> tuple[str, str, str]:
    state = "in place now" if node.superseded_seq is None else f"superseded at event {node.superseded_seq}"
    return _item_url("summary", node.id), summary_name(node), f"{node.id}, {state}"


def _span(row: Any) -> str:
    return span_name(row.first_seq, row.last_seq)


def _item_url(item_type: str, item_id: str) -> str:
    name = "sessions_app_message" if item_type == "message" else "compaction_app_summarynode"
    return reverse(f"admin:{name}_change", args=[quote(item_id)])
