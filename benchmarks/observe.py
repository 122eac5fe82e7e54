"""Pages of *Observe* over many sessions, against plain SQL that sorts and reads as many rows of the table of sessions.

The sessions are copies of some that were written as people write them, made by one statement for each table.
``MNESIS_OBSERVED`` says how many: 100,000 take about two minutes to make.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter

from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from benchmarks.support.databases import Plain, plain_connection
from compaction_app.queries import completed_compactions
from mnesis_core.messages import Message, TextPart, ToolPart, ToolState
from mnesis_core.records import MessageEnd, TurnState, UsageRecord
from mnesis_core.search.observation import parse_observation
from mnesis_core.search.words import words_of
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.observed import Observed, list_observed
from sessions_app.search.index import stored_words
from sessions_app.search.search import ENTRY, with_texts

SESSIONS = int(os.environ.get("MNESIS_OBSERVED", "10000"))
OWNERS, KINDS = 50, 2
TURNS = 3
PAGE = 51
ROUNDS = 15
MINUTES = 7  # between a copy and the next
QUERIES = {
    "the first page": "",
    "a person": "person:person7",
    "a model": "model:model-1",
    "not a model": "-model:model-1",
    "a tool": "tool:rare_tool",
    "an error": "error:RATE_LIMITED",
    "any error": "error:*",
    "many tokens": "tokens>100k",
    "a rare word": "marigold",
    "a common word": "harbour",
    "not a common word": "-harbour",
    "a phrase": '"tide tables"',
    "over the window": "over-window",
    "a day": "after:3d before:2d",
    "several": "person:person7 model:model-2 tokens>10 -error:RATE_LIMITED harbour",
}
TABLES = ("sessions", "turns", "messages", "message_parts", "model_calls", "search_entries")
IDS = ("id", "session_id", "turn_id", "message_id", "source_id")
TIMES = ("created_at", "updated_at", "ended_at", "recorded_at", "finalized_at", "started_at", "completed_at")


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    fill(SESSIONS)
    reference = "SELECT * FROM sessions WHERE deleted_at IS NULL ORDER BY updated_at DESC, id DESC LIMIT 51"
    rows = []
    for name, text in QUERIES.items():
        with plain_connection() as plain:
            theirs = seconds(lambda: plain.rows(reference))
        ours, found = seconds(partial(page, text)), len(page(text))
        rows.append((name, str(found), f"{1_000 * theirs:,.1f}", f"{1_000 * ours:,.1f}", f"{ours / theirs:.1f}"))
    return rows


def page(text: str) -> list[object]:
    compactions = completed_compactions()
    observed = Observed(parse_observation(text, now=timezone.now()), compactions=compactions)
    return list(list_observed(observed, limit=PAGE, compactions=compactions))


def seconds(ask: Callable[[], object]) -> float:
    """Return the median time of one answer; the first fills the caches."""
    times = []
    for _ in range(ROUNDS + 1):
        started = perf_counter()
        ask()
        times.append(perf_counter() - started)
    return median(times[1:])


def fill(sessions: int) -> None:
    """Write a few sessions of many people, and copies of them."""
    for number in range(OWNERS):
        owner = User.objects.create_user(f"person{number}")
        for kind in range(KINDS):
            write(owner, number * KINDS + kind)
    copies = max(1, sessions // (OWNERS * KINDS) - 1)
    with plain_connection() as plain:
        words = words_of_entries() if plain.is_sqlite else {}
        with plain.transaction():
            for table in TABLES:
                plain.execute(copying(plain, table), copies)
            index_copies(plain, words)
        plain.execute("ANALYZE" if plain.is_sqlite else "VACUUM ANALYZE")


def write(owner: User, number: int) -> None:
    is_rare = number % 100 == 42
    session_id = session_store.create_session(
        owner=owner,
        model=f"model-{number % 4}",
        title=f"Talk {number} about harbours",
        system_prompt="Be careful. " * 40,
    )
    for turn in range(TURNS):
        with change(session_id) as record:
            turn_id = turn_store.start_turn(record, model=f"model-{number % 4}")
            said = f"Where is the harbour number {number} in turn {turn}? " + "marigold" * is_rare
            question = Message(role="user", parts=(TextPart(text=said),))
            message_id = message_store.append_message(record, turn_id=turn_id, message=question)
            call = turn_store.start_call(
                record, turn_id=turn_id, message_id=None, model=f"model-{number % 4}", provider_model="x/y",
                parameters={}, manifest=[{"id": message_id}], context_seq=1, digest="ab" * 32, estimated_tokens=900,
            )  # fmt: skip
            code = "RATE_LIMITED" if is_rare and turn == 0 else None
            usage = UsageRecord(tokens_input=40_000 if is_rare else 900, tokens_output=120, cost_micros=1_500)
            end = MessageEnd(outcome="failed" if code else "complete", error_code=code, usage=usage)
            text = "It lies to the north, as the tide tables of last year say. " * 8
            tool = ToolPart(
                tool_name="rare_tool" if is_rare else f"tool-{number % 7}", tool_call_id="c1", input="{}", output="Found.",
                state=ToolState.COMPLETED,
            )  # fmt: skip
            answer = Message(role="assistant", parts=(TextPart(text=text), tool))
            message_store.append_message(record, turn_id=turn_id, message=answer, end=end)
            turn_store.finish_call(record, call, end)
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED, usage=usage)


def copying(plain: Plain, table: str) -> str:
    """Return a statement that copies all rows of a table so many times, each with ids of its own and an earlier time."""
    names = [name for name in plain.names(table) if (table, name) != ("search_entries", "id")]
    number = "printf('%08d', n)" if plain.is_sqlite else "lpad(n::text, 8, '0')"
    earlier = (
        f"strftime('%Y-%m-%d %H:%M:%f000', {{0}}, '-' || (n * {MINUTES}) || ' minutes')"
        if plain.is_sqlite
        else f"{{0}} - n * interval '{MINUTES} minutes'"
    )
    made = dict.fromkeys(IDS, f"substr({{0}}, 1, length({{0}}) - 8) || {number}") | dict.fromkeys(TIMES, earlier)
    values = ", ".join(made.get(name, "{0}").format(name) for name in names)
    copies = "WITH RECURSIVE copies (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM copies WHERE n < ?)"
    return f"INSERT INTO {table} ({', '.join(names)}) {copies} SELECT {values} FROM {table}, copies"


def words_of_entries() -> dict[tuple[str, str], str]:
    """Return the indexed words of each entry, by what its copies have in common with it."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {ENTRY}, e.owner_id FROM search_entries e")
        entries = cursor.fetchall()
        texts = {text.id: text.text for text in with_texts(cursor, [entry[:-1] for entry in entries])}
    return {
        (source_id[:-8], field): stored_words(words_of(texts[id]), owner_id=owner_id, session_id=session_id)
        for id, session_id, _, source_id, field, *_, owner_id in entries
    }


def index_copies(plain: Plain, words: dict[tuple[str, str], str]) -> None:
    """Write the words of copied entries, which FTS5 keeps beside them."""
    if words:
        entries = plain.rows(
            "SELECT id, source_id, field FROM search_entries ORDER BY id LIMIT -1 OFFSET ?", len(words)
        )
        rows = [(id, words[source_id[:-8], field]) for id, source_id, field in entries]
        plain.insert("search_words", ("rowid", "words"), rows)
