"""The web process is restarted with turns in flight: each ends visibly, and those that wait for people wait on."""

from __future__ import annotations

import signal

import pytest

from tests.faults.conftest import LEASE_SECONDS
from tests.journeys.conftest import Caller
from tests.support.sites.site import Site, wait_until
from tests.support.sites.webs import end_web, wait_until_it_runs_again

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

SWEEP_SECONDS = 5


@pytest.mark.parametrize(
    ("how", "count"), [(signal.SIGTERM, 4), pytest.param(signal.SIGKILL, 12, marks=pytest.mark.soak)]
)
def test_every_turn_in_flight_ends_and_every_suspended_one_waits_on(
    site: Site, caller: Caller, how: signal.Signals, count: int
) -> None:
    turns = [caller.start(caller.new_session(), "!slow 50 !long 400") for _ in range(count)]
    waiting = caller.start(
        caller.new_session(config={"turn": {"ask_before": ["calculator"]}}),
        '!tool calculator {"expression": "6 * 7"}',
    )
    path = f"/api/sessions/{waiting['session_id']}/turns/{waiting['id']}"
    wait_until(lambda: caller.call("GET", path)["state"] == "suspended")
    end_web(site, how)
    wait_until_it_runs_again(site)
    ends = [caller.wait(turn, seconds=LEASE_SECONDS + SWEEP_SECONDS + 60) for turn in turns]
    assert {end["state"] for end in ends} <= {"interrupted", "completed"}
    assert caller.say(turns[0]["session_id"], "Hello again")["state"] == "completed"
    [call] = caller.call("GET", path)["waits_for"]
    decide = f"/api/sessions/{waiting['session_id']}/approvals/{call['part_id']}"
    caller.call("POST", decide, {"approved": True}, status=202)
    assert caller.wait(waiting)["state"] == "completed"
    assert "42" in caller.texts(waiting["session_id"])[-1]
