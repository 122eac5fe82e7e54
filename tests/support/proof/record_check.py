"""Is what the database holds one whole record? Asked in plain SQL, so that any copy of it can be asked, by any client.

It trusts nothing of the store but the two tags of the hash chain: rows are compared with ledger entries in both
directions, and every number that the record counts by itself is counted again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from mnesis_core.events import GENESIS, entry_hash

Ask = Callable[[str], Iterable[tuple[Any, ...]]]
"""Runs a query without parameters and returns its rows."""

TURN_ENDS = ("completed", "cancelled", "interrupted", "failed", "incomplete")


def faults_of_record(ask: Ask) -> list[str]:
    """Everything that is wrong with the record, a sentence each; an empty list when it is whole."""
    entries = _entries(ask)
    return [
        *_broken_chains(ask, entries),
        *_uncounted(ask, "messages", "message_seq"),
        *_uncounted(ask, "turns", "turn_seq"),
        *_differences("turn", _said(entries, "turn.started", "turn_id"), _ids(ask, "SELECT id FROM turns")),
        *_differences("end of turn", _ended(entries), set(ask("SELECT id, state FROM turns WHERE state <> 'running'"))),
        *_differences("message", _said(entries, "message.created", "message_id"), _ids(ask, "SELECT id FROM messages")),
        *_differences("part", _parts(entries), set(ask("SELECT message_id, id, part_index FROM message_parts"))),
        *_differences(
            "end of message",
            _said(entries, "message.finalized", "message_id"),
            _ids(ask, "SELECT id FROM messages WHERE finalized_at IS NOT NULL"),
        ),
        *_differences(
            "place in the context",
            _ids(ask, "SELECT id FROM messages"),
            _ids(ask, "SELECT item_id FROM context_items WHERE item_type = 'message'"),
        ),
        *(f"message {id} has no part" for [id] in ask(_EMPTY_MESSAGES)),
        *(f"the journal keeps what message {id} has already" for [id] in ask(_FOLDED_TWICE)),
    ]


_EMPTY_MESSAGES = """
    SELECT id FROM messages WHERE (role = 'user' OR outcome = 'complete')
    AND NOT EXISTS (SELECT 1 FROM message_parts WHERE message_id = messages.id)
"""
_FOLDED_TWICE = """
    SELECT DISTINCT message_id FROM stream_journal
    WHERE message_id IN (SELECT id FROM messages WHERE finalized_at IS NOT NULL)
"""


def _entries(ask: Ask) -> dict[str, list[tuple[int, str, str, str, str]]]:
    """Return the ledger of each session in order: seq, type, body, hash before, hash."""
    entries = defaultdict(list)
    for session_id, *entry in ask(
        "SELECT session_id, seq, type, body, prev_hash, hash FROM events ORDER BY session_id, seq"
    ):
        entries[session_id].append(tuple(entry))
    return entries


def _broken_chains(ask: Ask, entries: dict[str, list[tuple[int, str, str, str, str]]]) -> Iterable[str]:
    for session_id, event_seq, head_hash in ask("SELECT id, event_seq, head_hash FROM sessions"):
        last, before = 0, GENESIS
        for seq, type, body, prev_hash, hash in entries[session_id]:
            if (seq, prev_hash) != (last + 1, before):
                yield f"session {session_id}: entry {seq} does not follow entry {last}"
            last, before = seq, entry_hash(prev_hash=prev_hash, seq=seq, type=type, body=body)
            if hash != before:
                yield f"session {session_id}: entry {seq} is not what was hashed"
        if (event_seq, head_hash) != (last, before):
            yield f"session {session_id}: the head says {event_seq}, the last entry is {last}"


def _uncounted(ask: Ask, table: str, counter: str) -> Iterable[str]:
    found = defaultdict(list)
    for session_id, seq in ask(f"SELECT session_id, seq FROM {table} ORDER BY session_id, seq"):
        found[session_id].append(seq)
    for session_id, count in ask(f"SELECT id, {counter} FROM sessions"):
        if found[session_id] != list(range(1, count + 1)):
            yield f"session {session_id}: {count} {table} were counted, {len(found[session_id])} are there"


def _said(entries: dict[str, list[tuple[int, str, str, str, str]]], wanted: str, name: str) -> set[Any]:
    return {json.loads(body)[name] for ledger in entries.values() for _, type, body, *_ in ledger if type == wanted}


def _ended(entries: dict[str, list[tuple[int, str, str, str, str]]]) -> set[Any]:
    return {(turn_id, state) for state in TURN_ENDS for turn_id in _said(entries, f"turn.{state}", "turn_id")}


def _parts(entries: dict[str, list[tuple[int, str, str, str, str]]]) -> set[Any]:
    parts = set()
    for ledger in entries.values():
        for _, type, text, *_ in ledger:
            if type in ("message.created", "part.created"):
                body = json.loads(text)
                said = body["parts"] if type == "message.created" else [body]
                parts |= {(body["message_id"], part["part_id"], part["part_index"]) for part in said}
    return parts


def _ids(ask: Ask, sql: str) -> set[Any]:
    return {row[0] for row in ask(sql)}


def _differences(what: str, in_ledger: set[Any], in_rows: set[Any]) -> Iterable[str]:
    yield from (f"{what} {key} is in the ledger and not in the rows" for key in in_ledger - in_rows)
    yield from (f"{what} {key} is in the rows and not in the ledger" for key in in_rows - in_ledger)
