"""The page *Observe*: a query bar in the address, the sessions of everybody that meet it, what they took, and saved
views.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _

from audit_app.observe import saved_view_store
from audit_app.observe.charts import draw_course
from audit_app.observe.columns import COLUMNS, Asked, Cell, cell_of, chosen_columns, exported, read_asked, table_of
from audit_app.observe.saved_view_store import SavedViewRecord, list_views
from compaction_app.queries import compactions_over_time, completed_compactions
from mnesis_core.errors import InvalidRequest, MnesisError, SavedViewNameTaken
from mnesis_core.search.observation import FIELDS, parse_observation, period_of, with_term, without_term
from mnesis_core.search.words import LONGEST_QUERY
from mnesis_core.text import NAME_CHARACTERS
from sessions_app.database.threads import work
from sessions_app.pages.formats import error_text
from sessions_app.pages.markdown import show_invisible, shown_title
from sessions_app.pages.permissions import address_of, observers, observers_to_post
from sessions_app.pages.views import reader_of, to_page
from sessions_app.record.observed import Observed, ObservedSession, list_observed, load_course, observed_in_pages
from sessions_app.record.organisation_store import are_several
from sessions_app.schemas import page_of, place_of, read_place

PAGE = 50
EXPORTED_AT_ONCE = 500  # sessions
LINKS = 8
"""How many views are links on a wide page; a menu has the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A term of the query, with the query of the page without it."""

    text: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    id: str
    title: str
    url: str  # of the session's inspector; empty for an id that fits no address
    is_archived: bool
    is_temporary: bool
    cells: list[tuple[Cell, str]]  # each with the query that its value narrows the list to


@observers
def observe(request: HttpRequest) -> HttpResponse:
    """The page. Its form asks for the part below the bar, which stays as it is while the bar holds a mistake."""
    asked = read_asked(request.GET)
    is_part = request.headers.get("HX-Target") == "observed"
    try:
        context = _found(asked)
    except InvalidRequest as error:
        if error.details.get("field") != "q":
            raise
        context = {"problem": error_text(error)}
    context |= {"asked": asked, "query": asked.query(), "is_part": is_part}
    if is_part and "problem" in context:
        response = render(request, "audit_app/observe/_problem.html", context)
        response.headers["HX-Retarget"] = "#observe-problem"
        response.headers["HX-Reswap"] = "outerHTML"
        return response
    context |= {"saved": show_views(request, asked), "longest_name": NAME_CHARACTERS}
    if is_part:
        response = render(request, "audit_app/observe/_observed.html", context)
        response.headers["HX-Push-Url"] = asked.address
        return response
    columns = {name: column for name, column in COLUMNS.items() if name != "organisation" or are_several()}
    context |= {
        "fields": [replace(field, meaning=_(field.meaning)) for field in FIELDS.values()],
        "columns": [(name, column.label, name in asked.columns) for name, column in columns.items()],
        "longest": LONGEST_QUERY,
    }
    return render(request, "audit_app/observe/observe.html", context)


@observers
def observe_rows(request: HttpRequest) -> HttpResponse:
    """More rows, after a cursor."""
    asked = read_asked(request.GET)
    return render(request, "audit_app/observe/_rows.html", _found(asked) | {"asked": asked, "query": asked.query()})


@observers
def observe_numbers(request: HttpRequest) -> HttpResponse:
    """The charts above the list, which take longer than the list."""
    now = timezone.now()
    terms = parse_observation(read_asked(request.GET).text, now=now)
    observed = Observed(terms, compactions=completed_compactions())
    since, until, step = period_of(terms, now=now)
    period: dict[str, Any] = {"since": since, "until": until, "step": step}
    course = load_course(observed, **period)
    charts = draw_course(course, compactions_over_time(observed.rows, **period), **period)
    return render(request, "audit_app/observe/_numbers.html", period | {"charts": charts, "cut": course.since})


@observers
def observe_csv(request: HttpRequest) -> StreamingHttpResponse:
    """All sessions that meet the query, with every column."""
    now = timezone.now()
    observed = Observed(parse_observation(read_asked(request.GET).text, now=now), compactions=completed_compactions())
    headers = {
        "Content-Disposition": f'attachment; filename="sessions-{now:%Y-%m-%d}.csv"',
        "Cache-Control": "private, no-store",
        "X-Accel-Buffering": "no",
    }
    return StreamingHttpResponse(_streamed(observed), content_type="text/csv; charset=utf-8", headers=headers)


async def _streamed(observed: Observed) -> AsyncIterator[str]:
    pages = observed_in_pages(observed, size=EXPORTED_AT_ONCE, compactions=completed_compactions())
    yield table_of([("id", "title", *(name for name in COLUMNS if name != "id"))])
    while page := await work(next, pages, None):
        yield table_of(exported(row) for row in page)


def _found(asked: Asked) -> dict[str, Any]:
    """:raises InvalidRequest: the query cannot be understood, or the cursor is none."""
    terms = parse_observation(asked.text, now=timezone.now())
    compactions = completed_compactions()
    observed = Observed(terms, compactions=compactions)
    before = read_place(asked.cursor or None)
    sessions = list_observed(observed, before=before, limit=PAGE + 1, compactions=compactions)
    page = page_of(sessions, PAGE, lambda session: place_of(session.updated_at, session.id))
    return {
        "chips": [
            Chip(text=show_invisible(term.text), query=asked.query(without_term(asked.text, term.text)))
            for term in terms
        ],
        "heads": [(COLUMNS[name].label, COLUMNS[name].is_number) for name in asked.columns],
        "rows": [_row(asked, session) for session in page["items"]],
        "next_cursor": page["next_cursor"] or "",
        "cut_words": [show_invisible(words) for words in observed.cut_words],
    }


def _row(asked: Asked, session: ObservedSession) -> Row:
    cells = [cell_of(COLUMNS[name], session) for name in asked.columns]
    return Row(
        id=session.id,
        title=shown_title(session.title),
        url=address_of("inspect", session.id),
        is_archived=session.is_archived,
        is_temporary=session.is_temporary,
        cells=[(cell, asked.query(with_term(asked.text, cell.term)) if cell.term else "") for cell in cells],
    )


# The saved views above the list of *Observe*: links, and the forms that save, rename and delete one.


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    id: str
    name: str
    url: str
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedViews:
    all: Sequence[Link]
    asked: Asked  # what the page shows, to be saved

    @property
    def first(self) -> Sequence[Link]:
        return self.all[:LINKS]

    @property
    def have_more(self) -> bool:
        return len(self.all) > LINKS

    @property
    def current(self) -> Sequence[Link]:
        """Those that have what the page shows."""
        return [link for link in self.all if link.is_current]


def show_views(request: HttpRequest, asked: Asked) -> SavedViews:
    links = [
        Link(id=view.id, name=view.name, url=(address := _asked_by(view).address), is_current=address == asked.address)
        for view in list_views(owner_id=reader_of(request))
    ]
    return SavedViews(all=links, asked=asked)


@observers_to_post
def saved_view_add(request: HttpRequest) -> HttpResponse:
    asked = read_asked(request.POST)
    name = request.POST.get("name", "")
    try:
        view = saved_view_store.save_view(
            owner_id=reader_of(request),
            name=name,
            query=asked.text,
            columns=asked.chosen,
            may_replace="replace" in request.POST,
        )
    except (InvalidRequest, SavedViewNameTaken) as error:
        context = {"asked": asked, "is_taken": isinstance(error, SavedViewNameTaken)}
        return _refuse(request, error, "audit_app/observe/_save.html", name=name, **context)
    return to_page(request, _asked_by(view).address)


@observers_to_post
def saved_view_rename(request: HttpRequest, view_id: str) -> HttpResponse:
    name = request.POST.get("name", "")
    try:
        view = saved_view_store.rename_view(view_id, owner_id=reader_of(request), name=name)
    except (InvalidRequest, SavedViewNameTaken) as error:
        return _refuse(request, error, "audit_app/observe/_rename.html", name=name, view_id=view_id)
    return to_page(request, _asked_by(view).address)


@observers_to_post
def saved_view_remove(request: HttpRequest, view_id: str) -> HttpResponse:
    saved_view_store.delete_view(view_id, owner_id=reader_of(request))
    if "HX-Request" in request.headers:
        return HttpResponse(status=204, headers={"HX-Refresh": "true"})
    return redirect("observe")


def _refuse(request: HttpRequest, error: MnesisError, template: str, **context: Any) -> HttpResponse:
    """Return the form again, with what is wrong.

    :raises MnesisError: what is wrong, where a page or a program sent the form and htmx did not
    """
    if "HX-Request" not in request.headers:
        raise error
    return render(request, template, context | {"error": error, "longest_name": NAME_CHARACTERS})


def _asked_by(view: SavedViewRecord) -> Asked:
    return Asked(text=view.query, columns=chosen_columns(view.columns))
