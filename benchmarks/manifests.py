"""What calls keep of their prompts with ever more items in the context, and payloads rebuilt as of any of these calls.

A call is made after each tenth of a session. A fifth of the tool outputs are tombstones, made between the calls. Plain SQL
reads a call, and the messages and parts that were in its context, of which the payload is made; ours unfolds the manifest,
reads what it names, renders the payload and compares its digest. The rows are measured by the texts of their values.
"""

from __future__ import annotations

import json
from random import Random
from statistics import median
from time import perf_counter

from django.contrib.auth.models import User
from django.db import connection

from benchmarks.support.databases import Plain, plain_connection
from benchmarks.support.talk import make_text, write_turn
from compaction_app.context.manifests import load_manifest
from compaction_app.context.state import build_context, rebuild_payload
from mnesis_core.llm.interface import ModelSpec, write_tools
from mnesis_core.messages import Message, TextPart, ToolPart, ToolState
from sessions_app.llm import model_store
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_outlines
from sessions_app.record.turn_queries import load_call
from tests.core.context.contexts import CALCULATOR

SIZES = (50, 200, 800, 10_000)
CALLS = 10
PRUNED = 5  # of so many tool outputs, one
ROUNDS = 7

_CALL = "SELECT * FROM model_calls WHERE id = ?"
_CONTEXT = (
    "SELECT m.*, p.* FROM context_items i JOIN messages m ON m.id = i.item_id JOIN message_parts p ON p.message_id = m.id"
    " WHERE i.session_id = ? AND i.added_seq <= ? AND (i.removed_seq IS NULL OR i.removed_seq > ?)"
    " ORDER BY i.position, p.part_index"
)


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    owner = User.objects.create_user("benchmark")
    model_store.put_model(
        ModelSpec(alias="large", litellm_model="demo/chat", context_window=4_000_000, max_output_tokens=4_000)
    )
    sessions = [(items, *make_session(owner, items)) for items in SIZES]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")  # as autovacuum would do later
    with plain_connection() as plain:
        return [_row(plain, items, session_id, calls) for items, session_id, calls in sessions]


def make_session(owner: User, items: int) -> tuple[str, list[str]]:
    """Make a session of so many messages. Return its id and its calls, the last one after all of the messages."""
    session_id = session_store.create_session(owner=owner, model="large", system_prompt="Be brief.")
    random = Random(items)
    calls: list[str] = []
    for tenth in range(CALLS):
        with change(session_id) as record:
            for _ in range(items * (tenth + 1) // CALLS // 2 - items * tenth // CALLS // 2):
                write_turn(record, *_turn(random))
        calls.append(_call(session_id))
        _prune(session_id, random)
    return session_id, calls


def _turn(random: Random) -> tuple[Message, Message]:
    result = ToolPart(
        tool_name="read_file",
        tool_call_id=f"call_{random.randrange(10**9)}",
        input='{"path": "docs/architecture.md"}',
        output=make_text(random, 100),
        state=ToolState.COMPLETED,
    )
    answer = Message(role="assistant", parts=(TextPart(text=make_text(random, 60)), result))
    return Message(role="user", parts=(TextPart(text=make_text(random, 30)),)), answer


def _call(session_id: str) -> str:
    """Write a call that is about to be made, as a turn does."""
    context = build_context(session_id, tools=[CALCULATOR])
    with change(session_id) as record:
        return turn_store.start_call(
            record,
            turn_id=None,
            message_id=None,
            model="large",
            provider_model="demo/chat",
            parameters={"max_output_tokens": context.budget.reserved_output, "tool_tokens": 60},
            manifest=context.stored_manifest,
            context_seq=context.context_seq,
            digest=context.digest,
            estimated_tokens=context.estimated_tokens,
            texts={"tools": write_tools([CALCULATOR])},
        )


def _prune(session_id: str, random: Random) -> None:
    items = load_outlines(session_id, first=0, last=2**53)
    gone = {part_id for item in items for part_id, _ in item.compacted}
    parts = [part for item in items for part in zip(item.part_ids, item.part_types, strict=True)]
    outputs = [part_id for part_id, type in parts if type == "tool"]
    standing = [part_id for part_id in outputs if part_id not in gone]
    with change(session_id) as record:
        message_store.tombstone_parts(record, random.sample(standing, len(outputs) // PRUNED - len(gone)))


def _row(plain: Plain, items: int, session_id: str, calls: list[str]) -> tuple[str, ...]:
    last = load_call(calls[-1])
    full = len(json.dumps(load_manifest(last), separators=(",", ":")))
    kept = len(json.dumps(last.manifest, separators=(",", ":")))
    [row] = plain.rows(_CALL, last.id)
    whole = sum(len(value if isinstance(value, str) else json.dumps(value, default=str)) for value in row if value)
    times = [[_times(plain, session_id, call_id) for call_id in calls] for _ in range(ROUNDS)]
    of_calls = [
        [median(seconds) * 1_000 for seconds in zip(*rounds, strict=True)] for rounds in zip(*times, strict=True)
    ]
    raw, ours = of_calls[-1]
    middle = median(ours for _, ours in of_calls)
    return (
        f"{items:,}",
        *(f"{number:,}" for number in (full, kept, whole)),
        *(f"{number:.2f}" for number in (middle, raw, ours, ours / raw)),
    )


def _times(plain: Plain, session_id: str, call_id: str) -> tuple[float, float]:
    """Return seconds: plain SQL's and ours."""
    started = perf_counter()
    [row] = plain.rows(_CALL, call_id)
    seq = dict(zip(plain.names("model_calls"), row, strict=True))["context_seq"]
    plain.rows(_CONTEXT, session_id, seq, seq)
    between = perf_counter()
    rebuilt = rebuild_payload(load_call(call_id))
    ended = perf_counter()
    assert rebuilt.digest_matches, rebuilt.problems
    return between - started, ended - between
