"""Whole turns with a model that answers instantly, against plain SQL that reads and writes the same rows.

A turn is started through the interface behind every endpoint and runs to its end: claim, context, call, answer and, in
the second kind, two tools and another call. Plain SQL makes the same durable commits at the same points, reads the
context before each call, and does nothing else: it has all rows in advance. The model's own time is in neither.

Both are also measured in CPU time, which is more reliable on a machine with other load.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from time import perf_counter, process_time
from typing import Any

from django.contrib.auth.models import User
from django.db import connection

from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from benchmarks.append import NUMBERED, TABLES, Copier, WrittenTurn
from benchmarks.assemble import ITEMS, PlainContext, make_session
from benchmarks.support.databases import Plain, plain_connection
from benchmarks.support.instant import answer_at_once
from benchmarks.support.summaries import summarise
from benchmarks.support.talk import make_turns
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import text_of
from sessions_app.database.threads import db
from sessions_app.live import follow
from sessions_app.llm import model_store
from sessions_app.models import Message as MessageRow
from sessions_app.models import MessagePart, ModelCall, Turn
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_context_items
from sessions_app.record.session_queries import load_session

SIZES = (100, 10_000)
TURNS_A_ROUND = 8
ROUNDS = 12
KINDS = {"answer": [], "two tools": ["read_page"]}
"""What each kind of turn is offered."""

_CALLS = {"model_calls": "model_calls t WHERE t.turn_id = ? ORDER BY t.created_at"}
_RULES = {"turns": Turn, "messages": MessageRow, "message_parts": MessagePart, "model_calls": ModelCall}
_ENDS = {"turns": "ended_at", "messages": "finalized_at", "model_calls": "ended_at"}
_BIRTHS = {"turns": "created_at", "messages": "recorded_at", "model_calls": "created_at", "events": "created_at"}
_FIRST_STATES = {"state": "running", "tool_state": "pending"}

Row = dict[str, Any]


@dataclass(slots=True)
class Commit:
    """The writes of one transaction of a turn."""

    inserts: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    updates: list[tuple[str, Row, str]] = field(default_factory=list)
    """Table, values and id."""
    words: list[tuple[str]] = field(default_factory=list)
    """The words given to FTS5 with the index entries."""

    @property
    def begins_call(self) -> bool:
        """Return whether this commit starts a model call, before which the context was read."""
        return "model_calls" in self.inserts


class PlainTurns:
    """Writes the turns of one session again into another."""

    def __init__(self, plain: Plain, *, source_id: str, target_id: str) -> None:
        self._plain, self._target_id = plain, target_id
        self._copier = Copier(plain, source_id=source_id, target_id=target_id, tables=TABLES | _CALLS)
        self._context = PlainContext(plain, source_id)
        self.mark = self._copier.mark

    def plan(self, turn: WrittenTurn) -> list[Commit]:
        """Return the commits of a turn in order, derived from its rows."""
        rows = self._copier.read_as_dicts(turn)
        words = rows.pop("search_words", [])
        number = {time: index for index, time in enumerate(dict.fromkeys(row["created_at"] for row in rows["events"]))}
        place = _Places(rows, number)
        commits = [Commit() for _ in number]
        for table, some in rows.items():
            for row in some:
                changes = list(place.changes(table, row))
                late = {name: _FIRST_STATES.get(name) for _, values in changes for name in values}
                commits[place.birth(table, row)].inserts[table].append(row | late)
                for index, values in changes:
                    commits[index].updates.append((table, values, row["id"]))
        for row, text in zip(rows["search_entries"], words, strict=bool(words)):
            commits[place.birth("search_entries", row)].words.append((text["words"],))
        return commits

    def write(self, commits: list[Commit]) -> None:
        """Write one turn: each commit under its session's lock, reading the context before each call."""
        for commit in commits:
            if commit.begins_call:
                self._context.read()
            with self._plain.transaction():
                self._copier.lock()
                self._write(commit)

    def _write(self, commit: Commit) -> None:
        for table, rows in commit.inserts.items():
            columns = [name for name in rows[0] if name != "id" or table not in NUMBERED]
            self._plain.insert(table, columns, [tuple(row[name] for name in columns) for row in rows])
        if commit.words:
            self._copier.insert_words(commit.words)
        for table, values, id in commit.updates:
            names = ", ".join(f"{name} = ?" for name in values)
            self._plain.execute(f"UPDATE {table} SET {names} WHERE id = ?", *values.values(), id)
        event = commit.inserts["events"][-1]
        self._plain.execute(
            "UPDATE sessions SET event_seq = ?, head_hash = ?, updated_at = ? WHERE id = ?",
            *(event["seq"], event["hash"], event["created_at"], self._target_id),
        )


