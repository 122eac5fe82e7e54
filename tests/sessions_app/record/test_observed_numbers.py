"""What the calls of sessions that meet a query came to over time, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from compaction_app.queries import compactions_over_time, completed_compactions
from mnesis_core.records import new_id
from mnesis_core.search.observation import Step, parse_observation, period_of
from sessions_app.models import ModelCall
from sessions_app.record import observed as record_observed
from sessions_app.record.observed import Course, Numbers, Observed, load_course, times_between
from tests.support.people.cast import make_user
from tests.support.record.inspected import add_turn, claim, finish
from tests.support.record.talks import new_session

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def add_call(
    session_id: str, at: datetime, milliseconds: int, *, error: str | None = None, first: int | None = None
) -> None:
    """A call that began then, took so long, and said something after ``first`` milliseconds."""
    ModelCall.objects.create(
        id=new_id("call"), session_id=session_id, model="demo", provider_model="demo/chat", digest="0" * 64,
        created_at=at, ended_at=at + timedelta(milliseconds=milliseconds), state="failed" if error else "completed",
        error_code=error, first_token_ms=first, tokens_input=100, tokens_output=20, cost_micros=7,
    )  # fmt: skip


def observed(text: str = "") -> Observed:
    return Observed(parse_observation(text, now=NOON), compactions=completed_compactions())


def course(
    text: str = "", *, since: datetime = NOON - DAY, until: datetime = NOON + DAY, step: Step = Step.DAY
) -> Course:
    return load_course(observed(text), since=since, until=until, step=step)


@pytest.fixture
def anna() -> User:
    return make_user("anna")


def test_calls_are_counted_by_day_and_by_hour(anna: User) -> None:
    one, two = new_session(anna, title="one"), new_session(anna, title="two")
    for number in range(1, 21):
        add_call(one, NOON + timedelta(minutes=number), number * 100)
    add_call(two, NOON + timedelta(hours=1, minutes=5), 60_000, error="RATE_LIMITED")
    add_call(two, NOON - 2 * DAY, 1)
    today = NOON.replace(hour=0)
    # The tenth and the nineteenth of twenty; a call that failed has no latency.
    assert course().by_time == {
        today: Numbers(
            sessions=2, calls=21, errors=1, tokens=21 * 120, cost_micros=21 * 7, median_ms=1_000, slow_ms=1_900
        )
    }
    by_hour = course(step=Step.HOUR).by_time
    assert {time: numbers.calls for time, numbers in by_hour.items()} == {NOON: 20, NOON + timedelta(hours=1): 1}
    assert by_hour[NOON + timedelta(hours=1)].slow_ms is None
    assert course("title:two").by_time[today].calls == 1
    assert course("title:nosuch").by_time == {}
    assert course("person:nobody -word").by_time == {}


def test_first_tokens_are_those_of_streamed_calls_that_completed(anna: User) -> None:
    session = new_session(anna)
    for number in range(1, 21):
        add_call(session, NOON, 5_000 - number, first=number * 10)
    for number in range(5):
        add_call(session, NOON, 1 + number)  # all at once
    add_call(session, NOON, 9_000, first=8_000, error="RATE_LIMITED")
    add_call(session, NOON - DAY, 7)
    today = NOON.replace(hour=0)
    numbers = course(since=NOON - 2 * DAY).by_time
    assert (numbers[today].first_median_ms, numbers[today].first_slow_ms) == (100, 190)
    assert (numbers[today].median_ms, numbers[today].slow_ms) == (4_987, 4_998)
    assert (numbers[today - DAY].first_median_ms, numbers[today - DAY].median_ms) == (None, 7)


def test_of_too_many_calls_only_the_newest_count_and_it_is_said(anna: User, monkeypatch: pytest.MonkeyPatch) -> None:
    session = new_session(anna)
    for number in range(5):
        add_call(session, NOON - number * timedelta(hours=20), 10)
    assert course(since=NOON - 9 * DAY).since is None
    monkeypatch.setattr(record_observed, "MOST_CALLS", 2)
    cut = course(since=NOON - 9 * DAY)
    assert cut.since == NOON.replace(hour=0) - DAY
    assert sum(each.calls for each in cut.by_time.values()) == 2


def test_compactions_are_counted_too(anna: User) -> None:
    session = new_session(anna, title="one")
    add_turn(session, "Hello")
    finish(session, claim(session))
    now = datetime.now(UTC)
    for text, found in (("", 1), ("title:one", 1), ("title:two", 0)):
        counted = compactions_over_time(observed(text).rows, since=now - DAY, until=now + DAY, step=Step.HOUR)
        assert counted == ({now.replace(minute=0, second=0, microsecond=0): 1} if found else {})


def test_the_period_follows_from_the_query() -> None:
    def period(text: str) -> tuple[datetime, datetime, Step]:
        return period_of(parse_observation(text, now=NOON), now=NOON)

    assert period("") == (NOON - 30 * DAY, NOON, Step.DAY)
    assert period("after:1d") == (NOON - DAY, NOON, Step.HOUR)
    assert period("after:2020-01-01") == (NOON - 366 * DAY, NOON, Step.DAY)
    begin, end = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC)
    for text in ("after:2026-11-01 before:2026-11-08", "-before:2026-11-01 -after:2026-11-08"):
        assert period(text) == (begin, end, Step.DAY)
    since, until, step = period("after:2026-11-19 before:2026-11-10")
    assert times_between(since, until, step) == []
    assert times_between(begin, begin + DAY, Step.HOUR) == [begin + timedelta(hours=hour) for hour in range(24)]
