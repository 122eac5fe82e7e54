"""The only writer of projects and their members.

Which sessions are in a project is said by the sessions (``session_store``), and follows from its members (``ownership``).
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from mnesis_core.config import LONGEST_INSTRUCTIONS
from mnesis_core.errors import InvalidRequest, ProjectMemberNotFoundError, ProjectNotYours
from mnesis_core.records import ProjectRecord, new_id
from mnesis_core.text import checked_name, encode_text
from sessions_app.conf import check_defaults, get_spec
from sessions_app.models import Person, Project, ProjectMember
from sessions_app.record.organisation_store import home_of, ref_of
from sessions_app.record.projects.project_queries import MOST_MEMBERS, load_project


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
    check_defaults(said.get("config", {}), of="a project")
    return said
