"""How a file stands in a conversation: a short text whole, everything else by reference (seed 000, large file handling)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from mnesis_core.exploration.detection import is_text
from mnesis_core.messages import FileRefPart, Part, TextPart
from mnesis_core.record import FileReference
from mnesis_core.tokens import estimate_text

SAMPLE_BYTES = 262_144
"""Of a longer text this much is counted, and the rest taken to be alike."""
NOT_EXPLORED = "Not explored yet: lcm_describe tells more about this file, lcm_read reads it."

_GIVEN = re.compile(r"\[FILE: (?P<path>[^\n]*)\]\nFile ID: (?P<id>file_[0-9A-Z]{26})\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFile:
    """A file as a message names it; what is not said is empty."""

    file_id: str
    path: str
    file_type: str = ""
    token_count: int = 0


def part_of_file(
    file: FileReference, read: Callable[[], str], *, threshold: int, same_path: Sequence[FileReference] = ()
) -> Part:
    """The part of a message that gives a model a file.

    :param read: gives its whole text; asked only where that goes into the conversation
    :param threshold: tokens; a text of fewer goes in whole
    :param same_path: all that the session was given under its path, oldest first
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
    """Which of a path's contents a file is, with the ones before and after it; empty for the only one.

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
    """The file whose content a text is, by how the text begins; ``None`` where it is none."""
    found = _GIVEN.match(text)
    return None if found is None else GivenFile(file_id=found["id"], path=found["path"])


def referred_file(known: Any) -> GivenFile:
    """The file that a stored reference names; it may come from elsewhere, and hold anything."""
    known = known if isinstance(known, dict) else {}
    tokens, kind = known.get("token_count"), str(known.get("file_type") or "")
    return GivenFile(
        file_id=str(known.get("file_id") or ""),
        path=str(known.get("path") or ""),
        file_type="" if kind == "unknown" else kind,
        token_count=tokens if isinstance(tokens, int) else 0,
    )


def estimate_tokens(sample: str, *, sampled: int, size: int) -> int:
    """The tokens of a file of ``size`` bytes, by a sample of its beginning that is ``sampled`` bytes long."""
    return estimate_text(sample) * size // max(sampled, 1)


def name_of_upload(name: str) -> str:
    """A file's name as somebody's program sends it, without folders of their machine; never empty."""
    base = PureWindowsPath(PurePosixPath(name.strip()).name).name
    return base if base not in ("", ".", "..") else "unnamed"
