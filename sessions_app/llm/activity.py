"""What people do here, for the staff who look after their accounts: asked for many at once, in one query of each kind."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Max, Q

from sessions_app.models import ApiKey, Session
from sessions_app.ownership import HOME_OF_OWNER


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    sessions: int = 0  # in the organisation that the person is in, without those that turns launched
    seen_at: datetime | None = None  # when a session of theirs changed last, or a key of theirs was used


def activity_of(owner_ids: Collection[int]) -> dict[int, Activity]:
    """Return by account what these people did; one that did nothing is not in it."""
    own = Session.objects.filter(owner_id__in=owner_ids, organisation_id=HOME_OF_OWNER, deleted_at__isnull=True)
    sessions = own.values("owner_id").annotate(count=Count("pk", filter=Q(parent_part_id="")), last=Max("updated_at"))
    found = {row["owner_id"]: Activity(sessions=row["count"], seen_at=row["last"]) for row in sessions.order_by()}
    used = ApiKey.objects.filter(owner_id__in=owner_ids, last_used_at__isnull=False)
    for owner_id, at in used.values_list("owner_id").annotate(Max("last_used_at")).order_by():
        known = found.get(owner_id, Activity())
        found[owner_id] = Activity(sessions=known.sessions, seen_at=max(filter(None, (known.seen_at, at))))
    return found
