"""Some people who write at the same time, on a disk that gets full and has room again."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

from django.db import Error, connection

from tests.support.processes.recorded_writers import LEASE_SECONDS, new_site, record
from tests.support.processes.writers import ANSWERED, append_turn
from tests.support.proof.promises import Word, broken_promises
from tests.support.proof.record_check import faults_of_record
from tests.support.sites.databases import ask

REFUSALS = 5


def main(database: str, room: str) -> int:
    """Write into a new database until it is full, make room, write on; prints what was refused and what is wrong."""
    owner, sessions = new_site(database)
    recording = record(database)
    recording.room = int(room)
    words: list[Word] = []
    with ThreadPoolExecutor(len(sessions)) as people:
        refused = list(people.map(lambda session: write_until_full(session, owner.pk, words), sessions))
    told = {
        "refused": [problem for problems in refused for problem in problems],
        "when_full": wrong(words),
        "answered": count(words),
    }
    recording.room = None
    time.sleep(LEASE_SECONDS)
    for session in sessions:
        say(session, owner.pk, "last", words)
    print(json.dumps(told | {"with_room": wrong(words), "answered_with_room": count(words) - told["answered"]}))
    return 0


def write_until_full(session_id: str, owner_id: int, words: list[Word]) -> list[str]:
    """Turn after turn, until some were refused; returns how."""
    refused: list[str] = []
    number = 0
    while len(refused) < REFUSALS:
        number += 1
        try:
            say(session_id, owner_id, str(number), words)
        except Error as error:
            refused.append(f"{type(error).__name__}: {error}")
    connection.close()
    return refused


def say(session_id: str, owner_id: int, name: str, words: list[Word]) -> None:
    """One turn; what is heard of it goes to the words."""
    append_turn(
        session_id,
        owner_id,
        f"{session_id}/{name}",
        lambda key, word: words.append(Word(writer=session_id, key=key, word=word)),
    )


def wrong(words: list[Word]) -> list[str]:
    """What is wrong with the record, and with what was told of it."""
    return [*faults_of_record(ask), *broken_promises(words, ask)]


def count(words: list[Word]) -> int:
    """How many turns were answered."""
    return sum(word.word == ANSWERED for word in words)
