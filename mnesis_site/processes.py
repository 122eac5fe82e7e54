"""The web server and the worker as one process tree, started, kept alive and stopped together, and the worker's queue.

Each child leads a process group of its own, so that a Ctrl-C reaches only us and a dead child's own
children can be found; on Linux a child is also told when we are killed without a chance to tell it.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import redis
from django.conf import settings
from django.db import close_old_connections, connections
from django.db.models import QuerySet
from django_q.brokers.orm import ORM
from django_q.conf import Conf
from django_q.models import OrmQ

from sessions_app.database.outages import log_failure, log_outage
from sessions_app.database.threads import AWAY

logger = logging.getLogger(__name__)
# From the polite stop to the hard one: more than the ten that running turns are given to write what they have.
GRACE_SECONDS = 15.0
STEADY_SECONDS = 60.0  # a child that lived this long was well; its next restart does not wait
LONGEST_WAIT_SECONDS = 30.0
SILENT_SECONDS = 120.0  # longer than any start on a slow machine; alive, a worker gives a sign every half second
LARGEST_MESSAGE_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
ASGI_APPLICATION = "mnesis_site.asgi:application"
PR_SET_PDEATHSIG = 1  # from linux/prctl.h
AWAY_SECONDS = 1.0  # between two looks at a database that is away
UNHEARD = (redis.RedisError, OSError)  # signs of life cannot be read or written: Redis is away, or the disk is full


@dataclass(slots=True, kw_only=True)
class Child:
    """One program of the tree; times are seconds of the monotonic clock."""

    name: str
    command: list[str]
    popen: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    deaths: int = 0  # in a row, without a steady life in between

    def keep_alive(self, now: float, say: Callable[[str], None]) -> None:
        status = self.popen.poll() if self.popen is not None else None
        if status is not None:
            self.bury(now)
            say(f"The {self.name} stopped by itself (status {status}) and is started again.")
        if self.popen is None and now >= self.start_at:
            try:
                self.start(now)
            except OSError as error:  # no memory, or too many processes, for a while
                self.bury(now)
                say(f"The {self.name} could not be started ({error}); it is tried again.")

    def start(self, now: float) -> None:
        self.started_at = now
        self.popen = subprocess.Popen(
            self.command,
            cwd=settings.BASE_DIR,
            env={**os.environ, "MNESIS_ROLE": self.name},
            start_new_session=True,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )

    def bury(self, now: float) -> None:
        """Clear away what a dead program left behind, and settle when to start it again."""
        self.signal_group(signal.SIGKILL)
        self.deaths = 1 if now - self.started_at > STEADY_SECONDS else self.deaths + 1
        self.start_at = now + min(LONGEST_WAIT_SECONDS, 0.25 * 2**self.deaths)
        self.popen = None

    def signal_group(self, number: signal.Signals) -> None:
        if self.popen is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.popen.pid, number)


def end_with_parent() -> None:
    """Ask the kernel, in a new child, for a SIGTERM when the parent dies, however it dies."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)  # it died in between


@dataclass(slots=True, kw_only=True)
class Watchdog:
    """Ends a child that is alive and does nothing, so that the tree starts it again: no process dies of being frozen."""

    child: Child
    gives_sign: Callable[[int], bool]  # whether the process of this id has given a sign of life in the last seconds
    say: Callable[[str], None]
    seen_at: float = 0.0
    looked_at: float = 0.0

    def look(self, now: float) -> None:
        if self.child.popen is None or now - self.looked_at < 1:
            return
        self.looked_at = now
        if self.gives_sign(self.child.popen.pid):
            self.seen_at = now
        if now - max(self.seen_at, self.child.started_at) > SILENT_SECONDS:
            self.say(f"The {self.child.name} gave no sign of life for {SILENT_SECONDS:.0f} seconds and is killed.")
            self.child.signal_group(signal.SIGKILL)
            self.seen_at = now


