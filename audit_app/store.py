"""The rows of verifications: read as values; asked for, claimed under a lease and ended here only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from audit_app.models import Verification
from mnesis_core.records import record_of
from sessions_app.record.lease import Lease, expired

EVERYTHING = "everything"  # in the place of a session's id: the verification of the whole database
LEASE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    at: datetime
    duration_ms: int
    seq: int
    head_hash: str
    entries: int
    commitments: int
    problem_count: int
    problems: Sequence[tuple[int, str, str]]  # the first of them: seq (0 where no entry tells of it), kind, detail
    sessions: Sequence[str]  # for each of those its session; empty for what concerns the whole database
    is_unbound: bool
    is_moved: bool
    first_form_entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRecord:
    """The verification of a session that waits or runs, and the last one that came to its end."""

    session_id: str
    state: str  # queued, running, lost, failed or done
    asked_at: datetime
    started_at: datetime | None
    entries_total: int
    entries_done: int
    found: Found | None

    @property
    def is_live(self) -> bool:
        return self.state in ("queued", "running")


def find_verification(session_id: str) -> VerificationRecord | None:
    row = Verification.objects.filter(pk=session_id).first()
    if row is None:
        return None
    found = None
    if row.verified_at is not None:
        problems = [(one["seq"], one["kind"], one["detail"]) for one in row.problems]
        sessions = [one.get("session", "") for one in row.problems]
        found = record_of(Found, row, at=row.verified_at, problems=problems, sessions=sessions)
    is_lost = row.state == "running" and (row.lease_expires_at is None or row.lease_expires_at < timezone.now())
    return record_of(VerificationRecord, row, state="lost" if is_lost else row.state, found=found)


def count_verifications() -> tuple[int, int, list[str]]:
    """Return how many sessions were verified and how many wait or run, and the first that had problems; three queries."""
    rows = Verification.objects.exclude(pk=EVERYTHING)
    return (
        rows.filter(verified_at__isnull=False).count(),
        rows.filter(state__in=["queued", "running"]).count(),
        list(rows.filter(problem_count__gt=0).values_list("session_id", flat=True)[:20]),
    )


def ask(session_id: str, *, entries: int) -> bool:
    """Queue a verification of a session; return False if one waits or runs already."""
    now = timezone.now()
    fresh = {"state": "queued", "asked_at": now, "entries_done": 0, "entries_total": entries, "lease_expires_at": None}
    is_over = Q(state__in=["done", "failed"]) | Q(expired(now), state="running")
    with transaction.atomic():
        row, is_new = Verification.objects.get_or_create(session_id=session_id, defaults=fresh)
        return is_new or bool(Verification.objects.filter(is_over, pk=row.pk).update(**fresh))


def claim(*, worker: str, session_id: str | None = None) -> str | None:
    """Claim the verification that has waited longest, or that of this session, and return the session's id.

    ``None`` if none waits, or one runs: there is one at a time on the whole site.
    """
    now = timezone.now()
    Verification.objects.filter(expired(now), state="running").update(state="failed")
    waiting = Verification.objects.filter(state="queued")
    if session_id is not None:
        waiting = waiting.filter(pk=session_id)
    first: str | None = waiting.order_by("asked_at").values_list("session_id", flat=True).first()
    if first is None:
        return None
    lease = Lease(owner=worker, seconds=LEASE_SECONDS)
    claimed = {"state": "running", "worker": lease.owner, "started_at": now, "entries_done": 0}
    try:
        with transaction.atomic():
            rows = Verification.objects.filter(pk=first, state="queued")
            return first if rows.update(**claimed, lease_expires_at=lease.expires_at(now)) else None
    except IntegrityError:  # verification_one_runs
        return None


def renew(session_id: str, *, worker: str, done: int) -> None:
    lease = Lease(owner=worker, seconds=LEASE_SECONDS)
    _held(session_id, worker).update(entries_done=done, lease_expires_at=lease.expires_at(timezone.now()))


def finish(session_id: str, *, worker: str, **found: Any) -> bool:
    """End a claimed verification with what it found; return False if its lease was lost meanwhile."""
    return bool(_held(session_id, worker).update(state="done", verified_at=timezone.now(), worker="", **found))


def fail(session_id: str, *, worker: str) -> None:
    _held(session_id, worker).update(state="failed", worker="")


def _held(session_id: str, worker: str) -> Any:
    return Verification.objects.filter(pk=session_id, state="running", worker=worker)
