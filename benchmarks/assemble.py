"""A context of 40 items made into a payload, in a short and in a long session, against plain SQL.

Plain SQL reads the session, the messages and parts that are in the context and the summary, and makes the list of
messages that a provider takes. It counts nothing, cuts nothing, proves nothing.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User

from benchmarks.databases import Plain, plain_connection
from benchmarks.talk import make_turns, write_turn
from compaction_app import store as compaction_store
from compaction_app.context import build_context
from mnesis_core.llm import ModelSpec
from sessions_app import store
from sessions_app.ledger import Change, change
from sessions_app.queries import load_context_items

SIZES = (100, 5000)
ITEMS = 40
ROUNDS = 60

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
    """The context of one session, with plain SQL."""

    def __init__(self, plain: Plain, session_id: str) -> None:
        self._plain, self._session_id = plain, session_id
        self._part = {name: index for index, name in enumerate(plain.names("message_parts"), 4)}
        self._summary_text = plain.names("summary_nodes").index("text")

    def read(self) -> list[dict[str, Any]]:
        """System prompt, summaries and messages."""
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
    """The rows of the table."""
    owner = User.objects.create_user("benchmark")
    store.put_model(
        ModelSpec(alias="large", litellm_model="demo/chat", context_window=400_000, max_output_tokens=4_000)
    )
    sessions = [make_session(owner, messages) for messages in SIZES]
    with plain_connection() as plain:
        contexts = [PlainContext(plain, session_id) for session_id in sessions]
        rounds = [
            [_measure(session_id, context) for session_id, context in zip(sessions, contexts, strict=True)]
            for _ in range(ROUNDS)
        ]
    # The first round warms both up.
    columns = list(zip(*rounds[1:], strict=True))
    short = [ours for _, ours in columns[0]]
    return [_row(messages, times, short) for messages, times in zip(SIZES, columns, strict=True)]


def make_session(owner: User, messages: int) -> str:
    """A session of so many messages, all but the last ones behind one summary; returns its id."""
    session_id = store.create_session(owner=owner, model="large")
    talk = make_turns(50)
    for _ in range(messages // 2 // len(talk)):
        with change(session_id) as record:
            for user, assistant in talk:
                write_turn(record, user, assistant)
    with change(session_id) as record:
        _summarise(session_id, record)
    return session_id


def _summarise(session_id: str, record: Change) -> None:
    sources = [item.item_id for item in load_context_items(session_id)][: 1 - ITEMS]
    run_id = compaction_store.request_run(record, trigger="manual")
    assert run_id is not None
    fence = compaction_store.claim_run(record, run_id, lease_owner="benchmark", lease_seconds=30)
    assert fence is not None
    text = "They read the file and wrote down what is in it. " * 40
    summary = compaction_store.NewSummary(
        kind="leaf",
        depth=0,
        level=1,
        text=text,
        token_count=480,
        source_tokens=1500 * len(sources),
        first_seq=1,
        last_seq=len(sources),
        message_count=len(sources),
        model="large",
        prompt_version="1",
        tokens_input=0,
        tokens_output=0,
        cost_micros=0,
        duration_ms=0,
    )
    compaction_store.record_summary(record, run_id, summary, fence=fence, source_type="message", source_ids=sources)


def _measure(session_id: str, context: PlainContext) -> tuple[float, float]:
    """Seconds: plain SQL's and ours."""
    started = perf_counter()
    read = context.read()
    between = perf_counter()
    built = build_context(session_id)
    ended = perf_counter()
    # Neither may be quick because it left something out.
    assert _characters(built.payload["messages"]) >= _characters(read) > 0
    return between - started, ended - between


def _characters(messages: list[dict[str, Any]]) -> int:
    return sum(len(message["content"] or "") for message in messages)


def _row(messages: int, times: tuple[tuple[float, float], ...], short: list[float]) -> tuple[str, ...]:
    raw, ours = (1000 * median(seconds) for seconds in zip(*times, strict=True))
    ratio = median(ours / raw for raw, ours in times)
    growth = median(ours / least for (_, ours), least in zip(times, short, strict=True))
    return f"{messages:,}", f"{raw:.2f}", f"{ours:.2f}", f"{ratio:.2f}", f"{growth:.2f}"
