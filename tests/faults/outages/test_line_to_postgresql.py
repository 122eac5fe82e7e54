"""The line to PostgreSQL is cut at a COMMIT: the client does not know, asks again with its key, and has one turn."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter

import pytest
from django.contrib.auth.models import User
from django.db import Error, connection
from django.test import Client

from agents_app.turns.lifecycle import create_session
from mnesis_core.records import SessionRecord
from sessions_app.llm.model_store import create_key
from tests.faults.kills.test_retry_after_commit import one_turn_only, retry, turns
from tests.support.failures.commit_cutter import Cut, cut_line
from tests.support.processes.writers import append_turn
from tests.support.proof.promises import Word, broken_promises
from tests.support.proof.record_check import faults_of_record
from tests.support.sites.databases import ask

pytestmark = [pytest.mark.both_databases]

CLIENTS = 3
LEASE_SECONDS = 0.1
CUTS = [Cut.NOT] * 6 + [Cut.BEFORE, Cut.AFTER]
TURNS = 12
SOAK_TURNS = int(os.environ.get("MNESIS_SOAK_TURNS", "500"))


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_a_retry_after_a_cut_at_commit_gives_one_turn(session: SessionRecord, cut: Cut) -> None:
    cuts = [cut]
    with cut_line(lambda: cuts.pop() if cuts else Cut.NOT):
        with pytest.raises(Error):
            retry(session, "key")
        connection.close()
        assert len(turns()) == (cut is Cut.AFTER)
        assert retry(session, "key").is_new == (cut is Cut.BEFORE)
    one_turn_only(session, "key")


@pytest.mark.parametrize("count", [TURNS, pytest.param(SOAK_TURNS, marks=pytest.mark.soak)])
def test_a_history_with_many_cuts_has_every_known_turn_once_and_unknown_ones_at_most_once(
    alice: User, count: int
) -> None:
    # One session for two of the clients.
    config = {"turn": {"lease_seconds": LEASE_SECONDS}}
    sessions = [create_session(owner=alice, config=config).id for _ in range(CLIENTS - 1)]
    chance, words = random.Random(), []
    with cut_line(lambda: chance.choice(CUTS)):
        clients = [
            threading.Thread(target=work, args=(str(number), sessions[number % len(sessions)], alice.pk, count, words))
            for number in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert len({word.key for word in words}) == CLIENTS * count
    print(sorted(Counter(word.word for word in words).items()))
    assert faults_of_record(ask) == []
    assert broken_promises(words, ask) == []


def work(client: str, session_id: str, owner_id: int, count: int, words: list[Word]) -> None:
    """One client's turns. What failed without an answer is asked for again with its key, now and then."""
    chance = random.Random()
    for number in range(count):
        attempts = 3 if chance.random() < 0.7 else 1
        for _ in range(attempts):
            try:
                append_turn(
                    session_id,
                    owner_id,
                    f"{client}-{number}",
                    lambda key, word: words.append(Word(writer=client, key=key, word=word)),
                )
                break
            except Error:
                connection.close()
        time.sleep(LEASE_SECONDS * chance.random())
    connection.close()


def test_an_endpoint_says_that_the_database_is_away(session: SessionRecord, client: Client) -> None:
    headers = {"Authorization": f"Bearer {create_key(owner_id=session.owner_id)}"}
    with cut_line(lambda: Cut.BEFORE):
        body = {"message": "Hello", "idempotency_key": "key"}
        answer = client.post(
            f"/api/sessions/{session.id}/turns", body, content_type="application/json", headers=headers
        )
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "DATABASE_UNAVAILABLE")
