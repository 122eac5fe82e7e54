"""Workers that compact and are killed, or put to sleep for longer than their lease, at any moment.

One warmed-up process forks all of them, as in ``tests.support.processes.writers``. Each goes from session to session: a
new turn, a compaction asked for or found, its work done with a model that takes a while. ``main`` prints a line for each
question that their models were asked, and one at the end with how many workers were killed and put to sleep.
"""

from __future__ import annotations

import os
import random
import signal
import time
import traceback

from django.conf import settings
from django.db import DatabaseError

from compaction_app.compact import compact_session, request_manual, wake_stale
from compaction_app.models import SummaryNode
from mnesis_core.errors import MnesisError
from mnesis_core.llm.interface import Model, ModelSpec, Request
from mnesis_core.messages import Message, TextPart
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_core.records import TurnState
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from tests.support.processes.writers import fork

SUMMARY = "- The ledgers moved."
WORDS = "The harbour office moved its ledgers to the new building in March, and Ines checked every one of them. " * 3
MODEL_SECONDS = (0.0, 0.04)
"""Before each word of a summary."""
BETWEEN_SECONDS = (0.02, 0.12)
"""From one kill or sleep to the next."""
SLEEP_LEASES = (1.2, 2.5)
"""How long a worker sleeps, in leases."""
SLEEPS = 0.3
"""Of all that happens to workers, how much is sleep."""


def main(sessions: str, workers: str, events: str, lease_seconds: str, seed: str) -> int:
    """Keep so many workers at these sessions (ids, with commas) until so many of them were killed or put to sleep."""
    settings.MNESIS = {**settings.MNESIS, "MODEL_FACTORY": "tests.support.processes.compactors.make_model"}
    chance = random.Random(seed)
    ids = sessions.split(",")
    places = [start(ids, f"{seed} {number}") for number in range(int(workers))]
    kills = sleeps = 0
    for event in range(int(events)):
        time.sleep(chance.uniform(*BETWEEN_SECONDS))
        place = chance.randrange(len(places))
        if chance.random() < SLEEPS:
            put_to_sleep(places[place], chance.uniform(*SLEEP_LEASES) * float(lease_seconds))
            sleeps += 1
        else:
            kill(places[place])
            places[place] = start(ids, f"{seed} {event} again")
            kills += 1
    while not SummaryNode.objects.exists():  # a busy machine may have killed all of them before the first question
        time.sleep(BETWEEN_SECONDS[0])
    for pid in places:
        kill(pid)
    print(f"{kills + len(places)} killed, {sleeps} slept")
    return 0


def start(sessions: list[str], seed: str) -> int:
    """A worker; returns its process id."""
    return fork(lambda: compact_until_killed(sessions, random.Random(seed)))


def kill(pid: int) -> None:
    """End a worker at whatever it does.

    :raises RuntimeError: it had ended by itself.
    """
    os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != -signal.SIGKILL:
        raise RuntimeError(f"a worker ended by itself, with status {status}")


def put_to_sleep(pid: int, seconds: float) -> None:
    """Stop a worker for so long, at whatever it does; the others go on."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


def compact_until_killed(sessions: list[str], chance: random.Random) -> None:
    """One compaction after the other, wherever one is to be done."""
    random.seed(chance.random())
    while True:
        try:
            session_id = chance.choice(sessions)
            if chance.random() < 0.5:
                add_turn(session_id)
            wake_stale()
            compact_session(session_id, run_id=request_manual(session_id))
        except (MnesisError, DatabaseError):
            # What a real worker has in its log too: another one slept while it held a lock.
            traceback.print_exc()


def add_turn(session_id: str) -> None:
    """A turn that has ended, in one change."""
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        for role, text in (("user", WORDS), ("assistant", "Noted.")):
            message = Message(role=role, parts=(TextPart(text=text),))
            message_store.append_message(record, turn_id=turn_id, message=message)
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)


def make_model(spec: ModelSpec) -> Model:
    """A model that says so when it is asked, and takes its time."""
    return ScriptedModel(spec, answer)


def answer(request: Request) -> Step:
    """Say that this is paid for."""
    os.write(1, b"asked\n")
    return Step(text=SUMMARY, delay_seconds=random.uniform(*MODEL_SECONDS))
