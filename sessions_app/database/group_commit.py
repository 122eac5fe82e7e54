"""One commit for all waiting changes, on SQLite, which has one writer at a time and syncs each commit to disk.

All changes of a process are written on one connection, one after the other. A change that is done while others wait leaves
the transaction open for the next and waits; the last one commits for all. So a change is acknowledged only when it is
durable, and a hundred concurrent changes cost a few commits. A change that comes alone commits at once.

PostgreSQL does the same by itself, for separate connections.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from django.db import DEFAULT_DB_ALIAS, DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

MOST_CHANGES = 64  # of one commit, so that the first does not wait for ever


class _Ends(threading.local):
    waiting: list[Callable[[], None]] | None = None  # None outside any durable transaction


_ends = _Ends()


def at_end(call: Callable[[], None]) -> None:
    """Call something last in this thread's outermost durable transaction, or at once if there is none.

    A lock that the call takes is then taken last. Calls from a part that is rolled back are dropped.
    """
    if _ends.waiting is None:
        call()
    else:
        _ends.waiting.append(call)


@contextmanager
def durable_transaction() -> Iterator[None]:
    """Open a transaction that is durable when the block has ended; inside another one, a part of it."""
    outer = _ends.waiting
    own: list[Callable[[], None]] = []
    connection = connections[DEFAULT_DB_ALIAS]
    # Code that counts queries counts those of this thread's own connection.
    is_alone = connection.vendor != "sqlite" or connection.in_atomic_block or connection.queries_logged
    with transaction.atomic() if is_alone else _writer_of_process(connection).transaction(connection):
        _ends.waiting = own
        try:
            yield
            if outer is None:
                for call in own:
                    call()
        finally:
            _ends.waiting = outer
    if outer is not None:
        outer.extend(own)


@dataclass(slots=True, kw_only=True)
class _Batch:
    outer: AbstractContextManager[None]
    size: int = 0
    waits: bool = False  # whether a finished change waits for the commit
    done: threading.Event = field(default_factory=threading.Event)
    error: DatabaseError | None = None


class _Writer:
    """The only writing connection of a process, and the queue for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process_id = os.getpid()
        self._connection = _new_connection()
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._batch: _Batch | None = None

    @contextmanager
    def transaction(self, own: BaseDatabaseWrapper) -> Iterator[None]:
        """Take part in a transaction that is durable at the end of the block. ``own`` is the thread's connection.

        :raises OperationalError: the commit failed, so nothing of it is stored.
        """
        with self._counting:
            self._waiting += 1
        self._turn.acquire()
        with self._counting:
            self._waiting -= 1
        try:
            connections[DEFAULT_DB_ALIAS] = self._connection
            if self._batch is None:
                batch = _Batch(outer=transaction.atomic())
                batch.outer.__enter__()
                self._batch = batch
            batch = self._batch
            # The first change needs no savepoint: if it fails, the whole transaction is its own.
            with self._finished(batch), self._savepoint() if batch.size else nullcontext():
                yield
        finally:
            connections[DEFAULT_DB_ALIAS] = own
            self._turn.release()
        batch.done.wait()
        if batch.error is not None:
            raise OperationalError(f"the commit failed: {batch.error}") from batch.error

    @contextmanager
    def _finished(self, batch: _Batch) -> Iterator[None]:
        """Commit after the block, unless another waiting change will."""
        try:
            yield
        except BaseException as error:
            if batch.size == 0:
                self._end(batch, error)
            elif not self._goes_on(batch):
                self._end(batch, None)
            raise
        batch.size += 1
        if self._goes_on(batch):
            batch.waits = True
        else:
            self._end(batch, None)

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        """Do what a nested ``atomic`` does in a tenth of the time: every change needs it."""
        hooks = len(self._connection.run_on_commit)
        self._run("SAVEPOINT one_change")
        try:
            yield
        except BaseException:
            self._take_back(hooks)
            raise
        if self._connection.needs_rollback:  # a database error was caught inside the block
            self._take_back(hooks)
        else:
            self._run("RELEASE one_change")

    def _take_back(self, hooks: int) -> None:
        del self._connection.run_on_commit[hooks:]
        try:
            self._run("ROLLBACK TO one_change")
            self._run("RELEASE one_change")
        except DatabaseError:
            self._connection.needs_rollback = True
        else:
            self._connection.needs_rollback = False

    def _run(self, statement: str) -> None:
        with self._connection.wrap_database_errors:
            self._connection.connection.execute(statement)

    def _goes_on(self, batch: _Batch) -> bool:
        # A change that is counted as waiting gets the turn, and then decides again.
        return self._waiting > 0 and batch.size < MOST_CHANGES and not self._connection.needs_rollback

    def _end(self, batch: _Batch, error: BaseException | None) -> None:
        self._batch = None
        if batch.waits and self._connection.needs_rollback:
            # SQLite may roll back the whole transaction, not only the last change: when the disk is full, for example.
            batch.error = OperationalError("the database gave the transaction up")
        try:
            batch.outer.__exit__(type(error) if error else None, error, None)
        except DatabaseError as failure:
            batch.error = failure
        finally:
            if not self._connection.autocommit:
                # The end of the transaction broke off: on this connection, later ones would become parts of it.
                batch.error = batch.error or OperationalError("the transaction could not be ended")
                broken, self._connection = self._connection, _new_connection()
                broken.close()
            batch.done.set()


def _new_connection() -> BaseDatabaseWrapper:  # which any thread may use
    connection = connections.create_connection(DEFAULT_DB_ALIAS)
    connection.inc_thread_sharing()
    return connection


_lock = threading.Lock()
_writer: _Writer | None = None
_of_parent: list[_Writer] = []  # kept, because a connection that came through a fork must not even be closed here


def _writer_of_process(own: BaseDatabaseWrapper) -> _Writer:
    """Return the writer of this process and database: a new one after a fork or in another test's database."""
    global _writer
    name = str(own.settings_dict["NAME"])
    with _lock:
        if _writer is not None and _writer.process_id != os.getpid():
            _of_parent.append(_writer)
            _writer = None
        if _writer is None or _writer.name != name:
            _writer = _Writer(name)
        return _writer
