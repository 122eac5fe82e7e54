"""A session's memory in the layout of Autobyteus: which file holds what, read from one state of the database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from compaction_app.queries import list_summaries
from mnesis_core.autobyteus import archived_traces, episodic_items, raw_traces, semantic_items
from mnesis_core.messages import StoredMessage
from sessions_app.database import snapshot
from sessions_app.queries import load_context_items, load_messages

PAGE = 200


def memory_files(session_id: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The files of one session, one after the other: path in the memory directory, lines.

    The lines of a file have to be read before the next file is asked for.
    """
    with snapshot():
        items = load_context_items(session_id)
        in_context = {item.item_id for item in items if item.item_type == "message"}
        turn_of: dict[str, str] = {}
        files: Mapping[str, Iterable[dict[str, Any]]] = {
            "raw_traces.jsonl": raw_traces(_messages(session_id, turn_of), in_context),
            "raw_traces_archive.jsonl": archived_traces(_messages(session_id, turn_of), in_context),
            # Read last, when the turn of every message is known.
            "episodic.jsonl": episodic_items(list_summaries(session_id), turn_of),
            "semantic.jsonl": semantic_items(),
        }
        for name, values in files.items():
            yield f"agents/{session_id}/{name}", map(_line, values)


def _messages(session_id: str, turn_of: dict[str, str]) -> Iterator[StoredMessage]:
    after = 0
    while messages := load_messages(session_id, after=after, limit=PAGE):
        for message in messages:
            turn_of[message.id] = message.turn_id or ""
            yield message
        after = messages[-1].seq


def _line(value: dict[str, Any]) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        # A lone surrogate is no UTF-8; every reader of JSON understands it as \uD83D.
        return json.dumps(value).encode() + b"\n"
