"""Assistants and saved prompts at the REST endpoint: what a session can begin with, for those whom they are shared
with.
"""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest
from ninja import Field, Router, Schema, Status
from pydantic import BeforeValidator

from agents_app.turns import defaults
from files_app.api import CONTENT, FILE
from files_app.downloads import download_whole
from files_app.given_store import load_assistant_file, load_portrait
from mnesis_core.config import LONGEST_INSTRUCTIONS
from mnesis_core.errors import InvalidRequest
from mnesis_core.files.references import name_of_upload
from sessions_app.assistants import assistant_store, prompt_store
from sessions_app.callers import Asker, owner_id
from sessions_app.operations import by_name
from sessions_app.pages.frames import shown_alone
from sessions_app.schemas import ErrorOut, Limit, Out, Text, page_of

router = Router(tags=["assistants"])
ERRORS = dict.fromkeys((400, 401, 403, 404, 422, 429), ErrorOut)
PICTURE = {
    "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("image/png", "image/jpeg")}
}
Name = Annotated[str, Field(max_length=1_000)]  # longer than names may be, so that the error says how long
Description = Annotated[str, Field(max_length=2_000)]
Instructions = Annotated[str, Field(max_length=2 * LONGEST_INSTRUCTIONS)]
Alias = Annotated[str, Field(max_length=100)]
Starters = Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=100)]
Names = Annotated[list[Annotated[str, Field(max_length=150)]], Field(max_length=1_000)]
prompts_router = Router(tags=["prompts"])
PROMPT_ERRORS = dict.fromkeys((400, 401, 403, 404, 409, 422, 429), ErrorOut)
PromptText = Annotated[str, Field(max_length=2 * prompt_store.LONGEST_TEXT)]


class AssistantIn(Schema):
    """A new assistant. ``config`` has the form of a session's, and may have parameters, tools and limits."""

    name: Name
    description: Description = ""
    instructions: Instructions = ""
    model: Alias = ""
    config: dict[str, Any] = {}
    starters: Starters = []
    for_everyone: bool = False
    """Whether everyone in your organisation may use it."""
    people: Names = []
    """The usernames of people who may use it."""
    groups: Names = []
    """The names of groups who may use it, of those that you are in."""


class AssistantPatch(Schema):
    """What of an assistant is to change; what does not say for whom it is makes a new version."""

    name: Name | None = None
    description: Description | None = None
    instructions: Instructions | None = None
    model: Alias | None = None
    config: dict[str, Any] | None = None
    starters: Starters | None = None
    for_everyone: bool | None = None
    people: Names | None = None
    groups: Names | None = None


class AssistantFileOut(Out):
    """A file of an assistant. Each session that begins with it gets it with its first message, as if it were attached there."""

    id: str
    path: Text
    size: int
    """Bytes."""
    content_id: str
    """The SHA-256 of its bytes."""


class AssistantOut(Out):
    """A version of an assistant."""

    id: str
    version_id: str
    version: int
    """The number of this version, from 1."""
    is_newest: bool
    """Whether new sessions begin with this version."""
    name: Text
    description: Text
    instructions: Text
    model: str
    config: dict[str, Any]
    starters: list[Text]
    files: list[AssistantFileOut]
    picture: Annotated[str | None, BeforeValidator(lambda content_id: content_id or None)]
    """The SHA-256 of the picture that is shown beside its name, read at ``…/picture``; null if it has none."""
    owner_name: Text
    is_owner: bool
    """Whether you are its owner, who alone may change it."""
    for_everyone: bool
    people: list[Text]
    """Whom it is shared with; empty unless you are its owner."""
    groups: list[Text]
    created_at: datetime
    """When this version was made."""


class AssistantList(Out):
    """A page of assistants."""

    items: list[AssistantOut]
    next_cursor: str | None


class VersionList(Out):
    """The versions of an assistant."""

    items: list[AssistantOut]
    next_cursor: None = None


class RemovedAssistant(Out):
    """An assistant that no session can begin with any more."""

    id: str
    deleted: bool


@by_name("assistants/list")
@router.get("/assistants", response={200: AssistantList, **ERRORS}, summary="List assistants, the newest first")
def list_assistants(
    request: Asker, limit: Limit = 50, cursor: Annotated[str | None, Field(max_length=100)] = None
) -> dict[str, Any]:
    """The assistants that you may use, your own included, each as its newest version."""
    found = assistant_store.list_assistants(user_id=owner_id(request), before=cursor, limit=limit + 1)
    return page_of(found, limit, attrgetter("id"))


