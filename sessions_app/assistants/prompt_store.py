"""Saved prompts as they are read, each as one of the people who may use them, and their only writer."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone
from django.utils.translation import gettext_noop

from mnesis_core.errors import InvalidRequest, SavedPromptNameTaken, SavedPromptNotFoundError, SavedPromptNotYours
from mnesis_core.records import SavedPromptRecord, new_id, record_of
from mnesis_core.text import checked_name, encode_text
from sessions_app.models import SavedPrompt
from sessions_app.ownership import home_of_user
from sessions_app.record.organisation_store import home_of, ref_of

LONGEST_TEXT = 20_000  # characters; a page of a hundred is two megabytes
MOST_PROMPTS = 1_000  # of one person

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,49}")


def create_prompt(
    *, owner_id: int, name: str, text: str, title: str = "", is_shared: bool = False
) -> SavedPromptRecord:
    """Save a text under a name. Without a title, the name is the title.

    :raises InvalidRequest: the name has other characters, the text is empty, something is too long, or there are too many prompts.
    :raises SavedPromptNameTaken: another prompt of this person has the name.
    """
    values = _checked(name=name, text=text, title=title.strip() or name)
    now, ref = timezone.now(), ref_of(owner_id)
    if SavedPrompt.objects.filter(owner_id=ref).count() >= MOST_PROMPTS:
        raise InvalidRequest(
            gettext_noop("A person may save %(most)s prompts. Delete one first."), {"most": MOST_PROMPTS}
        )
    prompt = SavedPrompt(
        id=new_id("prompt"),
        owner_id=ref,
        organisation_id=home_of(owner_id),
        is_shared=is_shared,
        created_at=now,
        updated_at=now,
        **values,
    )
    try:
        with transaction.atomic():
            prompt.save(force_insert=True)
    except IntegrityError as error:
        raise SavedPromptNameTaken(name=name) from error
    return load_prompt(prompt.id, user_id=owner_id)


def update_prompt(
    prompt_id: str,
    *,
    owner_id: int,
    name: str | None = None,
    text: str | None = None,
    title: str | None = None,
    is_shared: bool | None = None,
) -> SavedPromptRecord:
    """Change what is not ``None``.

    :raises SavedPromptNotFoundError: there is no such prompt, or this person may not use it.
    :raises SavedPromptNotYours: it is shared with this person, who is not its owner.
    :raises InvalidRequest, SavedPromptNameTaken: as ``create_prompt`` does.
    """
    _load_own(prompt_id, owner_id=owner_id)
    values = _checked(name=name, text=text, title=title)
    if is_shared is not None:
        values["is_shared"] = is_shared
    try:
        with transaction.atomic():
            SavedPrompt.objects.filter(pk=prompt_id).update(**values, updated_at=timezone.now())
    except IntegrityError as error:
        raise SavedPromptNameTaken(name=name) from error
    return load_prompt(prompt_id, user_id=owner_id)


def delete_prompt(prompt_id: str, *, owner_id: int) -> None:
    """:raises SavedPromptNotFoundError: there is no such prompt, or this person may not use it.
    :raises SavedPromptNotYours: it is shared with this person, who is not its owner.
    """
    _load_own(prompt_id, owner_id=owner_id)
    SavedPrompt.objects.filter(pk=prompt_id).delete()


def _load_own(prompt_id: str, *, owner_id: int) -> None:
    if not load_prompt(prompt_id, user_id=owner_id).is_owner:
        raise SavedPromptNotYours(prompt_id=prompt_id)


def _checked(**values: str | None) -> dict[str, Any]:
    given = {name: value for name, value in values.items() if value is not None}
    if "name" in given and not _NAME.fullmatch(given["name"]):
        raise InvalidRequest(gettext_noop("A name has up to 50 lowercase letters, digits and hyphens."), field="name")
    if "title" in given:
        given["title"] = checked_name(given["title"], missing=gettext_noop("Give the prompt a title."), field="title")
    if "text" in given and not given["text"].strip():
        raise InvalidRequest(gettext_noop("Give the prompt a text."), field="text")
    if len(given.get("text", "")) > LONGEST_TEXT:
        raise InvalidRequest(
            gettext_noop("A prompt may have %(most)s characters."), {"most": LONGEST_TEXT}, field="text"
        )
    return given


# Reads of saved prompts, each as one of the people who may use them.


def load_prompt(prompt_id: str, *, user_id: int) -> SavedPromptRecord:
    """:raises SavedPromptNotFoundError: there is no such prompt, or this person may not use it."""
    found = _read(_prompts(user_id).filter(pk=prompt_id), user_id=user_id)
    if not found:
        raise SavedPromptNotFoundError(prompt_id=prompt_id)
    return found[0]


def list_prompts(
    *, user_id: int, query: str = "", before: str | None = None, limit: int = 50
) -> list[SavedPromptRecord]:
    """Return a person's prompts and those shared with them, the newest first, after the one whose id is ``before``.

    ``query`` is part of a name or of a title.
    """
    rows = _prompts(user_id)
    if query:
        part = encode_text(query)
        rows = rows.filter(Q(name__icontains=part) | Q(title__icontains=part))
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return _read(rows.order_by("-pk")[:limit], user_id=user_id)


def _prompts(user_id: int) -> QuerySet[SavedPrompt, Any]:
    """Return the prompts that a person may use: their own and shared ones, in the organisation that they are in."""
    return SavedPrompt.objects.filter(
        Q(owner__user_id=user_id) | Q(is_shared=True), organisation_id=home_of_user(user_id)
    )


def _read(rows: QuerySet[SavedPrompt, Any], *, user_id: int) -> list[SavedPromptRecord]:
    accounts = get_user_model().objects.filter(pk=OuterRef("owner__user_id"))
    found: Any = rows.annotate(owner_name=Subquery(accounts.values("username")[:1]), of_user_id=F("owner__user_id"))
    return [
        record_of(SavedPromptRecord, row, owner_name=row.owner_name or "", is_owner=row.of_user_id == user_id)
        for row in found
    ]
