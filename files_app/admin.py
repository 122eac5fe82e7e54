"""Files in the inspector: what is known of each, its versions, and who names it. Their contents are not here."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from files_app.models import FileReference
from mnesis_core.text import decode_text
from mnesis_core.visible import excerpt
from sessions_app.admin.facts import Link, record_url
from sessions_app.admin.filters import presence_filter
from sessions_app.admin.read_only import ReadOnlyAdmin, list_url
from sessions_app.admin.texts import TextColumn
from sessions_app.queries import messages_naming

MOST_LINKS = 20
"""Of each kind."""


@admin.register(FileReference)
class FileReferenceAdmin(ReadOnlyAdmin):
    """References to files, with what an exploration found."""

    list_display = ("shown_id", "in_session", "shown_path", "file_type", "size", "token_count", "created")
    list_filter = (presence_filter("exploration_summary", "explored"),)
    search_help_text = "An id, or words of a session's title"
    related = ("session",)
    link_lookups = ("session", "content_id")
    session_ordering = ("added_seq",)
    texts = (
        TextColumn(name="exploration_summary", label="What it holds"),
        TextColumn(name="exploration", label="How it was explored"),
    )

    @admin.display(description="Path")
    def shown_path(self, row: FileReference) -> str:
        """The path on one line."""
        return excerpt(decode_text(row.path), 80) or "—"

    def page(self, request: HttpRequest, row: FileReference) -> dict[str, Any]:
        """Its other versions, the messages that name it, and the files of the same content."""
        same = FileReference.objects.filter(content_id=row.content_id).count()
        alike = Link(label="Files of this content", url=list_url(FileReference, content_id=row.content_id), count=same)
        return {"links": [*_versions(row), *_naming(row), alike]}


def _versions(row: FileReference) -> list[Link]:
    # Not what readers see: a deleted session can be looked at here.
    same_path = FileReference.objects.filter(session_id=row.session_id, path=row.path).order_by("added_seq")
    ids = list(same_path.values_list("id", flat=True))
    return [
        Link(label=f"Version {number} of {len(ids)}", url=record_url(FileReference, id))
        for number, id in list(enumerate(ids, 1))[-MOST_LINKS:]
        if id != row.id
    ]


def _naming(row: FileReference) -> list[Link]:
    found = messages_naming(row.id, session_id=row.session_id, limit=MOST_LINKS)
    return [
        Link(label=f"Named in message {seq} ({role})", url=reverse("admin:sessions_app_message_change", args=[id]))
        for seq, role, id in found
    ]
