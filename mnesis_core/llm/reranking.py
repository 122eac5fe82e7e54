"""The one interface to a reranker (a cross-encoder): a question and texts go in, a score for each text comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Protocol

from mnesis_core.errors import ModelReplyIncomplete
from mnesis_core.llm.interface import ModelSpec


class Reranker(Protocol):
    spec: ModelSpec

    async def rerank(self, question: str, texts: Sequence[str], *, seconds: float) -> tuple[float, ...]:
        """Return a score for each text, in order; a higher one answers better, on a scale of the model's own.

        :param texts: none is empty
        :param seconds: how long it may take
        :raises ModelError: there is not a score for each text, whatever the provider did.
        """
        ...


def checked_scores(found: Sequence[Any], spec: ModelSpec, *, count: int) -> tuple[float, ...]:
    """Return the scores of ``count`` texts from results with ``index`` and ``relevance_score``, in any order.

    :raises ModelReplyIncomplete: they are not that.
    """
    scores = {item.get("index"): item.get("relevance_score") for item in found if isinstance(item, Mapping)}
    ordered = [scores.get(at) for at in range(count)]
    if len(found) != count or not all(_is_score(score) for score in ordered):
        raise ModelReplyIncomplete(f"The model gave no score for each of {count:,} texts.", model=spec.alias)
    return tuple(float(score) for score in ordered if score is not None)


def _is_score(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
