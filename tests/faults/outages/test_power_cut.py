"""The power goes while SQLite writes: whatever the disk keeps of what was not synced, no acknowledged word is lost.

The last test is there to show that the others can fail: with less syncing, the same cuts lose turns.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.failures.power_cut import Disk
from tests.support.processes.children import run_child
from tests.support.proof.promises import Word, broken_promises
from tests.support.proof.record_check import faults_of_record

pytestmark = pytest.mark.slow

TURNS, CUTS = 32, 40
SOAK_TURNS, SOAK_CUTS, SOAK_RUNS = 120, int(os.environ.get("MNESIS_SOAK_CUTS", "10000")), 5
DATABASE = "mnesis.sqlite3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a database had to say after a cut."""

    damage: list[str]
    """Of the file or of the record."""
    lost: list[str]
    """Of what had been acknowledged."""


def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    found = cut_often(tmp_path, turns=TURNS, cuts=CUTS, synchronous="FULL")
    assert [cut for cut in found if cut.damage or cut.lost] == []


@pytest.mark.soak
@pytest.mark.parametrize("run", range(SOAK_RUNS))
def test_thousands_of_power_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path, run: int) -> None:
    found = cut_often(tmp_path, turns=SOAK_TURNS, cuts=SOAK_CUTS // SOAK_RUNS, synchronous="FULL")
    assert [cut for cut in found if cut.damage or cut.lost] == []


def test_with_less_syncing_the_same_cuts_lose_acknowledged_turns_and_break_nothing(tmp_path: Path) -> None:
    found = cut_often(tmp_path, turns=TURNS, cuts=CUTS, synchronous="NORMAL")
    assert [cut for cut in found if cut.damage] == []
    assert any(cut.lost for cut in found)


def cut_often(directory: Path, *, turns: int, cuts: int, synchronous: str) -> list[Found]:
    """Record some writers, cut the power at random places of the recording, and look each time."""
    before, recorded = directory / "before", directory / "recorded"
    environment = {"DATABASE_URL": f"sqlite:///{directory}/new.sqlite3", "MNESIS_DATA_DIR": str(directory)}
    arguments = before, directory / DATABASE, recorded, turns, synchronous
    run_child("tests.support.processes.recorded_writers", *arguments, **environment)
    seed = random.randrange(10**6)
    print("seed", seed)
    found = list(play(pickle.loads(recorded.read_bytes()), before, cuts, random.Random(seed)))
    print(f"{cuts} cuts: {sum(bool(cut.damage) for cut in found)} damaged, {sum(bool(cut.lost) for cut in found)} lost")
    return found


def play(entries: list[tuple[Any, ...]], before: Path, cuts: int, chance: random.Random) -> Iterator[Found]:
    """Play the recording once, with a look at what a cut would leave at each of so many places."""
    disk, words = Disk({DATABASE: before.read_bytes()}), []
    spoken = [place for place, entry in enumerate(entries) if entry[0] == "word"]
    # Half of them right after a word: then it must hold.
    places = sorted([*chance.choices(spoken, k=cuts // 2), *chance.choices(range(len(entries)), k=cuts - cuts // 2)])
    for place, entry in enumerate(entries):
        disk.play(entry)
        if entry[0] == "word":
            key, word = entry[1]
            words.append(Word(writer=key.rpartition("-")[0], key=key, word=word))
        while places and places[0] == place:
            places.pop(0)
            yield look(disk, chance, words, before.parent / "cut")


def look(disk: Disk, chance: random.Random, words: list[Word], directory: Path) -> Found:
    """Open what the cut left, as the site would."""
    directory.mkdir()
    disk.after_cut(chance, directory)
    connection = sqlite3.connect(directory / DATABASE)
    try:

        def ask(sql: str) -> list[tuple[Any, ...]]:
            return connection.execute(sql).fetchall()

        integrity = [row[0] for row in ask("PRAGMA integrity_check") if row[0] != "ok"]
        return Found(damage=[*integrity, *faults_of_record(ask)], lost=broken_promises(words, ask))
    except sqlite3.DatabaseError as error:
        return Found(damage=[str(error)], lost=[])
    finally:
        connection.close()
        shutil.rmtree(directory)
