"""The one interface to the models of a search: an embedding model and a reranker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Protocol

from mnesis_core.errors import ModelReplyIncomplete, gettext_noop, reason_of
from mnesis_core.llm.interface import ModelSpec, Usage
from mnesis_core.search.ranking import packed
from mnesis_core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    vectors: tuple[bytes, ...]
    """The vectors of the texts, in order (``mnesis_core.search.ranking.packed``)."""
    usage: Usage


class Embedder(Protocol):
    spec: ModelSpec

    async def embed(self, texts: Sequence[str], *, seconds: float) -> Embedded:
        """:param texts: none is empty
        :param seconds: how long it may take
        :raises ModelError: there is not a vector for each text, whatever the provider did.
        """
        ...


def checked_vectors(found: Sequence[Any], spec: ModelSpec, *, count: int) -> tuple[bytes, ...]:
    """Return what a model gave for ``count`` texts as vectors of one length.

    :raises ModelReplyIncomplete: it is not that.
    """
    if len(found) != count:
        raise ModelReplyIncomplete(
            gettext_noop("The model gave %(given)s vectors for %(count)s texts."),
            {"given": len(found), "count": count},
            model=spec.alias,
        )
    try:
        vectors = tuple(packed(numbers) for numbers in found)
    except (TypeError, ValueError) as error:
        raise ModelReplyIncomplete(
            gettext_noop("What the model gave is no vector: %(reason)s."),
            {"reason": reason_of(error)},
            model=spec.alias,
        ) from error
    if len({len(vector) for vector in vectors}) > 1:
        raise ModelReplyIncomplete(gettext_noop("The model gave vectors of different lengths."), model=spec.alias)
    return vectors


# The one interface to a reranker (a cross-encoder): a question and texts go in, a score for each text comes out.


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
        raise ModelReplyIncomplete(
            gettext_noop("The model gave no score for each of %(count)s texts."), {"count": count}, model=spec.alias
        )
    return tuple(map(float, known))
