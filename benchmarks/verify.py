"""A record verified, against plain SQL that reads the same rows and hashes what they hold, without comparing anything."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from statistics import median
from time import perf_counter

from django.contrib.auth.models import User

from audit_app.chains import entry_problem
from audit_app.verify import Report, read_entries, verify_sessions
from benchmarks.databases import Plain, plain_connection
from benchmarks.talk import make_turns, write_turn
from mnesis_core.ledger import GENESIS
from sessions_app import store
from sessions_app.guards import guarded_models
from sessions_app.ledger import change

SESSIONS, TURNS = 8, 1_500
ROUNDS = 3


def measure() -> list[tuple[str, ...]]:
    """The rows of the table."""
    owner = User.objects.create_user("benchmark")
    sessions = [make_session(owner) for _ in range(SESSIONS)]
    with plain_connection() as plain:
        rounds = [
            (
                _seconds(lambda: read_and_hash(plain)),
                _seconds(lambda: _follow_chains(sessions)),
                _seconds(lambda: _verify(sessions, 1)),
                _seconds(lambda: _verify(sessions, jobs())),
            )
            for _ in range(ROUNDS)
        ]
    raw, chains, alone, together = (median(column) for column in zip(*rounds, strict=True))
    entries = verify_sessions(sessions[:1], jobs=1).entries * SESSIONS
    return [
        ("1 process, chains alone", f"{entries:,}", "", f"{entries / chains:,.0f}", ""),
        ("1 process", f"{entries:,}", f"{entries / raw:,.0f}", f"{entries / alone:,.0f}", f"{alone / raw:.2f}"),
        (f"{jobs()} processes", f"{entries:,}", "", f"{entries / together:,.0f}", f"{together / raw:.2f}"),
    ]


def jobs() -> int:
    """As many as the command uses."""
    return os.cpu_count() or 1


def make_session(owner: User) -> str:
    """A session of the usual turns; returns its id."""
    session_id = store.create_session(owner=owner, model="demo")
    for _ in range(TURNS // 100):
        with change(session_id) as record:
            for user, assistant in make_turns(100):
                write_turn(record, user, assistant)
    return session_id


def read_and_hash(plain: Plain) -> None:
    """Every row of every table of the record, once."""
    for model in guarded_models():
        for row in plain.rows(f"SELECT * FROM {model._meta.db_table}"):
            hashlib.sha256(repr(row).encode()).digest()


def _follow_chains(sessions: list[str]) -> None:
    for session_id in sessions:
        seq, head = 0, GENESIS
        while entries := read_entries(session_id, seq):
            for entry, _ in entries:
                assert not entry_problem(seq, head, entry)
                seq, head = entry[0], entry[4]


def _verify(sessions: list[str], jobs: int) -> Report:
    report = verify_sessions(sessions, jobs=jobs)
    assert report.ok, report.problems[:3]
    return report


def _seconds(call: Callable[[], object]) -> float:
    started = perf_counter()
    call()
    return perf_counter() - started
