"""File ids in texts, and the footer by which a summary still names every file of its sources.

The footer is the engine's work, never the model's (seed 000, LCM paper 2.2): what a model writes there
is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mnesis_core.messages import FileRefPart, Part, PatchPart, StoredMessage, ToolPart

_FILE_ID = re.compile(r"\bfile_(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{8,32})\b")
_FOOTER_START = "[LCM File IDs:"


def find_file_ids(text: str) -> tuple[str, ...]:
    """File ids in ``text``, each once, in order of appearance: ours (a ULID) and the reference's (hexadecimal)."""
    return tuple(dict.fromkeys(_FILE_ID.findall(text)))


def file_ids_of(messages: Iterable[StoredMessage]) -> tuple[str, ...]:
    """Every file id in messages, whole texts, inputs, outputs (tombstoned or not) and references alike."""
    found: dict[str, None] = {}
    for message in messages:
        for stored in message.parts:
            found.update(dict.fromkeys(_ids_of_part(stored.part)))
    return tuple(found)


def _ids_of_part(part: Part) -> Iterable[str]:
    if isinstance(part, FileRefPart):
        return (part.file_id, *find_file_ids(part.exploration_summary))
    if isinstance(part, ToolPart):
        return find_file_ids("\n".join((part.input, part.output or "", part.error or "")))
    if isinstance(part, PatchPart):
        return find_file_ids(part.unified_diff)
    return find_file_ids(getattr(part, "text", ""))


def with_file_ids(summary_text: str, ids: Iterable[str]) -> str:
    """The summary with a footer naming ``ids``; a footer that was there is replaced, none is written for no ids."""
    body = without_file_ids(summary_text)
    names = ", ".join(dict.fromkeys(ids))
    return f"{body}\n\n{_FOOTER_START} {names}]" if names else body


def without_file_ids(summary_text: str) -> str:
    """The summary without its footer."""
    text = summary_text.rstrip()
    start = text.rfind(_FOOTER_START)
    if start < 0 or text.find("]", start) != len(text) - 1:
        return text
    return text[:start].rstrip()
