"""Changes to the list of models."""

from __future__ import annotations

from dataclasses import asdict

from mnesis_core.llm import ModelSpec, Prices
from sessions_app.models import LanguageModel


def price_columns(prices: Prices) -> dict[str, int | None]:
    """Prices as the columns of a model's row."""
    return {f"{name}_micros_per_million": price for name, price in asdict(prices).items()}


def put_model(spec: ModelSpec, *, api_key_env: str = "") -> None:
    """Add a model, or replace the one with this alias."""
    LanguageModel.objects.update_or_create(
        alias=spec.alias,
        defaults={
            "litellm_model": spec.litellm_model,
            "api_base": spec.api_base,
            "api_key_env": api_key_env,
            "context_window": spec.context_window,
            "context_window_source": spec.context_window_source,
            "max_output_tokens": spec.max_output_tokens,
            "max_output_source": spec.max_output_source,
            "prices_source": spec.prices_source,
            **price_columns(spec.prices),
            "timeout_seconds": spec.timeout_seconds,
            "total_timeout_seconds": spec.total_timeout_seconds,
            "fallbacks": list(spec.fallbacks),
            "shared_ratio": spec.shared_ratio,
        },
    )


def share_ratio(alias: str, ratio: float) -> None:
    """Keep what new sessions of a model begin to count with."""
    LanguageModel.objects.filter(alias=alias).update(shared_ratio=ratio)
