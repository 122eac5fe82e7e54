"""The only writer of events: one change of one session is one transaction, one lock, one segment of the ledger.

    with change(session_id) as record:
        turn_id = store.start_turn(record, …)
        store.append_message(record, …)

Rows and events commit together or not at all. Followers of the session are notified after the commit; a notification may
be lost, the ledger cannot (decision 28).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.utils import CursorWrapper
from django.utils import timezone

from mnesis_core.actor import read_actor
from mnesis_core.errors import SessionNotFoundError
from mnesis_core.events import FORMAT_VERSION, EventType, canonical_body, entry_hash
from sessions_app.database.group_commit import durable_transaction
from sessions_app.database.tables import Commitment, Table, run, time_text
from sessions_app.models import Event
from sessions_app.record import hub
from sessions_app.record.actor import current_actor
from sessions_app.search import index
from sessions_app.search.index import Text

_EVENTS = Table(Event)
_LOCK = (
    "SELECT event_seq, head_hash, message_seq, turn_seq, branch, branch_seq, archived_at, salt, owner_id, organisation_id"
    " FROM sessions WHERE id = %s"
)
_VISIBLE, _TRASHED = " AND deleted_at IS NULL", " AND trashed_at IS NOT NULL"
_UPDATE_HEAD = (
    "UPDATE sessions SET event_seq = %s, head_hash = %s, message_seq = %s, turn_seq = %s,"
    " updated_at = COALESCE(%s, updated_at) WHERE id = %s"
)


@dataclass(slots=True, kw_only=True)
class Change:
    """One session under its row lock: writes rows, assigns sequence numbers and collects events.

    The next event commits to each row that is written (``sessions_app.database.tables``). New rows are held back until
    the end, so that those of one table are one statement; a read before that writes them first.
    """

    session_id: str
    now: datetime
    cursor: CursorWrapper
    event_seq: int
    head_hash: str
    message_seq: int
    turn_seq: int
    branch: int  # the chosen one: what is said now continues it
    branch_seq: int
    archived: bool
    salt: str
    owner_id: int
    organisation: str
    actor: str  # who acts, as the body of each event says it (``mnesis_core.actor``)
    turn_ids: set[str] = field(default_factory=set)  # known to belong to the session
    is_activity: bool = True  # false for what others do with it: it stays where it is in the list
    is_idle: bool = False  # true once it is known that no turn is running
    entries: list[SimpleNamespace] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)  # new to the search
    _waiting: dict[Table, list[SimpleNamespace]] = field(default_factory=dict)
    _bound: list[Commitment] = field(default_factory=list)

    def publish(self, type: EventType, /, **body: Any) -> int:
        """Add an event and return its ``seq``. The body holds ids and commitments, never content."""
        self.event_seq += 1
        text = canonical_body(
            body | {"at": time_text(self.now), "v": FORMAT_VERSION}, actor=self.actor, rows=self._bound
        )
        self._bound = []
        prev_hash = self.head_hash
        self.head_hash = entry_hash(prev_hash=prev_hash, seq=self.event_seq, type=type.value, body=text)
        # Nothing in it needs a codec.
        self.entries.append(
            _EVENTS.stored_row(
                session_id=self.session_id,
                seq=self.event_seq,
                type=type.value,
                body=text,
                prev_hash=prev_hash,
                hash=self.head_hash,
                created_at=self.now,
            )
        )
        return self.event_seq

    @contextmanager
    def unasked(self) -> Iterator[None]:
        """Let the events of the block say that no person asked for them at this moment."""
        own, self.actor = self.actor, read_actor(self.actor).unasked().text
        try:
            yield
        finally:
            self.actor = own

    def insert(self, table: Table, *rows: SimpleNamespace) -> None:
        for row in rows:
            self.bind_new(table, vars(row))
        self._waiting.setdefault(table, []).extend(rows)

    def bind_new(self, table: Table, values: dict[str, Any]) -> None:
        """Commit to a row that is not written by ``insert``; the values are the stored ones."""
        if table.model.rules.bound:
            salt = values.get(table.commitments.salt) or self.salt
            self._bound += table.commitments.inserted(values, salt=salt)

    def bind(self, table: Table, values: Mapping[str, Any], *, id: str, salt: str) -> None:
        """Commit to new values of a row, which are the stored ones."""
        if table.model.rules.bound:
            self._bound += table.commitments.changed(id, values, salt=salt or self.salt)

    def update(self, table: Table, values: dict[str, Any], *, id: str, **where: Any) -> bool:
        """Update one row if its columns equal ``where``, and return whether there is such a row.

        :raises ImmutableFieldError: a column may never change.
        """
        table.check(values)
        values = table.stored(values)
        row = next((row for row in self._waiting.get(table, ()) if row.id == id), None)
        if row is None:
            salts = table.update(self.cursor, values, id=id, **where)
        elif all(getattr(row, column) == value for column, value in where.items()):
            vars(row).update(values)
            salts = [getattr(row, table.commitments.salt, "")]
        else:
            salts = []
        for salt in salts:
            self.bind(table, values, id=id, salt=salt)
        return bool(salts)

    def update_each(self, table: Table, rows: Mapping[Any, Mapping[str, Any]], **how: Any) -> set[Any]:
        """Update many rows, each to its own values (``Table.update_each``), and return the keys of those that were changed.

        :raises ImmutableFieldError: a column may never change.
        """
        self.flush()
        rows = {key: table.stored(values) for key, values in rows.items()}
        salts = table.update_each(self.cursor, rows, **how)
        for key in sorted(salts):
            self.bind(table, rows[key], id=key, salt=salts[key])
        return set(salts)

    def find(self, table: Table, *columns: str, **where: Any) -> tuple[Any, ...] | None:
        self.flush()
        return table.find(self.cursor, *columns, **where)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for table, rows in waiting.items():
            table.insert(self.cursor, rows)

    def close(self) -> None:
        """Write the rows, the events and the session's new head.

        :raises RuntimeError: rows were written that no event commits to.
        :raises TransactionManagementError: a database error was caught in the block, so nothing can be committed.
        """
        if self._bound:
            raise RuntimeError(f"no event tells of {self._bound}")
        database = self.cursor.db
        # Otherwise the end of the transaction would silently roll everything back.
        database.validate_no_broken_transaction()
        self.flush()
        if self.entries:
            now = database.ops.adapt_datetimefield_value(self.now) if self.is_activity else None
            head = (self.event_seq, self.head_hash, self.message_seq, self.turn_seq, now, self.session_id)
            _EVENTS.insert(self.cursor, self.entries)
            run(self.cursor, _UPDATE_HEAD, head)
            hub.announce(self.cursor, self.session_id)
        if self.texts:
            index.write(self.cursor, self.texts, owner_id=self.owner_id, session_id=self.session_id)

    @property
    def next_seq(self) -> int:
        return self.event_seq + 1

    def next_message_seq(self) -> int:
        self.message_seq += 1
        return self.message_seq

    def next_turn_seq(self) -> int:
        self.turn_seq += 1
        return self.turn_seq


@contextmanager
def change(session_id: str, *, now: datetime | None = None, trashed: bool = False) -> Iterator[Change]:
    """Lock a session, let the block write rows and publish events, then write the events and the new head.

    :param trashed: the session is one in the trash
    :raises SessionNotFoundError: there is no such session, or it was deleted; with ``trashed``: it is not in the trash.
    """
    actor = current_actor().text  # before the transaction, since a new account may need its pseudonym first
    with durable_transaction():
        now = now or timezone.now()  # on PostgreSQL before the wait for the session's row
        database = connections[DEFAULT_DB_ALIAS]
        cursor = database.cursor()
        # SQLite has no FOR UPDATE; its transactions are IMMEDIATE, so the whole database is already locked.
        # NO KEY lets other transactions insert rows that only refer to the session.
        row_lock = " FOR NO KEY UPDATE" if database.features.has_select_for_no_key_update else ""
        head = run(cursor, _LOCK + (_TRASHED if trashed else _VISIBLE) + row_lock, [session_id]).fetchone()
        if head is None:
            raise SessionNotFoundError(session_id=session_id)
        event_seq, head_hash, message_seq, turn_seq, branch, branch_seq, archived_at, salt, owner_id, organisation = (
            head
        )
        record = Change(
            session_id=session_id,
            now=now,
            cursor=cursor,
            event_seq=event_seq,
            head_hash=head_hash,
            message_seq=message_seq,
            turn_seq=turn_seq,
            branch=branch,
            branch_seq=branch_seq,
            archived=archived_at is not None,
            salt=salt,
            owner_id=owner_id,
            organisation=organisation,
            actor=actor,
        )

        def write_first(execute: Callable[..., Any], *args: Any) -> Any:
            record.flush()
            return execute(*args)

        # The ORM reads through Django's cursors, whose wrapper writes the pending rows first.
        with database.execute_wrapper(write_first):
            yield record
            record.close()
        if record.entries:
            database.on_commit(lambda: hub.wake(session_id))
