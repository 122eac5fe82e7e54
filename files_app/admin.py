"""Files in the admin: what is known of each, its versions, and the messages that name it, without their contents."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext, gettext_noop

from files_app.models import FileReference
from mnesis_core.text import excerpt
from sessions_app.admin.read_only import ReadOnlyAdmin, TextColumn, column, list_url, presence_filter, record_url
from sessions_app.record.session_queries import messages_naming

MOST_LINKS = 20


@admin.register(FileReference)
class FileReferenceAdmin(ReadOnlyAdmin):
    list_display = ("shown_id", "in_session", "shown_path", "file_type", "size", "token_count", "created")
    list_filter = (presence_filter("exploration_summary", gettext_noop("explored")),)
    link_lookups = ("session", "content_id")
    session_ordering = ("added_seq",)
    texts = (
        TextColumn(name="exploration_summary", label=gettext_noop("What it holds")),
        TextColumn(name="exploration", label=gettext_noop("How it was explored")),
    )
    shown_path = column(gettext_noop("Path"), lambda row: excerpt(row.path, 80) or "—")

    def page(self, request: HttpRequest, row: FileReference) -> dict[str, Any]:
        # Unlike readers, administrators see the files of deleted sessions, too.
        same_path = FileReference.objects.filter(session_id=row.session_id, path=row.path).order_by("added_seq")
        ids = list(same_path.values_list("id", flat=True))
        versions = [
            (f"Version {number} of {len(ids)}", record_url(FileReference, id), None)
            for number, id in list(enumerate(ids, 1))[-MOST_LINKS:]
            if id != row.id
        ]
        naming = [
            (f"Named in message {seq} ({role})", reverse("admin:sessions_app_message_change", args=[quote(id)]), None)
            for seq, role, id in messages_naming(row.id, session_id=row.session_id, limit=MOST_LINKS)
        ]
        same = FileReference.objects.filter(content_id=row.content_id).count()
        alike = (gettext("Files of this content"), list_url(FileReference, content_id=row.content_id), same)
        return {"links": [*versions, *naming, alike]}
