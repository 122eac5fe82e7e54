"""Messages with all their parts, and parts by themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.contrib import admin
from django.db.models.functions import Left
from django.http import HttpRequest
from django.urls import reverse

from mnesis_core.messages import CompactionMarkerPart, FileRefPart, StepFinishPart, StepStartPart
from mnesis_core.text import decode_text
from mnesis_core.visible import Run, excerpt, visible_runs
from sessions_app.admin.facts import Fact, show_time
from sessions_app.admin.filters import fixed_filter, presence_filter
from sessions_app.admin.pages import page_of
from sessions_app.admin.read_only import ReadOnlyAdmin, row_url, text_url
from sessions_app.admin.texts import ShownText, TextColumn, show_column, with_beginnings
from sessions_app.inspect_queries import NOW, preview_messages
from sessions_app.models import ContextItem, Message, MessagePart

PARTS_PER_PAGE = 100
PREVIEW = 100
PART_TEXTS = (
    TextColumn(name="content", label="Content"),
    TextColumn(name="tool_input", label="Input", pretty=True),
    TextColumn(name="output", label="Output"),
    TextColumn(name="error_message", label="Error"),
    TextColumn(name="decision_note", label="What was said to the decision"),
    TextColumn(name="late_output", label="Output that came late"),
)
PART_TYPES = ("text", "reasoning", "tool", "file_ref", "patch", "data", "compaction", "step_start", "step_finish")
_CONTENT_LABELS = {"text": "Text", "reasoning": "Reasoning", "patch": "Unified diff"}
_JSON_TYPES = (FileRefPart.type, CompactionMarkerPart.type, StepStartPart.type, StepFinishPart.type, "data")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPart:
    """A part as a page shows it."""

    row: Any
    url: str
    name: list[Run]
    """The tool, or the label that an import gave."""
    texts: list[ShownText]
    """Everything it says, a tool's output apart."""
    output: ShownText | None
    tombstoned_at: str
    """When the output left the context; empty while it is there."""
    message: str = ""
    message_url: str = ""


def parts_on_page(rows: Iterable[Any]) -> list[ShownPart]:
    """Parts that ``with_beginnings`` loaded, each with its message."""
    return [
        replace(shown_part(row), message=f"message {row.message.seq}", message_url=row_url(row.message)) for row in rows
    ]


def shown_part(row: Any) -> ShownPart:
    """One part that ``with_beginnings`` loaded."""
    shown = {
        column.name: show_column(row, _labelled(column, row), url=text_url(row, column.name)) for column in PART_TEXTS
    }
    output = shown.pop("output")
    return ShownPart(
        row=row,
        url=row_url(row),
        name=visible_runs(decode_text(row.tool_name or row.label)),
        texts=[text for text in shown.values() if text],
        output=output,
        tombstoned_at=show_time(row.compacted_at) if row.compacted_at else "",
    )


