"""Turns written through the store, against plain SQL that writes the same rows in one transaction per turn.

Plain SQL has all rows in advance: it makes no ids, counts no tokens, hashes nothing, and inserts rows in their
final state. Both write alternately to one database, at equal durability.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User

from benchmarks.support.databases import Plain, plain_connection
from benchmarks.support.talk import make_turn_ready, make_turns, write_turn
from mnesis_core.messages import Message
from mnesis_core.search.words import words_of
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.search.index import stored_words

ROUNDS = 20
TURNS_A_ROUND = 25
LONG = 20_000

Talk = list[tuple[Message, Message]]
Rows = dict[str, list[tuple[Any, ...]]]

TABLES = {
    "turns": "turns t WHERE t.id = ?",
    "messages": "messages t WHERE t.turn_id = ? ORDER BY t.seq",
    "message_parts": "message_parts t JOIN messages m ON m.id = t.message_id WHERE m.turn_id = ?",
    "context_items": "context_items t JOIN messages m ON m.id = t.item_id WHERE m.turn_id = ? ORDER BY t.id",
    "events": "events t WHERE t.session_id = ? AND t.seq > ? AND t.seq <= ? ORDER BY t.seq",
    "search_entries": "search_entries t WHERE t.session_id = ? AND t.id > ? AND t.source_id IN (SELECT p.id"
    " FROM message_parts p JOIN messages m ON m.id = p.message_id WHERE m.turn_id = ?) ORDER BY t.id",
}
NUMBERED = ("context_items", "events", "search_entries")
"""Tables whose ``id`` the database makes."""
_RENAMED = ("id", "turn_id", "message_id", "item_id", "source_id")
_TEXTS = "SELECT tool_name, content, tool_input, output FROM message_parts WHERE id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTurn:
    """A turn written by the store, with the range of its events."""

    turn_id: str
    after_seq: int
    last_seq: int


class Copier:
    """Copies turns of one session into another, with plain SQL."""

    def __init__(self, plain: Plain, *, source_id: str, target_id: str, tables: dict[str, str] = TABLES) -> None:
        self._plain, self._source_id, self._target_id = plain, source_id, target_id
        self._tables = tables
        self._entries_before = 0
        self._columns = {
            table: [name for name in plain.names(table) if name != "id" or table not in NUMBERED] for table in tables
        }

    def read(self, turn: WrittenTurn) -> Rows:
        """Return all rows of a turn, with new ids of the same length."""
        rows = {}
        for table, columns in self._columns.items():
            keys: tuple[Any, ...] = (turn.turn_id,)
            if table == "events":
                keys = (self._source_id, turn.after_seq, turn.last_seq)
            elif table == "search_entries":
                keys = (self._source_id, self._entries_before, turn.turn_id)
            found = self._plain.rows(
                f"SELECT {', '.join(f't.{name}' for name in columns)} FROM {self._tables[table]}", *keys
            )
            assert found, f"the store wrote no {table}"
            rows[table] = [tuple(map(self._free, columns, row)) for row in found]
        if self._plain.is_sqlite:
            rows["search_words"] = [(words,) for words in self._words(rows["search_entries"])]
        return rows

    def read_as_dicts(self, turn: WrittenTurn) -> dict[str, list[dict[str, Any]]]:
        """Return the same rows as dicts by column name."""
        columns = self._columns | {"search_words": ["words"]}
        return {
            table: [dict(zip(columns[table], row, strict=True)) for row in rows]
            for table, rows in self.read(turn).items()
        }

    def _words(self, entries: list[tuple[Any, ...]]) -> Iterator[str]:
        """Yield the words given to FTS5 with each entry, which FTS5 itself does not keep."""
        for row in entries:
            entry = dict(zip(self._columns["search_entries"], row, strict=True))
            [texts] = self._plain.rows(_TEXTS, entry["source_id"].replace("_Z", "_0", 1))
            name, *others = texts
            words = words_of(dict(zip(("content", "tool_input", "output"), others, strict=True))[entry["field"]])
            words |= words_of(name if entry["field"] == "tool_input" else "")
            yield stored_words(words, owner_id=entry["owner_id"], session_id=self._target_id)

    def mark(self) -> None:
        """Start here: later reads return only what is written after this."""
        [[last]] = self._plain.rows("SELECT MAX(id) FROM search_entries")
        self._entries_before = last or 0

    def on(self, plain: Plain) -> Copier:
        """Return the same copier on another connection."""
        return Copier(plain, source_id=self._source_id, target_id=self._target_id)

    def write(self, turns: list[Rows]) -> None:
        """Write turns, each in a transaction under its session's lock."""
        for rows in turns:
            with self._plain.transaction():
                self.lock()
                self.insert(rows)

    def lock(self) -> None:
        """Lock the session in the current transaction."""
        self._plain.rows(f"SELECT event_seq, head_hash FROM sessions WHERE id = ?{self._plain.lock}", self._target_id)

    def insert_words(self, words: list[tuple[Any, ...]]) -> None:
        """Give FTS5 the words of the newest index entries."""
        [[last]] = self._plain.rows("SELECT MAX(id) FROM search_entries")
        numbered = enumerate(words, last - len(words) + 1)
        self._plain.insert("search_words", ("rowid", "words"), [(id, *word) for id, word in numbered])

    def insert(self, rows: Rows) -> None:
        """Insert the rows of one turn, and update the session's head."""
        for table, columns in self._columns.items():
            self._plain.insert(table, columns, rows[table])
        if self._plain.is_sqlite:
            self.insert_words(rows["search_words"])
        event, message, turn = (
            dict(zip(self._columns[table], rows[table][-1], strict=True)) for table in ("events", "messages", "turns")
        )
        self._plain.execute(
            "UPDATE sessions SET event_seq = ?, head_hash = ?, message_seq = ?, turn_seq = ?, updated_at = ?"
            " WHERE id = ?",
            *(event["seq"], event["hash"], message["seq"], turn["seq"], event["created_at"], self._target_id),
        )

    def _free(self, column: str, value: Any) -> Any:
        if column == "session_id":
            return self._target_id
        if isinstance(value, dict | list):
            return json.dumps(value)  # as read from PostgreSQL
        # Every id has a 0 after its prefix until the year 3084.
        return value.replace("_0", "_Z", 1) if column in _RENAMED else value


