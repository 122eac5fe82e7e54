"""Saved prompts at the REST endpoint: texts to begin messages with."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from ninja import Field, Router, Schema, Status

from sessions_app.assistants import prompt_queries, prompt_store
from sessions_app.callers import Asker, owner_id
from sessions_app.operations import by_name
from sessions_app.schemas import ErrorOut, Limit, Out, Text, page_of

router = Router(tags=["prompts"])
ERRORS = dict.fromkeys((400, 401, 403, 404, 409, 422, 429), ErrorOut)
Name = Annotated[str, Field(max_length=1_000)]  # longer than names may be, so that the error says how long
PromptText = Annotated[str, Field(max_length=2 * prompt_store.LONGEST_TEXT)]


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
@router.get("/prompts", response={200: PromptList, **ERRORS}, summary="List saved prompts, the newest first")
def list_prompts(
    request: Asker,
    q: Annotated[str, Field(max_length=1_000)] = "",
    limit: Limit = 50,
    cursor: Annotated[str | None, Field(max_length=100)] = None,
) -> dict[str, Any]:
    """Your own and those shared with everyone in your organisation; ``q`` is part of a name or of a title."""
    found = prompt_queries.list_prompts(user_id=owner_id(request), query=q, before=cursor, limit=limit + 1)
    return page_of(found, limit, attrgetter("id"))


@by_name("prompts/create")
@router.post("/prompts", response={201: PromptOut, **ERRORS}, summary="Save a prompt")
def create_prompt(request: Asker, body: PromptIn) -> Any:
    """Without a title, its name is its title."""
    return Status(201, prompt_store.create_prompt(owner_id=owner_id(request), **body.dict()))


@by_name("prompts/read")
@router.get("/prompts/{prompt_id}", response={200: PromptOut, **ERRORS}, summary="Read a saved prompt")
def read_prompt(request: Asker, prompt_id: str) -> Any:
    """Its text has its variables as they were written: the composer puts values in their place."""
    return prompt_queries.load_prompt(prompt_id, user_id=owner_id(request))


@by_name("prompts/update")
@router.patch("/prompts/{prompt_id}", response={200: PromptOut, **ERRORS}, summary="Change a saved prompt")
def update_prompt(request: Asker, prompt_id: str, body: PromptPatch) -> Any:
    """Messages that were sent with it stay as they are."""
    return prompt_store.update_prompt(prompt_id, owner_id=owner_id(request), **body.dict())


@by_name("prompts/delete")
@router.delete("/prompts/{prompt_id}", response={200: DeletedPrompt, **ERRORS}, summary="Delete a saved prompt")
def delete_prompt(request: Asker, prompt_id: str) -> Any:
    """Messages that were sent with it stay."""
    prompt_store.delete_prompt(prompt_id, owner_id=owner_id(request))
    return {"id": prompt_id, "deleted": True}
