"""The list of everybody's sessions: the newest first, with what each of them took."""

# ruff: noqa: S608 - names in these statements are constants; values are passed as such.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, F, Q, Sum
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from mnesis_core.records import record_of
from sessions_app.database.tables import fetch
from sessions_app.models import ModelCall, Session
from sessions_app.record.observed.conditions import MEASURES, Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSession:
    id: str
    title: str
    person: str
    organisation: str  # its slug
    model: str
    origin: str
    state: str  # of the newest turn; empty without one
    messages: int
    turns: int
    calls: int
    tokens: int
    cost_micros: int
    errors: int  # turns with an error of their own or of a call, and failed calls of no turn
    compactions: int
    created_at: datetime
    updated_at: datetime
    is_archived: bool
    is_temporary: bool


def list_observed(
    observed: Observed, *, before: tuple[datetime, str] | None = None, limit: int, compactions: Combinable
) -> list[ObservedSession]:
    """Return sessions that meet a query, the last active first, after the cursor ``before`` (time and id).

    Four statements for any number of sessions: their ids, themselves, sums of their calls, and their errors.
    """
    rows = observed.rows
    if before is not None:
        rows = rows.filter(Q(updated_at__lt=before[0]) | Q(updated_at=before[0], id__lt=before[1]))
    ids = list(rows.order_by("-updated_at", "-id").values_list("id", flat=True)[:limit])
    return load_observed(ids, compactions=compactions)


def observed_in_pages(observed: Observed, *, size: int, compactions: Combinable) -> Iterator[list[ObservedSession]]:
    """Yield all sessions that meet a query, the newest first, each page in statements of its own.

    By their ids, so that a session that becomes active meanwhile is neither missed nor there twice.
    """
    last = None
    while True:
        rows = observed.rows if last is None else observed.rows.filter(id__lt=last)
        ids = list(rows.order_by("-id").values_list("id", flat=True)[:size])
        if not ids:
            return
        last = ids[-1]
        yield load_observed(ids, compactions=compactions)


def load_observed(ids: Sequence[str], *, compactions: Combinable) -> list[ObservedSession]:
    """Return these sessions in this order."""
    if not ids:
        return []
    found = Session.objects.filter(id__in=ids).annotate(
        person=F("owner__username"),
        slug=F("organisation__slug"),
        state=MEASURES["state"],
        compactions=compactions,
    )
    both = Coalesce(Sum(Coalesce(F("tokens_input"), 0) + Coalesce(F("tokens_output"), 0)), 0)
    made = ModelCall.objects.filter(session__in=ids).order_by().values_list("session_id")
    taken = made.annotate(calls=Count("*"), taken=both, cost=Coalesce(Sum("cost_micros"), 0))
    sums = {id: numbers for id, *numbers in taken}
    places = ", ".join(["%s"] * len(ids))
    # A turn that failed because its call did is one error.
    failed = (
        f"SELECT session_id, id FROM turns WHERE error_code IS NOT NULL AND session_id IN ({places}) UNION"
        " SELECT session_id, COALESCE(turn_id, id) FROM model_calls"
        f" WHERE error_code IS NOT NULL AND session_id IN ({places})"
    )
    counted = fetch(f"SELECT session_id, COUNT(*) FROM ({failed}) AS failed GROUP BY session_id", [*ids, *ids])
    errors: dict[str, int] = dict(counted)
    rows = {row.id: row for row in found.defer("system_prompt", "assistant_instructions", "labels", "config")}
    sessions = []
    for row in [rows[id] for id in ids if id in rows]:
        calls, tokens, cost = sums.get(row.id, (0, 0, 0))
        session = record_of(
            ObservedSession,
            row,
            organisation=row.slug,
            messages=row.message_seq,
            turns=row.turn_seq,
            calls=calls,
            tokens=tokens,
            cost_micros=cost,
            errors=errors.get(row.id, 0),
            is_archived=row.archived_at is not None,
            is_temporary=row.began_temporary and row.kept_at is None,
        )
        sessions.append(session)
    return sessions
