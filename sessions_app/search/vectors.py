"""Vectors of messages: a worker makes what is missing, session by session, the last active one first.

A vector is of a text part, or of the beginning of a long one. Vectors are an index, made again from the record at any time,
so no call for them is in the ledger of a session: what the model read and cost is summed up with the marks
(``vector_store``). Whatever goes wrong is logged and tried again later, and a search does without the vectors.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from django.db.models import Max
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
from mnesis_core.llm.embeddings import Embedded, Embedder
from mnesis_core.llm.interface import ModelSpec, Outcome, Reply, Usage
from mnesis_core.llm.retrying import patience_of, pause_before_retry
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.search.words import readable
from mnesis_core.text import decode_text
from sessions_app.conf import embedding_spec, get_embedder, site_config
from sessions_app.database.outages import log_outage
from sessions_app.database.threads import give_back, waiting_for
from sessions_app.models import SearchEntry
from sessions_app.search import vector_store
from sessions_app.search.rest import drawing
from sessions_app.search.vector_store import Unread

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
    vector_store.forget_deleted()
    spec = embedding_spec()
    if spec is None:
        return False
    embedder = get_embedder(spec)
    deadline, done = time.monotonic() + seconds, 0
    waiting: set[int] = set()  # for a limit of theirs
    for session_id, owner_id in vector_store.sessions_behind(spec.litellm_model):
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
    after = vector_store.claim(session_id, model)
    if after is None:
        return
    try:
        until, characters = vector_store.newest_entry(session_id), longest_text(embedder.spec)
        while batch := vector_store.next_texts(
            session_id, model, after=after, until=until, characters=characters, limit=TEXTS
        ):
            _embed_batch(embedder, session_id, batch, owner_id)
            after = batch[-1].entry_id
            vector_store.advance(session_id, after)
            yield len(batch)
        vector_store.advance(session_id, until)
    finally:
        vector_store.release(session_id)


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
                vector_store.keep(session_id, embedder.spec, made, usages, skipped=0)
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
    vector_store.keep(session_id, embedder.spec, made, usages, skipped=len(batch) - len(made))


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
