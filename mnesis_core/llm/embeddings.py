"""The one interface to an embedding model: texts go in, a vector for each comes out, or an error of ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from mnesis_core.errors import ModelReplyIncomplete
from mnesis_core.llm.interface import ModelSpec, Usage
from mnesis_core.search.meaning import packed
from mnesis_core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    vectors: tuple[bytes, ...]
    """The vectors of the texts, in order (``mnesis_core.search.meaning.packed``)."""
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
        raise ModelReplyIncomplete(f"The model gave {len(found):,} vectors for {count:,} texts.", model=spec.alias)
    try:
        vectors = tuple(packed(numbers) for numbers in found)
    except (TypeError, ValueError) as error:
        raise ModelReplyIncomplete(f"What the model gave is no vector: {error}.", model=spec.alias) from error
    if len({len(vector) for vector in vectors}) > 1:
        raise ModelReplyIncomplete("The model gave vectors of different lengths.", model=spec.alias)
    return vectors
