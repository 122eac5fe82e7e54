"""A hundred messages replaced by one summary in a session of 10,000, against plain SQL that writes the same rows.

Ours takes the compaction's fence, writes the summary with its edges, removes the messages from the context, inserts the
summary, and adds events, commitments and index entries, all under the session's lock. Plain SQL has all rows in
advance and writes them under the same lock. Both commits are durable.
"""

from __future__ import annotations

from statistics import median, quantiles
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User
from django.db import connection

from benchmarks.support.databases import Plain, plain_connection
from benchmarks.support.summaries import TEXT, claim, new_summary
from benchmarks.support.talk import make_turns, write_turn
from compaction_app.store import record_summary
from mnesis_core.search.words import words_of
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_context_items
from sessions_app.search.index import stored_words

MESSAGES = 10_000
SOURCES = 100
ROUNDS = 90
TURNS_A_CHANGE = 100

_NEW = {
    "summary_nodes": "summary_nodes t WHERE t.id = ?",
    "summary_edges": "summary_edges t WHERE t.node_id = ? ORDER BY t.position",
    "context_items": "context_items t WHERE t.item_id = ?",
    "events": "events t WHERE t.session_id = ? AND t.seq > ? ORDER BY t.seq",
    "search_entries": "search_entries t WHERE t.source_id = ? ORDER BY t.id",
}
_NUMBERED = ("summary_edges", "context_items", "events", "search_entries")
_FENCE = "SELECT id FROM compaction_runs WHERE id = ? AND state = 'running' AND fence = ?"
_REMOVE = (
    "UPDATE context_items SET removed_seq = ? WHERE session_id = ? AND removed_seq IS NULL"
    f" AND item_id IN ({', '.join('?' * SOURCES)})"
)
_HEAD = "UPDATE sessions SET event_seq = ?, head_hash = ?, updated_at = ? WHERE id = ?"


class Session:
    """A session with a running compaction, and its messages in batches of a hundred."""

    def __init__(self, owner: User) -> None:
        self.id = session_store.create_session(owner=owner, model="demo")
        talk = make_turns(50)
        for _ in range(MESSAGES // 2 // TURNS_A_CHANGE):
            with change(self.id) as record:
                for turn in range(TURNS_A_CHANGE):
                    write_turn(record, *talk[turn % len(talk)])
        with change(self.id) as record:
            self.run_id, self.fence = claim(record)
        ids = [item.item_id for item in load_context_items(self.id)]
        self.spans = [ids[start : start + SOURCES] for start in range(0, len(ids), SOURCES)]

    def swap(self, span: list[str]) -> tuple[str, int, float]:
        """Swap once through the store. Return the summary, the last event before it, and the seconds."""
        started = perf_counter()
        with change(self.id) as record:
            before = record.event_seq
            summary = new_summary("leaf", len(span))
            made = record_summary(
                record, self.run_id, summary, fence=self.fence, source_type="message", source_ids=span
            )
        return made, before, perf_counter() - started


class Copier:
    """The same swap in another session, with plain SQL."""

    def __init__(self, plain: Plain, source: Session, target: Session) -> None:
        self._plain, self._source, self._target = plain, source, target
        self._columns = {
            table: [name for name in plain.names(table) if name != "id" or table not in _NUMBERED] for table in _NEW
        }

    def read(self, summary_id: str, before: int, span: list[str]) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of a swap, adapted to the other session."""
        keys: dict[str, tuple[Any, ...]] = dict.fromkeys(_NEW, (summary_id,)) | {"events": (self._source.id, before)}
        renamed = {
            self._source.id: self._target.id,
            self._source.run_id: self._target.run_id,
            summary_id: summary_id.replace("_0", "_Z", 1),
            **dict(zip(span, self._target.spans[self._source.spans.index(span)], strict=True)),
        }
        rows = {}
        for table, columns in self._columns.items():
            sql = f"SELECT {', '.join(f't.{name}' for name in columns)} FROM {_NEW[table]}"
            rows[table] = [
                tuple(renamed.get(value, value) if isinstance(value, str) else value for value in row)
                for row in self._plain.rows(sql, *keys[table])
            ]
            assert rows[table], f"the store wrote no {table}"
        return rows

    def write(self, rows: dict[str, list[tuple[Any, ...]]], span: list[str]) -> float:
        """Write the rows as one durable commit, and return the seconds."""
        plain, target = self._plain, self._target
        words = stored_words(words_of(TEXT), owner_id=1, session_id=target.id)
        event = dict(zip(self._columns["events"], rows["events"][-1], strict=True))
        started = perf_counter()
        with plain.transaction():
            plain.rows(f"SELECT event_seq, head_hash FROM sessions WHERE id = ?{plain.lock}", target.id)
            plain.rows(_FENCE, target.run_id, target.fence)
            plain.execute(_REMOVE, event["seq"], target.id, *span)
            for table, columns in self._columns.items():
                plain.insert(table, columns, rows[table])
            plain.execute(_HEAD, event["seq"], event["hash"], event["created_at"], target.id)
            if plain.is_sqlite:
                [[last]] = plain.rows("SELECT MAX(id) FROM search_entries")
                plain.execute("INSERT INTO search_words (rowid, words) VALUES (?, ?)", last, words)
        return perf_counter() - started


def measure() -> list[tuple[str, ...]]:
    """Return the row of the table."""
    owner = User.objects.create_user("benchmark")
    ours, theirs = Session(owner), Session(owner)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    with plain_connection() as plain:
        copier = Copier(plain, ours, theirs)
        rounds = [_measure(ours, copier, mine, other) for mine, other in zip(ours.spans, theirs.spans, strict=True)]
    raw, own = zip(*rounds[5:ROUNDS], strict=True)
    ratio = median(mine / plain for plain, mine in rounds[5:ROUNDS])
    numbers = (1000 * median(raw), 1000 * median(own), 1000 * quantiles(own, n=100)[-1])
    return [(f"{MESSAGES:,}", *(f"{number:.2f}" for number in numbers), f"{ratio:.2f}")]


def _measure(ours: Session, copier: Copier, mine: list[str], other: list[str]) -> tuple[float, float]:
    made, before, seconds = ours.swap(mine)
    return copier.write(copier.read(made, before, mine), other), seconds
