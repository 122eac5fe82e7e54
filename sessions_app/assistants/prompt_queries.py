"""Reads of saved prompts, each as one of the people who may use them."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from mnesis_core.errors import SavedPromptNotFoundError
from mnesis_core.records import SavedPromptRecord, record_of
from mnesis_core.text import encode_text
from sessions_app.models import SavedPrompt
from sessions_app.ownership import home_of_user


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
