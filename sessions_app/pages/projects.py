"""Projects: their list, the page of one, and the dialog that moves a session into one."""

from __future__ import annotations

from operator import attrgetter

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from sessions_app.assistants.assistant_queries import list_assistants
from sessions_app.pages.new_chat import MOST_PICKED
from sessions_app.pages.views import in_project, list_context, may_delete, model_choices, reader_of, signed_in
from sessions_app.record.projects.project_queries import list_members, list_projects, load_project
from sessions_app.record.session_queries import load_session
from sessions_app.schemas import page_of

PAGE = 50
MOST_OFFERED = 200


@signed_in
def projects(request: HttpRequest) -> HttpResponse:
    """Return the page of all projects, or with a cursor only the rows after it."""
    cursor = request.GET.get("cursor") or None
    page = page_of(list_projects(user_id=reader_of(request), before=cursor, limit=PAGE + 1), PAGE, attrgetter("id"))
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
