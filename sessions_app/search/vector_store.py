"""The only writer of vectors of messages, and of how far they are in each session. Nothing of it belongs to the record."""

# ruff: noqa: S608 - names in these statements are constants; values are passed.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from mnesis_core.llm.interface import ModelSpec, Usage, cost_micros
from mnesis_core.messages import TextPart
from mnesis_core.search.meaning import signs_of
from sessions_app.database.tables import fetch
from sessions_app.models import SearchVector, Session, VectorMark, VectorNumbers

BUSY = timedelta(seconds=180)
"""How long a session is left to the worker that fills it, from each of its batches: longer than one takes."""

_PENDING = """
    SELECT s.id, s.owner_id FROM sessions s LEFT JOIN search_vector_marks k ON k.session_id = s.id AND k.model = %s
    WHERE s.deleted_at IS NULL AND EXISTS (
        SELECT 1 FROM search_entries e WHERE e.session_id = s.id AND e.id > COALESCE(k.entry_id, 0)
    ) ORDER BY s.updated_at DESC, s.id DESC"""
_NEWEST = "SELECT COALESCE(MAX(id), 0) FROM search_entries WHERE session_id = %s"
_NEXT = f"""
    SELECT e.id, e.source_id, substr(p.content, 1, %s) FROM search_entries e JOIN message_parts p ON p.id = e.source_id
    WHERE e.session_id = %s AND e.id > %s AND e.id <= %s AND e.kind = 'messages' AND e.start = 0
    AND p.part_type = '{TextPart.type}'
    AND NOT EXISTS (SELECT 1 FROM search_vectors v WHERE v.part_id = e.source_id AND v.model = %s)
    ORDER BY e.id LIMIT %s"""


class Unread(NamedTuple):
    """A text without a vector."""

    entry_id: int
    part_id: str
    content: str
    """The beginning of the stored text, undecoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    vectors: int
    sessions_behind: int
    tokens: int
    cost_micros: int
    skipped: int


def sessions_behind(model: str, *, most: int = 2**31) -> list[tuple[str, int]]:
    """Return the sessions with texts that no worker has looked at for this model, and their owners, the last active first."""
    return [(id, owner_id) for id, owner_id in fetch(f"{_PENDING} LIMIT %s", [model, most])]


def claim(session_id: str, model: str) -> int | None:
    """Keep other workers from a session; return the entry up to which it is done, or ``None`` while one fills it."""
    now = timezone.now()
    VectorMark.objects.bulk_create([VectorMark(session_id=session_id, model=model)], ignore_conflicts=True)
    free = VectorMark.objects.filter(Q(busy_until=None) | Q(busy_until__lte=now), session_id=session_id)
    if not free.update(busy_until=now + BUSY):
        return None
    nothing = {"model": model, "entry_id": 0, "tokens": 0, "cost_micros": 0, "skipped": 0}
    VectorMark.objects.filter(session_id=session_id).exclude(model=model).update(**nothing)
    return VectorMark.objects.get(session_id=session_id).entry_id


def release(session_id: str) -> None:
    VectorMark.objects.filter(session_id=session_id).update(busy_until=None)


def newest_entry(session_id: str) -> int:
    """Return the newest entry of a session. What is written later has a higher id, since a session has one writer."""
    [(newest,)] = fetch(_NEWEST, [session_id])
    return int(newest)


def next_texts(session_id: str, model: str, *, after: int, until: int, characters: int, limit: int) -> list[Unread]:
    rows = fetch(_NEXT, [characters, session_id, after, until, model, limit])
    return [Unread._make(row) for row in rows]


def keep(
    session_id: str, spec: ModelSpec, vectors: Iterable[tuple[str, bytes]], usages: Sequence[Usage], *, skipped: int
) -> None:
    """Write the vectors of parts and what they cost."""
    made = list(vectors)
    model = spec.litellm_model
    rows = [SearchVector(part_id=id, session_id=session_id, model=model, signs=signs_of(vector)) for id, vector in made]
    numbers = [VectorNumbers(part_id=id, numbers=vector) for id, vector in made]
    with transaction.atomic():
        SearchVector.objects.bulk_create(rows, **_replacing("session_id", "model", "signs"))
        VectorNumbers.objects.bulk_create(numbers, **_replacing("numbers"))
        VectorMark.objects.filter(session_id=session_id).update(
            busy_until=timezone.now() + BUSY,
            tokens=F("tokens") + sum(usage.total_tokens for usage in usages),
            cost_micros=F("cost_micros") + sum(cost_micros(spec, usage) or 0 for usage in usages),
            skipped=F("skipped") + skipped,
        )


def advance(session_id: str, entry_id: int) -> None:
    VectorMark.objects.filter(session_id=session_id).update(entry_id=entry_id, busy_until=timezone.now() + BUSY)


def _replacing(*columns: str) -> dict[str, Any]:
    return {"update_conflicts": True, "unique_fields": ["part_id"], "update_fields": columns}


def forget_deleted() -> None:
    """Remove the vectors of deleted sessions."""
    deleted = Session.objects.exclude(deleted_at=None).values("id")
    marks = VectorMark.objects.filter(session_id__in=deleted)
    _forget(SearchVector.objects.filter(session_id__in=marks.values("session_id")), marks)


def forget_all() -> None:
    _forget(SearchVector.objects.all(), VectorMark.objects.all())


def _forget(vectors: QuerySet[SearchVector], marks: QuerySet[VectorMark]) -> None:
    with transaction.atomic():
        VectorNumbers.objects.filter(part_id__in=vectors.values("part_id")).delete()
        vectors.delete()
        marks.delete()


def coverage(model: str) -> Coverage:
    """Return how far the vectors of a model are, over all sessions."""
    [(tokens, cost, skipped)] = fetch(
        "SELECT COALESCE(SUM(tokens), 0), COALESCE(SUM(cost_micros), 0), COALESCE(SUM(skipped), 0)"
        " FROM search_vector_marks WHERE model = %s",
        [model],
    )
    return Coverage(
        vectors=SearchVector.objects.filter(model=model).count(),
        sessions_behind=len(sessions_behind(model)),
        tokens=int(tokens),
        cost_micros=int(cost),
        skipped=int(skipped),
    )
