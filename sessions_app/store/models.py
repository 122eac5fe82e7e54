"""Changes to the list of models."""

from __future__ import annotations

from mnesis_core.llm import ModelSpec
from sessions_app.models import LanguageModel


def put_model(spec: ModelSpec, *, api_key_env: str = "") -> None:
    """Add a model, or replace the one with this alias."""
    LanguageModel.objects.update_or_create(
        alias=spec.alias,
        defaults={
            "litellm_model": spec.litellm_model,
            "api_base": spec.api_base,
            "api_key_env": api_key_env,
            "context_window": spec.context_window,
            "max_output_tokens": spec.max_output_tokens,
            "input_micros_per_million": spec.input_micros_per_million,
            "output_micros_per_million": spec.output_micros_per_million,
            "timeout_seconds": spec.timeout_seconds,
        },
    )
