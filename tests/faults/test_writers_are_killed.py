"""Writers are killed at random moments. What they were told is in the record, once and in order."""

from __future__ import annotations

import json
import os
import random
import time
from collections import defaultdict

import pytest
from django.contrib.auth.models import User
from django.db import connection

from agents_app.lifecycle import claim_turn, create_session
from mnesis_core.record import TurnState
from sessions_app import store
from sessions_app.ledger import change
from sessions_app.queries import load_session
from tests.support.children import run_child
from tests.support.databases import ask
from tests.support.record_check import faults_of_record
from tests.support.writers import ANSWERED, CLAIMED, OVER, REFUSED, STREAMED, Word, first_words, question, whole_answer

LEASE_SECONDS = 0.1
KILLS = 24
SOAK_KILLS = int(os.environ.get("MNESIS_SOAK_KILLS", "1000"))


@pytest.mark.parametrize("kills", [KILLS, pytest.param(SOAK_KILLS, marks=pytest.mark.soak)])
def test_killed_writers_lose_nothing_that_was_acknowledged(alice: User, kills: int) -> None:
    # Four writers in three sessions, so that two of them are in each other's way.
    sessions = [create_session(owner=alice, config={"turn": {"lease_seconds": LEASE_SECONDS}}).id for _ in range(3)]
    # Nobody else has the database open: a file of SQLite is then recovered by the next writer.
    connection.close()
    seed = random.randrange(10**6)
    print("seed", seed)
    printed = run_child("tests.support.writers", ",".join(sessions), 4, kills, seed, seconds=60 + kills)
    words = [Word(**json.loads(line)) for line in printed.splitlines()]
    for session in sessions:
        use_again(session, alice)
    assert faults_of_record(ask) == []
    compare(words)
    print(f"{kills} kills; {sum(word.word in (CLAIMED, STREAMED, ANSWERED) for word in words)} acknowledged commits")


def use_again(session_id: str, owner: User) -> None:
    """A session takes a new turn as soon as the dead one's lease is over."""
    time.sleep(LEASE_SECONDS)
    started = claim_turn(session_id, owner_id=owner.pk, message="again", idempotency_key=None, lease_owner="test")
    with change(session_id) as record:
        store.finish_turn(record, started.turn.id, state=TurnState.COMPLETED)
    assert load_session(session_id).state == "idle"


def compare(words: list[Word]) -> None:
    """What the record holds with what was said: known outcomes exactly once, unknown ones at most once."""
    turns = {key: (id, state) for key, id, state in ask("SELECT idempotency_key, id, state FROM turns") if key}
    texts = defaultdict(list)
    for turn_id, role, text in ask(
        "SELECT m.turn_id, m.role, p.content FROM messages m JOIN message_parts p ON p.message_id = m.id"
        " WHERE p.part_type = 'text' ORDER BY m.session_id, m.seq, p.part_index"
    ):
        texts[turn_id, role].append(text)
    said = defaultdict(set)
    for word in words:
        said[word.key].add(word.word)
    for key, heard in said.items():
        turn_id, state = turns.get(key, (None, None))
        assert texts[turn_id, "user"] == ([] if turn_id is None else [question(key)])
        if heard & {CLAIMED, OVER}:
            assert turn_id is not None, f"{key} was acknowledged and is lost"
        elif heard == {"begun", REFUSED}:
            assert turn_id is None, f"{key} was refused and is there"
        if ANSWERED in heard:
            assert (state, texts[turn_id, "assistant"]) == ("completed", [whole_answer(key)])
        elif STREAMED in heard:
            assert texts[turn_id, "assistant"] in ([first_words(key)], [whole_answer(key)])
    assert set(turns) <= set(said)
    in_order(words)


def in_order(words: list[Word]) -> None:
    """Each writer's turns stand in the order in which they were acknowledged."""
    places = dict(ask("SELECT idempotency_key, seq FROM turns"))
    lines = defaultdict(list)
    for word in words:
        if word.word == CLAIMED and places[word.key] not in lines[word.writer]:
            lines[word.writer].append(places[word.key])
    assert lines
    for line in lines.values():
        assert line == sorted(line)