class _Places:
    """Maps rows to the commit that wrote them: all writes of a commit share one time, as do its events."""

    def __init__(self, rows: dict[str, list[Row]], number: dict[Any, int]) -> None:
        self._number = number
        self._of_seq = {row["seq"]: number[row["created_at"]] for row in rows["events"]}
        self._parts = {row["id"]: row for row in rows["message_parts"]}
        created = [row for row in rows["events"] if row["type"] == "part.created"]
        messages = {row["id"]: number[row["recorded_at"]] for row in rows["messages"]}
        self._of_part = {row["id"]: messages[row["message_id"]] for row in rows["message_parts"]}
        # The copy has other ids than those in the events (see ``Copier``).
        self._of_part |= {
            json.loads(row["body"])["part_id"].replace("_0", "_Z", 1): number[row["created_at"]] for row in created
        }

    def birth(self, table: str, row: Row) -> int:
        """Return the commit that inserts a row."""
        if table == "context_items":
            return self._of_seq[row["added_seq"]]
        if table == "message_parts":
            return self._of_part[row["id"]]
        if table == "search_entries":
            is_result = row["field"] in ("output", "error_message")
            part = self._parts[row["source_id"]]
            return self._number[part["completed_at"]] if is_result else self._of_part[row["source_id"]]
        return self._number[row[_BIRTHS[table]]]

    def changes(self, table: str, row: Row) -> Iterator[tuple[int, Row]]:
        """Yield the commits that change a row, each with the values it sets."""
        if table == "message_parts" and row["started_at"]:
            yield self._number[row["started_at"]], {"tool_state": "running", "started_at": row["started_at"]}
            done = ("tool_state", "output", "error_message", "completed_at", "output_token_estimate")
            yield self._number[row["completed_at"]], {name: row[name] for name in done}
        end = row.get(_ENDS.get(table, ""))
        if end and self._number[end] != self.birth(table, row):
            rules = _RULES[table].rules
            yield self._number[end], {name: row[name] for name in (*rules.once, *rules.steps) if name in row}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one turn, in seconds."""

    wall: float
    processor: float


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    answer_at_once()
    owner = User.objects.create_user("benchmark")
    spec = ModelSpec(alias="large", litellm_model="demo/chat", context_window=400_000, max_output_tokens=4_000)
    model_store.put_model(spec)
    sessions = {size: make_session(owner, 2 * size) for size in SIZES}
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")  # as autovacuum would do later
    with plain_connection() as plain:
        return asyncio.run(_measure(plain, owner, sessions))


async def _measure(plain: Plain, owner: User, sessions: dict[int, str]) -> list[tuple[str, ...]]:
    rows = []
    for kind, tools in KINDS.items():
        benches = [Bench(plain, session_id, await db(_copy_of, owner), tools) for session_id in sessions.values()]
        for bench in benches:
            await bench.prepare()
            await bench.round()  # warm-up
        rounds = [[await bench.round() for bench in benches] for _ in range(ROUNDS)]
        tokens = [await bench.first_tokens() for bench in benches]
        least = [pairs[0][1].wall for pairs in rounds]
        for size, column, waited in zip(sessions, zip(*rounds, strict=True), tokens, strict=True):
            rows.append((kind, f"{size:,}", *_numbers(column, least), f"{1000 * waited:.1f}"))
    await runner.shutdown()
    return rows


def _copy_of(owner: User) -> str:
    return session_store.create_session(owner=owner, model="large")


def _numbers(rounds: tuple[tuple[Cost, Cost], ...], least: list[float]) -> tuple[str, ...]:
    def ms(of: Callable[[tuple[Cost, Cost]], float]) -> str:
        return f"{1000 * median(map(of, rounds)):.2f}"

    wall = median(ours.wall / raw.wall for raw, ours in rounds)
    processor = sum(ours.processor for _, ours in rounds) / sum(raw.processor for raw, _ in rounds)
    growth = median(ours.wall / short for (_, ours), short in zip(rounds, least, strict=True))
    return (
        *(ms(lambda pair: pair[0].wall), ms(lambda pair: pair[1].wall), f"{wall:.2f}"),
        *(ms(lambda pair: pair[0].processor), ms(lambda pair: pair[1].processor), f"{processor:.2f}"),
        f"{growth:.2f}",
    )


class Bench:
    """A session in which turns are run, and its copy written by plain SQL."""

    def __init__(self, plain: Plain, session_id: str, target_id: str, tools: list[str]) -> None:
        self._session_id, self._tools = session_id, tools
        self._plain_turns = PlainTurns(plain, source_id=session_id, target_id=target_id)
        self._messages = [text_of(user.parts) for user, _ in make_turns(TURNS_A_ROUND)]

    async def prepare(self) -> None:
        """Offer the session the tools of this kind."""
        self._owner_id = (await db(load_session, self._session_id)).owner_id
        config = {"turn": {"tools": self._tools}, "compaction": {"auto": False}}
        await db(_configure, self._session_id, config)

    async def round(self) -> tuple[Cost, Cost]:
        """Return the cost of a turn with plain SQL, and of one of ours."""
        self._plain_turns.mark()
        started = perf_counter(), process_time()
        turns = [await self._turn(message) for message in self._messages]
        ours = _cost(started, len(turns))
        written = await db(_stretches, self._session_id, turns)
        plans = [self._plain_turns.plan(turn) for turn in written]
        started = perf_counter(), process_time()
        for plan in plans:
            self._plain_turns.write(plan)
        raw = _cost(started, len(turns))
        await db(_shorten, self._session_id)
        return raw, ours

    async def first_tokens(self) -> float:
        """Return the seconds from the request until a follower receives the first text."""
        waited = [await self._first_token(message) for message in self._messages * 2]
        await db(_shorten, self._session_id)
        return median(waited)

    async def _turn(self, message: str) -> str:
        started = await lifecycle.start_turn(self._session_id, owner_id=self._owner_id, message=message)
        await runner.wait(started.turn.id)
        return started.turn.id

    async def _first_token(self, message: str) -> float:
        session = await db(load_session, self._session_id)
        async with aclosing(follow(self._session_id, after=session.event_seq)) as frames:  # type: ignore[type-var]
            assert (await anext(frames))["type"] == "caught_up"
            # longer than any pause between two frames
            waiting = asyncio.ensure_future(_first_delta(frames))
            await asyncio.sleep(0.1)
            began = perf_counter()
            turn = asyncio.ensure_future(self._turn(message))
            await waiting
            seconds = perf_counter() - began
            await turn
        return seconds


async def _first_delta(frames: Any) -> None:
    async for frame in frames:
        if frame["type"] == "delta":
            return


def _cost(started: tuple[float, float], turns: int) -> Cost:
    return Cost(wall=(perf_counter() - started[0]) / turns, processor=(process_time() - started[1]) / turns)


def _configure(session_id: str, config: dict[str, Any]) -> None:
    with change(session_id) as record:
        session_store.update_session(record, title=None, labels=None, config=config)


def _stretches(session_id: str, turn_ids: list[str]) -> list[WrittenTurn]:
    """Return turns with the ranges of their events."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT seq, body FROM events WHERE session_id = %s AND type = 'turn.started' ORDER BY seq DESC LIMIT %s",
            [session_id, len(turn_ids)],
        )
        begins = sorted(seq for seq, body in cursor.fetchall() if json.loads(body)["turn_id"] in turn_ids)
    ends = [*begins[1:], load_session(session_id).event_seq + 1]
    assert len(begins) == len(turn_ids)
    assert all(first < second for first, second in pairwise(ends))
    return [
        WrittenTurn(turn_id=turn_id, after_seq=begin - 1, last_seq=end - 1)
        for turn_id, begin, end in zip(turn_ids, begins, ends, strict=True)
    ]


def _shorten(session_id: str) -> None:
    """Replace all but the last messages of the context with one more summary, so that every round starts alike."""
    items = load_context_items(session_id)
    messages = [item.item_id for item in items if item.item_type == "message"]
    if len(messages) > ITEMS - 1:
        summarise(session_id, messages[: len(messages) - ITEMS + 2], kind="leaf")
    summaries = [item.item_id for item in load_context_items(session_id) if item.item_type == "summary"]
    if len(summaries) > 1:
        summarise(session_id, summaries, kind="condensed")