class Pair:
    """A session written by the store, and its copy written by plain SQL."""

    def __init__(self, owner: User, plain: Plain) -> None:
        self._plain = plain
        self.session_id = session_store.create_session(owner=owner, model="demo")
        self._copier = Copier(
            plain, source_id=self.session_id, target_id=session_store.create_session(owner=owner, model="demo")
        )

    def measure(self, talk: Talk) -> tuple[float, float]:
        """Return the seconds per turn, for plain SQL and for the store."""
        self._copier.mark()
        started = perf_counter()
        written = []
        for messages in talk:
            written.append(write_measured(self.session_id, *messages))
        ours = perf_counter() - started
        rows = [self._copier.read(turn) for turn in written]
        started = perf_counter()
        self._copier.write(rows)
        return (perf_counter() - started) / len(talk), ours / len(talk)


def write_measured(session_id: str, user: Message, assistant: Message) -> WrittenTurn:
    """Write one turn through the store, as one change."""
    ready = make_turn_ready(user, assistant)
    with change(session_id) as record:
        after_seq = record.event_seq
        turn_id = write_turn(record, user, assistant, ready)
        return WrittenTurn(turn_id=turn_id, after_seq=after_seq, last_seq=record.event_seq)


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    owner = User.objects.create_user("benchmark")
    talk = make_turns(TURNS_A_ROUND)
    with plain_connection() as plain:
        long = Pair(owner, plain)
        for _ in range(LONG // TURNS_A_ROUND // 4):
            with change(long.session_id) as record:
                for messages in talk * 4:
                    write_turn(record, *messages)
        Pair(owner, plain).measure(talk)  # warms both up
        rounds = [(Pair(owner, plain).measure(talk), long.measure(talk)) for _ in range(ROUNDS)]
    new, old = zip(*rounds, strict=True)
    growth = median(slow / quick for (_, quick), (_, slow) in rounds)
    return [("0", *_numbers(new), "1.00"), (f"{LONG:,}", *_numbers(old), f"{growth:.2f}")]


def _numbers(rounds: tuple[tuple[float, float], ...]) -> tuple[str, ...]:
    raw, ours = (1 / median(seconds) for seconds in zip(*rounds, strict=True))
    return f"{raw:,.0f}", f"{ours:,.0f}", f"{median(ours / raw for raw, ours in rounds):.2f}"
