"""What a project says of sessions that begin in it, on its page, and the form in which its owner changes the project."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext_lazy as _

from agents_app.turns import projects
from agents_app.turns.defaults import missing_tools
from agents_app.turns.session_settings import DefaultsForm, facts_of
from mnesis_core.errors import MnesisError
from mnesis_core.records import ProjectRecord
from sessions_app.conf import list_models
from sessions_app.pages.views import reader_of, signed_in, signed_in_to_change
from sessions_app.record.projects import project_store
from sessions_app.record.projects.project_queries import load_project


class ProjectForm(DefaultsForm):
    def __init__(self, data: Any = None, *, user_id: int, project: ProjectRecord) -> None:
        super().__init__(
            data,
            said=project,
            any_model=_("Each member's last used model"),
            told=_("Sent to the model before a session's own instructions, from the next message on."),
            user_id=user_id,
        )


@signed_in
def project_settings(request: HttpRequest, project_id: str) -> HttpResponse:
    """Return what the page of a project says of new chats, with what of it is gone for the reader."""
    reader = reader_of(request)
    project = load_project(project_id, user_id=reader)
    context = {
        "project": project,
        "facts": facts_of(project.config),
        "is_model_gone": project.model not in {"", *(spec.alias for spec in list_models(user_id=reader))},
        "missing_tools": missing_tools(project.config, user_id=reader),
    }
    return render(request, "agents_app/settings/_project.html", context)


@signed_in_to_change
def project_change(request: HttpRequest, project_id: str) -> HttpResponse:
    owner = reader_of(request)
    project = project_store.load_own_project(project_id, owner_id=owner)
    form = ProjectForm(request.POST if request.method == "POST" else None, user_id=owner, project=project)
    if request.method == "POST" and form.is_valid():
        try:
            projects.update_project(project.id, owner_id=owner, **form.values())
        except MnesisError as error:
            form.refuse(error)
        else:
            messages.success(request, _("Saved."))
            return redirect("project", project.id)
    return render(request, "agents_app/settings/project_form.html", {"form": form, "project": project})
