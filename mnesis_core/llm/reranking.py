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
    known = [one for one in ordered if isinstance(one, int | float) and not isinstance(one, bool) and isfinite(one)]
    if not len(found) == len(known) == count:
        raise ModelReplyIncomplete(f"The model gave no score for each of {count:,} texts.", model=spec.alias)
    return tuple(map(float, known))