class Tree:
    """The children, from their start to the last one's end. Only for a main thread: it takes over the signals."""

    def __init__(self, children: list[Child], *, say: Callable[[str], None]) -> None:
        self.children = children
        self.say = say
        self.stop_requests = 0

    def run(self, tick: Callable[[], None]) -> None:
        """Keep the children alive, calling ``tick`` several times a second, until SIGINT, SIGTERM or SIGHUP."""

        def request_stop(number: int, frame: object) -> None:
            self.stop_requests += 1

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, request_stop)
        try:
            while not self.stop_requests:
                for child in self.children:
                    child.keep_alive(time.monotonic(), self.say)
                try:
                    tick()
                except Exception as error:
                    # Whatever is away comes back; a tree that has ended does not.
                    log_failure(logger, "A look at the children failed and is tried again", error)
                time.sleep(0.1)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop every child: politely first, at once on a second signal or when the grace is over."""
        running = [child.popen for child in self.children if child.popen is not None]
        for popen in running:
            popen.terminate()
        asked, deadline = self.stop_requests, time.monotonic() + GRACE_SECONDS
        while any(popen.poll() is None for popen in running):
            if time.monotonic() > deadline or self.stop_requests > max(asked, 1):
                break
            time.sleep(0.05)
        for child in self.children:
            child.signal_group(signal.SIGKILL)
        for popen in running:
            popen.wait()


def web(host: str, port: int) -> Child:
    command = [sys.executable, "-m", "mnesis_site.server", "--bind", host, "--port", str(port), "--verbosity", "0"]
    # Its own limit of one megabyte would drop the socket without a word; ours answers with an error.
    command += ["--websocket-max-message-size", str(LARGEST_MESSAGE_BYTES)]
    command += ["--websocket-max-frame-size", str(LARGEST_MESSAGE_BYTES)]
    return Child(name="web", command=[*command, "--server-name", "mnesis", ASGI_APPLICATION])


def worker() -> Child:
    return Child(
        name="worker", command=[sys.executable, str(settings.BASE_DIR / "manage.py"), "qcluster", "--skip-checks"]
    )


def require_free(host: str, port: int) -> None:
    """Bind the address for a moment, to find out before anything is started.

    :raises OSError: it is taken, not allowed, or not of this machine.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)


class Broker(ORM):  # type: ignore[misc]
    """The library's broker, except that its processes survive an outage and open no connection before they need it."""

    @staticmethod
    def get_connection(list_key: str | None = None) -> QuerySet[OrmQ]:
        """Return the queue's rows without opening a connection, so that a cluster can start before its database."""
        if not connections[Conf.ORM].in_atomic_block:
            close_old_connections()
        rows: QuerySet[OrmQ] = OrmQ.objects.using(Conf.ORM)
        return rows

    def dequeue(self) -> list[tuple[int, str]] | None:
        try:
            found: list[tuple[int, str]] | None = super().dequeue()
        except AWAY as error:
            log_outage(logger, "No jobs are taken: the database does not answer", error)
            connections.close_all()
            time.sleep(AWAY_SECONDS)
            return None
        return found

    def acknowledge(self, task_id: int) -> None:
        """Take a finished job out of the queue. If that fails the job runs once more, which is harmless."""
        try:
            super().acknowledge(task_id)
        except AWAY as error:
            log_outage(logger, "A job that is done stays in the queue: the database does not answer", error)
            connections.close_all()

    def set_stat(self, key: str, value: str, timeout: int) -> Any:
        try:
            return super().set_stat(key, value, timeout)
        except UNHEARD as error:
            log_outage(logger, "The worker cannot say that it lives", error)
            return None

    def get_stats(self, pattern: str) -> list[str]:
        """Return what clusters reported, or nothing while the database is away. Unlike the library's own, it writes nothing."""
        try:
            return list(self.cache.get_many(self.cache.get(Conf.Q_STAT) or []).values())
        except UNHEARD as error:
            log_outage(logger, "Whether workers live cannot be read", error)
            return []
