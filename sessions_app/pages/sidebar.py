"""The sidebar: a person's projects, and their sessions, the pinned ones on top, then by the day of their last activity."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from sessions_app.pages.views import MOST_POLLED, day_headings, reader_of, signed_in
from sessions_app.record.projects.project_queries import list_projects
from sessions_app.record.session_queries import list_pinned, list_sessions, load_sessions
from sessions_app.schemas import page_of, place_of, read_place

PAGE = 50
MOST_PINNED = 100
MOST_PROJECTS = 5  # the newest ones; the others are on the page of all projects
MOST_PAGES = 20
"""Pages that one request may ask for, to show again what was loaded before."""


def sidebar_context(request: HttpRequest, *, cursor: str = "", pages: int = 1) -> dict[str, Any]:
    """Read the rows after a cursor. Sub-agents are left out: they are listed with the session that launched them."""
    owner_id, before, limit = reader_of(request), read_place(cursor or None), PAGE * pages
    pinned = [] if before else list_pinned(owner_id=owner_id, limit=MOST_PINNED)
    projects = [] if before else list_projects(user_id=owner_id, limit=MOST_PROJECTS + 1)
    sessions = list_sessions(owner_id=owner_id, pinned=False, sub_agents=False, before=before, limit=limit + 1)
    page = page_of(sessions, limit, lambda session: place_of(session.updated_at, session.id))
    headings = [_("Pinned"), *[""] * len(pinned)][: len(pinned)] + day_headings(request, page["items"], after=before)
    return {
        "projects": projects[:MOST_PROJECTS],
        "has_more_projects": len(projects) > MOST_PROJECTS,
        "is_first": before is None,
        "rows": list(zip(headings, [*pinned, *page["items"]], strict=True)),
        "is_empty": not (before or pinned or page["items"]),
        "next_cursor": page["next_cursor"] or "",
    }


@signed_in
def sidebar_rows(request: HttpRequest) -> HttpResponse:
    asked = request.GET.get("pages", "")
    pages = min(int(asked), MOST_PAGES) if asked.isascii() and asked.isdigit() and len(asked) < 4 else 1
    context = sidebar_context(request, cursor=request.GET.get("cursor", ""), pages=max(pages, 1))
    shown = {"current": request.GET.get("current", ""), "path": request.GET.get("path", "")}
    return render(request, "sessions_app/sidebar/_rows.html", context | shown)


@signed_in
def sidebar_states(request: HttpRequest) -> HttpResponse:
    """Return the current title and state of some rows, and which sessions are pinned. Sessions of others are left out."""
    sessions = load_sessions(request.GET.getlist("id")[:MOST_POLLED], owner_id=reader_of(request))
    pinned = list_pinned(owner_id=reader_of(request), limit=MOST_PINNED)
    return render(request, "sessions_app/sidebar/_states.html", {"sessions": sessions, "pinned": pinned})
