"""What each sub-agent of a run may spend, and what it took."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.maps.prompts import is_nothing, limits_of_turn, usage_of_attempt
from mnesis_core.maps.values import Counts, ItemRecord, ItemState, OperatorKind, OperatorSpec, RunRecord, RunState
from mnesis_core.records import UsageRecord
from mnesis_core.spending import TurnLimits

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUN = RunRecord(
    id="map_1",
    session_id="sess_1",
    owner_id=1,
    turn_id="",
    part_id="",
    actor="",
    kind=OperatorKind.AGENTIC,
    spec=OperatorSpec(template="{{ item }}"),
    input_file_id="file_1",
    state=RunState.RUNNING,
    reason="",
    counts=Counts(),
    output_file_id="",
    error_code=None,
    error_message=None,
    idempotency_key=None,
    created_at=NOW,
    started_at=NOW,
    ended_at=None,
)
ITEM = ItemRecord(
    run_id="map_1",
    number=1,
    offset=0,
    length=1,
    state=ItemState.RUNNING,
    attempts=2,
    excused=0,
    not_before=None,
    lease_owner="worker",
    lease_expires_at=NOW,
    error_kind=None,
    error="",
    accepted_try_id="",
    call_id="",
    child_session_id="sess_2",
    started_at=NOW,
    ended_at=None,
    tokens_input=100,
    tokens_output=10,
    cost_micros=7,
    duration_ms=0,
)


def limited(*, tokens: int, spent: int = 0) -> RunRecord:
    limits = TurnLimits(tokens=tokens, seconds=9)
    return replace(RUN, spec=replace(RUN.spec, limits=limits), counts=Counts(items=99, tokens_input=spent))


def test_without_limits_none_are_given() -> None:
    assert limits_of_turn(RUN, slots=4) is None
    assert not is_nothing(None)


def test_what_is_left_is_shared_and_other_limits_are_each_turns_own() -> None:
    assert limits_of_turn(limited(tokens=1_000, spent=200), slots=4) == TurnLimits(tokens=200, seconds=9)
    assert is_nothing(limits_of_turn(limited(tokens=1_000, spent=998), slots=4))


@given(
    tokens=st.integers(1, 10**6),
    slots=st.integers(1, 16),
    ends=st.lists(st.tuples(st.integers(0, 15), st.floats(0, 1)), max_size=60),
)
def test_the_parts_in_flight_and_what_was_spent_never_pass_the_limit(
    tokens: int, slots: int, ends: list[tuple[int, float]]
) -> None:
    spent, parts = 0, list[TurnLimits]()
    for place, share in [(0, 0.0), *ends]:
        if parts:
            spent += int((parts.pop(place % len(parts)).tokens or 0) * share)
        while len(parts) < slots:
            part = limits_of_turn(limited(tokens=tokens, spent=spent), slots=slots, given=parts)
            assert part is not None
            parts.append(part)
        assert spent + sum(part.tokens or 0 for part in parts) <= tokens


def test_a_try_took_what_its_session_and_those_below_took_since_the_last_one() -> None:
    own = UsageRecord(tokens_input=50, tokens_output=5, cost_micros=None, usage_source="provider")
    taken = UsageRecord(tokens_input=400, tokens_output=40, cost_micros=20)
    assert usage_of_attempt(ITEM, own, taken=taken) == replace(own, tokens_input=300, tokens_output=30, cost_micros=13)


def test_what_a_deleted_session_took_lowers_no_try_of_the_next_one() -> None:
    own = UsageRecord(tokens_input=50, tokens_output=5, cost_micros=3)
    assert usage_of_attempt(ITEM, own, taken=own) == own
