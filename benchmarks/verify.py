"""Verifying a record, against plain SQL that reads the same rows and hashes their texts without comparing anything."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from time import perf_counter

import django
from django.contrib.auth.models import User

from audit_app.proof.ledger import entry_problem, read_entries, segment_ends
from audit_app.proof.verify import Report, verify_sessions
from benchmarks.support.databases import Plain, plain_connection
from benchmarks.support.talk import make_turns, write_turn
from mnesis_core.events import GENESIS
from sessions_app.database.guards.triggers import guarded_models
from sessions_app.record import session_store
from sessions_app.record.change import change

SESSIONS, TURNS = 8, 1_500
TURNS_OF_A_LONG_ONE = 12_000
ROUNDS = 3
START = "{} processes, their start alone"


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    owner = User.objects.create_user("benchmark")
    every = [make_session(owner, turns) for turns in (*[TURNS] * SESSIONS, TURNS_OF_A_LONG_ONE)]
    long = every[-1]
    with plain_connection() as plain:
        looks: dict[str, Callable[[], object]] = {
            "plain SQL, reading alone": lambda: read_and_hash(plain, hashing=False),
            "plain SQL, reading and hashing": lambda: read_and_hash(plain, hashing=True),
            "chains alone": lambda: _follow_chains(every),
            "1 process": lambda: _verify(every, 1),
            START.format(jobs()): lambda: _start(long),
            f"{jobs()} processes": lambda: _verify(every, jobs()),
            f"{jobs()} processes, 1 session": lambda: _verify([long], jobs()),
        }
        rounds = [{name: _seconds(look) for name, look in looks.items()} for _ in range(ROUNDS)]
    entries = {session_id: segment_ends(session_id, 1_000)[-1] for session_id in every}
    took = {name: median(seconds[name] for seconds in rounds) for name in looks}
    return _rows(took, sum(entries.values()), entries[long])


def _rows(took: dict[str, float], entries: int, entries_of_one: int) -> list[tuple[str, ...]]:
    """Return the rows: entries per second, not counting process start, and our time relative to plain SQL."""
    plain, start = took["plain SQL, reading and hashing"] / entries, took[START.format(jobs())]
    rows: list[tuple[str, ...]] = []
    for name, seconds in took.items():
        if name == START.format(jobs()):
            rows.append((name, "", f"{seconds:.2f}", "", ""))
            continue
        count = entries_of_one if "1 session" in name else entries
        working = seconds - start if "processes" in name else seconds
        rate, ratio = f"{count / working:,.0f}", f"{working / count / plain:.2f}"
        rows.append((name, f"{count:,}", f"{seconds:.2f}", rate, ratio))
    return rows


def jobs() -> int:
    """Return as many jobs as the command uses by default."""
    return os.cpu_count() or 1


def make_session(owner: User, turns: int) -> str:
    """Make a session of so many of the usual turns. Return its id."""
    session_id = session_store.create_session(owner=owner, model="demo")
    for _ in range(turns // 100):
        with change(session_id) as record:
            for user, assistant in make_turns(100):
                write_turn(record, user, assistant)
    return session_id


def read_and_hash(plain: Plain, *, hashing: bool) -> None:
    """Read every row of every table of the record once, and hash its texts."""
    for model in guarded_models():
        for row in plain.rows(f"SELECT * FROM {model._meta.db_table}"):
            if hashing:
                hashlib.sha256("".join([value for value in row if type(value) is str]).encode()).digest()


def _follow_chains(sessions: list[str]) -> None:
    for session_id in sessions:
        seq, head = 0, GENESIS
        while entries := read_entries(session_id, seq):
            for entry in entries:
                assert not entry_problem(seq, head, entry[:5])
                seq, head = entry[0], entry[4]


def _verify(sessions: list[str], jobs: int) -> Report:
    report = verify_sessions(sessions, jobs=jobs)
    assert report.ok, report.problems[:3]
    return report


def _start(session_id: str) -> None:
    with ProcessPoolExecutor(jobs(), mp_context=get_context("spawn"), initializer=django.setup) as processes:
        list(processes.map(segment_ends, [session_id] * jobs(), [1_000] * jobs()))


def _seconds(call: Callable[[], object]) -> float:
    started = perf_counter()
    call()
    return perf_counter() - started
