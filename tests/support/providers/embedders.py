"""An embedding model of a test's making, and a site that searches with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mnesis_core.config import Config, SearchConfig
from mnesis_core.errors import ModelError
from mnesis_core.llm.interface import ModelSpec, Prices, Usage
from mnesis_core.llm.retrying import Patience
from mnesis_core.llm.search_models import Embedded, checked_vectors
from sessions_app import conf
from sessions_app.database import outages
from sessions_app.llm.model_store import put_model
from sessions_app.search import ranked, vector_store

NEAR = ModelSpec(
    alias="near",
    litellm_model="demo/embedding",
    context_window=8_000,
    max_output_tokens=1,
    prices=Prices(input=1_000_000),
    entered_on_host=True,
)


@dataclass(slots=True)
class ScriptedEmbedder:
    """Gives what ``answer`` makes of the texts of a call, and keeps them."""

    answer: Callable[[Sequence[str]], list[Any]]
    spec: ModelSpec = NEAR
    asked: list[list[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str], *, seconds: float) -> Embedded:
        assert seconds > 0
        self.asked.append(list(texts))
        found = self.answer(texts)
        tokens = sum(map(len, texts))
        return Embedded(
            vectors=checked_vectors(found, self.spec, count=len(texts)),
            usage=Usage(input_tokens=tokens, output_tokens=0),
        )


def by_words(**numbers: Sequence[float]) -> Callable[[Sequence[str]], list[Any]]:
    """Give a text the numbers of the first word that is in it."""
    return lambda texts: [next((n for word, n in numbers.items() if word in text), (0.1, 0.1, 0.9)) for text in texts]


def failing(error: ModelError) -> Callable[[Sequence[str]], list[Any]]:
    def fail(texts: Sequence[str]) -> list[Any]:
        raise error

    return fail


def search_with(monkeypatch: pytest.MonkeyPatch, spec: ModelSpec = NEAR) -> None:
    """Have the site search with an embedding model, and forget how an earlier one did."""
    put_model(spec, api_key_env="")
    config = replace(Config(), search=SearchConfig(embedding_model=spec.alias))
    for module in (conf, vector_store, ranked):
        monkeypatch.setattr(module, "site_config", lambda: config)
    patience = Patience(max_retries=1, base_seconds=0.001, longest_seconds=0.01)
    monkeypatch.setattr(vector_store, "patience_of", lambda turn: patience)
    forget()


def forget() -> None:
    """Forget the vectors of questions, that the model has failed, and that this was logged."""
    ranked.EMBEDDING.until = 0.0
    ranked._vector_of.cache_clear()
    outages._logged_at.clear()


def answer_with(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Sequence[str]], list[Any]]) -> ScriptedEmbedder:
    """Have whoever embeds ask this instead."""
    embedder = ScriptedEmbedder(answer)
    for module in (vector_store, ranked):
        monkeypatch.setattr(module, "get_embedder", lambda spec: replace_spec(embedder, spec))
    forget()
    return embedder


def replace_spec(embedder: ScriptedEmbedder, spec: ModelSpec) -> ScriptedEmbedder:
    embedder.spec = spec
    return embedder
