"""What a session takes in the database, table by table with its indexes, against the bytes of what was said in it.

Said is what people, models and tools said: contents, inputs and outputs of parts, as UTF-8. The words follow Zipf's law, as those
of real texts do, since an index of words and PostgreSQL's compression depend on how often words repeat. Files are measured as
they come to be, half-filled pages included.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from random import Random

from django.contrib.auth.models import User
from django.db import connection

from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from benchmarks.support import instant
from benchmarks.support.talk import make_turns, write_turn
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import Message, Part, TextPart, ToolPart, ToolState
from sessions_app.database.tables import fetch
from sessions_app.database.threads import db
from sessions_app.llm import model_store
from sessions_app.record import session_store
from sessions_app.record.change import change

SESSIONS = 20
TURNS = 50  # a session
WORDS = 8_000
SMALL = 0.02  # tables that take less, in parts of what was said, are added up

_SAID = "SELECT SUM(length(CAST({0} AS {1}))) FROM message_parts"
_TEXTS = "content || tool_input || COALESCE(output, '')"
_SQLITE = "SELECT m.tbl_name, s.name, SUM(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY 1, 2"
# A table's bytes include what it keeps elsewhere because it is long.
_POSTGRESQL = """
    SELECT relname, relname, pg_table_size(oid) FROM pg_class WHERE relkind = 'r' AND pg_table_is_visible(oid)
    UNION ALL SELECT t.relname, i.relname, pg_relation_size(i.oid) FROM pg_index x
    JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid WHERE pg_table_is_visible(t.oid)"""

_random = Random(7)
_VOCABULARY = ["".join(_random.choices("etaoinshrdlucmfwypvbgk", k=_random.randint(2, 9))) for _ in range(WORDS)]
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))


Sizes = Counter[tuple[str, bool]]
"""Bytes by table, those of its indexes apart."""


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    instant.answer_at_once(texts=[prose(180) for _ in range(400)], results=[prose(700) for _ in range(400)])
    owner = User.objects.create_user("benchmark")
    model_store.put_model(
        ModelSpec(alias="large", litellm_model="demo/chat", context_window=4_000_000, max_output_tokens=4_000)
    )
    kinds: dict[str, Callable[[User], None]] = {
        "turns of 11 kB": lambda owner: _seed(owner, make_turns(TURNS)),
        "every fifth turn a tool": lambda owner: _seed(owner, [_turn(turn) for turn in range(TURNS)]),
        "chat": lambda owner: asyncio.run(_live(owner, [])),
        "agent, two tools": lambda owner: asyncio.run(_live(owner, ["read_page"])),
    }
    return [row for kind, fill in kinds.items() for row in _measure(kind, fill, owner)]


def prose(words: int) -> str:
    return " ".join(_random.choices(_VOCABULARY, cum_weights=_WEIGHTS, k=words))


def _measure(kind: str, fill: Callable[[User], None], owner: User) -> list[tuple[str, ...]]:
    sizes_before, said_before = sizes(), said()
    fill(owner)
    grown, said_now = sizes() - sizes_before, said() - said_before
    both = Counter({table: grown[table, False] + grown[table, True] for table, _ in grown})
    large = [table for table, size in both.most_common() if size > SMALL * said_now]

    def row(name: str, tables: Iterable[str]) -> tuple[str, ...]:
        own, indexes = (sum(grown[table, is_index] for table in tables) for is_index in (False, True))
        numbers = (f"{size / (SESSIONS * TURNS):,.0f}" for size in (said_now, own, indexes))
        return kind, name, *numbers, f"{(own + indexes) / said_now:.2f}"

    rest = [table for table in both if table not in large]
    return [row("all", list(both)), *(row(table, [table]) for table in large), row("others", rest)]


def sizes() -> Sizes:
    found: Sizes = Counter()
    for table, name, size in fetch(_SQLITE if connection.vendor == "sqlite" else _POSTGRESQL):
        found[table, table != name] += size
    return found


def said() -> int:
    kind = "BLOB" if connection.vendor == "sqlite" else "text"
    length = _SAID.format(_TEXTS, kind)
    return int(fetch(length if kind == "BLOB" else length.replace("length", "octet_length"))[0][0] or 0)


def _seed(owner: User, turns: list[tuple[Message, Message]]) -> None:
    """Write turns through the store, each as one change, without calls of a model."""
    for _ in range(SESSIONS):
        session_id = session_store.create_session(owner=owner, model="large")
        for turn in turns:
            with change(session_id) as record:
                write_turn(record, *turn)
        _tidy()


def _turn(turn: int) -> tuple[Message, Message]:
    """Make a turn of 40 and 180 words, with which the growth in production was measured."""
    parts: list[Part] = [TextPart(text=prose(180))]
    if turn % 5 == 0:
        call = {"tool_name": "read_file", "tool_call_id": f"call_{turn}", "input": '{"path": "a.md"}'}
        parts.append(ToolPart(**call, output=prose(700), state=ToolState.COMPLETED))
    return Message(role="user", parts=(TextPart(text=prose(40)),)), Message(role="assistant", parts=tuple(parts))


async def _live(owner: User, tools: list[str]) -> None:
    for _ in range(SESSIONS):
        session_id = await db(_session, owner, tools)
        for _ in range(TURNS):
            started = await lifecycle.start_turn(session_id, owner_id=owner.pk, message=prose(40))
            await runner.wait(started.turn.id)
        await db(_tidy)
    await runner.shutdown()


def _tidy() -> None:
    """Do what autovacuum does now and then: a session's row is written anew by each change."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM sessions, turns, messages, message_parts, model_calls")


def _session(owner: User, tools: list[str]) -> str:
    config = {"turn": {"tools": tools}, "compaction": {"auto": False}}
    return session_store.create_session(owner=owner, model="large", config=config)