def _labelled(column: TextColumn, row: Any) -> TextColumn:
    if column.name != "content":
        return column
    return replace(column, label=_CONTENT_LABELS.get(row.part_type, "Content"), pretty=row.part_type in _JSON_TYPES)


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    """Messages; the page of one shows everything that was ever in it."""

    list_display = ("seq", "in_session", "role", "preview", "model", "tokens", "outcome", "created")
    list_filter = (
        fixed_filter("role", "role", ("system", "user", "assistant")),
        fixed_filter("outcome", "outcome", ("complete", "incomplete", "broken", "failed", "cancelled")),
        presence_filter("error_code", "failed"),
    )
    related = ("session",)
    link_lookups = ("session", "turn", "seq__gte", "seq__lte")
    session_ordering = ("seq",)
    is_numbered = True
    texts = (TextColumn(name="error_message", label="Error"),)
    page_template = "admin/inspector/message.html"

    @admin.display(description="Begins")
    def preview(self, row: Any) -> str:
        """Its first words."""
        return excerpt(row.preview.text, PREVIEW) if row.preview else ""

    @admin.display(description="≈ Tokens")
    def tokens(self, row: Any) -> str:
        """What it takes in a context now, about."""
        return f"{row.preview.tokens:,}" if row.preview else ""

    def dress_rows(self, rows: list[Any]) -> None:
        """Previews of the whole page."""
        previews = preview_messages([row.id for row in rows], at=NOW)
        for row in rows:
            row.preview = previews.get(row.id)

    def page_title(self, row: Message) -> str:
        """Its place and who spoke."""
        return f"Message {row.seq} · {row.role}"

    def facts(self, row: Message) -> list[Fact]:
        """The columns, and where the message stands in the context."""
        return [*super().facts(row), *context_facts(row.session_id, row.id)]

    def page(self, request: HttpRequest, row: Message) -> dict[str, Any]:
        """The parts, in order; only for who may see parts."""
        if not request.user.has_perm("sessions_app.view_messagepart"):
            return {"parts_hidden": True}
        rows = MessagePart.objects.filter(message_id=row.id)
        page = page_of(request.GET.get("page", ""), total=rows.count(), size=PARTS_PER_PAGE)
        chosen = with_beginnings(rows.order_by("part_index"), PART_TEXTS)[page.first : page.first + page.size]
        return {"page": page, "parts": [shown_part(part) for part in chosen]}


@admin.register(MessagePart)
class MessagePartAdmin(ReadOnlyAdmin):
    """Parts of messages, tool calls above all."""

    list_display = (
        "shown_id",
        "in_message",
        "part_type",
        "tool",
        "tool_state",
        "tombstoned",
        "begins",
        "token_estimate",
    )
    list_filter = (
        fixed_filter("part_type", "type", PART_TYPES),
        fixed_filter("tool_state", "tool state", ("pending", "approved", "running", "completed", "error")),
        presence_filter("compacted_at", "tombstoned"),
    )
    related = ("session", "message")
    link_lookups = ("session", "message")
    texts = PART_TEXTS
    page_template = "admin/inspector/part.html"

    @admin.display(description="Message")
    def in_message(self, row: MessagePart) -> str:
        """The place of its message, and its own place there."""
        return f"{row.message.seq} [{row.part_index}]"

    @admin.display(description="Tool")
    def tool(self, row: MessagePart) -> str:
        """The tool's name, or the label that an import gave."""
        return excerpt(decode_text(row.tool_name or row.label), 40)

    @admin.display(description="Tombstoned")
    def tombstoned(self, row: MessagePart) -> str:
        """Whether the output left the context."""
        return "yes" if row.compacted_at else ""

    @admin.display(description="Begins")
    def begins(self, row: Any) -> str:
        """Its first words, or a tool's input."""
        return excerpt(decode_text(row.beginning), PREVIEW)

    def dress_rows(self, rows: list[Any]) -> None:
        """How the contents of the whole page begin."""
        starts = MessagePart.objects.filter(pk__in=[row.pk for row in rows]).annotate(
            content_start=Left("content", PREVIEW * 4), input_start=Left("tool_input", PREVIEW * 4)
        )
        beginnings = {
            key: content or tool for key, content, tool in starts.values_list("pk", "content_start", "input_start")
        }
        for row in rows:
            row.beginning = beginnings[row.pk]

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The part as its message shows it."""
        return {"texts": [], "part": replace(shown_part(row), message="", message_url="")}


def context_facts(session_id: str, item_id: str) -> list[Fact]:
    """Since which event something is in the active context, and which event took it out."""
    item = ContextItem.objects.filter(session_id=session_id, item_id=item_id).values("added_seq", "removed_seq").first()
    if item is None:
        return [Fact(label="Active context", runs=visible_runs("never in it"))]
    base = reverse("admin:inspect_context", args=[session_id])
    steps = (("Into the context", item["added_seq"]), ("Out of the context", item["removed_seq"]))
    return [
        Fact(label=label, runs=visible_runs(f"event {seq}"), url=f"{base}?at={seq}")
        for label, seq in steps
        if seq is not None
    ]
