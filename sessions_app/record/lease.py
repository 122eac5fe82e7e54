"""Leases: how long a process keeps what it claimed, how it renews that, and when another process may take it over.

Turns, compactions, items of maps and verifications are claimed by a conditional update that writes ``lease_expires_at``,
renewed while the work goes on, and free to be claimed again when the lease has run out. What a process writes after it lost
its lease is refused by the row's fence or owner.

A lease that runs out says that its owner is dead, or that it had no processor for so long. On the same host the two can be
told apart: the owner's name has the process id, and when that process began, because ids are used again.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from django.db import connections
from django.db.models import Model, Q, QuerySet

from sessions_app.database.outages import log_failure
from sessions_app.database.threads import beside_the_pool

M = TypeVar("M", bound=Model)
logger = logging.getLogger(__name__)

NO_LEASE = {"lease_owner": "", "lease_expires_at": None}  # of a row that no process holds
# How long a process that runs keeps what it had a lease of; after that something is wrong with it.
STARVED = timedelta(seconds=120)
_AT_REST = {"T", "t", "Z", "X", "x"}  # states of a Linux process that does nothing: stopped, traced, dead
_UNKNOWN = "-"  # when a process began, where no /proc says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The hold of one process on something, for so many seconds from each renewal."""

    owner: str
    seconds: float

    def expires_at(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.seconds)

    def columns(self, now: datetime) -> dict[str, Any]:
        return {"lease_owner": self.owner, "lease_expires_at": self.expires_at(now)}

    def due(self, rows: QuerySet[M], now: datetime) -> QuerySet[M]:
        """Return those of the rows of which a third of the lease is over: the other renewals cost no commit."""
        return rows.filter(lease_expires_at__lt=now + timedelta(seconds=self.seconds * 2 / 3))

    def renew(self, rows: QuerySet[M], now: datetime) -> int:
        return rows.update(lease_expires_at=self.expires_at(now))


def expired(now: datetime) -> Q:
    return Q(lease_expires_at__lt=now)


def is_abandoned(owner: str, *, expired_at: datetime, now: datetime) -> bool:
    """Return whether the owner of a lease that ran out is gone, and not a process of this host that was too slow."""
    return now - expired_at >= STARVED or not lives(owner)


def new_owner() -> str:
    """Return another name for this process, of at most a hundred characters."""
    _, began = _seen(os.getpid()) or ("", _UNKNOWN)
    return f"{_host()}:{os.getpid()}:{began}:{secrets.token_hex(4)}"


def lives(owner: str) -> bool:
    """Return whether the process of this name is known to run on this host."""
    host, pid, began, _ = ("", "", "", *owner.rsplit(":", 3))[-4:]
    if host != _host() or not pid.isdecimal():
        return False
    seen = _seen(int(pid))
    return seen is not None and seen[0] not in _AT_REST and seen[1] == began


class Heartbeat:
    """A thread that renews leases while anything is held, over a connection of its own.

    A lease must not run out because the process is busy: neither an event loop nor database threads nor a pool of
    connections that others keep waiting may delay its renewal.
    """

    def __init__(
        self,
        name: str,
        *,
        held: Callable[[], list[str]],
        renew: Callable[[list[str]], None],
        seconds: Callable[[], float],
    ) -> None:
        """
        :param held: returns the ids of what is held; called from the thread
        :param renew: renews the leases of these ids; what was held for less than one beat is left out, for it has most
            of its lease left
        :param seconds: returns the seconds between two beats
        """
        self._name, self._held, self._renew, self._seconds = name, held, renew, seconds
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_connection = False

    def start(self) -> None:
        """Start the thread, unless it runs: something is held."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # not alive: after a fork
                self._wake.clear()
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def stop(self, *, wait: bool = False) -> None:
        """End the thread, since nothing is held: its idle connection is given back now and not at the next beat."""
        thread = self._thread
        if self._has_connection or wait:
            self._wake.set()
        if thread is not None and wait:
            thread.join()

    def _run(self) -> None:
        with beside_the_pool():
            before: list[str] = []
            while True:
                with self._lock:
                    held = self._held()
                    if not held:
                        self._thread, self._has_connection = None, False
                        return
                if due := [one for one in held if one in before]:
                    self._has_connection = True
                    try:
                        self._renew(due)
                    except Exception as error:
                        # A database that is away for a moment: the lease has slack for it.
                        log_failure(logger, f"The heartbeat of {self._name} failed and tries again", error)
                        connections.close_all()
                before = held
                self._wake.wait(self._seconds())
                self._wake.clear()


def _host() -> str:
    return socket.gethostname()[:60]


def _seen(pid: int) -> tuple[str, str] | None:
    """Return a process's state and when it began, in ticks since the host did (proc(5)); ``None``: there is none."""
    with suppress(OSError):
        # Its name, in brackets, may hold anything, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # another user's
    return "", _UNKNOWN
