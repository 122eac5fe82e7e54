"""Which items of an operator's run are tried again, and how workers share what may run at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.errors import ModelAuthenticationFailed, ModelError, ModelRateLimited, ModelTimeout, ModelUnavailable
from mnesis_core.llm.retrying import Patience
from mnesis_core.maps.throughput import (
    MOST_EXCUSED,
    Brake,
    Claim,
    Failure,
    braked,
    ceiling_now,
    failure_of_call,
    fair_share,
    is_deadly,
    pause_before_attempt,
    pause_of_model,
    permits,
)
from mnesis_core.maps.values import ErrorKind

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def pause(failure: Failure, *, failures: int = 1, max_retries: int = 2, chance: float = 0.0) -> float | None:
    patience = Patience(max_retries=max_retries, base_seconds=0.5, longest_seconds=60.0)
    return pause_before_attempt(failure, patience, failures=failures, now=NOW, chance=chance)


def of_call(error: ModelError) -> Failure:
    return failure_of_call(error)


@pytest.mark.parametrize("kind", [ErrorKind.VALIDATION, ErrorKind.SCHEMA_ERROR])
def test_an_answer_that_does_not_fit_is_asked_for_again_at_once_and_not_for_ever(kind: ErrorKind) -> None:
    failure = Failure(kind=kind, message="no")
    assert [pause(failure, failures=count) for count in (1, 2, 3)] == [0.0, 0.0, None]
    assert pause(failure, max_retries=0) is None


@pytest.mark.parametrize(
    ("error", "kind", "pauses"),
    [
        (ModelUnavailable(), ErrorKind.LLM_ERROR, [0.5, 1.0, None]),
        (ModelUnavailable(retry_after="7"), ErrorKind.LLM_ERROR, [7.0, 7.0, None]),
        (ModelUnavailable(retry_after="700"), ErrorKind.LLM_ERROR, [60.0, 60.0, None]),
        (ModelTimeout(), ErrorKind.TIMEOUT, [0.5, 1.0, None]),
        (ModelAuthenticationFailed(), ErrorKind.LLM_ERROR, [None, None, None]),
    ],
)
def test_a_call_that_failed_is_made_again_where_that_may_help(
    error: ModelError, kind: ErrorKind, pauses: list[float | None]
) -> None:
    failure = of_call(error)
    assert failure.kind is kind
    assert [pause(failure, failures=count) for count in (1, 2, 3)] == pauses


def test_chance_spreads_what_failed_at_once() -> None:
    assert pause(of_call(ModelUnavailable()), chance=0.5) == pytest.approx(0.625)


def test_nothing_is_tried_beyond_a_budget() -> None:
    assert pause(Failure(kind=ErrorKind.BUDGET, message="used up"), max_retries=9) is None


def test_an_item_that_every_process_dies_over_is_given_up() -> None:
    assert not is_deadly(MOST_EXCUSED)
    assert is_deadly(MOST_EXCUSED + 1)


@pytest.mark.parametrize(
    ("after", "in_a_row", "seconds"), [("", 1, 1.0), ("", 3, 4.0), ("5", 1, 5.0), ("", 40, 60.0), ("9999", 1, 60.0)]
)
def test_a_model_is_left_alone_for_what_it_asks_for_or_ever_longer(after: str, in_a_row: int, seconds: float) -> None:
    error = ModelRateLimited(retry_after=after)
    assert pause_of_model(error, in_a_row=in_a_row, longest_seconds=60.0, now=NOW) == seconds


def test_who_wants_little_gets_it_and_the_others_share_the_rest() -> None:
    assert fair_share(16, [16]) == 16
    assert fair_share(16, [16, 16]) == 8
    assert fair_share(16, [16, 2]) == 14
    assert fair_share(16, [16, 3, 16]) == 6
    assert fair_share(2, [16, 16, 16]) == 1
    assert fair_share(16, [3, 4]) == 16


def test_nobody_takes_what_another_one_holds() -> None:
    assert permits(16, [(16, [Claim(held=16, wanted=16)])]) == 0
    assert permits(16, [(16, [Claim(held=10, wanted=16)])]) == 6
    assert permits(16, [(16, [Claim(held=4, wanted=16)])]) == 8
    assert permits(16, [(16, []), (5, [])]) == 5
    assert permits(7, []) == 7


@given(
    st.integers(1, 40),
    st.lists(st.integers(0, 40), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), min_size=30, max_size=30),
)
def test_whatever_the_order_of_renewals_a_limit_holds_and_is_used_in_the_end(
    limit: int, wants: list[int], order: list[int]
) -> None:
    held = [0] * len(wants)
    places = [place % len(wants) for place in order] + 2 * list(range(len(wants)))
    for place in places:
        others = [Claim(held=held[n], wanted=wants[n]) for n in range(len(wants)) if n != place]
        held[place] = permits(wants[place], [(limit, others)])
        assert sum(held) <= limit
    assert sum(held) == min(limit, sum(wants))


@given(st.integers(5, 40), st.integers(2, 5))
def test_workers_that_want_the_same_end_with_as_much(limit: int, workers: int) -> None:
    held = [limit] + [0] * (workers - 1)
    for place in 2 * list(range(workers)):
        others = [Claim(held=held[n], wanted=99) for n in range(workers) if n != place]
        held[place] = permits(99, [(limit, others)])
    assert (sum(held), min(held)) == (limit, limit // workers)


def test_the_first_refusal_of_calls_that_ran_together_halves_the_limit() -> None:
    began = NOW - timedelta(seconds=1)
    first = braked(None, in_flight=16, seconds=2, began=began, now=NOW)
    assert first == Brake(until=NOW + timedelta(seconds=2), ceiling=8, since=NOW)
    again = braked(first, in_flight=15, seconds=5, began=began, now=NOW)
    assert (again.ceiling, again.until) == (8, NOW + timedelta(seconds=5))
    later = NOW + timedelta(seconds=6)
    assert braked(again, in_flight=8, seconds=2, began=NOW + timedelta(seconds=5), now=later).ceiling == 4
    assert braked(None, in_flight=1, seconds=2, began=began, now=NOW).ceiling == 1


def test_a_quiet_model_gets_its_calls_back() -> None:
    brake = Brake(until=NOW + timedelta(seconds=2), ceiling=3, since=NOW)
    assert [ceiling_now(brake, NOW + timedelta(seconds=seconds)) for seconds in (0, 11, 12, 22, 32)] == [
        3,
        3,
        6,
        12,
        24,
    ]
    assert ceiling_now(brake, NOW + timedelta(days=9)) > 10**6