@by_name("assistants/create")
@router.post("/assistants", response={201: AssistantOut, **ERRORS}, summary="Create an assistant")
def create_assistant(request: Asker, body: AssistantIn) -> Any:
    """Only you may use it unless you say otherwise."""
    return Status(201, defaults.create_assistant(owner_id=owner_id(request), **body.dict()))


@by_name("assistants/read")
@router.get("/assistants/{assistant_id}", response={200: AssistantOut, **ERRORS}, summary="Read an assistant")
def read_assistant(request: Asker, assistant_id: str) -> Any:
    """Its newest version, which ``assistant_id`` in a new session begins with."""
    return assistant_store.load_assistant(assistant_id, user_id=owner_id(request))


@by_name("assistants/update")
@router.patch("/assistants/{assistant_id}", response={200: AssistantOut, **ERRORS}, summary="Change an assistant")
def update_assistant(request: Asker, assistant_id: str, body: AssistantPatch) -> Any:
    """Make a new version, for new sessions; sessions that have begun keep theirs."""
    return defaults.update_assistant(assistant_id, owner_id=owner_id(request), **body.dict())


@by_name("assistants/delete")
@router.delete("/assistants/{assistant_id}", response={200: RemovedAssistant, **ERRORS}, summary="Remove an assistant")
def delete_assistant(request: Asker, assistant_id: str) -> Any:
    """No session can begin with it any more. Its sessions keep what they had, and every version stays."""
    assistant_store.remove_assistant(assistant_id, owner_id=owner_id(request))
    return {"id": assistant_id, "deleted": True}


@by_name("assistants/versions")
@router.get("/assistants/{assistant_id}/versions", response={200: VersionList, **ERRORS}, summary="List versions")
def list_versions(request: Asker, assistant_id: str) -> Any:
    """The versions of an assistant, the newest first, at most a hundred."""
    person = owner_id(request)
    assistant = assistant_store.load_assistant(assistant_id, user_id=person)
    return {"items": assistant_store.list_versions(assistant, user_id=person)}


@router.post(
    "/assistants/{assistant_id}/files",
    response={201: AssistantOut, 413: ErrorOut, **ERRORS},
    summary="Add a file to an assistant",
    openapi_extra=FILE,
)
def add_assistant_file(request: HttpRequest, assistant_id: str) -> Any:
    """Multipart with ``file``. A new version has it, in place of one of the same name; sessions that have begun keep theirs."""
    owner, file = owner_id(request), _sent_file(request, assistant_id)
    upload = (name_of_upload(file.name or ""), file.chunks())
    return Status(201, defaults.update_assistant(assistant_id, owner_id=owner, uploads=[upload]))


@by_name("assistant_files/remove")
@router.delete(
    "/assistants/{assistant_id}/files/{assistant_file_id}",
    response={200: AssistantOut, **ERRORS},
    summary="Remove a file from an assistant",
)
def delete_assistant_file(request: Asker, assistant_id: str, assistant_file_id: str) -> Any:
    """A new version is without it; sessions that have it keep it."""
    return defaults.update_assistant(assistant_id, owner_id=owner_id(request), removed_files=[assistant_file_id])


@router.get(
    "/assistants/{assistant_id}/files/{assistant_file_id}/content",
    response=ERRORS,
    summary="Read an assistant's file",
    openapi_extra={"responses": {200: CONTENT}},
)
def read_assistant_file(request: HttpRequest, assistant_id: str, assistant_file_id: str) -> Any:
    """All of its bytes, for anyone who may use the assistant, while its newest version has the file."""
    file = load_assistant_file(assistant_id, assistant_file_id, user_id=owner_id(request))
    return download_whole(file)


@router.post(
    "/assistants/{assistant_id}/picture",
    response={201: AssistantOut, 413: ErrorOut, **ERRORS},
    summary="Give an assistant a picture",
    openapi_extra=FILE,
)
def set_assistant_picture(request: HttpRequest, assistant_id: str) -> Any:
    """Multipart with ``file``: a PNG, JPEG, WebP or GIF of 1 MB at most, which is scaled down. A new version has it."""
    owner, file = owner_id(request), _sent_file(request, assistant_id)
    return Status(201, defaults.update_assistant(assistant_id, owner_id=owner, portrait=file.chunks()))


@by_name("assistant_picture/remove")
@router.delete(
    "/assistants/{assistant_id}/picture",
    response={200: AssistantOut, **ERRORS},
    summary="Remove the picture of an assistant",
)
def delete_assistant_picture(request: Asker, assistant_id: str) -> Any:
    """A new version is without it."""
    return defaults.update_assistant(assistant_id, owner_id=owner_id(request), picture="")


