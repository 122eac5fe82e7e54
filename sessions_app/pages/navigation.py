"""Where a person finds their sessions: the sidebar, the palette, projects, and the trash."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from mnesis_core.text import printable
from sessions_app.assistants.assistant_store import list_assistants
from sessions_app.pages.new_chat import MOST_PICKED
from sessions_app.pages.views import (
    MOST_POLLED,
    PAGE,
    day_headings,
    in_project,
    list_context,
    may_delete,
    model_choices,
    reader_of,
    signed_in,
    temporary_hours,
)
from sessions_app.record.project_store import list_members, list_projects, load_project
from sessions_app.record.session_queries import (
    list_pinned,
    list_sessions,
    load_session,
    load_sessions,
    with_sub_agents,
)
from sessions_app.schemas import page_of, place_of, read_place

ROWS = 50
MOST_PINNED = 100
MOST_NESTED = 50  # sub-agents of one session; a link leads to all of them
MOST_PROJECTS = 5  # the newest ones; the others are on the page of all projects
MOST_PAGES = 20
"""Pages that one request may ask for, to show again what was loaded before."""
MOST_FOUND = 8
MOST_OFFERED = 200


def sidebar_context(request: HttpRequest, *, cursor: str = "", pages: int = 1) -> dict[str, Any]:
    """Read the rows after a cursor. Sub-agents are read when the row of the session that launched them is opened."""
    owner_id, before, limit = reader_of(request), read_place(cursor or None), ROWS * pages
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
        "launching": with_sub_agents([session.id for session in (*pinned, *page["items"])]),
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
def sidebar_sub_agents(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return the newest sub-agents of a session as rows below its own."""
    found = list_sessions(
        owner_id=reader_of(request), archived=None, parent_id=session_id, sub_agents=True, limit=MOST_NESTED
    )
    context = {
        "sessions": found,
        "launching": with_sub_agents([session.id for session in found]),
        "current": request.GET.get("current", ""),
        "has_more": len(found) == MOST_NESTED,
    }
    return render(request, "sessions_app/sidebar/_sub_agents.html", context)


@signed_in
def sidebar_states(request: HttpRequest) -> HttpResponse:
    """Return the current title and state of some rows, and which sessions are pinned. Sessions of others are left out."""
    sessions = load_sessions(request.GET.getlist("id")[:MOST_POLLED], owner_id=reader_of(request))
    pinned = list_pinned(owner_id=reader_of(request), limit=MOST_PINNED)
    return render(request, "sessions_app/sidebar/_states.html", {"sessions": sessions, "pinned": pinned})


# The palette: pages and actions, and sessions by their titles, chosen with the keyboard (Ctrl+K).


@signed_in
def palette(request: HttpRequest) -> HttpResponse:
    """Return the dialog with the newest sessions, or with ``q`` only the sessions whose titles contain it, archived ones too."""
    query = printable(request.GET.get("q", "").strip())
    archived = None if query else False
    sessions = list_sessions(
        owner_id=reader_of(request), archived=archived, sub_agents=False, query=query, limit=MOST_FOUND
    )
    part = "_sessions" if "q" in request.GET else "_palette"
    context = {"sessions": sessions, "temporary_hours": temporary_hours()}
    return render(request, f"sessions_app/palette/{part}.html", context)


# Projects: their list, the page of one, and the dialog that moves a session into one.


@signed_in
def projects(request: HttpRequest) -> HttpResponse:
    """Return the page of all projects, or with a cursor only the rows after it."""
    cursor = request.GET.get("cursor") or None
    page = page_of(list_projects(user_id=reader_of(request), before=cursor, limit=ROWS + 1), ROWS, attrgetter("id"))
    context = {"projects": page["items"], "next_cursor": page["next_cursor"] or "", "rows_path": request.path}
    return render(request, f"sessions_app/projects/{'_rows' if cursor else 'projects'}.html", context)


@signed_in
def project(request: HttpRequest, project_id: str) -> HttpResponse:
    shown = load_project(project_id, user_id=reader_of(request))
    context = list_context(request, project_id=shown.id) | model_choices(request, preferred=shown.model)
    context |= {
        "project": shown,
        "picked_from": list_assistants(user_id=reader_of(request), limit=MOST_PICKED),
        "members": list_members(shown),
        "may_delete": may_delete(),
    }
    return render(request, "sessions_app/projects/project.html", context)


@signed_in
def session_project(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return what the page of a session says of its project."""
    session = load_session(session_id, owner_id=reader_of(request))
    return render(request, "sessions_app/session/_project.html", in_project(session) | {"session": session})


@signed_in
def move_session(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return the dialog in which a project is chosen for a session."""
    session = load_session(session_id, owner_id=reader_of(request))
    offered = list_projects(user_id=session.owner_id, limit=MOST_OFFERED)
    return render(request, "sessions_app/projects/_move_dialog.html", {"session": session, "projects": offered})


# The trash: a person's sessions that were deleted and can be restored.


@signed_in
def trash(request: HttpRequest) -> HttpResponse:
    """Return the page, or with a cursor only the rows after it."""
    cursor = request.GET.get("cursor", "")
    found = list_sessions(
        owner_id=reader_of(request), archived=None, trashed=True, before=read_place(cursor or None), limit=PAGE + 1
    )
    page = page_of(found, PAGE, lambda session: place_of(session.updated_at, session.id))
    context = {
        "sessions": page["items"],
        "next_cursor": page["next_cursor"] or "",
        "may_delete": may_delete(),
    }
    return render(request, f"sessions_app/list/{'_trash_rows' if cursor else 'trash'}.html", context)
