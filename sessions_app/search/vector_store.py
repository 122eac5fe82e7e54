"""Vectors of messages, which a worker makes, and their only writer. Nothing of it belongs to the record."""

# ruff: noqa: S608 - names in these statements are constants; values are passed.

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Max, Q, QuerySet
from django.utils import timezone
from django_q.models import OrmQ
from django_q.tasks import async_task

from mnesis_core.errors import (
    BudgetExhausted,
    ModelError,
    ModelNotFoundError,
    ModelRefusedRequest,
    ModelReplyIncomplete,
)
from mnesis_core.llm.interface import ModelSpec, Outcome, Reply, Usage, cost_micros
from mnesis_core.llm.retrying import patience_of, pause_before_retry
from mnesis_core.llm.search_models import Embedded, Embedder
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import TextPart
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.search.ranking import signs_of
from mnesis_core.search.words import readable
from mnesis_core.text import decode_text
from sessions_app.conf import embedding_spec, get_embedder, site_config
from sessions_app.database.outages import log_outage
from sessions_app.database.tables import fetch
from sessions_app.database.threads import give_back, waiting_for
from sessions_app.models import SearchEntry, SearchVector, Session, VectorMark, VectorNumbers
from sessions_app.search.rest import drawing

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
logger = logging.getLogger(__name__)
TASK = "sessions_app.tasks.fill_vectors"
TASK_SECONDS = 600
SLICE_SECONDS = 60.0
"""The time after which a worker begins no other batch, so that other tasks get their turn."""
TEXTS, CHARACTERS = 64, 6_000
"""The most texts of one call, and the most characters of a text: many models take no more than 8,000 tokens."""
HARMLESS = "Hello."
"""A text that every model reads: one that refuses it refuses every other."""
CALL_SECONDS = 60.0
AGAIN_SECONDS = 60.0
"""The time after which a worker looks again although nothing was said, since the model may have been away."""
LOOK_AT = 200


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


# Vectors of messages: a worker makes what is missing, session by session, the last active one first.
#
# A vector is of a text part, or of the beginning of a long one. Vectors are an index, made again from the record at
# any time, so no call for them is in the ledger of a session: what the model read and cost is summed up with the marks
# (``vector_store``). Whatever goes wrong is logged and tried again later, and a search does without the vectors.


def text_of(content: str) -> str:
    """Return a stored text as a model gets it; empty if it has nothing to read."""
    return readable(decode_text(content)).replace("\x00", " ").strip()


def longest_text(spec: ModelSpec) -> int:
    """Return how many characters of a text a model is given; a token has seldom fewer than three."""
    return max(1, min(CHARACTERS, 3 * spec.context_window))


async def embed(embedder: Embedder, texts: Sequence[str], *, seconds: float) -> Embedded:
    """:raises ModelError: there is not a vector for each text."""
    try:
        return await embedder.embed(texts, seconds=seconds)
    finally:
        await close_connections()


def fill(*, seconds: float = SLICE_SECONDS, progress: Callable[[int], None] = lambda done: None) -> bool:
    """Make vectors that are missing; return whether some are left that may be made now.

    :raises ModelError: the model cannot be asked.
    :raises ModelNotFoundError: there is no such model.
    """
    forget_deleted()
    spec = embedding_spec()
    if spec is None:
        return False
    embedder = get_embedder(spec)
    deadline, done = time.monotonic() + seconds, 0
    waiting: set[int] = set()  # for a limit of theirs
    for session_id, owner_id in sessions_behind(spec.litellm_model):
        if owner_id in waiting:
            continue
        try:
            for count in _fill_session(embedder, session_id, owner_id):
                done += count
                progress(done)
                if time.monotonic() > deadline:
                    return True
        except BudgetExhausted as error:
            waiting.add(owner_id)
            log_outage(logger, f"The messages of account {owner_id} get no vectors for now; words alone do", error)
    return False


def _fill_session(embedder: Embedder, session_id: str, owner_id: int) -> Iterator[int]:
    """Yield after each batch how many texts it had.

    :raises BudgetExhausted: a limit of the owner's is used up.
    """
    model = embedder.spec.litellm_model
    after = claim(session_id, model)
    if after is None:
        return
    try:
        until, characters = newest_entry(session_id), longest_text(embedder.spec)
        while batch := next_texts(session_id, model, after=after, until=until, characters=characters, limit=TEXTS):
            _embed_batch(embedder, session_id, batch, owner_id)
            after = batch[-1].entry_id
            advance(session_id, after)
            yield len(batch)
        advance(session_id, until)
    finally:
        release(session_id)


