"""kill -9 after every commit of a turn: what was acknowledged is there, the turn ends visibly, the session goes on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents_app.turns.claim import claim_turn, recover_turns
from agents_app.turns.lifecycle import create_session
from audit_app.proof.verify import verify_session
from mnesis_core.events import LedgerEvent
from mnesis_core.records import TurnState
from sessions_app.models import StreamJournal, Turn
from sessions_app.record import turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_turns
from tests.support.processes.children import run_child
from tests.support.proof.record_check import faults_of_record
from tests.support.sites.databases import ask

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

MOST_COMMITS = 16
STEPS = {
    "claimed": "session.updated",
    "asked": "message.created",
    "answered": "message.finalized",
    "tool started": "part.state_changed",
    "tool finished": "part.state_changed",
    "ended": "turn.completed",
}
"""The last event of each, by which a kill is known to have found it."""


def test_a_web_process_is_killed_after_every_commit_of_a_turn(alice: User) -> None:
    # Every word is a flush, so that some die in the middle of the journal; and none of them buries another.
    config = {"stream": {"journal_bytes": 1}, "turn": {"lease_seconds": 600}}
    sessions = [create_session(owner=alice, config=config).id for _ in range(MOST_COMMITS)]
    told = run_child("tests.support.processes.turns_that_die", ",".join(sessions), alice.pk).splitlines()
    before = {session_id: load_events(session_id) for session_id in sessions}
    assert steps_that_were_last(before) >= {*STEPS.values(), "journal"}
    expire_leases()
    recover_turns(lease_owner="another web process")
    for line in told:
        session_id, word, value = line.split()
        assert is_kept(word, value, before[session_id], session_id), line
    for session_id in sessions:
        check_end(session_id, before[session_id])
        use_again(session_id, alice)
    assert faults_of_record(ask) == []
    ends = [list_turns(session_id)[-1].state for session_id in sessions]
    print(f"{len(told)} acknowledged; the turns ended: {ends}")
    # None of the kills came too late but the last.
    assert ends[-1] == "completed"


def steps_that_were_last(events: dict[str, list[LedgerEvent]]) -> set[str]:
    """The last thing that each killed process has written."""
    steps = {own[-1].type for own in events.values()}
    states = {own[-1].data.get("state") for own in events.values() if own[-1].type == "part.state_changed"}
    assert states == {"running", "completed"}
    return steps | ({"journal"} if StreamJournal.objects.exists() else set())


def expire_leases() -> None:
    """Let the leases be over, so that dead processes count as dead."""
    Turn.objects.filter(state="running").update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def is_kept(word: str, value: str, events: list[LedgerEvent], session_id: str) -> bool:
    """Whether what a client was told is in the record."""
    if word == "accepted":
        return Turn.objects.filter(id=value, session_id=session_id).exists()
    event = events[int(value) - 1]
    return (str(event.seq), event.type) == (value, word)


def check_end(session_id: str, before: list[LedgerEvent]) -> None:
    """Nothing that was written is gone, and the turn says how it ended."""
    assert load_events(session_id)[: len(before)] == before
    [turn] = list_turns(session_id)
    has_ended = before[-1].type == "turn.completed"
    expected = ("completed", None) if has_ended else ("interrupted", "TURN_INTERRUPTED")
    assert (turn.state, turn.error_code) == expected
    assert verify_session(session_id).problems == []


def use_again(session_id: str, owner: User) -> None:
    """The session takes a new turn."""
    started = claim_turn(session_id, owner_id=owner.pk, message="again", idempotency_key=None, lease_owner="test")
    with change(session_id) as record:
        turn_store.finish_turn(record, started.turn.id, state=TurnState.COMPLETED)
    assert load_session(session_id).state == "idle"
