"""Lists and pages of rows that nothing changes: values decoded, hidden characters marked, long texts folded."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.core.paginator import Page, Paginator
from django.db.models import F, ForeignKey, Model, Q, QuerySet, TextField, Value
from django.db.models.fields.json import JSONField
from django.db.models.functions import Left, Length, Replace
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import content_disposition_header
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from mnesis_core.records import is_id
from mnesis_core.text import ESCAPE, decode_text, encode_text, excerpt, printable, visible_runs
from sessions_app.database.fields import EncodedField
from sessions_app.database.tables import SALTS
from sessions_app.models import USAGE_COLUMNS, Session, UsageModel
from sessions_app.pages.permissions import look_at, look_over
from sessions_app.record.organisation_store import are_several
from sessions_app.record.timeline_queries import SessionHeading, load_heading

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin


FOLD_CHARACTERS = 20_000
EMPTY = "—"
SEARCH_LENGTH = 200  # longer patterns make SQLite's LIKE fail
# The longest that encode_text makes of one character.
_ENCODED_LENGTH = 5
Filter = type[admin.SimpleListFilter]
Link = tuple[str, str, int | None]
"""A label, an address, and a count or ``None``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextColumn:
    name: str
    label: str
    pretty: bool = False  # show JSON indented, above the exact text


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    label: str
    exact: SafeString
    pretty: SafeString | None = None  # the same, indented, if it is JSON and short enough to be shown whole
    length: int  # characters of the whole text
    url: str = ""

    @property
    def is_folded(self) -> bool:
        return self.length > FOLD_CHARACTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    label: str
    value: SafeString
    url: str = ""
    name: str = ""  # the column, for the style sheet


def marked(text: str) -> SafeString:
    """Return decoded text as HTML in which a mark stands for each hidden character."""
    mark = '<mark class="hidden-character" title="{}">{}</mark>'
    runs = visible_runs(text)
    return format_html_join("", "{}", ((format_html(mark, r.code, r.text) if r.is_mark else r.text,) for r in runs))


def show_text(text: str, *, label: str, length: int | None = None, pretty: bool = False, url: str = "") -> ShownText:
    """Return a decoded text as it is shown; ``length`` is that of the whole if this is only its beginning."""
    whole, indented = len(text) if length is None else length, text
    if pretty and whole <= FOLD_CHARACTERS:
        with suppress(ValueError, RecursionError):
            indented = _dump(json.loads(text))
    return ShownText(
        label=gettext(label),
        exact=marked(text[:FOLD_CHARACTERS]),
        pretty=None if indented == text else marked(indented),
        length=whole,
        url=url,
    )


def with_beginnings(rows: QuerySet[Any], columns: Sequence[TextColumn]) -> QuerySet[Any]:
    """Return rows without their long texts, annotated with where each begins (``NAME_start``) and its ``NAME_length``."""
    for column in columns:
        if isinstance(rows.model._meta.get_field(column.name), JSONField):
            continue
        without_escapes = Replace(F(column.name), Value(ESCAPE), Value(""), output_field=TextField())
        rows = rows.defer(column.name).annotate(
            **{
                f"{column.name}_start": Left(column.name, FOLD_CHARACTERS * _ENCODED_LENGTH),
                f"{column.name}_length": Length(column.name),
                f"{column.name}_escapes": Length(column.name) - Length(without_escapes),
            }
        )
    return rows


def show_column(row: Any, column: TextColumn) -> ShownText | None:
    """Return one long text of a row that ``with_beginnings`` loaded; ``None`` where nothing is written."""
    url = admin_url(row, "text", quote(row.pk), column.name)
    if isinstance(row._meta.get_field(column.name), JSONField):
        value = getattr(row, column.name)
        return show_text(whole_text(value), label=column.label, url=url) if value else None
    start = getattr(row, f"{column.name}_start")
    if not start:
        return None
    length = getattr(row, f"{column.name}_length")
    if isinstance(row._meta.get_field(column.name), EncodedField):
        start = decode_text(start)
        length -= (_ENCODED_LENGTH - 1) * getattr(row, f"{column.name}_escapes")
    return show_text(start, label=column.label, length=length, pretty=column.pretty, url=url)


