"""Files in a conversation: a short text whole, everything else by reference (seed 000, large file handling)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from mnesis_core.files.detection import is_text
from mnesis_core.files.footers import ManifestName, Named, with_footer
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import FileRefPart, Part, PatchPart, StoredMessage, TextPart, ToolPart
from mnesis_core.records import FileReference

# Tokens of a longer text are estimated from this many bytes.
SAMPLE_BYTES = 262_144
NOT_EXPLORED = "Not explored yet: lcm_describe tells more about this file, lcm_read reads it."

_GIVEN = re.compile(r"\[FILE: (?P<path>[^\n]*)\]\nFile ID: (?P<id>file_[0-9A-Z]{26})\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFile:
    file_id: str
    path: str
    file_type: str = ""
    token_count: int = 0


def part_of_file(
    file: FileReference, read: Callable[[], str], *, threshold: int, same_path: Sequence[FileReference] = ()
) -> Part:
    """Return the part of a message that gives a model a file.

    :param read: returns the whole text; called only if that goes into the conversation
    :param threshold: tokens; a shorter text goes in whole
    :param same_path: all files given to the session under this path, oldest first
    """
    version = version_of(file, same_path)
    told = f"Version: {version}\n" if version else ""
    if is_text(file.file_type) and file.token_count < threshold:
        return TextPart(text=f"[FILE: {file.path}]\nFile ID: {file.id}\n{told}{read()}\n[/FILE]")
    return FileRefPart(
        file_id=file.id,
        path=file.path,
        file_type=file.file_type,
        token_count=file.token_count,
        exploration_summary=told + (file.exploration_summary if file.is_explored else NOT_EXPLORED),
    )


def version_of(file: FileReference, same_path: Sequence[FileReference]) -> str:
    """Return which version of a path's content a file is, with the ids before and after it; empty if it is the only one.

    :param same_path: all files of the path, oldest first
    """
    changed = [at for at, one in enumerate(same_path) if at == 0 or one.content_id != same_path[at - 1].content_id]
    place = next((at for at, one in enumerate(same_path) if one.id == file.id), None)
    if place is None or len(changed) < 2:
        return ""
    number = sum(at <= place for at in changed)
    others = [f"earlier: {same_path[changed[number - 2]].id}"] if number > 1 else []
    others += [f"later: {same_path[changed[number]].id}"] if number < len(changed) else []
    return f"{number} of {len(changed)} ({', '.join(others)})"


def given_file(text: str) -> GivenFile | None:
    """Return the file whose content a text is, by the text's beginning; None if it is none."""
    found = _GIVEN.match(text)
    return None if found is None else GivenFile(file_id=found["id"], path=found["path"])


def referred_file(known: Any) -> GivenFile:
    """Return the file that a stored reference names. An import may have stored anything."""
    known = known if isinstance(known, dict) else {}
    tokens, kind = known.get("token_count"), str(known.get("file_type") or "")
    return GivenFile(
        file_id=str(known.get("file_id") or ""),
        path=str(known.get("path") or ""),
        file_type="" if kind == "unknown" else kind,
        token_count=tokens if isinstance(tokens, int) else 0,
    )


def estimate_tokens(sample: str, *, sampled: int, size: int) -> int:
    """Estimate the tokens of a file of ``size`` bytes from a sample of its first ``sampled`` bytes."""
    return estimate_text(sample) * size // max(sampled, 1)


def name_of_upload(name: str) -> str:
    """Return a file's name as a client sends it, without folders of its machine; never empty."""
    base = PureWindowsPath(PurePosixPath(name.strip()).name).name
    return base if base not in ("", ".", "..") else "unnamed"


# File ids in texts and messages: what every summary of them has to name.

# Files that a tombstone names: it has to stay smaller than what it replaces.
MOST_OF_A_TOMBSTONE = 8
_FILE_ID = re.compile(r"\bfile_(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{8,32})\b")


def find_file_ids(text: str) -> tuple[str, ...]:
    """Return the file ids in ``text``, each once, in order: ours (a ULID) and the reference's (hexadecimal)."""
    return tuple(dict.fromkeys(_FILE_ID.findall(text))) if "file_" in text else ()


def file_ids_of(messages: Iterable[StoredMessage]) -> tuple[str, ...]:
    """Return all file ids in messages: in texts, inputs, outputs (tombstoned or not) and references."""
    found: dict[str, None] = {}
    for message in messages:
        for stored in message.parts:
            found.update(dict.fromkeys(_ids_of_part(stored.part)))
    return tuple(found)


def file_ids_of_output(part: ToolPart) -> tuple[str, ...]:
    # Not joined: a context is put together often, and most outputs name none.
    return tuple(dict.fromkeys((*find_file_ids(part.output or ""), *find_file_ids(part.error or ""))))


def with_output_files(mark: str, part: ToolPart, part_id: str) -> str:
    """Return a tombstone that names the files of its output; of many the newest, and the part that names all."""
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
