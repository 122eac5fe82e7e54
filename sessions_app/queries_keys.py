"""Reads of API keys."""

from __future__ import annotations

from mnesis_core.keys import KeyRecord
from sessions_app.models import ApiKey


def find_key(prefix: str) -> KeyRecord | None:
    """The key with this prefix, if its owner's account is active."""
    row = ApiKey.objects.select_related("owner").filter(prefix=prefix, owner__is_active=True).first()
    return _key(row) if row else None


def list_keys() -> list[KeyRecord]:
    """Every key, the newest first."""
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