def _embed_batch(embedder: Embedder, session_id: str, batch: Sequence[Unread], owner_id: int) -> None:
    texts = [(row.part_id, text) for row in batch if (text := text_of(row.content))]
    made: list[tuple[str, bytes]] = []
    usages: list[Usage] = []
    waiting = [texts] if texts else []
    while waiting:
        some = waiting.pop()
        try:
            embedded = _embed_within_limits(embedder, [text for _, text in some], owner_id)
        except BudgetExhausted:
            if len(some) == 1:
                # What was paid for is kept, and the rest is left to a day with room for it.
                keep(session_id, embedder.spec, made, usages, skipped=0)
                raise
            waiting += [some[: len(some) // 2], some[len(some) // 2 :]]
            continue
        except (ModelRefusedRequest, ModelReplyIncomplete) as error:
            if some is texts:
                usages.append(
                    _embed_within_limits(embedder, [HARMLESS], owner_id).usage
                )  # Else it is not the texts' fault.
            # One text spoils the answer for all of them.
            if len(some) > 1:
                waiting += [some[: len(some) // 2], some[len(some) // 2 :]]
            else:
                log_outage(logger, f"{embedder.spec.alias} makes no vector of a text, which is left out", error)
            continue
        made += zip((id for id, _ in some), embedded.vectors, strict=True)
        usages.append(embedded.usage)
    keep(session_id, embedder.spec, made, usages, skipped=len(batch) - len(made))


def _embed_within_limits(embedder: Embedder, texts: Sequence[str], owner_id: int) -> Embedded:
    with drawing(owner_id, embedder.spec, tokens=sum(map(estimate_text, texts))) as tell:
        embedded = _embed_patiently(embedder, texts)
        tell(embedded.usage.total_tokens)
    return embedded


def _embed_patiently(embedder: Embedder, texts: Sequence[str]) -> Embedded:
    """Ask the model, and again where that may help, as every other model is asked.

    :raises ModelError: there is not a vector for each text.
    """
    patience, attempts, deadline = patience_of(site_config().turn), 1, time.monotonic() + CALL_SECONDS
    while True:
        try:
            return waiting_for(embed, own_loop=True)(embedder, texts, seconds=deadline - time.monotonic())
        except ModelError as error:
            nothing = Usage(input_tokens=0, output_tokens=0)
            pause = pause_before_retry(
                Reply(text="", usage=nothing, outcome=Outcome.FAILED, error=error),
                patience,
                attempts=attempts,
                seconds_left=deadline - time.monotonic(),
                now=datetime.now(UTC),
                chance=random.random(),  # noqa: S311 - a pause is no secret
            )
            if pause is None:
                raise
        attempts += 1
        give_back()
        time.sleep(pause)


def fill_or_log() -> bool:
    """Make vectors that are missing, and log what stands in the way; return whether some are left."""
    try:
        return fill()
    except (ModelError, ModelNotFoundError) as error:
        log_outage(logger, "Messages get no vectors for the search; words alone answer for them", error)
        return False


class Waker:
    """Queues the worker's task when there may be something to do, without asking much of the database."""

    def __init__(self) -> None:
        self._seen = -1
        self._at = 0.0

    def wake(self) -> bool:
        """Queue the task if anything was indexed since it was last queued from here, and it does not wait already."""
        if not site_config().search.embedding_model:
            return False
        newest = SearchEntry.objects.aggregate(newest=Max("id"))["newest"] or 0
        now = time.monotonic()
        if (newest == self._seen and now - self._at < AGAIN_SECONDS) or is_queued():
            return False
        self._seen, self._at = newest, now
        async_task(TASK, timeout=TASK_SECONDS)
        return True


def is_queued() -> bool:
    rows = OrmQ.objects.filter(lock__lte=timezone.now()).order_by("id")
    return any(row.func() == TASK for row in rows[:LOOK_AT])


waker = Waker()
