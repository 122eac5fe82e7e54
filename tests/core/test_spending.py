"""What may still be spent: no limit is passed by the last thing, narrower limits only tighten, time counts once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.config import LimitConfig, SpendingConfig
from mnesis_core.spending import (
    ONE_TOOL_CALL,
    Allowance,
    LimitUse,
    PaidCall,
    Scope,
    Spent,
    TurnLimits,
    busy_seconds,
    highest_of,
    limits_of,
    lines_of,
    passed_by,
    settled_until,
    shortest_time,
    sum_of,
    tightest,
)

LIMITS = TurnLimits(tokens=100, cost_micros=50, seconds=10.0, tool_calls=2)
AMOUNTS = st.integers(0, 1_000)
NUMBERS = st.none() | AMOUNTS
SOME_LIMITS = st.builds(TurnLimits, tokens=NUMBERS, cost_micros=NUMBERS, seconds=NUMBERS, tool_calls=NUMBERS)


def day(spent: Spent, limits: TurnLimits = LIMITS) -> Allowance:
    return Allowance(scope=Scope.DAY, limits=limits, spent=spent)


@pytest.mark.parametrize(
    ("spent", "coming", "measure"),
    [
        (Spent(tokens=90), highest_of(10, 0), None),
        (Spent(tokens=90), highest_of(11, 0), "tokens"),
        (Spent(cost_micros=45), highest_of(1, 5), None),
        (Spent(cost_micros=45), highest_of(1, 6), "cost_micros"),
        (Spent(cost_micros=51), highest_of(1, None), "cost_micros"),
        (Spent(seconds=9.9), highest_of(1, 0), None),
        (Spent(seconds=10.0), highest_of(1, 0), "seconds"),
        (Spent(seconds=10.0), ONE_TOOL_CALL, "seconds"),
        (Spent(tool_calls=1), ONE_TOOL_CALL, None),
        (Spent(tool_calls=2), ONE_TOOL_CALL, "tool_calls"),
        (Spent(tool_calls=9), highest_of(1, 0), None),
    ],
)
def test_what_comes_counts_with_the_highest_it_can_take(spent: Spent, coming: Spent, measure: str | None) -> None:
    line = passed_by(coming, [day(spent)])
    assert (line and line.measure) == measure


def test_the_narrowest_scope_is_the_one_that_is_named() -> None:
    turn = Allowance(scope=Scope.TURN, limits=TurnLimits(tokens=5), spent=Spent())
    line = passed_by(highest_of(101, 0), [turn, day(Spent())])
    assert line == LimitUse(scope="turn", measure="tokens", limit=5, spent=0)


def test_without_limits_nothing_is_refused_and_nothing_is_shown() -> None:
    allowance = day(Spent(tokens=10**9), TurnLimits())
    assert passed_by(highest_of(10**9, None), [allowance]) is None
    assert lines_of([allowance]) == []
    assert shortest_time([allowance]) is None


def test_work_may_go_on_for_the_least_that_is_left() -> None:
    assert [line.left for line in lines_of([day(Spent(seconds=40), TurnLimits(seconds=10.0))])] == [0]
    line = shortest_time([day(Spent(seconds=4)), day(Spent(seconds=7.5))])
    assert line is not None
    assert line.left == 2.5


def test_near_is_from_four_fifths_on() -> None:
    near = [line.measure for line in lines_of([day(Spent(tokens=80, cost_micros=39, tool_calls=2))]) if line.is_near]
    assert near == ["tokens", "tool_calls"]


def test_a_limit_reads_as_words() -> None:
    words = [line.words for line in lines_of([day(Spent(tokens=1_500, cost_micros=1_250_000, seconds=2.25))])]
    assert words == [
        "1,500 of 100 tokens a day",
        "1.25 of 0.00005 currency units a day",
        "2.2 of 10 seconds a day",
        "0 of 2 tool calls a day",
    ]


@given(SOME_LIMITS, SOME_LIMITS)
def test_the_tighter_limit_holds_whoever_says_it(one: TurnLimits, other: TurnLimits) -> None:
    both = tightest(one, other)
    assert both == tightest(other, one) == tightest(both, one)
    for measure in ("tokens", "cost_micros", "seconds", "tool_calls"):
        said = [getattr(limits, measure) for limits in (one, other) if getattr(limits, measure) is not None]
        assert getattr(both, measure) == min(said, default=None)


def test_no_limit_is_0_in_a_configuration() -> None:
    config = LimitConfig(day=SpendingConfig(tokens=7))
    assert limits_of(config, Scope.DAY) == TurnLimits(tokens=7)
    assert limits_of(config, Scope.TURN).is_none


@given(st.lists(AMOUNTS, max_size=40), AMOUNTS)
def test_however_much_is_asked_no_limit_is_passed(asked: list[int], limit: int) -> None:
    spent = Spent()
    for tokens in asked:
        if passed_by(highest_of(tokens, 0), [day(spent, TurnLimits(tokens=limit))]) is None:
            spent += highest_of(tokens, 0)
    assert spent.tokens <= limit


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("stretches", "seconds"),
    [([], 0), ([(1, 3)], 2), ([(1, 3), (2, 4)], 3), ([(1, 9), (2, 3), (4, 5)], 8), ([(5, 6), (1, 2)], 2)],
)
def test_what_runs_side_by_side_takes_its_time_once(stretches: list[tuple[int, int]], seconds: float) -> None:
    assert busy_seconds([(at(begin), at(end)) for begin, end in stretches]) == seconds


def paid(began: int, ended: int | None, *, session: str = "one", is_child: bool = False, **values: Any) -> PaidCall:
    end = None if ended is None else at(ended)
    spent = Spent(tokens=10, cost_micros=3)
    return PaidCall(session_id=session, is_child=is_child, began=at(began), ended=end, spent=spent, **values)


def test_a_sum_has_calls_and_their_tools_until_now() -> None:
    calls = [paid(0, 5, tools=((at(5), at(9)), (at(6), None))), paid(20, None)]
    assert sum_of(calls, now=at(30), apart=False) == Spent(tokens=20, cost_micros=6, seconds=30, tool_calls=2)


def test_sessions_side_by_side_take_their_time_each_and_what_a_tool_launched_takes_the_tools() -> None:
    calls = [paid(0, 10), paid(0, 10, session="two"), paid(0, 10, session="three", is_child=True)]
    assert sum_of(calls, now=at(30), apart=True).seconds == 20
    assert sum_of(calls, now=at(30), apart=False).seconds == 10


def test_settled_is_what_began_before_anything_that_may_change() -> None:
    calls = [paid(0, 5), paid(10, 12), paid(20, 22, is_open=True), paid(30, 31)]
    assert settled_until(calls, before=at(100)) == at(10)
    assert settled_until(calls, before=at(10)) == at(0)
    assert settled_until(calls[2:], before=at(100)) is None
