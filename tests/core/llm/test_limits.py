"""What a model takes and costs: the first who says it is believed, and everything says who that was."""

from __future__ import annotations

import pytest

from mnesis_core.config import Config, override
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import (
    DEFAULTS,
    LimitSource,
    ModelSpec,
    Prices,
    StatedLimits,
    Usage,
    cost_micros,
    settle_limits,
    shown_prices,
    spec_in_session,
)
from tests.core.context.contexts import spec

CONFIGURED, LITELLM, DEFAULT, _ = LimitSource
TABLE = StatedLimits(
    source=LITELLM,
    context_window=128_000,
    max_output_tokens=16_384,
    prices=Prices(input=2_500_000, output=10_000_000, cache_read=1_250_000),
)


def settled(*stated: StatedLimits | None) -> ModelSpec:
    return ModelSpec(alias="a", litellm_model="x/a", **settle_limits(*stated))


def sources(of: ModelSpec) -> tuple[LimitSource, LimitSource, LimitSource]:
    return of.context_window_source, of.max_output_source, of.prices_source


def test_what_nobody_says_is_the_stated_default() -> None:
    unknown = settled(StatedLimits(source=CONFIGURED), None)
    assert (unknown.context_window, unknown.max_output_tokens, unknown.prices) == (32_000, 4_096, Prices())
    assert sources(unknown) == (DEFAULT, DEFAULT, DEFAULT)
    assert shown_prices(unknown) == "not known"


def test_what_is_configured_beats_the_table_number_by_number() -> None:
    mixed = settled(StatedLimits(source=CONFIGURED, context_window=64_000), TABLE)
    assert (mixed.context_window, mixed.max_output_tokens, mixed.prices) == (64_000, 16_384, TABLE.prices)
    assert sources(mixed) == (CONFIGURED, LITELLM, LITELLM)
    assert shown_prices(mixed) == "2.5 / 10"


def test_prices_that_are_nothing_are_prices() -> None:
    assert sources(settled(StatedLimits(source=CONFIGURED, prices=Prices()), TABLE)) == (LITELLM, LITELLM, CONFIGURED)


def test_only_a_configured_answer_may_be_longer_than_the_window() -> None:
    small = StatedLimits(source=CONFIGURED, context_window=2_000)
    assert settled(small).max_output_tokens == 2_000
    assert (
        settled(StatedLimits(source=CONFIGURED, context_window=2_000, max_output_tokens=3_000)).max_output_tokens
        == 3_000
    )


def test_a_session_replaces_what_its_configuration_names_and_nothing_else() -> None:
    model = settled(TABLE)
    assert spec_in_session(model, Config()) == model
    config = override(Config(), {"context_window": 9_000, "prices": {"output": 0}})
    changed = spec_in_session(model, config)
    assert (changed.context_window, changed.max_output_tokens) == (9_000, 16_384)
    assert changed.prices == Prices(input=2_500_000, output=0, cache_read=1_250_000)
    assert sources(changed) == (CONFIGURED, LITELLM, CONFIGURED)
    assert sources(spec_in_session(model, override(Config(), {"max_output_tokens": 5}))) == (
        LITELLM,
        CONFIGURED,
        LITELLM,
    )


@pytest.mark.parametrize(
    "values",
    [{"max_output_tokens": -1}, {"prices": {"input": -2}}, {"prices": {"cache_read": 1.5}}, {"prices": {"nosuch": 1}}],
)
def test_a_limit_that_cannot_be_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        override(Config(), values)


@pytest.mark.parametrize(
    ("prices", "read", "written", "expected"),
    [
        pytest.param(Prices(input=3_000_000, output=15_000_000), 0, 0, 3_000 + 1_500, id="no cache"),
        pytest.param(Prices(input=3_000_000, output=15_000_000), 600, 200, 3_000 + 1_500, id="a cache without prices"),
        pytest.param(
            Prices(input=3_000_000, output=15_000_000, cache_read=300_000, cache_write=3_750_000),
            600,
            200,
            600 + 180 + 750 + 1_500,
            id="each part of the prompt at its own price",
        ),
        pytest.param(
            Prices(input=3_000_000, cache_read=0),
            1_000,
            0,
            0,
            id="a cache that costs nothing is not a cache without price",
        ),
        pytest.param(Prices(input=1), 0, 0, 1, id="rounded up"),
        pytest.param(Prices(input=3_000_000, cache_read=300_000), 5_000, 0, 1_500, id="more cached than there was"),
    ],
)
def test_a_call_costs_what_its_tokens_cost(prices: Prices, read: int, written: int, expected: int) -> None:
    usage = Usage(input_tokens=1_000, output_tokens=100, cache_read_tokens=read, cache_write_tokens=written)
    made = ModelSpec(alias="a", litellm_model="x/a", context_window=8_000, max_output_tokens=1, prices=prices)
    assert cost_micros(made, usage) == expected


def test_what_an_unknown_price_comes_to_is_not_known() -> None:
    assert cost_micros(settled(), Usage(input_tokens=1_000, output_tokens=100)) is None
    assert cost_micros(spec(), Usage(input_tokens=1_000, output_tokens=100)) == 0


def test_the_defaults_are_complete() -> None:
    assert DEFAULTS.context_window
    assert DEFAULTS.max_output_tokens
    assert DEFAULTS.prices is not None
