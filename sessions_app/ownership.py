"""Whose a session is, and in which project: every query asks here.

It is its owner's while that account is in the session's organisation. A person who is moved to another organisation
leaves her sessions behind; moved back, she has them again. It is in the project that it names while its owner is one of
the project's members; so nothing of a session changes when a member leaves, or the project is deleted.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery

from sessions_app.models import Person, ProjectMember, Session

TEMPORARY = "(s.began_temporary AND s.kept_at IS NULL)"
"""``is_temporary`` in statements that are written out, of a session ``s``."""

HOME = "(SELECT h.organisation_id FROM people h WHERE h.user_id = %s)"
"""The organisation of an account, in statements that are written out."""

_OF_OWNER = Person.objects.filter(user_id=OuterRef("owner_id"))
HOME_OF_OWNER = Subquery(_OF_OWNER.values("organisation_id")[:1])
"""The organisation that the owner of a row is in."""


def owned_by(user_id: int, path: str = "") -> Q:
    """Return what limits sessions to those of a person; ``path`` leads to them from other rows: ``session__``."""
    return Q(**{f"{path}owner_id": user_id, f"{path}organisation_id": home_of_user(user_id)})


def is_temporary(path: str = "") -> Q:
    """Return what limits sessions to temporary chats: they are in no list, and nothing of them reaches other sessions."""
    return Q(**{f"{path}began_temporary": True, f"{path}kept_at__isnull": True})


def home_of_user(user_id: int) -> QuerySet[Person, Any]:
    """Return the id of the organisation that an account is in, as part of another query."""
    return Person.objects.filter(user_id=user_id).values("organisation_id")[:1]


def has_project(user_id: int) -> Q:
    """Return what limits projects to those that a person is a member of, in the organisation that the person is in."""
    there = ProjectMember.objects.filter(
        project_id=OuterRef("pk"), person__user_id=user_id, person__organisation_id=OuterRef("organisation_id")
    )
    return Q(Exists(there))


def projects_of(user_id: int | OuterRef) -> QuerySet[ProjectMember, Any]:
    """Return the ids of the projects that a person has, as part of another query."""
    members = ProjectMember.objects.filter(
        person__user_id=user_id, person__organisation_id=F("project__organisation_id")
    )
    return members.values("project_id")


def is_in_project(path: str = "") -> Exists:
    """Return the condition that sessions are in the project that they name; ``path`` as in ``owned_by``."""
    members = projects_of(OuterRef(f"{path}owner_id"))
    return Exists(members.filter(project_id=OuterRef(f"{path}project_id")))


def project_of(session_id: str) -> QuerySet[Session, Any]:
    """Return the id of the project that a session is in, as part of another query."""
    return Session.objects.filter(is_in_project(), pk=session_id).values("project_id")


PROJECT_OF_SESSION = Subquery(projects_of(OuterRef("owner_id")).filter(project_id=OuterRef("project_id"))[:1])
"""The project that a session is in: the one that it names, while that is there and its owner is a member; else NULL."""
