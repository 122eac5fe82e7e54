"""Projects at the REST endpoint: folders of sessions with instructions and a model, for their members."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from ninja import Field, Router, Schema, Status

from agents_app.turns import defaults
from mnesis_core.config import LONGEST_INSTRUCTIONS
from sessions_app.callers import Asker, owner_id
from sessions_app.operations import by_name
from sessions_app.record import project_store
from sessions_app.schemas import ErrorOut, Limit, Out, Text, page_of

router = Router(tags=["projects"])
ERRORS = dict.fromkeys((400, 401, 403, 404, 422, 429), ErrorOut)
Name = Annotated[str, Field(max_length=1_000)]  # longer than names may be, so that the error says how long
Instructions = Annotated[str, Field(max_length=2 * LONGEST_INSTRUCTIONS)]
Alias = Annotated[str, Field(max_length=100)]


class ProjectIn(Schema):
    """A new project."""

    name: Name
    instructions: Instructions = ""
    model: Alias = ""
    """The model of sessions that begin in it."""
    config: dict[str, Any] = {}
    """What it configures of sessions that begin in it, in the form of a session's: parameters, tools and limits."""


class ProjectPatch(Schema):
    """What of a project is to change."""

    name: Name | None = None
    instructions: Instructions | None = None
    model: Alias | None = None
    config: dict[str, Any] | None = None


class MemberIn(Schema):
    """Who is to have the project."""

    name: Annotated[str, Field(max_length=150)]
    """The username."""


class ProjectOut(Out):
    """A project of which you are a member."""

    id: str
    name: Text
    instructions: Text
    model: str
    config: dict[str, Any]
    owner_name: Text
    is_owner: bool
    """Whether you are its owner, who alone may change it."""
    created_at: datetime
    updated_at: datetime


class MemberOut(Out):
    """A person who has the project."""

    id: str
    name: Text
    is_owner: bool
    added_at: datetime


class ProjectList(Out):
    """A page of projects."""

    items: list[ProjectOut]
    next_cursor: str | None


class MemberList(Out):
    """Who has a project, its owner first."""

    items: list[MemberOut]
    next_cursor: None = None


class DeletedProject(Out):
    """A project that is gone, or that you have left."""

    id: str
    deleted: bool


class RemovedMember(Out):
    """A person who does not have the project any more."""

    id: str
    removed: bool


@by_name("projects/list")
@router.get("/projects", response={200: ProjectList, **ERRORS}, summary="List projects, the newest first")
def list_projects(
    request: Asker, limit: Limit = 50, cursor: Annotated[str | None, Field(max_length=100)] = None
) -> dict[str, Any]:
    """The projects of which you are a member, your own included."""
    found = project_store.list_projects(user_id=owner_id(request), before=cursor, limit=limit + 1)
    return page_of(found, limit, attrgetter("id"))


@by_name("projects/create")
@router.post("/projects", response={201: ProjectOut, **ERRORS}, summary="Create a project")
def create_project(request: Asker, body: ProjectIn) -> Any:
    """You are its owner and its first member."""
    return Status(201, defaults.create_project(owner_id=owner_id(request), **body.dict()))


@by_name("projects/read")
@router.get("/projects/{project_id}", response={200: ProjectOut, **ERRORS}, summary="Read a project")
def read_project(request: Asker, project_id: str) -> Any:
    """Its sessions are those of ``GET /sessions?project_id=``: each member sees their own."""
    return project_store.load_project(project_id, user_id=owner_id(request))


@by_name("projects/update")
@router.patch("/projects/{project_id}", response={200: ProjectOut, **ERRORS}, summary="Change a project")
def update_project(request: Asker, project_id: str, body: ProjectPatch) -> Any:
    """New instructions hold from the next message on, in the sessions of all members. A model and a ``config`` are for new sessions."""
    return defaults.update_project(project_id, owner_id=owner_id(request), **body.dict())


@by_name("projects/delete")
@router.delete("/projects/{project_id}", response={200: DeletedProject, **ERRORS}, summary="Delete a project")
def delete_project(request: Asker, project_id: str) -> Any:
    """Its sessions stay, and are in no project."""
    project_store.delete_project(project_id, owner_id=owner_id(request))
    return {"id": project_id, "deleted": True}


@by_name("projects/leave")
@router.post("/projects/{project_id}/leave", response={200: DeletedProject, **ERRORS}, summary="Leave a project")
def leave_project(request: Asker, project_id: str) -> Any:
    """Your sessions stay yours, and are in no project."""
    project_store.leave_project(project_id, user_id=owner_id(request))
    return {"id": project_id, "deleted": False}


@by_name("project_members/list")
@router.get("/projects/{project_id}/members", response={200: MemberList, **ERRORS}, summary="List members")
def list_members(request: Asker, project_id: str) -> Any:
    """Everybody who has the project, at most a hundred."""
    project = project_store.load_project(project_id, user_id=owner_id(request))
    return {"items": project_store.list_members(project)}


@by_name("project_members/add")
@router.post("/projects/{project_id}/members", response={200: MemberList, **ERRORS}, summary="Add a member")
def add_member(request: Asker, project_id: str, body: MemberIn) -> Any:
    """Let a person of your organisation have the project. Their sessions stay private to them, and yours to you."""
    project = project_store.add_member(project_id, owner_id=owner_id(request), name=body.name)
    return {"items": project_store.list_members(project)}


@by_name("project_members/remove")
@router.delete(
    "/projects/{project_id}/members/{member_id}", response={200: RemovedMember, **ERRORS}, summary="Remove a member"
)
def remove_member(request: Asker, project_id: str, member_id: str) -> Any:
    """Take a person out of the project, as its owner, or yourself. Their sessions stay theirs, and are in no project."""
    project_store.remove_member(project_id, member_id, user_id=owner_id(request))
    return {"id": member_id, "removed": True}
