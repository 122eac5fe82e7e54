"""Workers that work on runs of operators and are killed at any moment.

One warmed-up process forks all of them, as in ``tests.support.processes.writers``. ``main`` prints a line for each
question that their models were asked, and one at the end with how many workers were killed.
"""

from __future__ import annotations

import os
import random
import time
import traceback

from django.conf import settings
from django.db import DatabaseError, connections

from agents_app.maps.worker import work_for_a_slice
from agents_app.queries import load_run
from mnesis_core.errors import MnesisError
from mnesis_core.llm.interface import Model, ModelSpec, Request
from mnesis_core.providers.scripted import ScriptedModel, Step
from tests.support.processes.compactors import kill
from tests.support.processes.writers import fork

MODEL_SECONDS = (0.0, 0.05)


def main(run_id: str, workers: str, kills: str, between_seconds: str, seed: str) -> int:
    """Keep so many workers at a run until it is over; kill one now and then, so many in all."""
    settings.MNESIS = {**settings.MNESIS, "MODEL_FACTORY": f"{__name__}.make_model"}
    chance = random.Random(seed)
    places = [start(f"{seed} {number}") for number in range(int(workers))]
    killed = 0
    while is_live(run_id):
        time.sleep(chance.uniform(0.2, 1.8) * float(between_seconds))
        if killed < int(kills):
            place = chance.randrange(len(places))
            kill(places[place])
            killed += 1
            places[place] = start(f"{seed} {killed} again")
    for pid in places:
        kill(pid)
    print(f"{killed} killed before the end")
    return 0


def is_live(run_id: str) -> bool:
    """Whether the run goes on; no connection is left that a fork would take with it."""
    try:
        return load_run(run_id).state.is_live
    finally:
        connections.close_all()


def start(seed: str) -> int:
    """A worker; returns its process id."""
    return fork(lambda: work_until_killed(random.Random(seed)))


def work_until_killed(chance: random.Random) -> None:
    """One slice after the other."""
    random.seed(chance.random())
    while True:
        try:
            work_for_a_slice()
        except (MnesisError, DatabaseError):
            traceback.print_exc()
        time.sleep(0.02)


def make_model(spec: ModelSpec) -> Model:
    """A model that says so when it is asked, and takes its time."""
    return ScriptedModel(spec, answer)


def answer(request: Request) -> Step:
    """What was asked, in capitals, by a model that is paid for."""
    asked = str(request.payload["messages"][-1]["content"])
    os.write(1, f"asked {asked}\n".encode())
    return Step(text=asked.upper(), delay_seconds=random.uniform(*MODEL_SECONDS))
