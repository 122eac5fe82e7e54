"""Changes to API keys."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q
from django.utils import timezone

from mnesis_core.errors import InvalidRequest, NotFound
from mnesis_core.keys import SCOPES, KeyText, new_key
from sessions_app.models import ApiKey

TOUCH_EVERY = timedelta(minutes=1)
"""How exact ``last_used_at`` is. Writing it on each request would make every read a write."""


def create_key(*, owner_id: int, scope: str = "all") -> KeyText:
    """Make a key. Its text is returned this once and not kept.

    :raises InvalidRequest: there is no such scope.
    """
    if scope not in SCOPES:
        raise InvalidRequest(f"A key's scope is {' or '.join(SCOPES)}, not {scope!r}", field="scope")
    key = new_key()
    ApiKey.objects.create(prefix=key.prefix, owner_id=owner_id, secret_hash=key.secret_hash, scope=scope)
    return key


def revoke_key(prefix: str) -> None:
    """End a key, from the next request on. Once more does nothing.

    :raises NotFound: no key has this prefix.
    """
    found = ApiKey.objects.filter(prefix=prefix)
    if not found.filter(revoked_at__isnull=True).update(revoked_at=timezone.now()) and not found.exists():
        raise NotFound("No key has this prefix. 'manage.py apikey list' shows the ones there are.", prefix=prefix)


def touch_key(prefix: str) -> None:
    """Note that a key was used, at most once a minute."""
    now = timezone.now()
    stale = Q(last_used_at__isnull=True) | Q(last_used_at__lt=now - TOUCH_EVERY)
    ApiKey.objects.filter(stale, prefix=prefix).update(last_used_at=now)
