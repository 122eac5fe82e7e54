"""Commits that waiting changes share: on SQLite, which has one writer at a time and syncs each commit to the disk.

All changes of a process write on one connection, one after the other. Whoever is done while others wait leaves the
transaction open for the next and waits; the last one commits for all. So a change is acknowledged only when it is
durable, and a hundred that come at once cost a few commits. One that comes alone commits at once, as it would anyway.

PostgreSQL does the same by itself, for connections of their own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from django.db import DEFAULT_DB_ALIAS, DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

MOST_CHANGES = 64
"""Of one commit, so that the first does not wait for ever."""


class _Ends(threading.local):
    """What is still to be done at the end of this thread's transaction; ``None`` where it is in none of ours."""

    waiting: list[Callable[[], None]] | None = None


_ends = _Ends()


def at_end(call: Callable[[], None]) -> None:
    """Do something as the last thing of this thread's outermost durable transaction, so that its lock is taken last.

    Who is in none of ours has it done at once. What is asked for in a part that is taken back is not done.
    """
    if _ends.waiting is None:
        call()
    else:
        _ends.waiting.append(call)


@contextmanager
def durable_transaction() -> Iterator[None]:
    """A transaction that is durable when the block has ended; inside of another one, a part of it."""
    outer = _ends.waiting
    own: list[Callable[[], None]] = []
    with _transaction():
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


def _transaction() -> AbstractContextManager[None]:
    own = connections[DEFAULT_DB_ALIAS]
    is_alone = own.vendor != "sqlite" or own.in_atomic_block
    # Who counts queries counts those of this thread's own connection.
    return transaction.atomic() if is_alone or own.queries_logged else _writer_of_process(own).transaction(own)


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Changes that are committed together."""

    outer: AbstractContextManager[None]
    size: int = 0
    waits: bool = False
    """Whether a change has left that waits for the commit."""
    done: threading.Event = field(default_factory=threading.Event)
    error: DatabaseError | None = None


class _Writer:
    """The one writing connection of a process, and the queue for it."""

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
        """Take part in a transaction; at the end of the block it is durable. ``own`` is the thread's connection.

        :raises OperationalError: the commit failed, so nothing of it is stored.
        """
        self._wait_for_turn()
        try:
            connections[DEFAULT_DB_ALIAS] = self._connection
            batch = self._batch or self._begin()
            # Alone it needs no savepoint: where it fails, the whole transaction is its own.
            with self._finished(batch), self._savepoint() if batch.size else nullcontext():
                yield
        finally:
            connections[DEFAULT_DB_ALIAS] = own
            self._turn.release()
        batch.done.wait()
        if batch.error is not None:
            raise OperationalError(f"the commit failed: {batch.error}") from batch.error

    def _wait_for_turn(self) -> None:
        with self._counting:
            self._waiting += 1
        self._turn.acquire()
        with self._counting:
            self._waiting -= 1

    def _begin(self) -> _Batch:
        batch = _Batch(outer=transaction.atomic())
        batch.outer.__enter__()
        self._batch = batch
        return batch

    @contextmanager
    def _finished(self, batch: _Batch) -> Iterator[None]:
        """Commit after the block, unless somebody else comes who will."""
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
        """What ``atomic`` does inside of another one, for a tenth of the time: every change needs it."""
        hooks = len(self._connection.run_on_commit)
        self._run("SAVEPOINT one_change")
        try:
            yield
        except BaseException:
            self._take_back(hooks)
            raise
        if self._connection.needs_rollback:  # somebody caught a database error
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
        # Whoever is counted as waiting gets the turn, and then decides again.
        return self._waiting > 0 and batch.size < MOST_CHANGES and not self._connection.needs_rollback

    def _end(self, batch: _Batch, error: BaseException | None) -> None:
        self._batch = None
        if batch.waits and self._connection.needs_rollback:
            # The disk was full, say: SQLite may then take back the whole transaction, not only the last change.
            batch.error = OperationalError("the database gave the transaction up")
        try:
            batch.outer.__exit__(type(error) if error else None, error, None)
        except DatabaseError as failure:
            batch.error = failure
        finally:
            if not self._connection.autocommit:
                self._give_up(batch)
            batch.done.set()

    def _give_up(self, batch: _Batch) -> None:
        """The transaction's end broke off: on this connection, later ones would be taken for parts of it."""
        batch.error = batch.error or OperationalError("the transaction could not be ended")
        broken, self._connection = self._connection, _new_connection()
        broken.close()


def _new_connection() -> BaseDatabaseWrapper:
    """A connection that any thread may use."""
    connection = connections.create_connection(DEFAULT_DB_ALIAS)
    connection.inc_thread_sharing()
    return connection


_lock = threading.Lock()
_writer: _Writer | None = None
_of_parent: list[_Writer] = []
"""Kept, since a connection that came through a fork must not even be closed here."""


def _writer_of_process(own: BaseDatabaseWrapper) -> _Writer:
    """The writer of this process and database; after a fork, or in another test's database, a new one."""
    global _writer
    name = str(own.settings_dict["NAME"])
    with _lock:
        if _writer is not None and _writer.process_id != os.getpid():
            _of_parent.append(_writer)
            _writer = None
        if _writer is None or _writer.name != name:
            _writer = _Writer(name)
        return _writer
