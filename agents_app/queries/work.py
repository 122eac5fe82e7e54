"""What workers ask of runs again and again, in as few words as it takes."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from agents_app.models import OperatorBrake, OperatorItem, OperatorRun, OperatorShare
from agents_app.queries.operators import forgotten_runs
from mnesis_core.operators.values import ItemState, RunState, StopReason
from mnesis_core.text import encode_text

_LIVE = [RunState.PENDING.value, RunState.RUNNING.value]


def has_claimable_items(run_id: str) -> bool:
    """Whether any item of a run waits and may be tried now."""
    waiting = OperatorItem.objects.filter(run_id=run_id, state=ItemState.PENDING.value)
    now = timezone.now()
    return waiting.filter(Q(not_before__isnull=True) | Q(not_before__lte=now)).exists()


def run_states(run_ids: Collection[str]) -> dict[str, RunState]:
    """The states of these runs; those of deleted sessions are absent."""
    rows = OperatorRun.objects.filter(id__in=run_ids, session__deleted_at__isnull=True)
    return {run_id: RunState(state) for run_id, state in rows.values_list("id", "state")}


def call_ids_in_flight(run_id: str) -> list[str]:
    """The model calls that run for items of a run."""
    running = OperatorItem.objects.filter(run_id=run_id, state=ItemState.RUNNING.value)
    return list(running.exclude(call_id="").values_list("call_id", flat=True))


def sessions_of_runs(run_ids: Collection[str]) -> dict[str, str]:
    """The ids of these runs' sessions."""
    return dict(OperatorRun.objects.filter(id__in=run_ids).values_list("id", "session_id"))


def has_forsaken_runs() -> bool:
    """Whether there is work that no worker does: for a live run, to take back what a dead worker held of a stopped one,
    or to write what came of that."""
    alive = OperatorShare.objects.filter(run_id=OuterRef("id"), lease_expires_at__gt=timezone.now())
    live = OperatorRun.objects.filter(state__in=_LIVE, session__deleted_at__isnull=True)
    return live.exclude(Exists(alive)).exists() or bool(forgotten_runs()) or bool(runs_without_output())


def runs_without_output() -> list[str]:
    """Runs that were stopped, with something done, nothing in flight and no file that holds it."""
    return list(_due().values_list("id", flat=True)[:100])


def is_output_due(run_id: str) -> bool:
    """Whether a run is one of ``runs_without_output``."""
    return bool(_due().filter(id=run_id).exists())


def _due() -> QuerySet[Any]:
    stopped = Q(state=RunState.CANCELLED.value) | Q(state=RunState.PAUSED.value, reason=StopReason.BUDGET.value)
    done = Q(completed_count__gt=0) | Q(failed_count__gt=0)
    running = OperatorItem.objects.filter(run_id=OuterRef("id"), state=ItemState.RUNNING.value)
    rows = OperatorRun.objects.filter(stopped, done, output_file_id="", session__deleted_at__isnull=True)
    return rows.exclude(Exists(running))


def braked_until(aliases: Collection[str]) -> dict[str, datetime]:
    """Until when these models may not be asked; the others may."""
    by_name = {encode_text(alias): alias for alias in aliases}
    rows = OperatorBrake.objects.filter(model__in=list(by_name), until__gt=timezone.now())
    return {by_name[row.model]: row.until for row in rows if row.until is not None}