def show_columns(row: Any, columns: Sequence[TextColumn]) -> list[ShownText]:
    return [text for text in (show_column(row, column) for column in columns) if text]


def whole_text(value: Any) -> str:
    return value if isinstance(value, str) else _dump(value)


def facts_of(row: Model, *, hidden: Collection[str]) -> list[Fact]:
    """Return every column but the hidden ones, so that a new column is shown by default."""
    facts = []
    for column in row._meta.concrete_fields:
        if column.name in hidden:
            continue
        value, url = getattr(row, column.attname), ""
        if isinstance(column, ForeignKey) and value is not None:
            url = record_url(column.related_model, value)
            # A record is named by its id, a person by the user name.
            value = value if isinstance(value, str) else getattr(row, column.name)
        if value is None or value == "":
            text = EMPTY
        elif isinstance(value, bool):
            text = gettext("yes") if value else gettext("no")
        elif isinstance(value, datetime):
            text = f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03d} UTC"
        else:
            text = f"{value:,}" if isinstance(value, int) and column.name != "id" else str(value)
        facts.append(Fact(label=capfirst(str(column.verbose_name)), value=marked(text), url=url, name=column.name))
    return facts


def admin_url(model: Any, view: str, *values: Any, **query: Any) -> str:
    """Return the address of a view of a table's admin; empty for a table that has none."""
    opts = model._meta
    if not admin.site.is_registered(model if isinstance(model, type) else type(model)):
        return ""
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_{view}", args=values, query=query or None)


def record_url(model: Any, pk: Any) -> str:
    return admin_url(model, "change", quote(pk))


def list_url(model: Any, **lookups: Any) -> str:
    return admin_url(model, "changelist", **lookups)


