"""Reranking: where the site has a reranker, it reads the best messages that a search found beside the question."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.reranking import Reranker
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.providers.litellm_ import close_connections
from sessions_app.conf import get_reranker, rerank_spec, site_config
from sessions_app.database.threads import waiting_for
from sessions_app.search.rest import Rest, drawing

READ = 50
"""The number of messages that the model reads, the best by the other rules."""
CHARACTERS = 1_500
"""The most characters of each that it reads: many rerankers take no more than 512 tokens."""
REST = Rest("The reranker of the search does not answer; the search does without it")


def read_beside(question: str, texts: Sequence[str], *, owner_id: int) -> tuple[float, ...] | None:
    """Return a score for each text; ``None`` where there is no model, or it fails, which is logged.

    :raises BudgetExhausted: a limit of the person who asks is used up.
    """
    if not texts or not site_config().search.rerank_model:
        return None
    return REST.ask(partial(_scores, question, tuple(texts), owner_id))


def _scores(question: str, texts: tuple[str, ...], owner_id: int) -> tuple[float, ...] | None:
    spec = rerank_spec()
    return _scores_of(spec, question, texts, owner_id) if spec else None


@lru_cache(maxsize=64)
def _scores_of(spec: ModelSpec, question: str, texts: tuple[str, ...], owner_id: int) -> tuple[float, ...]:
    # Kept, because every page of an answer asks again, and must be ranked like the one before.
    # Rerankers seldom say what they read, so our estimate counts: the question once more with each text.
    tokens = len(texts) * estimate_text(question) + sum(map(estimate_text, texts))
    with drawing(owner_id, spec, tokens=tokens) as tell:
        scores = waiting_for(_rerank, own_loop=True)(get_reranker(spec), question, texts)
        tell(tokens)
    return scores


async def _rerank(reranker: Reranker, question: str, texts: Sequence[str]) -> tuple[float, ...]:
    try:
        return await reranker.rerank(question, texts, seconds=site_config().search.question_seconds)
    finally:
        await close_connections()
