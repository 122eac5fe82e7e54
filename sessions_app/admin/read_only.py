"""The base of every record's inspector: it looks, and every way to change something is off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import content_disposition_header

from mnesis_core.ids import is_id
from mnesis_core.text import decode_text, encode_text, printable
from mnesis_core.visible import excerpt
from sessions_app.admin.facts import USAGE, Fact, facts_of, record_url, usage_facts
from sessions_app.admin.texts import ShownText, TextColumn, show_column, whole_text, with_beginnings
from sessions_app.inspect_queries import SessionHeading, load_heading
from sessions_app.models import Session, UsageModel

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

SEARCH_LENGTH = 200
"""Longer patterns make SQLite's LIKE fail."""


class ModelAdmin(_ModelAdmin):
    """Django's, with answers to what is asked of it by hand."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row. An empty name of a column (``?_to_field=``), over which Django would fail, is none."""
        return super().get_object(request, object_id, from_field or None)


class ReadOnlyAdmin(ModelAdmin):
    """Lists and pages of one record table."""

    actions = None
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 50
    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    search_fields = ("pk__exact",)
    """Shows the box; what is searched for is in ``get_search_results``."""
    search_help_text = "An id, or words of a session's title"
    change_list_template = "admin/inspector/list.html"
    page_template = "admin/inspector/record.html"

    texts: ClassVar[tuple[TextColumn, ...]] = ()
    """Long texts: never loaded for a list, folded on a page, offered whole as a file."""
    hidden: ClassVar[tuple[str, ...]] = ("salt",)
    """A salt on a screenshot would undo the erasure of what it commits to."""
    related: ClassVar[tuple[str, ...]] = ()
    """Foreign keys that a page or a list shows by name."""
    link_lookups: ClassVar[tuple[str, ...]] = ("session",)
    """Query parameters that links of ours use; no other column can be asked about."""
    session_ordering: ClassVar[tuple[str, ...]] = ()
    """The order of a list that is about one session, if it is not the newest first."""
    is_numbered: ClassVar[bool] = False
    """Rows have a ``seq`` in their session, so that a page leads to the one before and the one after."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never: rows are written by the store."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: the record does not change."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: the record is kept."""
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the declared filters: a prefix match on any column would tell what the page hides."""
        names = [_parameter(item) for item in self.list_filter]
        return lookup in (
            *self.link_lookups,
            *names,
            *(f"{name}__{kind}" for name in names for kind in ("exact", "isnull")),
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Rows without their long texts."""
        rows = super().get_queryset(request)
        if self.related:
            rows = rows.select_related(*self.related)
        names = [text.name for text in self.texts]
        if "session" in self.related:
            names += ["session__system_prompt", "session__labels", "session__config"]
        return rows.defer(*names)

    @admin.display(description="Id", ordering="pk")
    def shown_id(self, row: Any) -> str:
        """The row's id."""
        return str(row.pk)

    @admin.display(description="Session")
    def in_session(self, row: Any) -> str:
        """The title of the row's session, or its id."""
        return excerpt(decode_text(row.session.title), 40) or str(row.session_id)

    @admin.display(description="Created (UTC)", ordering="created_at")
    def created(self, row: Any) -> str:
        """When, to the second."""
        return f"{row.created_at:%Y-%m-%d %H:%M:%S}"

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """The columns; the session is none where all rows are of one."""
        return [name for name in self.list_display if name != "in_session" or "session" not in request.GET]

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """The newest first; within a session as it happened. By key or ``seq``, never by time."""
        return self.session_ordering if "session" in request.GET and self.session_ordering else self.ordering

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Rows of this id, of the session of this id, or of sessions with these words in their title."""
        term = encode_text(search_term.strip()[:SEARCH_LENGTH])
        if not term:
            return queryset, False
        if is_id(term):
            return queryset.filter(Q(pk=term) | Q(session=term) if self._key_is_text() else Q(session=term)), False
        return queryset.filter(session__in=Session.objects.filter(title__icontains=term)), False

    def _key_is_text(self) -> bool:
        return self.opts.pk.get_internal_type() == "CharField"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list, under the heading of the session it is about, if it is about one.

        :raises PermissionDenied: something was sent: a list takes no actions.
        :raises BadRequest: the query holds NUL, which PostgreSQL cannot compare with.
        """
        _require_reading(request)
        if any("\x00" in value for values in request.GET.lists() for value in (values[0], *values[1])):
            raise BadRequest("the address holds a NUL character")
        about = load_heading(request.GET.get("session", "")) if "session" in request.GET else None
        context = {"about": about, "title": _sentence(self.opts.verbose_name_plural)}
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The list with its rows loaded and ``dress_rows`` called on them."""
        changes = super().get_changelist_instance(request)
        rows = list(changes.result_list)
        self.dress_rows(rows)
        changes.result_list = rows
        return changes

    def dress_rows(self, rows: list[Any]) -> None:
        """Add what the columns show beyond the row itself, in one query for the whole page."""

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A row's page.

        :raises PermissionDenied: something was sent, or this person may not look.
        """
        _require_reading(request)
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.load_row(request, object_id)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "row": row,
            "title": self.page_title(row),
            "about": self.heading_of(row),
            "facts": self.facts(row),
            "usage": usage_facts(row) if isinstance(row, UsageModel) else [],
            **(_neighbours(row) if self.is_numbered else {}),
            "texts": [text for text in (self.shown(row, column) for column in self.texts) if text],
            **self.page(request, row),
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, self.page_template, context)

    def load_row(self, request: HttpRequest, object_id: str) -> Any:
        """The row of a page.

        :raises Http404: there is none.
        """
        row = _with_key(with_beginnings(self.get_queryset(request), self.texts), object_id).first()
        if row is None:
            raise Http404(f"there is no {self.opts.verbose_name} of this id")
        return row

    def page_title(self, row: Any) -> str:
        """What a row's page is called."""
        return f"{_sentence(self.opts.verbose_name)} {row.pk}"

    def heading_of(self, row: Any) -> SessionHeading | None:
        """The heading of the session that a row belongs to."""
        return load_heading(row.session_id)

    def facts(self, row: Any) -> list[Fact]:
        """The short columns of a row."""
        usage = (*USAGE, "usage_source") if isinstance(row, UsageModel) else ()
        return facts_of(row, hidden={*self.hidden, *usage, *(text.name for text in self.texts)})

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """What a row's page shows beyond its columns."""
        return {}

    def shown(self, row: Any, column: TextColumn) -> ShownText | None:
        """One long text of a row that this class, or one of its kind, loaded."""
        return show_column(row, column, url=text_url(row, column.name))

    def get_urls(self) -> list[URLPattern]:
        """The admin's own, and one that hands out a whole text."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_text"
        view = self.admin_site.admin_view(self.text_view)
        return [path("<path:object_id>/text/<slug:column>/", view, name=name), *super().get_urls()]

    def text_view(self, request: HttpRequest, object_id: str, column: str) -> HttpResponse:
        """A whole text as a file that no browser takes for anything else.

        :raises PermissionDenied: something was sent, or this person may not look.
        :raises Http404: there is no such row, no such text, or nothing is written there.
        """
        _require_reading(request)
        if not self.has_view_permission(request):
            raise PermissionDenied
        declared = next((text for text in self.texts if text.name == column), None)
        rows = _with_key(self.model._default_manager.all(), object_id)
        found = rows.values_list("pk", column).first() if declared else None
        if declared is None or found is None or found[1] is None:
            raise Http404("there is no such text")
        return _as_file(whole_text(found[1], declared), f"{self.opts.model_name}-{found[0]}-{column}.txt")


def text_url(row: Any, column: str) -> str:
    """The address of a row's whole text."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_text", args=[quote(row.pk), column])


