"""The saved views above the list of *Observe*: links, and the forms that save, rename and delete one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from audit_app.observe import saved_view_store
from audit_app.observe.asked import Asked, read_asked
from audit_app.observe.columns import chosen_columns
from audit_app.observe.saved_view_queries import SavedViewRecord, list_views
from mnesis_core.errors import InvalidRequest, MnesisError, SavedViewNameTaken
from mnesis_core.text import NAME_CHARACTERS
from sessions_app.pages.permissions import observers_to_post
from sessions_app.pages.views import reader_of, to_page

LINKS = 8
"""How many views are links on a wide page; a menu has the others."""


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
    views = list_views(owner_id=reader_of(request))
    return SavedViews(all=[_link(view, asked) for view in views], asked=asked)


@observers_to_post
def save(request: HttpRequest) -> HttpResponse:
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
    return to_page(request, _asked(view).address)


@observers_to_post
def rename(request: HttpRequest, view_id: str) -> HttpResponse:
    name = request.POST.get("name", "")
    try:
        view = saved_view_store.rename_view(view_id, owner_id=reader_of(request), name=name)
    except (InvalidRequest, SavedViewNameTaken) as error:
        return _refuse(request, error, "audit_app/observe/_rename.html", name=name, view_id=view_id)
    return to_page(request, _asked(view).address)


@observers_to_post
def delete(request: HttpRequest, view_id: str) -> HttpResponse:
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


def _link(view: SavedViewRecord, asked: Asked) -> Link:
    address = _asked(view).address
    return Link(id=view.id, name=view.name, url=address, is_current=address == asked.address)


def _asked(view: SavedViewRecord) -> Asked:
    return Asked(text=view.query, columns=chosen_columns(view.columns))
