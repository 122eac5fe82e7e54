"""Projects, folders of sessions with instructions, a model, files and members: as their members read them, and their
only writer.

Which sessions are in a project is said by the sessions (``session_store``), and follows from its members (``ownership``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone
from django.utils.translation import gettext_noop

from mnesis_core.config import LONGEST_INSTRUCTIONS
from mnesis_core.errors import InvalidRequest, ProjectMemberNotFoundError, ProjectNotFoundError, ProjectNotYours
from mnesis_core.records import ProjectMemberRecord, ProjectRecord, SessionRecord, new_id, record_of
from mnesis_core.text import checked_name, encode_text
from sessions_app.conf import OF_PROJECT, check_defaults, get_spec, instructions_of, list_models
from sessions_app.models import Person, Project, ProjectMember
from sessions_app.ownership import has_project
from sessions_app.record.organisation_store import home_of, ref_of

MOST_MEMBERS = 100


def create_project(
    *, owner_id: int, name: str, instructions: str = "", model: str = "", config: dict[str, Any] | None = None
) -> ProjectRecord:
    """:raises InvalidRequest: the name is empty, or a value is out of its bounds.
    :raises ModelNotFoundError: there is no such model, or this person may not use it.
    """
    values = _checked(owner_id, {"name": name, "instructions": instructions, "model": model, "config": config or {}})
    now, ref = timezone.now(), ref_of(owner_id)
    with transaction.atomic():
        project = Project.objects.create(
            id=new_id("proj"),
            owner_id=ref,
            organisation_id=home_of(owner_id),
            created_at=now,
            updated_at=now,
            **values,
        )
        ProjectMember.objects.create(project=project, person_id=ref, added_at=now)
    return load_project(project.id, user_id=owner_id)


def update_project(
    project_id: str,
    *,
    owner_id: int,
    name: str | None = None,
    instructions: str | None = None,
    model: str | None = None,
    config: dict[str, Any] | None = None,
) -> ProjectRecord:
    """Change what is not ``None``. New instructions hold from the next turn on, in every session of the project.

    A model and a configuration are for sessions that begin from then on.

    :raises ProjectNotFoundError: there is no such project, or this person is not a member of it.
    :raises ProjectNotYours: this person is not its owner.
    :raises InvalidRequest, ModelNotFoundError: as ``create_project``
    """
    before = load_own_project(project_id, owner_id=owner_id)
    given = {"name": name, "instructions": instructions, "model": model, "config": config}
    # What stays is not checked again: a model that is gone does not keep its project from being renamed.
    values = _checked(
        owner_id, {name: said for name, said in given.items() if said not in (None, getattr(before, name))}
    )
    Project.objects.filter(pk=project_id).update(**values, updated_at=timezone.now())
    return load_project(project_id, user_id=owner_id)


def delete_project(project_id: str, *, owner_id: int) -> None:
    """Delete a project with its instructions. Its sessions stay, and are in none.

    :raises ProjectNotFoundError: there is no such project, or this person is not a member of it.
    :raises ProjectNotYours: this person is not its owner.
    """
    load_own_project(project_id, owner_id=owner_id)
    Project.objects.filter(pk=project_id).delete()


def add_member(project_id: str, *, owner_id: int, name: str) -> ProjectRecord:
    """Let a person of the project's organisation have it; one who has it already stays.

    :raises ProjectNotFoundError: there is no such project, or the one who asks is not a member of it.
    :raises ProjectNotYours: the one who asks is not its owner.
    :raises InvalidRequest: there is no such account here, or there are too many members.
    """
    project = load_own_project(project_id, owner_id=owner_id)
    accounts = get_user_model().objects.filter(username=encode_text(name), is_active=True)
    organisation = Project.objects.filter(pk=project_id).values("organisation")
    person = Person.objects.filter(user_id__in=accounts.values("pk"), organisation__in=organisation).first()
    if person is None:
        raise InvalidRequest(gettext_noop("There is no account %(name)s here."), {"name": repr(name)}, field="name")
    with transaction.atomic():
        # The project's row first, so that two who are added at once are counted one after the other.
        Project.objects.filter(pk=project_id).update(updated_at=timezone.now())
        members = ProjectMember.objects.filter(project_id=project_id)
        if members.count() >= MOST_MEMBERS and not members.filter(person=person).exists():
            raise InvalidRequest(
                gettext_noop("A project may have %(most)s members."), {"most": MOST_MEMBERS}, field="name"
            )
        members.get_or_create(project_id=project_id, person=person, defaults={"added_at": timezone.now()})
    return project


def remove_member(project_id: str, member_id: str, *, user_id: int) -> None:
    """Take a member out of a project: its owner may do that to anybody else, and others to themselves.

    Their sessions stay theirs, and leave the project with them.

    :raises ProjectNotFoundError: there is no such project, or the one who asks is not a member of it.
    :raises ProjectNotYours: the one who asks is not its owner, and the member is somebody else.
    :raises ProjectMemberNotFoundError: the project has no such member.
    :raises InvalidRequest: the member is its owner.
    """
    project, own = load_project(project_id, user_id=user_id), ref_of(user_id)
    if not project.is_owner and member_id != own:
        raise ProjectNotYours(project_id=project_id)
    if project.is_owner and member_id == own:
        raise InvalidRequest(gettext_noop("The owner cannot leave a project. Delete it instead."), field="member_id")
    gone, _ = ProjectMember.objects.filter(project_id=project_id, person_id=member_id).delete()
    if not gone:
        raise ProjectMemberNotFoundError(member_id=member_id)


def leave_project(project_id: str, *, user_id: int) -> None:
    """:raises ProjectNotFoundError, InvalidRequest: as ``remove_member`` does."""
    remove_member(project_id, ref_of(user_id), user_id=user_id)


def load_own_project(project_id: str, *, owner_id: int) -> ProjectRecord:
    """:raises ProjectNotFoundError: there is no such project, or this person is not a member of it.
    :raises ProjectNotYours: this person is not its owner.
    """
    project = load_project(project_id, user_id=owner_id)
    if not project.is_owner:
        raise ProjectNotYours(project_id=project_id)
    return project


def _checked(owner_id: int, said: dict[str, Any]) -> dict[str, Any]:
    if "name" in said:
        said["name"] = checked_name(said["name"], missing=gettext_noop("Give the project a name."))
    if len(said.get("instructions", "")) > LONGEST_INSTRUCTIONS:
        raise InvalidRequest(
            gettext_noop("instructions may have %(most)s characters"),
            {"most": LONGEST_INSTRUCTIONS},
            field="instructions",
        )
    if said.get("model"):
        get_spec(said["model"], user_id=owner_id)
    check_defaults(said.get("config", {}), refused=OF_PROJECT)
    return said


# Reads of projects, each as one of its members.


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


def read_projects(project_ids: Collection[str], *, user_id: int) -> dict[str, ProjectRecord]:
    """Return those that are a person's, by id; no query for none."""
    rows = _projects(user_id).filter(pk__in=list(project_ids)) if project_ids else Project.objects.none()
    return {project.id: project for project in _read(rows, user_id=user_id)}


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