def list_url(model: Any, **lookups: Any) -> str:
    """The address of a list, narrowed."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist", query=lookups)


def row_url(row: Any) -> str:
    """The address of a row's page."""
    return record_url(type(row), row.pk)


def _neighbours(row: Any) -> dict[str, str]:
    beside = type(row).objects.filter(session_id=row.session_id, seq__in=[row.seq - 1, row.seq + 1])
    urls = {seq: record_url(type(row), key) for seq, key in beside.values_list("seq", "pk")}
    return {"previous_url": urls.get(row.seq - 1, ""), "next_url": urls.get(row.seq + 1, "")}


def _with_key(rows: QuerySet[Any], object_id: str) -> QuerySet[Any]:
    # Written as it is, or as Django's admin quotes it ("sess_5F01J…").
    key = object_id if is_id(object_id) else unquote(object_id)
    try:
        return rows.filter(pk=encode_text(key))
    except ValueError:
        return rows.none()


def _as_file(text: str, name: str) -> HttpResponse:
    response = HttpResponse(printable(text), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = str(content_disposition_header(True, name))
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _require_reading(request: HttpRequest) -> None:
    if request.method not in ("GET", "HEAD"):
        raise PermissionDenied


def _parameter(item: Any) -> str:
    if isinstance(item, type):
        return str(item.parameter_name)  # type: ignore[attr-defined]
    return str(item[0] if isinstance(item, tuple | list) else item)


def _sentence(name: Any) -> str:
    return str(name)[:1].upper() + str(name)[1:]
