"""The demo reranker ``demo/rerank``: offline, deterministic, and without any knowledge of meaning."""

from __future__ import annotations

from collections.abc import Sequence

from mnesis_core.llm.interface import ModelSpec
from mnesis_core.search.words import fold


class DemoReranker:
    """Scores a text by the share of the question's words that it has. It shows the option, not what a reranker gains."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def rerank(self, question: str, texts: Sequence[str], *, seconds: float) -> tuple[float, ...]:
        words = {*fold(question).split()}
        return tuple(len(words & {*fold(text).split()}) / max(1, len(words)) for text in texts)
