"""Adapters for ``mnesis_core.llm.interface``: litellm for everything real, the offline demo model, the scripted double."""

from __future__ import annotations

from mnesis_core.llm.interface import Model, ModelSpec
from mnesis_core.llm.search_models import Embedder, Reranker
from mnesis_core.providers.credentials import provider_of
from mnesis_core.providers.demo import DemoEmbedder, DemoModel, DemoReranker
from mnesis_core.providers.litellm_ import LiteLLMEmbedder, LiteLLMModel, LiteLLMReranker


def make_model(spec: ModelSpec) -> Model:
    """Return the model that a specification names. It connects to nothing until it is asked something."""
    return DemoModel(spec) if provider_of(spec.litellm_model) == "demo" else LiteLLMModel(spec)


def make_embedder(spec: ModelSpec) -> Embedder:
    """Return the embedding model that a specification names. It connects to nothing until it is given a text."""
    return DemoEmbedder(spec) if provider_of(spec.litellm_model) == "demo" else LiteLLMEmbedder(spec)


def make_reranker(spec: ModelSpec) -> Reranker:
    """Return the reranker that a specification names. It connects to nothing until it is asked something."""
    return DemoReranker(spec) if provider_of(spec.litellm_model) == "demo" else LiteLLMReranker(spec)
