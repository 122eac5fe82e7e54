"""One writer on a disk that gets full, and has room again."""

from __future__ import annotations

import json
import time

from django.db import Error, connection

from tests.support.databases import ask
from tests.support.promises import Word, broken_promises
from tests.support.record_check import faults_of_record
from tests.support.recorded_files import Recording
from tests.support.recorded_writers import LEASE_SECONDS, new_site
from tests.support.writers import ANSWERED, append_turn


def main(room: str) -> int:
    """Write until the disk is full, make room, write on; prints what was refused and what is wrong, as JSON."""
    owner, [session, *_] = new_site()
    recording = Recording()
    recording.room = int(room)
    recording.start()
    words: list[Word] = []

    def say(key: str, word: str) -> None:
        words.append(Word(writer="one", key=key, word=word))

    refused = []
    while len(refused) < 5:
        try:
            append_turn(session, owner.pk, f"key-{len(words)}", say)
        except Error as error:
            refused.append(f"{type(error).__name__}: {error}")
    full = [*faults_of_record(ask), *broken_promises(words, ask)]
    connection.close()
    recording.room = None
    time.sleep(LEASE_SECONDS)
    append_turn(session, owner.pk, "last", say)
    after = [*faults_of_record(ask), *broken_promises(words, ask)]
    connection.close()
    answered = sum(word.word == ANSWERED for word in words)
    print(json.dumps({"refused": refused, "full": full, "after": after, "answered": answered, "last": words[-1].word}))
    return 0
