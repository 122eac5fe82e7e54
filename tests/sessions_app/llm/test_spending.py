"""What may be spent is kept to: across sessions, processes, children, days and a long history."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mnesis_core.errors import BudgetExhausted, InvalidRequest
from mnesis_core.spending import ONE_TOOL_CALL, LimitUse, TurnLimits, lines_of
from mnesis_core.turns.options import TurnOptions, write_options
from sessions_app.llm import limits as spending
from sessions_app.llm import spending_store
from sessions_app.models import ModelCall, SpendingMark
from sessions_app.record import message_store, session_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import load_session
from tests.support.people.cast import make_user
from tests.support.processes.children import run_child
from tests.support.processes.spenders import MOST, ask_tool, begin_call, end_call, open_turn, spend
from tests.support.record.talks import new_session

pytestmark = pytest.mark.both_databases

PROCESSES = 8
DAY = 5_050


@pytest.fixture
def alice(db: None) -> User:
    return make_user("alice")


def lines(session_id: str) -> list[LimitUse]:
    return lines_of(spending.look(spending.limits_for(load_session(session_id))))


def warnings(session_id: str) -> list[tuple[str, str]]:
    told = [event.data for event in load_events(session_id) if event.type == "budget.warning"]
    return [(data["scope"], data["measure"]) for data in told]


def test_a_call_that_could_pass_a_limit_is_not_begun_and_nothing_of_it_is_written(alice: User) -> None:
    session = new_session(alice, config={"limits": {"session": {"tokens": 250}}})
    turn = open_turn(session)
    spend(turn, 100)
    spend(turn, 100)
    before = load_session(session).event_seq
    with pytest.raises(BudgetExhausted) as refused:
        begin_call(turn, tokens=51)
    line = {"scope": "session", "measure": "tokens", "limit": 250, "spent": 200}
    assert refused.value.details == {"reason": "budget_session", **line}
    assert refused.value.message == (
        "A limit leaves too little for the next call, which may take 51: 200 of 250 tokens in a session are used. "
        "What was said is kept."
    )
    assert load_session(session).event_seq == before
    spend(turn, 50)


def test_a_call_that_runs_counts_with_its_highest_and_at_its_end_with_its_bill(alice: User) -> None:
    session = new_session(alice, config={"limits": {"day": {"tokens": 150}}})
    turn = open_turn(session)
    call = begin_call(turn, tokens=100)
    assert lines(session)[0].spent == 100
    with pytest.raises(BudgetExhausted):
        begin_call(turn, tokens=100)
    end_call(turn, call, tokens=10)
    assert lines(session)[0].spent == 10
    begin_call(turn, tokens=100)


def test_a_call_whose_bill_nobody_knows_counts_with_its_highest(alice: User) -> None:
    session = new_session(alice, config={"limits": {"session": {"tokens": 150}}})
    turn = open_turn(session)
    begin_call(turn, tokens=100)
    ModelCall.objects.update(state="failed", ended_at=timezone.now())
    with pytest.raises(BudgetExhausted):
        begin_call(turn, tokens=100)


def test_a_price_that_nobody_knows_counts_as_nothing_and_is_said(alice: User) -> None:
    session = new_session(alice, config={"limits": {"session": {"cost_micros": 10}}})
    turn = open_turn(session)
    call = begin_call(turn, micros=None)
    end_call(turn, call, tokens=10, micros=None)
    [allowance] = spending.look(spending.limits_for(load_session(session)))
    assert (allowance.spent.cost_micros, allowance.spent.unpriced_calls) == (0, 1)


def test_a_person_has_one_day_in_all_their_sessions_and_nobody_elses(alice: User) -> None:
    spending_store.put_account_limits(alice.pk, {"day": {"tokens": 150}})
    one, other = new_session(alice), new_session(alice)
    spend(open_turn(one), 100)
    with pytest.raises(BudgetExhausted, match="The day ends at midnight UTC"):
        begin_call(open_turn(other), tokens=51)
    bobs = new_session(make_user("bob"))
    spend(open_turn(bobs), 10_000)
    assert lines(bobs) == []


def test_yesterday_counts_for_the_person_and_not_for_the_day(alice: User) -> None:
    spending_store.put_account_limits(alice.pk, {"day": {"tokens": 150}, "user": {"tokens": 180}})
    session = new_session(alice)
    turn = open_turn(session)
    spend(turn, 100, at=timezone.now() - timedelta(days=1))
    assert [(line.scope, line.spent) for line in lines(session)] == [("user", 100), ("day", 0)]
    with pytest.raises(BudgetExhausted, match="in all"):
        begin_call(turn, tokens=81)


def test_a_child_draws_on_its_parent_and_on_the_turn_that_launched_it(alice: User) -> None:
    parent = new_session(alice, config={"limits": {"turn": {"tokens": 300}, "session": {"tokens": 1_000}}})
    spend(open_turn(parent), 200)
    child = new_session(alice, parent_id=parent)
    turn = open_turn(child)
    assert [(line.scope, line.spent, line.limit) for line in lines(child)] == [
        ("turn", 200, 300),
        ("session", 200, 1_000),
    ]
    with pytest.raises(BudgetExhausted, match="in a turn"):
        begin_call(turn, tokens=101)
    spend(turn, 100)
    assert [line.spent for line in lines(parent)] == [300]


def test_a_fork_is_a_session_of_its_own(alice: User) -> None:
    parent = new_session(alice, config={"limits": {"session": {"tokens": 100}}})
    spend(open_turn(parent), 100)
    fork = new_session(alice, parent_id=parent, origin="fork", forked_message_id="")
    assert lines(fork) == []


@pytest.mark.parametrize(
    ("account", "session", "turn", "limit"),
    [
        ({}, {}, None, None),
        ({}, {}, 7, 7),
        ({"turn": {"tokens": 9}}, {"turn": {"tokens": 8}}, 10, 8),
        ({"turn": {"tokens": 6}}, {"turn": {"tokens": 8}}, 7, 6),
        ({"turn": {"tokens": 6}}, {"turn": {"tokens": 0}}, None, 6),
    ],
)
def test_the_narrower_limit_may_only_tighten(
    alice: User,
    account: dict[str, dict[str, int]],
    session: dict[str, dict[str, int]],
    turn: int | None,
    limit: int | None,
) -> None:
    spending_store.put_account_limits(alice.pk, account)
    id = new_session(alice, config={"limits": session})
    callers = write_options(TurnOptions(limits=TurnLimits(tokens=turn)))
    limits = spending.limits_for(load_session(id), turn=open_turn(id, options=callers))
    assert [one.limits.tokens for one in limits] == ([] if limit is None else [limit])


def test_a_limit_of_a_person_that_is_none_is_refused(alice: User) -> None:
    with pytest.raises(InvalidRequest, match=r"limits\.week is not a setting"):
        spending_store.put_account_limits(alice.pk, {"week": {"tokens": 1}})
    with pytest.raises(InvalidRequest, match="must lie between"):
        spending_store.put_account_limits(alice.pk, {"day": {"tokens": -1}})


def test_each_limit_is_warned_of_once_at_four_fifths_and_again_when_it_was_raised(alice: User) -> None:
    session = new_session(alice, config={"limits": {"session": {"tokens": 1_000}, "day": {"tokens": 500}}})
    turn = open_turn(session)
    for _ in range(4):
        spend(turn, 100)
    begin_call(turn)
    assert warnings(session) == [("day", "tokens")]
    with change(session) as record:
        session_store.update_session(record, config={"limits": {"session": {"tokens": 1_000}, "day": {"tokens": 600}}})
        spending.warn(record, spending.limits_for(load_session(session), turn=turn))
    assert warnings(session) == [("day", "tokens"), ("day", "tokens")]


def test_tool_calls_count_when_they_begin(alice: User) -> None:
    session = new_session(alice, config={"limits": {"turn": {"tool_calls": 1}}})
    turn = open_turn(session)
    parts = [ask_tool(turn) for _ in range(2)]
    limits = spending.limits_for(load_session(session), turn=turn)
    with change(session) as record:
        spending.draw(record, limits, ONE_TOOL_CALL)
        message_store.start_tool(record, parts[0])
    with pytest.raises(BudgetExhausted, match="1 of 1 tool calls in a turn"), change(session) as record:
        spending.draw(record, limits, ONE_TOOL_CALL)
    spend(turn, 10)


def test_time_counts_while_a_model_is_asked_or_a_tool_runs(alice: User) -> None:
    session = new_session(alice, config={"limits": {"session": {"seconds": 85}}})
    turn, now = open_turn(session), timezone.now()
    call = begin_call(turn, at=now - timedelta(seconds=90))
    end_call(turn, call, tokens=1, at=now - timedelta(seconds=60))
    limits = spending.limits_for(load_session(session), turn=turn)
    with change(session) as record:
        left = spending.draw(record, limits, ONE_TOOL_CALL)
    assert left is not None
    assert left.left == pytest.approx(55, abs=1)
    begin_call(turn, at=now - timedelta(seconds=80))
    with pytest.raises(BudgetExhausted, match="of 85 seconds in a session"):
        begin_call(turn)


@pytest.mark.slow
def test_a_long_history_is_added_up_once(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending, "KEEP_AFTER_CALLS", 20)
    spending_store.put_account_limits(alice.pk, {"user": {"tokens": 10**6, "seconds": 10**6, "tool_calls": 10**6}})
    session = new_session(alice)
    turn, now = open_turn(session), timezone.now()
    for minutes in range(60, 30, -1):
        spend(turn, minutes, at=now - timedelta(minutes=minutes))
    [limit] = spending.limits_for(load_session(session))
    whole = spending.look([limit])
    [mark] = SpendingMark.objects.filter(until__isnull=False)
    assert (mark.id, len(limit.paid_calls(mark.until))) == (f"user:{alice.pk}", 9)
    assert whole[0].spent.tokens == sum(range(31, 61))
    SpendingMark.objects.all().delete()
    assert spending.look([limit]) == whole


def test_a_call_that_still_runs_keeps_what_came_after_it_from_being_settled(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spending, "KEEP_AFTER_CALLS", 3)
    session = new_session(alice, config={"limits": {"session": {"tokens": 10**6}}})
    turn, now = open_turn(session), timezone.now()
    spend(turn, 5, at=now - timedelta(minutes=60))
    call = begin_call(turn, at=now - timedelta(minutes=50))
    for minutes in range(40, 30, -1):
        spend(turn, 1, at=now - timedelta(minutes=minutes))
    assert [mark.tokens for mark in SpendingMark.objects.filter(until__isnull=False)] == [5]
    end_call(turn, call, tokens=7)
    assert lines(session)[0].spent == 5 + 7 + 10


@pytest.mark.slow
def test_without_limits_nothing_is_asked_and_with_them_as_much_for_a_long_history(alice: User) -> None:
    free, limited = new_session(alice), new_session(alice, config={"limits": {"day": {"tokens": 10**6}}})
    costs = []
    turns = {session: open_turn(session) for session in (free, limited)}
    for session, calls in ((free, 1), (limited, 1), (limited, 30)):
        turn = turns[session]
        for _ in range(calls):
            spend(turn, 1)
        limits = spending.limits_for(load_session(session), turn=turn)
        with change(session) as record, CaptureQueriesContext(connection) as captured:
            spending.draw(record, limits, ONE_TOOL_CALL)
        costs.append(len(captured))
    assert costs == [0, 4, 4]


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_processes_that_race_for_one_day_never_pass_its_limit() -> None:
    alice = make_user("alice")
    spending_store.put_account_limits(alice.pk, {"day": {"tokens": DAY}})
    sessions = [new_session(alice) for _ in range(PROCESSES)]
    printed = run_child("tests.support.processes.spenders", ",".join(sessions), 73)
    calls = [int(line) for line in printed.split()]
    [line] = lines(sessions[0])
    assert (len(calls), line.spent) == (PROCESSES, 73 * sum(calls))
    # Not one token too many; and what is left is less than the highest of the calls that were refused.
    assert DAY - PROCESSES * MOST < line.spent <= DAY
