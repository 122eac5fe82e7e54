"""Many sessions written at the same time: by threads of one process, and by three processes (one web, two workers).

Plain SQL writes the same rows equally durably, with all rows in advance: on SQLite one thread with its own connection,
which commits many waiting turns together; on PostgreSQL one connection per thread.
"""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import quantiles
from time import perf_counter

import django
from django.contrib.auth.models import User
from django.db import OperationalError, connection

from benchmarks.append import Copier, Rows, Talk, WrittenTurn, write_measured
from benchmarks.support.databases import plain_connection
from benchmarks.support.talk import make_turns
from sessions_app.record import session_store

TURNS = 768
AT_ONCE = (1, 8, 64)
ROUNDS = 3
MOST_TOGETHER = 64
PROCESSES, THREADS = 3, 4

Write = Callable[[int], None]
"""Writes the turn of this number."""


@dataclass(slots=True)
class Times:
    """The duration of each turn, and of all together."""

    seconds: float = 0.0
    turns: list[float] = field(default_factory=list)
    lock_errors: int = 0

    @property
    def rate(self) -> float:
        """Return the turns per second."""
        return len(self.turns) / self.seconds

    @property
    def p99(self) -> float:
        """Return the 99th percentile, in milliseconds."""
        return quantiles(self.turns, n=100)[98] * 1000


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    owner = User.objects.create_user("benchmark")
    rows = [_threads(owner, at_once) for at_once in AT_ONCE]
    return [*rows, _processes(owner)]


def _threads(owner: User, at_once: int) -> tuple[str, ...]:
    rounds = sorted((_pair(owner, at_once) for _ in range(ROUNDS)), key=lambda pair: pair[1].rate / pair[0].rate)
    raw, ours = rounds[ROUNDS // 2]
    return (
        f"{at_once} in one process",
        f"{raw.rate:,.0f}",
        f"{ours.rate:,.0f}",
        f"{ours.rate / raw.rate:.2f}",
        f"{raw.p99:,.0f}",
        f"{ours.p99:,.0f}",
        str(ours.lock_errors),
    )


def _pair(owner: User, at_once: int) -> tuple[Times, Times]:
    sources, targets = (
        [session_store.create_session(owner=owner, model="demo") for _ in range(at_once)] for _ in range(2)
    )
    talk = make_turns(TURNS // at_once)
    written: list[list[WrittenTurn]] = [[] for _ in sources]

    def write(number: int) -> Write:
        def turn(index: int) -> None:
            written[number].append(write_measured(sources[number], *talk[index]))

        return turn

    ours = _at_once([write(number) for number in range(at_once)], len(talk))
    with plain_connection() as plain:
        copiers = [
            Copier(plain, source_id=source, target_id=target) for source, target in zip(sources, targets, strict=True)
        ]
        rows = [[copier.read(turn) for turn in turns] for copier, turns in zip(copiers, written, strict=True)]
        shared = _shared_commits if connection.vendor == "sqlite" else _own_connections
        return shared(copiers, rows), ours


def _at_once(writers: list[Write], turns: int) -> Times:
    times = Times()

    def run(write: Write) -> None:
        for index in range(turns):
            started = perf_counter()
            try:
                write(index)
            except OperationalError:
                times.lock_errors += 1
            times.turns.append(perf_counter() - started)
        connection.close()

    started = perf_counter()
    with ThreadPoolExecutor(len(writers)) as threads:
        list(threads.map(run, writers))
    times.seconds = perf_counter() - started
    return times


def _own_connections(copiers: list[Copier], rows: list[list[Rows]]) -> Times:
    """Run plain SQL with one connection per session."""
    with ExitStack() as connections:
        own = [copier.on(connections.enter_context(plain_connection())) for copier in copiers]

        def writer(number: int) -> Write:
            return lambda index: own[number].write([rows[number][index]])

        return _at_once([writer(number) for number in range(len(own))], len(rows[0]))


def _shared_commits(copiers: list[Copier], rows: list[list[Rows]]) -> Times:
    """Run plain SQL with one thread that writes all waiting turns and commits them together."""
    waiting: queue.SimpleQueue[tuple[int, int, threading.Event] | None] = queue.SimpleQueue()

    def write_what_waits() -> None:
        with plain_connection() as plain:
            own = [copier.on(plain) for copier in copiers]
            while (first := waiting.get()) is not None:
                some = [first]
                with plain.transaction():
                    own[first[0]].insert(rows[first[0]][first[1]])
                    while len(some) < MOST_TOGETHER and not waiting.empty() and (more := waiting.get()) is not None:
                        own[more[0]].insert(rows[more[0]][more[1]])
                        some.append(more)
                for _, _, done in some:
                    done.set()

    def writer(number: int) -> Write:
        def turn(index: int) -> None:
            done = threading.Event()
            waiting.put((number, index, done))
            done.wait()

        return turn

    thread = threading.Thread(target=write_what_waits)
    thread.start()
    times = _at_once([writer(number) for number in range(len(copiers))], len(rows[0]))
    waiting.put(None)
    thread.join()
    return times


def _processes(owner: User) -> tuple[str, ...]:
    sessions = [
        [session_store.create_session(owner=owner, model="demo") for _ in range(THREADS)] for _ in range(PROCESSES)
    ]
    context = multiprocessing.get_context("spawn")
    with context.Pool(PROCESSES, initializer=django.setup) as pool:
        pool.map(_warm_up, range(PROCESSES))
        started = perf_counter()
        parts = pool.map(_write_sessions, sessions, chunksize=1)
        seconds = perf_counter() - started
    turns = [seconds for part in parts for seconds in part.turns]
    times = Times(seconds=seconds, turns=turns, lock_errors=sum(part.lock_errors for part in parts))
    name = f"{PROCESSES * THREADS} in {PROCESSES} processes"
    return (name, "", f"{times.rate:,.0f}", "", "", f"{times.p99:,.0f}", str(times.lock_errors))


def _warm_up(number: int) -> None:
    connection.ensure_connection()


def _write_sessions(session_ids: list[str]) -> Times:
    talk: Talk = make_turns(TURNS // PROCESSES // THREADS)

    def writer(session_id: str) -> Write:
        def turn(index: int) -> None:
            write_measured(session_id, *talk[index])

        return turn

    return _at_once([writer(session_id) for session_id in session_ids], len(talk))
