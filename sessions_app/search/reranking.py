"""Reranking: where the site has a reranker, it reads the best messages that a search found beside the question."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.reranking import Reranker
from mnesis_core.providers.litellm_ import close_connections
from sessions_app.conf import get_reranker, rerank_spec, site_config
from sessions_app.database.threads import waiting_for
from sessions_app.search.rest import Rest

READ = 50
"""The number of messages that the model reads, the best by the other rules."""
CHARACTERS = 1_500
"""The most characters of each that it reads: many rerankers take no more than 512 tokens."""
REST = Rest("The reranker of the search does not answer; the search does without it")


def read_beside(question: str, texts: Sequence[str]) -> tuple[float, ...] | None:
    """Return a score for each text; ``None`` where there is no model, or it fails, which is logged."""
    if not texts or not site_config().search.rerank_model:
        return None
    return REST.ask(partial(_scores, question, tuple(texts)))


def _scores(question: str, texts: tuple[str, ...]) -> tuple[float, ...] | None:
    spec = rerank_spec()
    return _scores_of(spec, question, texts) if spec else None


@lru_cache(maxsize=64)
def _scores_of(spec: ModelSpec, question: str, texts: tuple[str, ...]) -> tuple[float, ...]:
    # Kept, because every page of an answer asks again, and must be ranked like the one before.
    return waiting_for(_rerank, own_loop=True)(get_reranker(spec), question, texts)


async def _rerank(reranker: Reranker, question: str, texts: Sequence[str]) -> tuple[float, ...]:
    try:
        return await reranker.rerank(question, texts, seconds=site_config().search.question_seconds)
    finally:
        await close_connections()
