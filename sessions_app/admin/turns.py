"""Turns with the model calls they made, and each call with what the model was shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from mnesis_core.visible import excerpt
from sessions_app.admin.facts import Fact, Link, facts_of, usage_facts
from sessions_app.admin.filters import fixed_filter
from sessions_app.admin.pages import page_of
from sessions_app.admin.read_only import ReadOnlyAdmin, row_url, text_url
from sessions_app.admin.texts import ShownText, TextColumn, show_column, with_beginnings
from sessions_app.inspect_queries import NOW, preview_messages
from sessions_app.models import Message, ModelCall, PromptText, Turn

CALLS_PER_PAGE = 20
MESSAGES_ON_PAGE = 200
CALL_TEXTS = (
    TextColumn(name="error_message", label="Error"),
    TextColumn(name="parameters", label="Parameters"),
    TextColumn(name="manifest", label="Manifest"),
)
_CALL_FACTS = ("id", "message", "purpose", "model", "provider_model", "state", "outcome", "finish_reason", "digest")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCall:
    """A model call on the page of its turn."""

    row: ModelCall
    url: str
    facts: list[Fact]
    usage: list[Fact]
    texts: list[ShownText]


@admin.register(Turn)
class TurnAdmin(ReadOnlyAdmin):
    """Turns: one user message to its final answer."""

    list_display = (
        "seq", "in_session", "state", "origin", "model", "tokens_input", "tokens_output", "usage_source", "error_code",
        "created",
    )  # fmt: skip
    list_filter = ("state", "origin", "model")
    related = ("session",)
    session_ordering = ("seq",)
    is_numbered = True
    texts = (
        TextColumn(name="error_message", label="Error"),
        TextColumn(name="options", label="Asked of this turn alone", pretty=True),
    )
    page_template = "admin/inspector/turn.html"

    def page_title(self, row: Turn) -> str:
        """Its place and its state."""
        return f"Turn {row.seq} · {row.state}"

    def page(self, request: HttpRequest, row: Turn) -> dict[str, Any]:
        """Its messages as lines and its calls in full, each only for who may see them."""
        return {**self._messages(request, row), **self._calls(request, row)}

    def _messages(self, request: HttpRequest, row: Turn) -> dict[str, Any]:
        may_see = request.user.has_perms(["sessions_app.view_message", "sessions_app.view_messagepart"])
        messages = list(Message.objects.filter(turn_id=row.id).order_by("seq")[:MESSAGES_ON_PAGE]) if may_see else []
        previews = preview_messages([message.id for message in messages], at=NOW)
        lines = [(message, row_url(message), excerpt(previews[message.id].text, 160)) for message in messages]
        return {"messages_of_turn": lines, "are_messages_cut": len(lines) == MESSAGES_ON_PAGE}

    def _calls(self, request: HttpRequest, row: Turn) -> dict[str, Any]:
        if not request.user.has_perm("sessions_app.view_modelcall"):
            return {}
        rows = ModelCall.objects.filter(turn_id=row.id)
        page = page_of(request.GET.get("page", ""), total=rows.count(), size=CALLS_PER_PAGE)
        chosen = with_beginnings(rows.order_by("created_at", "id"), CALL_TEXTS)[page.first : page.first + page.size]
        return {"page": page, "calls": [_shown_call(call) for call in chosen]}


def _shown_call(row: ModelCall) -> ShownCall:
    hidden = {column.name for column in row._meta.concrete_fields} - set(_CALL_FACTS)
    texts = [show_column(row, column, url=text_url(row, column.name)) for column in CALL_TEXTS]
    return ShownCall(
        row=row,
        url=row_url(row),
        facts=facts_of(row, hidden=hidden),
        usage=usage_facts(row),
        texts=[text for text in texts if text],
    )


@admin.register(ModelCall)
class ModelCallAdmin(ReadOnlyAdmin):
    """Model calls."""

    list_display = (
        "shown_id", "in_session", "purpose", "state", "outcome", "model", "estimated_tokens", "tokens_input",
        "tokens_output", "usage_source", "created",
    )  # fmt: skip
    list_filter = (
        fixed_filter("state", "state", ("running", "completed", "failed")),
        fixed_filter("outcome", "outcome", ("complete", "incomplete", "broken", "failed", "cancelled")),
        "purpose",
        "model",
    )
    related = ("session",)
    link_lookups = ("session", "turn")
    session_ordering = ("pk",)
    texts = CALL_TEXTS

    def page(self, request: HttpRequest, row: ModelCall) -> dict[str, Any]:
        """Where its payload is rebuilt."""
        return {"links": [Link(label="What it was sent", url=reverse("admin:inspect_payload", args=[row.pk]))]}


@admin.register(PromptText)
class PromptTextAdmin(ReadOnlyAdmin):
    """Texts that prompts were made with beside the messages."""

    list_display = ("shown_id", "in_session", "digest", "created")
    related = ("session",)
    session_ordering = ("pk",)
    texts = (TextColumn(name="content", label="Text", pretty=True),)
