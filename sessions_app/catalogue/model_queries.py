"""Reads of models with who may use them, and of API keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group, User

from mnesis_core.llm.interface import ModelSpec
from mnesis_core.network.keys import KeyRecord
from mnesis_core.text import encode_text
from sessions_app.conf import DEMO, spec_of
from sessions_app.models import ApiKey, LanguageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    spec: ModelSpec
    api_key_env: str = ""
    is_restricted: bool = False
    groups: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """Group and user names that may use a restricted model."""
    last_check: dict[str, Any]
    is_shipped: bool = False
    """Whether it exists without having been entered."""


SHIPPED = ModelEntry(spec=DEMO, last_check={}, is_shipped=True)


def list_model_entries() -> list[ModelEntry]:
    """Return every model, the shipped demo first, in three queries."""
    rows = LanguageModel.objects.order_by("alias").prefetch_related("grants__group", "grants__user")
    entries = [_entry(row) for row in rows]
    return entries if any(entry.spec.alias == DEMO.alias for entry in entries) else [SHIPPED, *entries]


def find_model_entry(alias: str) -> ModelEntry | None:
    row = LanguageModel.objects.filter(alias=alias).first()
    if row is not None:
        return _entry(row)
    return SHIPPED if alias == DEMO.alias else None


def list_groups() -> list[Group]:
    return list(Group.objects.order_by("name"))


def find_users(names: Iterable[str]) -> list[User]:
    """Return the accounts with these names; unknown names are left out."""
    return list(User.objects.filter(username__in=[encode_text(name) for name in names]))


def _entry(row: LanguageModel) -> ModelEntry:
    grants = list(row.grants.all())
    return ModelEntry(
        spec=spec_of(row),
        api_key_env=row.api_key_env,
        is_restricted=row.is_restricted,
        groups=tuple(sorted(grant.group.name for grant in grants if grant.group is not None)),
        users=tuple(sorted(grant.user.get_username() for grant in grants if grant.user is not None)),
        last_check=row.last_check,
    )


# Reads of API keys.


def find_key(prefix: str) -> KeyRecord | None:
    """Return the key with this prefix if its owner's account is active."""
    row = ApiKey.objects.select_related("owner").filter(prefix=prefix, owner__is_active=True).first()
    return _key(row) if row else None


def list_keys() -> list[KeyRecord]:
    return [_key(row) for row in ApiKey.objects.select_related("owner").order_by("-created_at")]


def _key(row: ApiKey) -> KeyRecord:
    return KeyRecord(
        prefix=row.prefix,
        owner_id=row.owner_id,
        owner_name=row.owner.get_username(),
        scope=row.scope,
        secret_hash=row.secret_hash,
        created_at=row.created_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )
