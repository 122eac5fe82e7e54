"""What a session takes in the database, table by table and index by index, against the bytes of what was said in it.

Said is what people, models and tools said: contents, inputs and outputs of parts, as UTF-8. The words follow Zipf's law, as those
of real texts do, since an index of words and PostgreSQL's compression depend on how often words repeat. Files are measured as
they come to be, half-filled pages included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from django.contrib.auth.models import User
from django.db import connection

from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from benchmarks.support import instant
from benchmarks.support.talk import write_turn
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.messages import Message, Part, TextPart, ToolPart, ToolState
from sessions_app.catalogue import model_store
from sessions_app.database.tables import fetch
from sessions_app.database.threads import db
from sessions_app.record import session_store
from sessions_app.record.change import change

SESSIONS = 20
TURNS = 50  # a session
WORDS = 8_000
SMALL = 0.01  # what takes less, in parts of what was said, is added up

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


@dataclass(frozen=True, slots=True)
class Size:
    table: str
    name: str
    bytes: int


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    instant.answer_at_once(texts=[prose(180) for _ in range(400)], results=[prose(700) for _ in range(400)])
    owner = User.objects.create_user("benchmark")
    model_store.put_model(
        ModelSpec(alias="large", litellm_model="demo/chat", context_window=4_000_000, max_output_tokens=4_000)
    )
    kinds: dict[str, Callable[[User], None]] = {
        "through the store": _seed,
        "chat": lambda owner: asyncio.run(_live(owner, [])),
        "agent, two tools": lambda owner: asyncio.run(_live(owner, ["read_page"])),
    }
    return [row for kind, fill in kinds.items() for row in _measure(kind, fill, owner)]


def prose(words: int) -> str:
    return " ".join(_random.choices(_VOCABULARY, cum_weights=_WEIGHTS, k=words))


def _measure(kind: str, fill: Callable[[User], None], owner: User) -> list[tuple[str, ...]]:
    before, said_before = {(size.table, size.name): size.bytes for size in sizes()}, said()
    fill(owner)
    said_now = said() - said_before
    grown = [Size(s.table, s.name, s.bytes - before.get((s.table, s.name), 0)) for s in sizes()]
    large = sorted((size for size in grown if size.bytes > SMALL * said_now), key=lambda size: -size.bytes)
    total = sum(size.bytes for size in grown)
    rest = Size("", "all others", total - sum(size.bytes for size in large))
    return [_row(kind, size, said_now) for size in (Size("", "all", total), *large, rest)]


def _row(kind: str, size: Size, said_now: int) -> tuple[str, ...]:
    name = size.name if size.table in ("", size.name) else f"{size.table}: {size.name}"
    a_turn = size.bytes / (SESSIONS * TURNS)
    return kind, name, f"{a_turn:,.0f}", f"{said_now / (SESSIONS * TURNS):,.0f}", f"{size.bytes / said_now:.2f}"


def sizes() -> list[Size]:
    if connection.vendor == "postgresql":
        fetch("SELECT pg_stat_force_next_flush()")
    return [Size(*row) for row in fetch(_SQLITE if connection.vendor == "sqlite" else _POSTGRESQL)]


def said() -> int:
    kind = "BLOB" if connection.vendor == "sqlite" else "text"
    length = _SAID.format(_TEXTS, kind)
    return int(fetch(length if kind == "BLOB" else length.replace("length", "octet_length"))[0][0] or 0)


def _seed(owner: User) -> None:
    """Fill as the growth in production was measured: 40 words, 180 words, a tool's result every fifth turn."""
    for _ in range(SESSIONS):
        session_id = session_store.create_session(owner=owner, model="large")
        for turn in range(TURNS):
            with change(session_id) as record:
                write_turn(record, Message(role="user", parts=(TextPart(text=prose(40)),)), _answer(turn))


def _answer(turn: int) -> Message:
    parts: list[Part] = [TextPart(text=prose(180))]
    if turn % 5 == 0:
        result = {"output": prose(700), "state": ToolState.COMPLETED}
        parts.append(ToolPart(tool_name="read_file", tool_call_id=f"call_{turn}", input='{"path": "a.md"}', **result))  # type: ignore[arg-type]
    return Message(role="assistant", parts=tuple(parts))


async def _live(owner: User, tools: list[str]) -> None:
    for _ in range(SESSIONS):
        session_id = await db(_session, owner, tools)
        for _ in range(TURNS):
            started = await lifecycle.start_turn(session_id, owner_id=owner.pk, message=prose(40))
            await runner.wait(started.turn.id)
    await runner.shutdown()


def _session(owner: User, tools: list[str]) -> str:
    config = {"turn": {"tools": tools}, "compaction": {"auto": False}}
    return session_store.create_session(owner=owner, model="large", config=config)
