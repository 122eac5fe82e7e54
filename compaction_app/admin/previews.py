"""Previews of summaries: what was proposed, beside what stands there."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Exists, OuterRef, QuerySet
from django.http import HttpRequest

from compaction_app.admin.outline import span_name
from compaction_app.models import SummaryNode, SummaryPreview
from mnesis_core.revision import difference
from mnesis_core.text import decode_text
from sessions_app.admin.facts import Link, record_url
from sessions_app.admin.read_only import ReadOnlyAdmin, list_url
from sessions_app.admin.texts import TextColumn
from sessions_app.rendering import show_invisible

SHOWN_LINES = 2_000
_KINDS = {"+": "came", "-": "went", "@": "place"}


@admin.register(SummaryPreview)
class SummaryPreviewAdmin(ReadOnlyAdmin):
    """What summaries would say in a revision, applied or not."""

    list_display = (
        "shown_id", "in_session", "summary_id", "level", "model", "prompt_version", "token_count", "cost_micros", "applied",
        "created",
    )  # fmt: skip
    list_filter = ("model",)
    link_lookups = ("session", "summary", "batch_id")
    related = ("session",)
    session_ordering = ("pk",)
    texts = (TextColumn(name="text", label="Text"), TextColumn(name="source_ids", label="What was read"))
    page_template = "admin/inspector/preview.html"

    @admin.display(description="Applied")
    def applied(self, row: Any) -> str:
        """Whether it has become a revision."""
        return "yes" if row.is_applied else ""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With whether each was applied."""
        revision = SummaryNode.objects.filter(id=OuterRef("pk"))
        rows: QuerySet[Any] = super().get_queryset(request).annotate(is_applied=Exists(revision))
        return rows

    def page_title(self, row: SummaryPreview) -> str:
        """The messages it would stand for."""
        return f"Preview of the summary of {span_name((row.summary.first_seq, row.summary.last_seq))}"

    def page(self, request: HttpRequest, row: SummaryPreview) -> dict[str, Any]:
        """How the text would change, and where the revision is."""
        links = [Link(label="All that is applied together", url=list_url(SummaryPreview, batch_id=row.batch_id))]
        if self.applied(row):
            links.append(Link(label="The revision", url=record_url(SummaryNode, row.id)))
        lines = difference(decode_text(row.summary.text), decode_text(row.text))
        return {
            "links": links,
            "lines": [(_KINDS.get(line[:1], ""), show_invisible(line)) for line in lines[:SHOWN_LINES]],
            "more_lines": max(0, len(lines) - SHOWN_LINES),
        }
