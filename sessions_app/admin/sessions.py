"""Sessions, and the tool outputs that were taken out of their contexts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from mnesis_core.ids import is_id
from mnesis_core.text import decode_text, encode_text
from mnesis_core.visible import excerpt
from sessions_app.admin.facts import Fact, Link
from sessions_app.admin.filters import LastTurnFilter, newest_turn_states, presence_filter
from sessions_app.admin.messages import PART_TEXTS, ShownPart, parts_on_page
from sessions_app.admin.pages import Page, page_of
from sessions_app.admin.read_only import SEARCH_LENGTH, ReadOnlyAdmin, list_url
from sessions_app.admin.texts import TextColumn, with_beginnings
from sessions_app.inspect_queries import SessionHeading, load_heading
from sessions_app.models import MessagePart, Session

TOMBSTONES_PER_PAGE = 50


@admin.register(Session)
class SessionAdmin(ReadOnlyAdmin):
    """Sessions, deleted ones included."""

    list_display = (
        "shown_title", "owner", "model", "last_turn", "messages", "turns", "events", "created", "origin", "marks",
    )  # fmt: skip
    list_filter = (
        LastTurnFilter,
        "origin",
        "model",
        presence_filter("archived_at", "archived"),
        presence_filter("deleted_at", "deleted"),
    )
    search_help_text = "An id (also of an import), or words of the title"
    related = ("owner",)
    link_lookups = ("parent",)
    texts = (
        TextColumn(name="system_prompt", label="System prompt"),
        TextColumn(name="labels", label="Labels"),
        TextColumn(name="config", label="Configuration"),
    )

    @admin.display(description="Title", ordering="title")
    def shown_title(self, row: Session) -> str:
        """The title, or the id of a session without one."""
        return excerpt(decode_text(row.title), 80) or row.id

    @admin.display(description="Messages", ordering="message_seq")
    def messages(self, row: Session) -> str:
        """How many."""
        return f"{row.message_seq:,}"

    @admin.display(description="Turns", ordering="turn_seq")
    def turns(self, row: Session) -> str:
        """How many."""
        return f"{row.turn_seq:,}"

    @admin.display(description="Events", ordering="event_seq")
    def events(self, row: Session) -> str:
        """How many."""
        return f"{row.event_seq:,}"

    @admin.display(description="Last turn")
    def last_turn(self, row: Any) -> str:
        """How the newest turn stands."""
        return str(row.last_turn_state or "")

    @admin.display(description="Marks")
    def marks(self, row: Session) -> str:
        """Archived, deleted, part of another session."""
        marks = {"archived": row.archived_at, "deleted": row.deleted_at, "child": row.parent_id}
        return ", ".join(name for name, value in marks.items() if value)

    def dress_rows(self, rows: list[Any]) -> None:
        """The states of the newest turns."""
        states = newest_turn_states([row.id for row in rows])
        for row in rows:
            row.last_turn_state = states.get(row.id)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Sessions of this id, with this id in what they were imported from, or with these words in their title."""
        term = encode_text(search_term.strip()[:SEARCH_LENGTH])
        if is_id(term):
            return queryset.filter(pk=term), False
        return queryset.filter(Q(title__icontains=term) | Q(external_id=term)) if term else queryset, False

    def page_title(self, row: Session) -> str:
        """The title above the page."""
        return excerpt(decode_text(row.title), 120) or row.id

    def heading_of(self, row: Session) -> SessionHeading | None:
        """Its own."""
        return load_heading(row.id)

    def facts(self, row: Session) -> list[Fact]:
        """The columns, without the title that stands above them."""
        return [fact for fact in super().facts(row) if fact.name != "title" or row.title != decode_text(row.title)]

    def page(self, request: HttpRequest, row: Session) -> dict[str, Any]:
        """Where the sessions are that this one launched."""
        children = Session.objects.filter(parent_id=row.id).count()
        links = [Link(label="Sub-agent sessions", url=list_url(Session, parent=row.id), count=children)]
        return {"links": links if children else []}

    def get_urls(self) -> list[URLPattern]:
        """The admin's own, and the page of tombstones."""
        view = self.admin_site.admin_view(self.tombstones_view)
        return [path("<path:session_id>/tombstones/", view, name="inspect_tombstones"), *super().get_urls()]

    def tombstones_view(self, request: HttpRequest, session_id: str) -> HttpResponse:
        """Tool outputs that the model sees no more, with their original text.

        :raises PermissionDenied: something was sent, or this person may not see parts.
        :raises Http404: there is no such session.
        """
        if request.method not in ("GET", "HEAD") or not request.user.has_perm("sessions_app.view_messagepart"):
            raise PermissionDenied
        about = load_heading(session_id)
        if about is None:
            raise Http404("there is no session of this id")
        page, parts = _tombstones(about.id, request.GET.get("page", ""))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Tombstoned outputs",
            "about": about,
            "page": page,
            "parts": parts,
        }
        return TemplateResponse(request, "admin/inspector/tombstones.html", context)


def _tombstones(session_id: str, number: str) -> tuple[Page, list[ShownPart]]:
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", compacted_at__isnull=False)
    page = page_of(number, total=rows.count(), size=TOMBSTONES_PER_PAGE)
    ordered = rows.select_related("message").order_by("compacted_seq", "message__seq", "part_index")
    return page, parts_on_page(with_beginnings(ordered, PART_TEXTS)[page.first : page.first + page.size])
