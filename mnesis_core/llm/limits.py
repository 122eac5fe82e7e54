"""What a model takes and what it costs: as configured, else as its provider's table says, else a stated default."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from mnesis_core.config import Config
from mnesis_core.llm.interface import LimitSource, ModelSpec, Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedLimits:
    """What one source says of a model; None for what it does not say."""

    source: LimitSource
    context_window: int | None = None
    max_output_tokens: int | None = None
    prices: Prices | None = None


# Assumed, and shown as assumed, where no source states a limit.
DEFAULTS = StatedLimits(source=LimitSource.DEFAULT, context_window=32_000, max_output_tokens=4_096, prices=Prices())


def settle_limits(*stated: StatedLimits | None) -> dict[str, Any]:
    """Return the limits and prices of a model as values of a ``ModelSpec``, each from the first source that states it.

    An answer without a configured limit is no longer than the window.
    """
    sources = [*filter(None, stated), DEFAULTS]
    by_window = next(limits for limits in sources if limits.context_window)
    by_output = next(limits for limits in sources if limits.max_output_tokens)
    by_prices = next(limits for limits in sources if limits.prices is not None)
    window, output = by_window.context_window or 0, by_output.max_output_tokens or 0
    return {
        "context_window": window,
        "context_window_source": by_window.source,
        "max_output_tokens": output if by_output.source is LimitSource.CONFIGURED else min(output, window),
        "max_output_source": by_output.source,
        "prices": by_prices.prices,
        "prices_source": by_prices.source,
    }


def shown_prices(spec: ModelSpec) -> str:
    """Return the prices of a million prompt and answer tokens in currency units, such as ``2.5 / 10``."""
    if spec.prices_source is LimitSource.DEFAULT:
        return "not known"
    return f"{spec.prices.input / 1_000_000:g} / {spec.prices.output / 1_000_000:g}"


def spec_in_session(spec: ModelSpec, config: Config) -> ModelSpec:
    """Return the model with the limits and prices that the session's configuration replaces."""
    changes: dict[str, Any] = {}
    if config.context_window:
        changes |= {"context_window": config.context_window, "context_window_source": LimitSource.CONFIGURED}
    if config.max_output_tokens:
        changes |= {"max_output_tokens": config.max_output_tokens, "max_output_source": LimitSource.CONFIGURED}
    prices = {name: price for name, price in asdict(config.prices).items() if price >= 0}
    if prices:
        changes |= {"prices": replace(spec.prices, **prices), "prices_source": LimitSource.CONFIGURED}
    return replace(spec, **changes)


def spec_as_said(spec: ModelSpec, window: int | None) -> ModelSpec:
    """Return the model with the window that its provider says it has, where that is smaller (``Calibration.window``)."""
    if window is None or window >= spec.context_window:
        return spec
    return replace(spec, context_window=window, context_window_source=LimitSource.PROVIDER)


def spec_in_place(spec: ModelSpec, config: Config) -> ModelSpec:
    """Return a model that is asked in place of a session's own.

    It has its own prices, and the session's limits if they are tighter, since a session may be made small on purpose.
    """
    changes: dict[str, Any] = {}
    if 0 < config.context_window < spec.context_window:
        changes |= {"context_window": config.context_window, "context_window_source": LimitSource.CONFIGURED}
    if 0 < config.max_output_tokens < spec.max_output_tokens:
        changes |= {"max_output_tokens": config.max_output_tokens, "max_output_source": LimitSource.CONFIGURED}
    return replace(spec, **changes)