@router.get(
    "/assistants/{assistant_id}/picture",
    response=ERRORS,
    summary="Read the picture of an assistant",
    openapi_extra={"responses": {200: PICTURE}},
)
def read_assistant_picture(request: HttpRequest, assistant_id: str) -> Any:
    """Return the picture of the newest version, as a PNG or JPEG of at most 256 pixels a side."""
    assistant = assistant_store.load_assistant(assistant_id, user_id=owner_id(request))
    return shown_alone(*load_portrait(assistant), name="picture")


def _sent_file(request: HttpRequest, assistant_id: str) -> UploadedFile[bytes]:
    """:raises InvalidRequest: there is none.
    :raises AssistantNotFoundError, AssistantNotYours: this person may not change the assistant.
    """
    assistant_store.load_own_assistant(assistant_id, owner_id=owner_id(request))
    file = request.FILES.get("file")
    if file is None:
        raise InvalidRequest("send multipart with file", field="file")
    return file


# Saved prompts at the REST endpoint: texts to begin messages with.


class PromptIn(Schema):
    """A new saved prompt."""

    name: Name
    """The word after ``/`` in the composer: lowercase letters, digits and hyphens, unique among your own."""
    text: PromptText
    """``{{variable}}`` and ``{{variable=default}}`` are asked for in the composer."""
    title: Name = ""
    is_shared: bool = False
    """Whether everyone in your organisation may use it."""


class PromptPatch(Schema):
    """What of a saved prompt is to change."""

    name: Name | None = None
    text: PromptText | None = None
    title: Name | None = None
    is_shared: bool | None = None


class PromptOut(Out):
    """A saved prompt that you may use."""

    id: str
    name: str
    title: Text
    text: Text
    is_shared: bool
    owner_name: Text
    is_owner: bool
    """Whether you are its owner, who alone may change it."""
    created_at: datetime
    updated_at: datetime


class PromptList(Out):
    """A page of saved prompts."""

    items: list[PromptOut]
    next_cursor: str | None


class DeletedPrompt(Out):
    """A saved prompt that is gone."""

    id: str
    deleted: bool


@by_name("prompts/list")
@prompts_router.get(
    "/prompts", response={200: PromptList, **PROMPT_ERRORS}, summary="List saved prompts, the newest first"
)
def list_prompts(
    request: Asker,
    q: Annotated[str, Field(max_length=1_000)] = "",
    limit: Limit = 50,
    cursor: Annotated[str | None, Field(max_length=100)] = None,
) -> dict[str, Any]:
    """Your own and those shared with everyone in your organisation; ``q`` is part of a name or of a title."""
    found = prompt_store.list_prompts(user_id=owner_id(request), query=q, before=cursor, limit=limit + 1)
    return page_of(found, limit, attrgetter("id"))


@by_name("prompts/create")
@prompts_router.post("/prompts", response={201: PromptOut, **PROMPT_ERRORS}, summary="Save a prompt")
def create_prompt(request: Asker, body: PromptIn) -> Any:
    """Without a title, its name is its title."""
    return Status(201, prompt_store.create_prompt(owner_id=owner_id(request), **body.dict()))


@by_name("prompts/read")
@prompts_router.get("/prompts/{prompt_id}", response={200: PromptOut, **PROMPT_ERRORS}, summary="Read a saved prompt")
def read_prompt(request: Asker, prompt_id: str) -> Any:
    """Its text has its variables as they were written: the composer puts values in their place."""
    return prompt_store.load_prompt(prompt_id, user_id=owner_id(request))


@by_name("prompts/update")
@prompts_router.patch(
    "/prompts/{prompt_id}", response={200: PromptOut, **PROMPT_ERRORS}, summary="Change a saved prompt"
)
def update_prompt(request: Asker, prompt_id: str, body: PromptPatch) -> Any:
    """Messages that were sent with it stay as they are."""
    return prompt_store.update_prompt(prompt_id, owner_id=owner_id(request), **body.dict())


@by_name("prompts/delete")
@prompts_router.delete(
    "/prompts/{prompt_id}", response={200: DeletedPrompt, **PROMPT_ERRORS}, summary="Delete a saved prompt"
)
def delete_prompt(request: Asker, prompt_id: str) -> Any:
    """Messages that were sent with it stay."""
    prompt_store.delete_prompt(prompt_id, owner_id=owner_id(request))
    return {"id": prompt_id, "deleted": True}
