"""Inboxes, to be looked at."""

from __future__ import annotations

from django.contrib import admin

from agents_app.models import InboxMessage
from mnesis_core.inbox import MessageKind
from sessions_app.admin.filters import fixed_filter, presence_filter
from sessions_app.admin.read_only import ReadOnlyAdmin
from sessions_app.admin.texts import TextColumn


@admin.register(InboxMessage)
class InboxMessageAdmin(ReadOnlyAdmin):
    """Messages between sessions, and to them."""

    list_display = ("shown_id", "in_session", "sender_id", "kind", "hops", "turn_id", "created")
    list_filter = (presence_filter("turn", "taken"), fixed_filter("kind", "kind", tuple(MessageKind)))
    related = ("session",)
    link_lookups = ("session", "turn")
    session_ordering = ("seq",)
    texts = (TextColumn(name="text", label="Text"),)
