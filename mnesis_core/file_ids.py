"""File ids in texts and messages: what every summary of them has to name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mnesis_core.footers import ManifestName, Named, with_footer
from mnesis_core.messages import FileRefPart, Part, PatchPart, StoredMessage, ToolPart

MOST_OF_A_TOMBSTONE = 8
"""Files that a tombstone names: it has to stay smaller than what it stands for."""
_FILE_ID = re.compile(r"\bfile_(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{8,32})\b")


def find_file_ids(text: str) -> tuple[str, ...]:
    """File ids in ``text``, each once, in order of appearance: ours (a ULID) and the reference's (hexadecimal)."""
    return tuple(dict.fromkeys(_FILE_ID.findall(text))) if "file_" in text else ()


def file_ids_of(messages: Iterable[StoredMessage]) -> tuple[str, ...]:
    """Every file id in messages, whole texts, inputs, outputs (tombstoned or not) and references alike."""
    found: dict[str, None] = {}
    for message in messages:
        for stored in message.parts:
            found.update(dict.fromkeys(_ids_of_part(stored.part)))
    return tuple(found)


def file_ids_of_output(part: ToolPart) -> tuple[str, ...]:
    """The file ids in what a tool gave, tombstoned or not."""
    # Not joined: a context is put together often, and most outputs name none.
    return tuple(dict.fromkeys((*find_file_ids(part.output or ""), *find_file_ids(part.error or ""))))


def with_output_files(mark: str, part: ToolPart, part_id: str) -> str:
    """A tombstone that names the files of its output; of many the newest, and the part that has them all."""
    files = file_ids_of_output(part)
    if len(files) <= MOST_OF_A_TOMBSTONE:
        return with_footer(mark, Named(files=files))
    whole = ManifestName(id=part_id, count=len(files))
    return with_footer(mark, Named(files=files[-MOST_OF_A_TOMBSTONE:], manifests=(whole,)))


def _ids_of_part(part: Part) -> Iterable[str]:
    if isinstance(part, FileRefPart):
        own = (part.file_id,) if part.file_id else ()
        return (*own, *find_file_ids(f"{part.path}\n{part.exploration_summary}"))
    if isinstance(part, ToolPart):
        return find_file_ids("\n".join((part.input, part.output or "", part.error or "")))
    if isinstance(part, PatchPart):
        return find_file_ids("\n".join((*part.files_changed, part.unified_diff)))
    return find_file_ids(getattr(part, "text", ""))
