"""Reads of projects, each as one of its members."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from mnesis_core.errors import ProjectNotFoundError
from mnesis_core.records import ProjectMemberRecord, ProjectRecord, SessionRecord, record_of
from sessions_app.conf import instructions_of, list_models
from sessions_app.models import Project, ProjectMember
from sessions_app.ownership import has_project

MOST_MEMBERS = 100


def load_project(project_id: str, *, user_id: int) -> ProjectRecord:
    """:raises ProjectNotFoundError: there is no such project, or this person is not one of its members."""
    found = _read(_projects(user_id).filter(pk=project_id), user_id=user_id)
    if not found:
        raise ProjectNotFoundError(project_id=project_id)
    return found[0]


def list_projects(*, user_id: int, before: str | None = None, limit: int = 50) -> list[ProjectRecord]:
    """Return a person's projects, the newest first, after the one whose id is ``before``."""
    rows = _projects(user_id)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return _read(rows.order_by("-pk")[:limit], user_id=user_id)


def names_of_projects(project_ids: Collection[str], *, user_id: int) -> dict[str, str]:
    """Return the names of those that are a person's, by id."""
    return dict(_projects(user_id).filter(pk__in=list(project_ids)).values_list("pk", "name"))


def list_members(project: ProjectRecord) -> list[ProjectMemberRecord]:
    """Return those who have the project, its owner first, then by when they were added."""
    rows = ProjectMember.objects.filter(
        project_id=project.id, person__organisation_id=F("project__organisation_id")
    ).annotate(name=_name_of("person__user_id"), is_owner=Q(person_id=F("project__owner_id")))
    return [
        ProjectMemberRecord(id=row.person_id, name=row.name or "", is_owner=row.is_owner, added_at=row.added_at)
        for row in rows.order_by("-is_owner", "pk")[:MOST_MEMBERS]
    ]


def prompt_of(session: SessionRecord) -> str:
    """Return what the session's model is told before everything else: by its project, its assistant and its own instructions."""
    told = [session.assistant_instructions, instructions_of(session)]
    if session.project_id:
        told = [*Project.objects.filter(pk=session.project_id).values_list("instructions", flat=True), *told]
    return "\n\n".join(text for text in told if text)


def has_left_project(session: SessionRecord) -> bool:
    """Return whether a session was put into a project that is there, and that its owner is no longer a member of."""
    return session.named_project_id != session.project_id and _exists(session.named_project_id)


def model_in(project: ProjectRecord, *, user_id: int) -> str:
    """Return the model of a member's sessions that begin in a project; empty if it has no say, or they may not use it."""
    return project.model if project.model in {spec.alias for spec in list_models(user_id=user_id)} else ""


def _exists(project_id: str) -> bool:
    return Project.objects.filter(pk=project_id).exists()


def _projects(user_id: int) -> QuerySet[Project, Any]:
    return Project.objects.filter(has_project(user_id))


def _read(rows: QuerySet[Project, Any], *, user_id: int) -> list[ProjectRecord]:
    found: Iterable[Any] = rows.annotate(owner_name=_name_of("owner__user_id"), of_user_id=F("owner__user_id"))
    return [
        record_of(ProjectRecord, row, owner_name=row.owner_name or "", is_owner=row.of_user_id == user_id)
        for row in found
    ]


def _name_of(user_id: str) -> Subquery:
    accounts = get_user_model().objects.filter(pk=OuterRef(user_id))
    return Subquery(accounts.values("username")[:1])