def _dump(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def column(title: str, value: Callable[[Any], Any], ordering: str | None = None) -> Callable[[Any, Any], Any]:
    @admin.display(description=gettext_lazy(title), ordering=ordering)
    def shown(self: Any, row: Any) -> Any:
        return value(row)

    return shown


def fixed_filter(column: str, title: str, values: Iterable[str], *, parameter: str = "") -> Filter:
    """Return a filter with fixed choices, so that no list scans a table to offer them."""
    return _filter(title, parameter or column, [(value, value) for value in values], lambda value: {column: value})


def presence_filter(column: str, title: str) -> Filter:
    choices = [("yes", gettext_lazy("Yes")), ("no", gettext_lazy("No"))]
    return _filter(title, title.replace(" ", "_"), choices, lambda value: {f"{column}__isnull": value == "no"})


def _filter(
    title: str, parameter: str, choices: Sequence[tuple[str, Any]], lookups: Callable[[str], dict[str, Any]]
) -> Filter:
    class ChoiceFilter(admin.SimpleListFilter):
        def lookups(self, request: HttpRequest, model_admin: Any) -> Sequence[tuple[str, Any]]:
            return choices

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            value = self.value()
            if value is None:
                return queryset
            return queryset.filter(**lookups(value)) if value in dict(choices) else queryset.none()

    ChoiceFilter.title = gettext_lazy(title)
    ChoiceFilter.parameter_name = parameter
    return ChoiceFilter


class ModelAdmin(_ModelAdmin):
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        # Django fails on an empty column name (``?_to_field=``).
        return super().get_object(request, object_id, from_field or None)


class ReadOnlyAdmin(ModelAdmin):
    actions = None
    list_per_page = 50
    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    search_fields = ("pk__exact",)  # shows the search box; get_search_results searches
    search_help_text = gettext_lazy("An id, or words from a session's title")
    change_list_template = "admin/inspector/list.html"

    # Long texts are never loaded for a list, folded on a page, and offered whole as a file.
    texts: ClassVar[tuple[TextColumn, ...]] = ()
    # Columns that no page shows. A salt on a screenshot would undo the erasure of what it commits to.
    hidden: ClassVar[tuple[str, ...]] = SALTS
    related: ClassVar[tuple[str, ...]] = ("session",)  # foreign keys that a page or a list shows by name
    # Query parameters that our links use; no other column can be queried.
    link_lookups: ClassVar[tuple[str, ...]] = ("session",)
    session_ordering: ClassVar[tuple[str, ...]] = ()  # the order of a list about one session, if not the newest first
    ordered_within: ClassVar[str] = "session"  # the query parameter that session_ordering goes with
    title: ClassVar[str] = ""  # a page's title as a format of "row"; if empty, the table and the key
    is_numbered: ClassVar[bool] = False  # whether rows have a "seq": a page links to the previous and the next one

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow only the declared filters: a prefix match on any column would tell what the page hides."""
        names = [getattr(item, "parameter_name", item) for item in self.list_filter]
        kinds = (f"{name}__{kind}" for name in names for kind in ("exact", "isnull"))
        return lookup in (*self.link_lookups, *names, *kinds)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if self.related:
            rows = rows.select_related(*self.related)
        words = ("system_prompt", "assistant_instructions", "labels", "config")
        of_session = [f"session__{name}" for name in words]
        return rows.defer(*(text.name for text in self.texts), *(of_session if "session" in self.related else ()))

    shown_id = column(gettext_noop("Id"), lambda row: str(row.pk), "pk")
    in_session = column(gettext_noop("Session"), lambda row: excerpt(row.session.title, 40) or str(row.session_id))
    created = column(gettext_noop("Created (UTC)"), lambda row: f"{row.created_at:%Y-%m-%d %H:%M:%S}", "created_at")

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return [name for name in self.list_display if name != "in_session" or "session" not in request.GET]

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        is_within = self.ordered_within in request.GET
        return self.session_ordering if is_within and self.session_ordering else self.ordering

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = encode_text(search_term.strip()[:SEARCH_LENGTH])
        return self.found(queryset, term) if term else queryset, False

    def found(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Return rows of this id, of the session of this id, or of sessions with these words in their title."""
        if not is_id(term):
            return rows.filter(session__in=Session.objects.filter(title__icontains=term))
        has_ids = self.opts.pk.get_internal_type() == "CharField"
        return rows.filter(Q(pk=term) | Q(session=term) if has_ids else Q(session=term))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """:raises PermissionDenied: something was sent: a list takes no actions.
        :raises BadRequest: the query holds NUL, which PostgreSQL cannot compare with.
        """
        require_reading(request)
        if any("\x00" in text for name, values in request.GET.lists() for text in (name, *values)):
            raise BadRequest("the address holds a NUL character")
        about = load_heading(request.GET["session"]) if "session" in request.GET else None
        if self.has_view_permission(request):
            self.look(request, about)
        context = {"about": about, "title": capfirst(self.opts.verbose_name_plural)}
        return super().changelist_view(request, {**context, **(extra_context or {})})

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changes = super().get_changelist_instance(request)
        changes.result_list = list(changes.result_list)
        self.dress_rows(changes.result_list)
        return changes

    def dress_rows(self, rows: list[Any]) -> None:
        """Add what the columns show beyond the row itself, in one query for the whole page."""

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """:raises PermissionDenied: something was sent, or this person may not look.
        :raises Http404: there is no such row.
        """
        require_reading(request, may_look=self.has_view_permission(request))
        row = _with_key(with_beginnings(self.get_queryset(request), self.texts), object_id).first()
        if row is None:
            raise Http404(f"there is no {self.opts.verbose_name} of this id")
        about = self.heading_of(row)
        self.look(request, about)
        beside = {}
        if self.is_numbered:
            rows = self.model._default_manager.filter(session_id=row.session_id, seq__in=[row.seq - 1, row.seq + 1])
            urls = {seq: record_url(row, key) for seq, key in rows.values_list("seq", "pk")}
            beside = {"previous_url": urls.get(row.seq - 1, ""), "next_url": urls.get(row.seq + 1, "")}
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "row": row,
            "title": self.page_title(row),
            "about": about,
            "facts": self.facts(row),
            "texts": show_columns(row, self.texts),
            **beside,
            **self.page(request, row),
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/inspector/record.html", context)

    def look(self, request: HttpRequest, about: SessionHeading | None) -> None:
        """Pass where every look at a session passes: at one, or over rows of all. This person may see the table."""
        if about is not None:
            look_at(request, about.id, may_look=True)
        elif {"session", "run", "item"} & {field.name for field in self.opts.fields} or self.model is Session:
            look_over(request, may_look=True)

    def page_title(self, row: Any) -> str:
        return (gettext(self.title) if self.title else "").format(
            row=row
        ) or f"{capfirst(self.opts.verbose_name)} {row.pk}"

    def heading_of(self, row: Any) -> SessionHeading | None:
        return load_heading(row.session_id) if hasattr(row, "session_id") else None

    def facts(self, row: Any) -> list[Fact]:
        unsaid = {name for name in USAGE_COLUMNS if getattr(row, name) is None} if isinstance(row, UsageModel) else ()
        alone = () if not hasattr(row, "organisation_id") or are_several() else ("organisation",)
        facts = facts_of(row, hidden={*self.hidden, *unsaid, *alone, *(text.name for text in self.texts)})
        return sorted(facts, key=lambda fact: fact.name in USAGE_COLUMNS)

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return what a page shows beyond the columns: ``links`` (``Link`` each), and ``groups`` of (heading, (url, name, text) each)."""
        return {}

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_text"
        view = self.admin_site.admin_view(self.text_view)
        return [path("<path:object_id>/text/<slug:column>/", view, name=name), *super().get_urls()]

    def text_view(self, request: HttpRequest, object_id: str, column: str) -> HttpResponse:
        """Return a whole text as a file that no browser takes for anything else.

        :raises PermissionDenied: something was sent, or this person may not look.
        :raises Http404: there is no such row, no such text, or nothing is written there.
        """
        require_reading(request, may_look=self.has_view_permission(request))
        declared = next((text for text in self.texts if text.name == column), None)
        rows = _with_key(self.model._default_manager.all(), object_id)
        found = rows.values_list("pk", column).first() if declared else None
        if declared is None or found is None or found[1] is None:
            raise Http404("there is no such text")
        self.look(request, self.heading_of(_with_key(self.get_queryset(request), object_id).get()))
        response = HttpResponse(printable(whole_text(found[1])), content_type="text/plain; charset=utf-8")
        name = f"{self.opts.model_name}-{found[0]}-{column}.txt"
        response["Content-Disposition"] = str(content_disposition_header(True, name))
        response["X-Content-Type-Options"] = "nosniff"
        return response


def require_reading(request: HttpRequest, *, may_look: bool = True) -> None:
    """:raises PermissionDenied: something was sent, or this person may not look."""
    if request.method not in ("GET", "HEAD") or not may_look:
        raise PermissionDenied


def page_of(request: HttpRequest, rows: Any, size: int) -> Page[Any]:
    """Return the page that ``?page=`` asks for, or the nearest one; the first if it is no number."""
    number = parse_seq(request.GET.get("page", "")) or 1
    pages = Paginator(rows, size)
    return pages.page(min(max(number, 1), pages.num_pages))


def parse_seq(text: str) -> int | None:
    """Return a whole number of at most 15 digits from a query parameter, or ``None``."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None


def _with_key(rows: QuerySet[Any], object_id: str) -> QuerySet[Any]:
    # Written as it is, or as Django's admin quotes it ("sess_5F01J…").
    key = object_id if is_id(object_id) else unquote(object_id)
    try:
        return rows.filter(pk=encode_text(key))
    except ValueError:
        return rows.none()
