"""The only writer of verifications: asked for, claimed under a lease, ended."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from audit_app.models import Verification
from sessions_app.record.lease import Lease, expired

LEASE_SECONDS = 20.0


def ask(session_id: str, *, entries: int) -> bool:
    """Queue a verification of a session; False where one waits or runs already."""
    now = timezone.now()
    fresh = {"state": "queued", "asked_at": now, "entries_done": 0, "entries_total": entries, "lease_expires_at": None}
    with transaction.atomic():
        row, is_new = Verification.objects.get_or_create(session_id=session_id, defaults=fresh)
        return is_new or bool(Verification.objects.filter(_not_live(now), pk=row.pk).update(**fresh))


def claim(*, worker: str, session_id: str | None = None) -> str | None:
    """Claim the verification that has waited longest, or that of this session; returns the session's id.

    ``None`` where none waits, or one runs: there is one at a time on the whole site.
    """
    now = timezone.now()
    Verification.objects.filter(expired(now), state="running").update(state="failed")
    waiting = Verification.objects.filter(state="queued")
    if session_id is not None:
        waiting = waiting.filter(pk=session_id)
    first: str | None = waiting.order_by("asked_at").values_list("session_id", flat=True).first()
    return first if first is not None and _take(first, worker, now) else None


def renew(session_id: str, *, worker: str, done: int) -> None:
    """Renew the lease of a claimed verification, and say how far it is."""
    lease = Lease(owner=worker, seconds=LEASE_SECONDS)
    _held(session_id, worker).update(entries_done=done, lease_expires_at=lease.expires_at(timezone.now()))


def finish(session_id: str, *, worker: str, **found: Any) -> bool:
    """End a claimed verification with what it found; False where it was taken for dead."""
    return bool(_held(session_id, worker).update(state="done", verified_at=timezone.now(), worker="", **found))


def fail(session_id: str, *, worker: str) -> None:
    """End a claimed verification that came to nothing."""
    _held(session_id, worker).update(state="failed", worker="")


def _take(session_id: str, worker: str, now: datetime) -> bool:
    lease = Lease(owner=worker, seconds=LEASE_SECONDS)
    claimed = {"state": "running", "worker": lease.owner, "started_at": now, "entries_done": 0}
    try:
        with transaction.atomic():
            rows = Verification.objects.filter(pk=session_id, state="queued")
            return bool(rows.update(**claimed, lease_expires_at=lease.expires_at(now)))
    except IntegrityError:  # verification_one_runs
        return False


def _held(session_id: str, worker: str) -> Any:
    return Verification.objects.filter(pk=session_id, state="running", worker=worker)


def _not_live(now: datetime) -> Q:
    return Q(state__in=["done", "failed"]) | Q(expired(now), state="running")
