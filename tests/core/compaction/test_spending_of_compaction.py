"""Whether a summarising model may be asked once more: no limit is ever passed, and a session cannot loosen the site's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.compaction.selection import own_allowances, refusal
from mnesis_core.config import CompactionConfig
from mnesis_core.spending import Spent

MONEY = st.integers(0, 10**15)


@pytest.mark.parametrize(
    ("session", "day", "seconds", "most", "reason"),
    [
        (0, 0, 0.0, 100, None),
        (1, 0, 0.0, 100, "spend_limit_session"),
        (101, 0, 0.0, 0, "spend_limit_session"),
        (0, 101, 0.0, 100, "spend_limit_day"),
        (1, 101, 0.0, 100, "spend_limit_session"),
        (0, 100, 0.0, 100, None),
        (0, 0, 60.0, 0, "run_timeout"),
        (0, 0, 59.9, 0, None),
    ],
)
def test_what_is_refused(session: int, day: int, seconds: float, most: int, reason: str | None) -> None:
    config = CompactionConfig(spend_limit_session_micros=100, spend_limit_day_micros=200, run_timeout_seconds=60.0)
    allowances = own_allowances(config, config, session_micros=session, day_micros=day, seconds=seconds)
    assert refusal(allowances, Spent(cost_micros=most)) == reason


@given(MONEY, MONEY, MONEY)
def test_no_limit_of_money_is_no_limit(session: int, day: int, most: int) -> None:
    config = CompactionConfig()
    allowances = own_allowances(config, config, session_micros=session, day_micros=day, seconds=0.0)
    assert refusal(allowances, Spent(cost_micros=most)) is None


@given(st.lists(st.integers(0, 10**6), max_size=30), st.integers(1, 10**7))
def test_however_many_are_asked_the_limit_is_not_passed(prices: list[int], limit: int) -> None:
    config, spent = CompactionConfig(spend_limit_session_micros=limit), 0
    for price in prices:
        allowances = own_allowances(config, config, session_micros=spent, day_micros=0, seconds=0.0)
        if refusal(allowances, Spent(cost_micros=price)) is None:
            spent += price
    assert spent <= limit


@given(MONEY, MONEY, st.floats(0.01, 3_600), st.floats(0.01, 3_600))
def test_a_session_may_tighten_the_sites_limits_and_not_loosen_them(
    site: int, own: int, seconds: float, own_seconds: float
) -> None:
    session, day, run = own_allowances(
        CompactionConfig(spend_limit_day_micros=site, run_timeout_seconds=seconds),
        CompactionConfig(spend_limit_day_micros=own, run_timeout_seconds=own_seconds),
        session_micros=0,
        day_micros=0,
        seconds=0.0,
    )
    assert day.limits.cost_micros == (min(site, own) if site and own else site or own or None)
    assert session.limits.is_none
    assert run.limits.seconds == min(seconds, own_seconds)
