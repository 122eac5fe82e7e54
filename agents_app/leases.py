"""Leases of the turns of this process, renewed by a thread and over a connection of their own.

A lease must not run out because the process is busy: neither an event loop nor database threads nor a pool of connections
that others keep waiting may hold its renewal up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import connections

from sessions_app import store
from sessions_app.conf import site_config
from sessions_app.database import beside_the_pool
from sessions_app.outages import log_failure

logger = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
"""Between two looks, or a quarter of the lease where that is less: a session may have a shorter one than the site."""


class LeaseKeeper:
    """The thread lives while turns run; short ones never need it to ask the database."""

    def __init__(self, *, owner: Callable[[], str], held: Callable[[], list[str]]) -> None:
        """
        :param owner: the name under which this process holds turns
        :param held: the ids of the turns that run now; asked from the thread
        """
        self._owner, self._held = owner, held
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_connection = False

    def begin(self) -> None:
        """A turn runs."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # not alive: after a fork
                self._wake.clear()
                self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """No turn runs any more, so idle connections are given back now instead of at the next look."""
        if self._has_connection:
            self._wake.set()

    def _keep(self) -> None:
        with beside_the_pool():
            before: list[str] = []
            while held := self._held_or_end():
                # A turn seen for the first time has most of its lease left.
                self._renew([turn_id for turn_id in held if turn_id in before])
                before = held
                self._wake.wait(min(LOOK_SECONDS, site_config().turn.lease_seconds / 4))
                self._wake.clear()

    def _held_or_end(self) -> list[str]:
        with self._lock:
            held = self._held()
            if not held:
                self._thread, self._has_connection = None, False
            return held

    def _renew(self, turn_ids: list[str]) -> None:
        if not turn_ids:
            return
        self._has_connection = True
        seconds = site_config().turn.lease_seconds
        try:
            store.renew_leases(lease_owner=self._owner(), turn_ids=turn_ids, lease_seconds=seconds)
        except Exception as error:
            # A database that is away for a moment: the lease has slack for it.
            log_failure(logger, "The leases of running turns were not renewed; the next look tries again", error)
            connections.close_all()
