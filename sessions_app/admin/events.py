"""The ledger, the rows of the active context, and the stream journal."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from mnesis_core.events import EventType
from mnesis_core.ledger import GENESIS, entry_hash
from sessions_app.admin.facts import Fact, Link
from sessions_app.admin.filters import fixed_filter, presence_filter
from sessions_app.admin.read_only import ReadOnlyAdmin
from sessions_app.admin.texts import TextColumn
from sessions_app.models import ContextItem, Event, StreamJournal


@admin.register(Event)
class EventAdmin(ReadOnlyAdmin):
    """Events, each with the proof of its place in the chain."""

    list_display = ("seq", "in_session", "type", "short_hash", "created")
    list_filter = (fixed_filter("type", "type", [type.value for type in EventType]),)
    related = ("session",)
    link_lookups = ("session", "seq", "seq__gte", "seq__lte")
    session_ordering = ("seq",)
    is_numbered = True
    texts = (TextColumn(name="body", label="Body", pretty=True, encoded=False),)
    page_template = "admin/inspector/event.html"

    @admin.display(description="Hash")
    def short_hash(self, row: Event) -> str:
        """The first digits of its hash."""
        return row.hash[:12]

    def page_title(self, row: Event) -> str:
        """Its place and its type."""
        return f"Event {row.seq} · {row.type}"

    def page(self, request: HttpRequest, row: Event) -> dict[str, Any]:
        """Whether the hash is that of this entry and follows from the one before, and the context as of it."""
        context = reverse("admin:inspect_context", args=[row.session_id])
        body = Event.objects.values_list("body", flat=True).get(pk=row.pk)
        return {
            "texts": [],
            "body": self.shown(row, self.texts[0]),
            "is_hash_right": entry_hash(prev_hash=row.prev_hash, seq=row.seq, type=row.type, body=body) == row.hash,
            "is_chain_right": _previous_hash(row) == row.prev_hash,
            "links": [Link(label="Context as of this event", url=f"{context}?at={row.seq}")],
        }


def _previous_hash(row: Event) -> str | None:
    if row.seq == 1:
        return GENESIS
    return Event.objects.filter(session_id=row.session_id, seq=row.seq - 1).values_list("hash", flat=True).first()


@admin.register(ContextItem)
class ContextItemAdmin(ReadOnlyAdmin):
    """Everything that is or was in an active context."""

    list_display = ("position", "in_session", "item_type", "item_id", "added_seq", "removed_seq")
    list_filter = ("item_type", presence_filter("removed_seq", "removed"))
    related = ("session",)
    session_ordering = ("position", "pk")

    def facts(self, row: ContextItem) -> list[Fact]:
        """The columns; the item is a link."""
        return [self._linked(row, fact) for fact in super().facts(row)]

    def _linked(self, row: ContextItem, fact: Fact) -> Fact:
        if fact.name != "item_id":
            return fact
        name = "sessions_app_message" if row.item_type == "message" else "compaction_app_summarynode"
        return Fact(
            label=fact.label, runs=fact.runs, name=fact.name, url=reverse(f"admin:{name}_change", args=[row.item_id])
        )


@admin.register(StreamJournal)
class StreamJournalAdmin(ReadOnlyAdmin):
    """What running answers said so far; empty while nothing runs."""

    list_display = ("id", "in_session", "in_message", "part_index", "part_type", "offset")
    related = ("session", "message")
    link_lookups = ("session", "message")
    session_ordering = ("pk",)
    texts = (TextColumn(name="text", label="Text"),)

    @admin.display(description="Message")
    def in_message(self, row: Any) -> int:
        """The place of its message."""
        return int(row.message.seq)
