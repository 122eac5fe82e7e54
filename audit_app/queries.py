"""Reads of verifications, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from audit_app.models import Verification

EVERYTHING = "everything"
"""In the place of a session's id: the verification of the whole database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a verification that came to its end found."""

    at: datetime
    duration_ms: int
    seq: int
    head_hash: str
    entries: int
    commitments: int
    problem_count: int
    problems: Sequence[tuple[int, str, str]]
    """The first of them: seq (0 where no entry tells of it), kind, detail."""
    sessions: Sequence[str]
    """For each of those its session; empty for what concerns the whole database."""
    is_unbound: bool
    is_moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRecord:
    """The verification of a session that waits or runs, and the last one that came to its end."""

    session_id: str
    state: str
    """``queued``, ``running``, ``lost``, ``failed`` or ``done``."""
    asked_at: datetime
    started_at: datetime | None
    entries_total: int
    entries_done: int
    found: Found | None

    @property
    def is_live(self) -> bool:
        return self.state in ("queued", "running")


def find_verification(session_id: str) -> VerificationRecord | None:
    """Return the verification of a session, or ``None`` if none was ever asked for."""
    row = Verification.objects.filter(pk=session_id).first()
    return None if row is None else _record(row)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationCounts:
    """Verifications of single sessions."""

    done: int
    live: int
    with_problems: Sequence[str]
    """The first sessions of which the last one found something."""


def count_verifications() -> VerificationCounts:
    """Count verifications by state in three queries."""
    rows = Verification.objects.exclude(pk=EVERYTHING)
    return VerificationCounts(
        done=rows.filter(verified_at__isnull=False).count(),
        live=rows.filter(state__in=["queued", "running"]).count(),
        with_problems=list(rows.filter(problem_count__gt=0).values_list("session_id", flat=True)[:20]),
    )


def _record(row: Verification) -> VerificationRecord:
    is_lost = row.state == "running" and (row.lease_expires_at is None or row.lease_expires_at < timezone.now())
    return VerificationRecord(
        session_id=row.session_id,
        state="lost" if is_lost else row.state,
        asked_at=row.asked_at,
        started_at=row.started_at,
        entries_total=row.entries_total,
        entries_done=row.entries_done,
        found=None if row.verified_at is None else _found(row, row.verified_at),
    )


def _found(row: Verification, at: datetime) -> Found:
    return Found(
        at=at,
        duration_ms=row.duration_ms,
        seq=row.seq,
        head_hash=row.head_hash,
        entries=row.entries,
        commitments=row.commitments,
        problem_count=row.problem_count,
        problems=[(one["seq"], one["kind"], one["detail"]) for one in row.problems],
        sessions=[one.get("session", "") for one in row.problems],
        is_unbound=row.is_unbound,
        is_moved=row.is_moved,
    )
