"""The demo models of search, ``demo/embedding`` and ``demo/rerank``: offline, deterministic, without knowledge of meaning.

In an embedding each word adds a few numbers that are drawn from a hash of its beginning, so texts with the same or similarly beginning
words are near. It shows what an embedding model does to a search and what it costs, not how much one helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from mnesis_core.llm.embeddings import Embedded, checked_vectors
from mnesis_core.llm.interface import ModelSpec, Source, Usage
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.search.words import fold

DIMENSIONS = 64
BEGINNING = 5
"""Characters of a word that count."""


class DemoEmbedder:
    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def embed(self, texts: Sequence[str], *, seconds: float) -> Embedded:
        vectors = checked_vectors([_numbers(text) for text in texts], self.spec, count=len(texts))
        tokens = sum(map(estimate_text, texts))
        return Embedded(vectors=vectors, usage=Usage(input_tokens=tokens, output_tokens=0, source=Source.ESTIMATED))


def _numbers(text: str) -> list[float]:
    numbers = [0.01] * DIMENSIONS  # A text without words has a direction, too.
    for word in fold(text).split():
        # Two bits of the hash for each number: -1, 0, 0 or 1.
        drawn = int.from_bytes(blake2b(word[:BEGINNING].encode(), digest_size=DIMENSIONS // 4).digest())
        for place in range(DIMENSIONS):
            numbers[place] += (-1, 0, 0, 1)[drawn >> 2 * place & 3]
    return numbers


class DemoReranker:
    """Scores a text by the share of the question's words that it has. It shows the option, not what a reranker gains."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def rerank(self, question: str, texts: Sequence[str], *, seconds: float) -> tuple[float, ...]:
        words = {*fold(question).split()}
        return tuple(len(words & {*fold(text).split()}) / max(1, len(words)) for text in texts)
