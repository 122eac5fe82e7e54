"""A process dies, or the connection is cut, at the COMMIT of a turn. A retry with the same key gives one turn."""

from __future__ import annotations

import pytest

from agents_app.turns.claim import StartedTurn, claim_turn
from mnesis_core.records import SessionRecord
from tests.support.processes.children import run_child
from tests.support.processes.writers import CLAIMED, question
from tests.support.proof.promises import Word, broken_promises
from tests.support.proof.record_check import faults_of_record
from tests.support.sites.databases import ask

pytestmark = pytest.mark.both_databases


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_retry_after_a_kill_at_commit_gives_one_turn(session: SessionRecord, moment: str) -> None:
    run_child("tests.support.processes.dies_at_commit", session.id, session.owner_id, moment)
    assert len(turns()) == (moment == "after")
    assert retry(session, moment).is_new == (moment == "before")
    one_turn_only(session, moment)


def retry(session: SessionRecord, key: str) -> StartedTurn:
    """Ask once more, as a client does that was told nothing."""
    return claim_turn(
        session.id, owner_id=session.owner_id, message=question(key), idempotency_key=key, lease_owner="another"
    )


def one_turn_only(session: SessionRecord, key: str) -> None:
    """The record is whole, has one turn with one question, and a further retry changes nothing."""
    [turn] = turns()
    assert retry(session, key).turn.id == turn
    assert turns() == [turn]
    assert len(ask("SELECT id FROM messages")) == 1
    assert faults_of_record(ask) == []
    assert broken_promises([Word(writer="client", key=key, word=CLAIMED)], ask) == []


def turns() -> list[str]:
    return [row[0] for row in ask("SELECT id FROM turns")]
