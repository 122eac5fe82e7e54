"""Who is asked again, after how long, and when another model may take over."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.errors import (
    ContextWindowExceeded,
    ModelAuthenticationFailed,
    ModelError,
    ModelRateLimited,
    ModelReplyIncomplete,
    ModelStreamBroken,
    ModelTimeout,
    ModelUnavailable,
)
from mnesis_core.llm.interface import Outcome, Reply, Source, Usage
from mnesis_core.llm.retrying import Patience, fallbacks_of, may_ask_another, pause_before_retry, seconds_asked_for
from mnesis_core.providers.answer import no_answer
from mnesis_core.records import UsageRecord, add_usage
from mnesis_core.turns.options import usage_record

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PATIENCE = Patience(max_retries=2, base_seconds=0.5, longest_seconds=60.0)
NOTHING = Usage(input_tokens=0, output_tokens=0)


def reply(error: ModelError | None, *, text: str = "", outcome: Outcome = Outcome.FAILED) -> Reply:
    return Reply(text=text, usage=NOTHING, outcome=outcome, error=error)


def pause(answer: Reply, *, attempts: int = 1, left: float = 1_800.0, chance: float = 0.0) -> float | None:
    return pause_before_retry(answer, PATIENCE, attempts=attempts, seconds_left=left, now=NOW, chance=chance)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (reply(ModelUnavailable()), 0.5),
        (reply(ModelTimeout()), 0.5),
        (reply(ModelRateLimited(retry_after="7")), 7.0),
        (reply(ModelRateLimited(retry_after="0.1")), 0.5),
        (reply(ModelUnavailable(retry_after="Sun, 01 Mar 2026 12:00:09 GMT")), 9.0),
        (reply(ModelRateLimited(retry_after="61")), None),
        (reply(ModelRateLimited(retry_after="60")), 60.0),
        (reply(ModelAuthenticationFailed()), None),
        (reply(ModelStreamBroken(), text="half", outcome=Outcome.BROKEN), None),
        (reply(ModelUnavailable(), text="half"), None),
        (reply(ModelRateLimited(), text="half", outcome=Outcome.BROKEN), None),
        (reply(None, text="whole", outcome=Outcome.COMPLETE), None),
    ],
)
def test_only_what_may_pass_is_asked_again_and_only_before_its_first_token(
    answer: Reply, seconds: float | None
) -> None:
    assert pause(answer) == seconds


def test_pauses_double_and_end_after_the_last_retry() -> None:
    failed = reply(ModelUnavailable())
    assert [pause(failed, attempts=attempts) for attempts in (1, 2, 3)] == [0.5, 1.0, None]


def test_a_pause_that_leaves_no_time_to_ask_is_not_begun() -> None:
    assert pause(reply(ModelRateLimited(retry_after="30")), left=30.0) is None
    assert pause(reply(ModelRateLimited(retry_after="30")), left=30.1) == 30.0


def test_chance_spreads_those_that_failed_at_once() -> None:
    limited = reply(ModelRateLimited(retry_after="7"))
    assert (pause(limited, chance=0.0), pause(limited, chance=0.8)) == (7.0, pytest.approx(7.2))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 5 ", 5.0),
        ("Sun, 01 Mar 2026 12:01:00 GMT", 60.0),
        ("Sunday, 01-Mar-26 12:01:00 GMT", 60.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sun Mar  1 12:01:00 2026", 60.0),
        *(
            (text, 0.0)
            for text in ("", "-5", "nan", "inf", "1e9", "soon", "\u0667", "9" * 30, "Sun, 99 Mar 2026", "\x00")
        ),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_anything_else_asks_for_nothing(header: str, seconds: float) -> None:
    assert seconds_asked_for(header, NOW) == seconds


@given(st.datetimes(datetime(1971, 1, 1), datetime(2199, 1, 1), timezones=st.just(UTC)))
def test_every_date_asks_for_the_time_until_then(date: datetime) -> None:
    seconds = max(0.0, (date.replace(microsecond=0) - NOW) / timedelta(seconds=1))
    assert seconds_asked_for(format_datetime(date, usegmt=True), NOW) == seconds


@given(st.text(max_size=60))
def test_no_header_breaks_anything(header: str) -> None:
    assert seconds_asked_for(header, NOW) >= 0.0


@pytest.mark.parametrize(
    ("answer", "may"),
    [
        (reply(ModelUnavailable()), True),
        (reply(ModelAuthenticationFailed()), True),
        (reply(ContextWindowExceeded()), True),
        (reply(no_answer(), outcome=Outcome.INCOMPLETE), True),
        (reply(ModelReplyIncomplete(), text="half", outcome=Outcome.INCOMPLETE), False),
        (reply(ModelReplyIncomplete(reason="cut_tool_call"), outcome=Outcome.INCOMPLETE), False),
        (reply(ModelStreamBroken(), text="half", outcome=Outcome.BROKEN), False),
        (reply(None, text="whole", outcome=Outcome.COMPLETE), False),
        (reply(None, outcome=Outcome.CANCELLED), False),
    ],
)
def test_another_model_is_asked_only_where_nothing_was_given(answer: Reply, may: bool) -> None:
    assert may_ask_another(answer) is may


def test_the_chain_is_the_sessions_else_the_entrys_each_once_and_never_the_model_itself() -> None:
    assert fallbacks_of("a", of_session=("b", "a", "b"), of_entry=("c",)) == ("b",)
    assert fallbacks_of("a", of_session=(), of_entry=("c", "d")) == ("c", "d")
    assert fallbacks_of("a", of_session=("a",), of_entry=("c",)) == ()


def test_what_a_turn_used_is_the_providers_count_only_if_all_of_it_is() -> None:
    counted = usage_record(Usage(input_tokens=10, output_tokens=2, source=Source.PROVIDER), cost=5)
    guessed = usage_record(Usage(input_tokens=5, output_tokens=1), cost=None)
    failed = usage_record(NOTHING, cost=None)
    assert add_usage(UsageRecord(), failed) == failed
    for nothing in (UsageRecord(), failed):
        assert add_usage(nothing, counted) == add_usage(counted, nothing) == counted
    assert add_usage(counted, counted) == replace(counted, tokens_input=20, tokens_output=4, cost_micros=10)
    for mixed in (add_usage(counted, guessed), add_usage(guessed, counted)):
        assert (mixed.tokens_input, mixed.usage_source, mixed.cost_micros) == (15, "estimated", None)
