"""Adapters for ``mnesis_core.llm.interface``: litellm for everything real, the offline demo model, the scripted double."""

from __future__ import annotations

from mnesis_core.llm.interface import Model, ModelSpec
from mnesis_core.providers.credentials import provider_of
from mnesis_core.providers.demo import DemoModel
from mnesis_core.providers.litellm_ import LiteLLMModel


def make_model(spec: ModelSpec) -> Model:
    """Return the model that a specification names. It connects to nothing until it is asked something."""
    return DemoModel(spec) if provider_of(spec.litellm_model) == "demo" else LiteLLMModel(spec)
