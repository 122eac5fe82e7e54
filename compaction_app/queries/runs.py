"""Reads of compactions, of what they tried and of what that cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime

from django.db.models import Q, QuerySet, Sum

from compaction_app.models import LIVE, CompactionRun, SummaryNode, SummaryTry
from mnesis_core.budget import LastRun
from mnesis_core.errors import CompactionNotFoundError
from mnesis_core.lineage import RunRecord, TryRecord
from mnesis_core.record import UsageRecord
from mnesis_core.text import decode_text, encode_text

_RUN_COLUMNS = [field.name for field in fields(RunRecord) if field.name not in ("tries", "summary_ids")]
_TRY_COLUMNS = [field.name for field in fields(TryRecord)]


def list_runs(session_id: str, *, limit: int = 200) -> list[RunRecord]:
    """Compactions of a session, newest first."""
    return run_records(CompactionRun.objects.filter(session_id=session_id).order_by("-created_at")[:limit])


def run_records(rows: Iterable[CompactionRun]) -> list[RunRecord]:
    """Compactions as values, with what was tried; two queries."""
    found = list(rows)
    tries = _tries([row.id for row in found])
    return [_run(row, tries[row.id]) for row in found]


def list_runs_between(session_id: str, *, first: int, last: int | None, limit: int = 200) -> list[RunRecord]:
    """Compactions that changed something or failed while one of these messages was the newest, and the live one.

    Newest first; ``last`` is ``None`` for up to the newest message.
    """
    # A run that did nothing because there was nothing to do is no event in a conversation.
    happened = Q(state__in=["failed", "superseded"]) | Q(pruned_parts__gt=0) | Q(source_count__gt=0)
    here = Q(after_message_seq__gte=first) if last is None else Q(after_message_seq__range=(first, last))
    rows = CompactionRun.objects.filter(Q(state__in=LIVE) | happened & here, session_id=session_id)
    return run_records(rows.order_by("-created_at")[:limit])


def load_run(run_id: str, *, session_id: str | None = None) -> RunRecord:
    """One compaction.

    :raises CompactionNotFoundError: there is no such compaction there.
    """
    rows = CompactionRun.objects.filter(id=encode_text(run_id))
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    row = rows.first()
    if row is None:
        raise CompactionNotFoundError(run_id=run_id)
    return _run(row, _tries([row.id])[row.id])


def load_drafts(try_ids: Sequence[str], *, session_id: str) -> list[tuple[int, str]]:
    """(level, text) of tries of a session in the order of ``try_ids``; those that are not there are left out."""
    rows = SummaryTry.objects.filter(session_id=session_id, id__in=list(try_ids))
    found = {id: (level, decode_text(text)) for id, level, text in rows.values_list("id", "level", "text")}
    return [found[id] for id in try_ids if id in found]


def usage_of_compaction(*session_ids: str) -> UsageRecord:
    """What the summaries of a session, or of several together, have used so far, rejected tries included; one query."""
    sums = SummaryTry.objects.filter(session_id__in=session_ids).aggregate(
        tokens_input=Sum("tokens_input"), tokens_output=Sum("tokens_output"), cost_micros=Sum("cost_micros")
    )
    return UsageRecord(
        tokens_input=sums["tokens_input"] or 0,
        tokens_output=sums["tokens_output"] or 0,
        cost_micros=sums["cost_micros"] or 0,
    )


def compaction_micros(session_id: str) -> int:
    """What the summaries of a session have cost so far."""
    return usage_of_compaction(session_id).cost_micros or 0


def compaction_micros_of_owner(owner_id: int, *, since: datetime) -> int:
    """What the summaries of one person's sessions have cost since then."""
    rows = SummaryTry.objects.filter(session__owner_id=owner_id, created_at__gte=since)
    return rows.aggregate(total=Sum("cost_micros"))["total"] or 0


def live_run(session_id: str) -> str | None:
    """The id of the compaction that is queued or running."""
    rows = CompactionRun.objects.filter(session_id=session_id, state__in=LIVE)
    return rows.values_list("id", flat=True).first()


def is_free_to_claim(run_id: str, now: datetime, *, session_id: str) -> bool:
    """Whether a compaction waits for a worker, or has lost the one it had."""
    return _free(now).filter(id=encode_text(run_id), session_id=session_id).exists()


def longest_wait(now: datetime) -> float | None:
    """Seconds since the oldest compaction was asked for that no worker is at; ``None`` when there is none."""
    waiting = _free(now).filter(session__deleted_at__isnull=True)
    asked_at = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    return None if asked_at is None else (now - asked_at).total_seconds()


def _free(now: datetime) -> QuerySet[CompactionRun]:
    return CompactionRun.objects.filter(Q(state="queued") | Q(state="running", lease_expires_at__lt=now))


def has_changed(run_id: str) -> bool:
    """Whether a compaction has summarised or pruned anything yet."""
    is_pruned = CompactionRun.objects.filter(id=run_id, pruned_parts__gt=0).exists()
    return is_pruned or SummaryNode.objects.filter(run_id=run_id).exists()


def last_run(session_id: str) -> LastRun | None:
    """The newest compaction that has ended, whatever came of it."""
    rows = CompactionRun.objects.filter(session_id=session_id, ended_at__isnull=False).order_by("-created_at")
    row = rows.values_list("state", "tokens_after", "tokens_before").first()
    if row is None:
        return None
    state, after, before = row
    return LastRun(
        tokens=next((tokens for tokens in (after, before) if tokens is not None), 0), failed=state == "failed"
    )


def stale_runs(now: datetime) -> list[tuple[str, str]]:
    """(session id, id) of compactions that nobody works on: their wake-up was lost, or their worker died."""
    rows = CompactionRun.objects.filter(state__in=LIVE, lease_expires_at__lt=now)
    return list(rows.filter(session__deleted_at__isnull=True).values_list("session_id", "id")[:100])


def _tries(run_ids: Sequence[str]) -> dict[str, list[TryRecord]]:
    tries: dict[str, list[TryRecord]] = defaultdict(list)
    for values in SummaryTry.objects.filter(run_id__in=run_ids).order_by("created_at", "id").values(*_TRY_COLUMNS):
        tries[values["run_id"]].append(TryRecord(**values))
    return tries


def _run(row: CompactionRun, tries: Sequence[TryRecord]) -> RunRecord:
    values = {name: getattr(row, name) for name in _RUN_COLUMNS}
    return RunRecord(**values, tries=tuple(tries), summary_ids=row.summary_ids or [])
