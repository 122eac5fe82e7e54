"""A model as somebody enters it, at the terminal or on the page: what is said, and what is found out about the rest."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from mnesis_core.errors import InvalidRequest
from mnesis_core.limits import StatedLimits, settle_limits
from mnesis_core.llm import LimitSource, ModelSpec, Prices
from mnesis_core.providers.litellm_ import stated_limits

LARGEST_PRICE = 1_000_000
LONGEST_SECONDS = 86_400
MOST_TOKENS = 10_000_000
MICROS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EnteredPrices:
    """What a million tokens cost in currency units; ``None``: not said."""

    input: float | None = None
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnteredModel:
    """What somebody says of a model; of what they leave open litellm's table is asked, and then a default is assumed."""

    alias: str
    litellm_model: str
    api_base: str = ""
    context_window: int | None = None
    max_output_tokens: int | None = None
    prices: EnteredPrices = field(default_factory=EnteredPrices)
    timeout_seconds: float = 120.0
    total_timeout_seconds: float = 1800.0
    fallbacks: tuple[str, ...] = ()


def settle_model(entered: EnteredModel) -> ModelSpec:
    """The model with its limits and prices, each with its source.

    :raises InvalidRequest: a number is out of its bounds; ``field`` says which.
    """
    _check_numbers(entered)
    given = StatedLimits(
        source=LimitSource.CONFIGURED,
        context_window=entered.context_window,
        max_output_tokens=entered.max_output_tokens,
        prices=_settle_prices(entered.prices),
    )
    # A server of one's own is in nobody's price list, and looking there takes seconds.
    known = None if entered.api_base else stated_limits(entered.litellm_model)
    return ModelSpec(
        alias=entered.alias,
        litellm_model=entered.litellm_model,
        api_base=entered.api_base,
        timeout_seconds=entered.timeout_seconds,
        total_timeout_seconds=entered.total_timeout_seconds,
        fallbacks=tuple(dict.fromkeys(entered.fallbacks)),
        **settle_limits(given, known),
    )


def _check_numbers(entered: EnteredModel) -> None:
    for name in ("context_window", "max_output_tokens"):
        tokens = getattr(entered, name)
        if tokens is not None and not 0 < tokens <= MOST_TOKENS:
            raise InvalidRequest(f"{name} must lie between 1 and {MOST_TOKENS:,}", field=name)
    for name in ("timeout_seconds", "total_timeout_seconds"):
        if not 0 < getattr(entered, name) <= LONGEST_SECONDS:
            raise InvalidRequest(f"{name} must lie between 0 and {LONGEST_SECONDS:,}", field=name)


def _settle_prices(given: EnteredPrices) -> Prices | None:
    prices = {each.name: getattr(given, each.name) for each in fields(given)}
    if all(price is None for price in prices.values()):
        return None
    for name in ("input", "output"):
        if prices[name] is None:
            raise InvalidRequest("the prices of prompt and answer go together", field=f"{name}_price")
    for name, price in prices.items():
        if price is not None and not 0 <= price <= LARGEST_PRICE:
            raise InvalidRequest(f"a price must lie between 0 and {LARGEST_PRICE:,}", field=f"{name}_price")
    micros = {name: None if price is None else round(price * MICROS) for name, price in prices.items()}
    return Prices(
        input=micros["input"] or 0,
        output=micros["output"] or 0,
        cache_read=micros["cache_read"],
        cache_write=micros["cache_write"],
    )
