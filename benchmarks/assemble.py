"""A context of 40 items read and assembled, in a short and in a long session, against plain SQL.

Plain SQL reads the session, the messages and parts in the context, and the summary, and builds a provider's list of
messages. It counts, cuts and proves nothing. Ours is measured as in a turn, which already knows its session and model:
up to the assembled prompt with its costs and manifest, and, in a separate column, up to the rendered payload and its
digest.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User
from django.db import connection

from benchmarks.support.databases import Plain, plain_connection
from benchmarks.support.summaries import summarise
from benchmarks.support.talk import make_turns, write_turn
from compaction_app.context.state import Frame, load_frame, read_state
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.providers.rendering import digest, render
from sessions_app.llm import model_store
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_context_items

SIZES = (100, 10_000, 100_000)
ITEMS = 40
ROUNDS = 300
TURNS_A_CHANGE = 100
SOURCES = 1_000
"""Of one summary."""

_SESSION = "SELECT * FROM sessions WHERE id = ? AND deleted_at IS NULL"
_PARTS = (
    "SELECT m.id, m.role, m.seq, m.created_at, p.* FROM context_items i"
    " JOIN messages m ON m.id = i.item_id JOIN message_parts p ON p.message_id = m.id"
    " WHERE i.session_id = ? AND i.removed_seq IS NULL ORDER BY i.position, p.part_index"
)
_SUMMARIES = (
    "SELECT s.* FROM context_items i JOIN summary_nodes s ON s.id = i.item_id"
    " WHERE i.session_id = ? AND i.removed_seq IS NULL ORDER BY i.position"
)


class PlainContext:
    """The context of one session, read with plain SQL."""

    def __init__(self, plain: Plain, session_id: str) -> None:
        self._plain, self._session_id = plain, session_id
        self._part = {name: index for index, name in enumerate(plain.names("message_parts"), 4)}
        self._summary_text = plain.names("summary_nodes").index("text")

    def read(self) -> list[dict[str, Any]]:
        """Return the system prompt, summaries and messages."""
        plain, session_id = self._plain, self._session_id
        plain.rows(_SESSION, session_id)
        messages = [{"role": "user", "content": row[self._summary_text]} for row in plain.rows(_SUMMARIES, session_id)]
        for row in plain.rows(_PARTS, session_id):
            messages += self._messages(row)
        return messages

    def _messages(self, row: tuple[Any, ...]) -> list[dict[str, Any]]:
        part = {name: row[index] for name, index in self._part.items()}
        if part["part_type"] != "tool":
            return [{"role": row[1], "content": part["content"]}]
        function = {"name": part["tool_name"], "arguments": part["tool_input"]}
        call = {"id": part["tool_call_id"], "type": "function", "function": function}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": part["tool_call_id"], "content": part["output"]},
        ]


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    owner = User.objects.create_user("benchmark")
    model_store.put_model(
        ModelSpec(alias="large", litellm_model="demo/chat", context_window=400_000, max_output_tokens=4_000)
    )
    frames = [load_frame(make_session(owner, messages)) for messages in SIZES]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")  # as autovacuum would do later
    with plain_connection() as plain:
        contexts = [PlainContext(plain, frame.session.id) for frame in frames]
        rounds = [
            [_measure(frame, context) for frame, context in zip(frames, contexts, strict=True)] for _ in range(ROUNDS)
        ]
    # The first rounds warm up both sides, and let PostgreSQL prepare its statements.
    columns = list(zip(*rounds[10:], strict=True))
    short = [assembled for _, assembled, _ in columns[0]]
    return [_row(messages, times, short) for messages, times in zip(SIZES, columns, strict=True)]


def make_session(owner: User, messages: int) -> str:
    """Make a session of so many messages, all but the last ones covered by one summary. Return its id."""
    session_id = session_store.create_session(owner=owner, model="large")
    talk = make_turns(50)
    for written in range(0, messages // 2, TURNS_A_CHANGE):
        with change(session_id) as record:
            for turn in range(written, min(messages // 2, written + TURNS_A_CHANGE)):
                write_turn(record, *talk[turn % len(talk)])
    old = [item.item_id for item in load_context_items(session_id)][: 1 - ITEMS]
    leaves = [old[start : start + SOURCES] for start in range(0, len(old), SOURCES)]
    summaries = [summarise(session_id, sources, kind="leaf") for sources in leaves]
    if len(summaries) > 1:
        summarise(session_id, summaries, kind="condensed")
    return session_id


def _measure(frame: Frame, context: PlainContext) -> tuple[float, float, float]:
    """Return seconds: plain SQL's, ours to the assembled prompt, and ours to the payload with its digest."""
    started = perf_counter()
    read = context.read()
    between = perf_counter()
    assembled = read_state(frame).assemble()
    put_together = perf_counter()
    payload = render(assembled)
    digest(payload)
    ended = perf_counter()
    # Neither side may be fast by leaving something out.
    assert _characters(payload["messages"]) >= _characters(read) > 0
    return between - started, put_together - between, ended - between


def _characters(messages: list[dict[str, Any]]) -> int:
    return sum(len(message["content"] or "") for message in messages)


def _row(messages: int, times: tuple[tuple[float, float, float], ...], short: list[float]) -> tuple[str, ...]:
    raw, assembled, whole = (1000 * median(seconds) for seconds in zip(*times, strict=True))
    ratio = median(assembled / raw for raw, assembled, _ in times)
    growth = median(assembled / least for (_, assembled, _), least in zip(times, short, strict=True))
    whole_ratio = median(whole / raw for raw, _, whole in times)
    return f"{messages:,}", *(f"{number:.2f}" for number in (raw, assembled, ratio, growth, whole, whole_ratio))
