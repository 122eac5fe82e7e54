"""Reads of compactions by their place in a session: the newest message when each ended, the event that it pruned with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Count, Q

from compaction_app.models import LIVE, CompactionRun, RunState
from compaction_app.queries import run_records
from mnesis_core.events import EventType
from mnesis_core.lineage import RunRecord
from sessions_app.queries.events import load_events_at

MOST_RUNS = 500
MOST_PLACES = 20_000
"""SQLite allows 32,766 variables in one statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTally:
    """The compactions of a session."""

    total: int
    failed: int
    live: int


def tally_runs(session_id: str) -> RunTally:
    """How many compactions a session had; one query."""
    counts = CompactionRun.objects.filter(session_id=session_id).aggregate(
        total=Count("id"),
        failed=Count("id", filter=Q(state=RunState.FAILED)),
        live=Count("id", filter=Q(state__in=LIVE)),
    )
    return RunTally(**counts)


def compacted_after(session_id: str, *, newest: int) -> list[int]:
    """The newest message when each compaction ended; ``newest`` for one that goes on."""
    rows = CompactionRun.objects.filter(session_id=session_id).order_by("-created_at")
    places = rows.values_list("after_message_seq", flat=True)[:MOST_PLACES]
    return sorted({newest if place is None else place for place in places})


def list_runs_after(session_id: str, first: int, last: int, *, with_live: bool = False) -> list[RunRecord]:
    """Compactions that ended after one of the messages ``first`` to ``last``, in order; two queries.

    Those that go on are the last, where they are wanted.
    """
    ended = Q(after_message_seq__gte=first, after_message_seq__lte=last)
    wanted = ended | Q(state__in=LIVE) if with_live else ended
    rows = CompactionRun.objects.filter(wanted, session_id=session_id)
    return run_records(rows.order_by("created_at", "id")[:MOST_RUNS])


def runs_that_pruned(session_id: str, seqs: Collection[int]) -> dict[int, RunRecord]:
    """The compaction behind each of the events that took tool outputs out of the context, as far as it is known."""
    # A compaction says what it pruned with the event right after (store.prune).
    events = load_events_at(session_id, [seq + 1 for seq in seqs])
    named = {event.seq - 1: event.data.get("run_id") for event in events if event.type == EventType.PRUNE_COMPLETED}
    runs = {run.id: run for run in _runs(session_id, [id for id in named.values() if id])}
    return {seq: runs[id] for seq, id in named.items() if id in runs}


def _runs(session_id: str, ids: Sequence[str]) -> list[RunRecord]:
    return run_records(CompactionRun.objects.filter(session_id=session_id, id__in=ids)) if ids else []
