"""Stored manifests, checked when read: through an import they may come from anyone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mnesis_core.context.entries import ContextEntry, MessageEntry, SummaryEntry
from mnesis_core.errors import MessageNotFoundError, SummaryNotFoundError
from mnesis_core.messages import StoredMessage

Row = Mapping[str, Any]
_LARGEST = 2**53


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_cuts(value: object) -> bool:
    return isinstance(value, list) and all(_has(cut, _CUT) for cut in value)


def _are_ranges(value: object) -> bool:
    if not isinstance(value, list) or not all(isinstance(span, list) and len(span) == 2 for span in value):
        return False
    ends = [end for span in value for end in span]
    return all(map(_is_number, ends)) and ends == sorted(ends)


Schema = Mapping[str, Callable[[object], bool]]
_ENDS: Schema = {"head": _is_number, "tail": _is_number}
_CUT: Schema = {"part": _is_text, "field": _is_text, **_ENDS}
# A key -> the keys that come with it.
_OPTIONAL: Mapping[str, Schema] = {"head": _ENDS, "naming": {"naming": _are_texts}, "prompt": {"prompt": _is_text}}
_SCHEMAS: Mapping[str, Schema] = {
    "system": {"id": _is_text},
    "tools": {"names": _are_texts},
    "summary": {"id": _is_text, "first_seq": _is_number, "last_seq": _is_number},
    "message": {
        "id": _is_text,
        "seq": _is_number,
        "parts": _is_number,
        "tombstoned": _are_texts,
        "unanswered": _are_texts,
        "omitted": _are_texts,
        "shortened": _are_cuts,
    },
    "prompt": {"id": _is_text, "target": _is_number},
    "piece": {"number": _is_number, "limit": _is_number},
    "messages": {"ranges": _are_ranges},
    "try": {"id": _is_text},
    "file": {"content_id": _is_text, "offset": _is_number, "bytes": _is_number},
    "map": {"run_id": _is_text, "item": _is_number, "attempt": _is_number},
    "gap": dict.fromkeys(("messages", "summaries", "first_seq", "last_seq"), _is_number),
}


def read_manifest(stored: object) -> list[Row]:
    """Return the rows of a stored manifest, checked for every key that a prompt is made with.

    :raises ValueError: it is not a manifest; the message says which row.
    """
    if not isinstance(stored, list):
        raise ValueError("the manifest is not a list")
    for place, row in enumerate(stored, start=1):
        schema = _SCHEMAS.get(str(row.get("kind"))) if isinstance(row, dict) else None
        optional = [fields for key, fields in _OPTIONAL.items() if isinstance(row, dict) and key in row]
        if schema is None or not all(_has(row, fields) for fields in (schema, *optional)):
            raise ValueError(f"no prompt can be made of row {place} of the manifest")
    return stored


def _has(value: object, schema: Schema) -> bool:
    return isinstance(value, dict) and all(name in value and fits(value[name]) for name, fits in schema.items())


Sources = Mapping[str, ContextEntry]


def sources_of(entries: Iterable[ContextEntry]) -> Sources:
    return {entry.id if isinstance(entry, SummaryEntry) else entry.message.id: entry for entry in entries}


def find_summary(sources: Sources, summary_id: str) -> SummaryEntry:
    """:raises SummaryNotFoundError: the prompt's sources do not hold it."""
    entry = sources.get(summary_id)
    if not isinstance(entry, SummaryEntry):
        raise SummaryNotFoundError(f"the prompt holds summary {summary_id}, which is not there", id=summary_id)
    return entry


def find_message(sources: Sources, message_id: str) -> StoredMessage:
    """:raises MessageNotFoundError: the prompt's sources do not hold it."""
    entry = sources.get(message_id)
    if not isinstance(entry, MessageEntry):
        raise MessageNotFoundError(f"the prompt holds message {message_id}, which is not there", id=message_id)
    return entry.message
