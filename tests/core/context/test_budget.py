"""Budgets are useful for every window, and compaction is triggered when it is due and not otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mnesis_core.config import BudgetConfig, Config, override
from mnesis_core.context.fitting import LastRun, Pressure, Reason, budget_beside, make_budget, pressure, should_compact
from tests.core.context.contexts import budget, spec

WINDOWS = st.integers(4_000, 2_000_000)
OUTPUTS = st.integers(0, 2_000_000)
CONFIGS = st.builds(
    BudgetConfig,
    compaction_reserve_tokens=st.integers(0, 1_000_000),
    reserved_output_share=st.floats(0.01, 0.9),
    soft_threshold_fraction=st.floats(0.5, 0.95),
    target_fraction=st.floats(0.05, 0.49),
).map(lambda values: Config(budget=values))


@given(WINDOWS, OUTPUTS)
def test_a_budget_is_positive_and_useful_for_every_window(window: int, output: int) -> None:
    made = make_budget(spec(window, output), Config())
    assert made.usable >= window * 0.65
    assert 750 <= made.target < made.soft < made.hard == made.usable
    assert 0 < made.reserved_output <= window * 0.25
    assert made.reserved_output <= output or output == 0
    assert made.reserved_output + made.reserve + made.usable == window


@given(WINDOWS, OUTPUTS, CONFIGS)
def test_no_configuration_leaves_nothing_usable(window: int, output: int, config: Config) -> None:
    made = make_budget(spec(window, output), config)
    assert made.usable >= window * 0.08
    assert 0 < made.target < made.soft < made.hard == made.usable
    assert made.reserved_output + made.reserve + made.usable == window


@given(WINDOWS, WINDOWS, OUTPUTS, CONFIGS)
@example(4_009, 4_010, 0, Config(budget=BudgetConfig(reserved_output_share=0.5)))
def test_a_larger_window_never_leaves_less(first: int, second: int, output: int, config: Config) -> None:
    small, large = (make_budget(spec(window, output), config) for window in sorted((first, second)))
    assert small.usable <= large.usable
    assert small.soft <= large.soft
    assert small.target <= large.target


@given(WINDOWS, OUTPUTS, OUTPUTS, CONFIGS)
def test_a_longer_answer_never_leaves_more(window: int, first: int, second: int, config: Config) -> None:
    short, long = (make_budget(spec(window, output), config) for output in sorted((first + 1, second + 1)))
    assert short.reserved_output <= long.reserved_output
    assert short.usable >= long.usable


@pytest.mark.parametrize(
    ("window", "output", "reserved_output", "reserve", "usable"),
    [
        (4_000, 4_096, 1_000, 375, 2_625),
        (16_000, 4_096, 4_000, 1_500, 10_500),
        (128_000, 16_384, 16_384, 13_952, 97_664),
        (200_000, 8_192, 8_192, 20_000, 171_808),
        (2_000_000, 64_000, 64_000, 20_000, 1_916_000),
    ],
)
def test_the_reserves_are_the_seeds_where_the_window_is_large_enough(
    window: int, output: int, reserved_output: int, reserve: int, usable: int
) -> None:
    made = make_budget(spec(window, output), Config())
    assert (made.reserved_output, made.reserve, made.usable) == (reserved_output, reserve, usable)


def test_a_configured_window_replaces_the_models() -> None:
    assert make_budget(spec(128_000), override(Config(), {"context_window": 8_000})).window == 8_000


@pytest.mark.parametrize(
    ("used", "expected"),
    [(0, Pressure.NONE), (599, Pressure.NONE), (600, Pressure.SOFT), (999, Pressure.SOFT), (1_000, Pressure.HARD)],
)
def test_pressure_follows_the_thresholds(used: int, expected: Pressure) -> None:
    assert pressure(used, budget(1_000)) is expected


# The rules in their order. Unless a row says otherwise: no compaction yet, automatic, and there is something to do. Soft
# is 600, hard 1,000, and 200 tokens, a tenth of the window, have to be new since the last compaction.
TRIGGERS = [
    pytest.param(599, {}, Reason.BELOW_SOFT, id="below the soft threshold"),
    pytest.param(600, {}, Reason.SOFT, id="at the soft threshold"),
    pytest.param(999, {}, Reason.SOFT, id="just below the hard one"),
    pytest.param(1_000, {}, Reason.HARD, id="at the hard threshold"),
    pytest.param(5_000, {"auto": False}, Reason.AUTO_OFF, id="automatic compaction is off"),
    pytest.param(599, {"auto": False}, Reason.BELOW_SOFT, id="off, but not asked for either"),
    pytest.param(700, {"last": 501}, Reason.TOO_SOON, id="soft, too little is new"),
    pytest.param(700, {"last": 500}, Reason.SOFT, id="soft, enough is new"),
    pytest.param(
        700, {"last": 700, "spacing": 0.0}, Reason.TOO_SOON, id="soft, nothing is new, and no distance asked for"
    ),
    pytest.param(
        701, {"last": 700, "spacing": 0.0}, Reason.SOFT, id="soft, one token is new, and no distance asked for"
    ),
    pytest.param(1_000, {"last": 1_000}, Reason.HARD, id="hard beats the distance"),
    pytest.param(700, {"last": 500, "failed": True}, Reason.SOFT, id="soft after a failure, enough is new"),
    pytest.param(5_000, {"last": 5_000, "failed": True}, Reason.UNCHANGED, id="hard, the same context has just failed"),
    pytest.param(5_001, {"last": 5_000, "failed": True}, Reason.HARD, id="hard, another context"),
    pytest.param(700, {"work": False}, Reason.NOTHING_TO_SUMMARISE, id="soft, but nothing is to be done"),
    pytest.param(5_000, {"work": False}, Reason.NOTHING_TO_SUMMARISE, id="hard, but nothing is to be done"),
]


@pytest.mark.parametrize(("used", "given", "reason"), TRIGGERS)
def test_the_trigger_rules(used: int, given: dict[str, Any], reason: Reason) -> None:
    compaction = {"auto": given.get("auto", True), "spacing_fraction": given.get("spacing", 0.1)}
    trigger = should_compact(
        used=used,
        budget=budget(1_000),
        config=override(Config(), {"compaction": compaction}),
        last=LastRun(tokens=given["last"], failed=given.get("failed", False)) if "last" in given else None,
        is_something_to_do=given.get("work", True),
    )
    assert trigger.reason is reason
    assert trigger.compact is (reason in (Reason.SOFT, Reason.HARD))
    assert (trigger.pressure, trigger.used) == (pressure(used, budget(1_000)), used)


@given(WINDOWS, st.integers(0, 50_000))
def test_what_is_sent_beside_a_prompt_takes_its_room_but_never_more_than_half(window: int, beside: int) -> None:
    made = make_budget(spec(window, 1_000), Config())
    left = budget_beside(made, beside)
    assert left.usable == max(made.usable - beside, made.usable // 2)
    assert left.usable + left.reserve + left.reserved_output == left.window == made.window
    assert left.target <= left.soft <= left.hard == left.usable
