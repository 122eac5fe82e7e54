"""Writers are killed at random moments. What they were told is in the record, once and in order."""

from __future__ import annotations

import os
import random
import time

import pytest
from django.contrib.auth.models import User

from agents_app.turns.claim import claim_turn
from agents_app.turns.lifecycle import create_session
from mnesis_core.records import TurnState
from sessions_app.record import turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import load_session
from tests.support.processes.children import CHILD_SECONDS, run_child
from tests.support.processes.writers import COMMITS
from tests.support.proof.promises import Word, broken_promises
from tests.support.proof.record_check import faults_of_record
from tests.support.sites.databases import ask

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]

LEASE_SECONDS = 0.1
KILLS = 12
SOAK_KILLS = int(os.environ.get("MNESIS_SOAK_KILLS", "1000"))


@pytest.mark.parametrize("kills", [KILLS, pytest.param(SOAK_KILLS, marks=pytest.mark.soak)])
def test_killed_writers_lose_nothing_that_was_acknowledged(alice: User, kills: int) -> None:
    # Three processes with two sessions each, of three: so each session has two processes in each other's way.
    sessions = [create_session(owner=alice, config={"turn": {"lease_seconds": LEASE_SECONDS}}).id for _ in range(3)]
    seed = random.randrange(10**6)
    print("seed", seed)
    printed = run_child(
        "tests.support.processes.writers", ",".join(sessions), 3, kills, seed, seconds=CHILD_SECONDS + kills
    )
    words = [read_word(line) for line in printed.splitlines()]
    for session in sessions:
        use_again(session, alice)
    assert faults_of_record(ask) == []
    assert broken_promises(words, ask) == []
    print(f"{kills} kills; {sum(word.word in COMMITS for word in words)} acknowledged commits")


def read_word(line: str) -> Word:
    """What the writers print."""
    writer, key, word = line.split()
    return Word(writer=writer, key=key, word=word)


def use_again(session_id: str, owner: User) -> None:
    """A session takes a new turn as soon as the dead one's lease is over."""
    time.sleep(LEASE_SECONDS)
    started = claim_turn(session_id, owner_id=owner.pk, message="again", idempotency_key=None, lease_owner="test")
    with change(session_id) as record:
        turn_store.finish_turn(record, started.turn.id, state=TurnState.COMPLETED)
    assert load_session(session_id).state == "idle"
