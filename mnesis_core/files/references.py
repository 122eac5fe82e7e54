"""Files in a conversation. A short text is given whole, everything else by reference (seed 000, large file handling).

A summary names the files of what it stands for in a footer, so that no id is lost. What a footer has no room for is listed in
a manifest: a file of ids, of which one may list others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, assert_never

from mnesis_core.files.detection import is_text
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import (
    CitationPart,
    CompactionMarkerPart,
    DataPart,
    FileRefPart,
    MediaPart,
    Part,
    PatchPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StepFinishPart,
    StepStartPart,
    StoredMessage,
    TextPart,
    ToolPart,
    UnknownPart,
)
from mnesis_core.records import FileReference

SAMPLE_BYTES = 262_144  # Tokens of a longer text are estimated from this many bytes.
NOT_EXPLORED = "Not explored yet: lcm_describe tells more about this file, lcm_read reads it."
MOST_OF_A_TOMBSTONE = 8  # Files that a tombstone names: it has to stay smaller than what it replaces.

# Tokens of all file ids under one summary, some twenty ids. More would be sent with every call and rarely read.
MOST_TOKENS = 400
# A footer of files takes at most one in so many tokens:
SHARE_OF_TARGET = 8  # of the budget's low mark: half of the summary's limit
SHARE_OF_SOURCE = 2  # of the summary's own room, or nothing would be gained
SHARE_OF_EXCERPT = 4  # of a level 3 excerpt, which has few tokens to quote with
NEWEST = 8  # Files named beside a manifest if there is room: the latest are most likely to be asked for.
FOLDER = ".mnesis/manifests/"

_GIVEN = re.compile(r"\[FILE: (?P<path>[^\n]*)\]\nFile ID: (?P<id>file_[0-9A-Z]{26})\n")
_FILE_ID = re.compile(r"\bfile_(?:[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{8,32})\b")
_START = "[LCM "
FILES = f"{_START}File IDs:"
SUMMARIES = f"{_START}Summary IDs:"
_PLAIN = re.compile(r"[\w.:@+%=~/|-]{1,64}", re.ASCII)
_LISTED = re.compile(r"(\d{1,15}) listed in (\S+)")


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
    found = _GIVEN.match(text)
    return None if found is None else GivenFile(file_id=found["id"], path=found["path"])


def referred_file(known: Any) -> GivenFile:
    """Return the file that a stored reference, picture, sound or document names. An import may have stored anything."""
    known = known if isinstance(known, dict) else {}
    tokens, kind = known.get("token_count"), str(known.get("file_type") or known.get("media_type") or "")
    return GivenFile(
        file_id=str(known.get("file_id") or ""),
        path=str(known.get("path") or known.get("name") or ""),
        file_type="" if kind == "unknown" else kind,
        token_count=tokens if isinstance(tokens, int) else 0,
    )


def estimate_tokens(sample: str, *, sampled: int, size: int) -> int:
    return estimate_text(sample) * size // max(sampled, 1)


def name_of_upload(name: str) -> str:
    base = PureWindowsPath(PurePosixPath(name.strip()).name).name
    return base if base not in ("", ".", "..") else "unnamed"


def find_file_ids(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_FILE_ID.findall(text))) if "file_" in text else ()


def file_ids_of(messages: Iterable[StoredMessage]) -> tuple[str, ...]:
    """Return all file ids in messages: in texts, inputs, outputs (tombstoned or not) and references."""
    found: dict[str, None] = {}
    for part in (stored.part for message in messages for stored in message.parts):
        if isinstance(part, FileRefPart | MediaPart | CitationPart) and part.file_id:
            found[part.file_id] = None
        found.update(dict.fromkeys(find_file_ids(_text_with_ids(part))))
    return tuple(found)


def _text_with_ids(part: Part) -> str:
    match part:
        case TextPart() | ReasoningPart() | DataPart() | RefusalPart() | CitationPart():
            return part.text
        case ToolPart() | ProviderToolPart():
            return "\n".join((part.input, part.output or "", part.error or ""))
        case FileRefPart():
            return f"{part.path}\n{part.exploration_summary}"
        case MediaPart():
            return f"{part.name}\n{part.caption}"
        case PatchPart():
            return "\n".join((*part.files_changed, part.unified_diff))
        case ProviderPart() | UnknownPart() | CompactionMarkerPart() | StepStartPart() | StepFinishPart():
            return ""
        case _:
            assert_never(part)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestName:
    id: str
    count: int  # of its entries: ids of files and of further manifests

    def __str__(self) -> str:
        return f"{self.count} listed in {self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    summaries: tuple[str, ...] = ()  # the ones that a condensed summary was made of, in order
    files: tuple[str, ...] = ()  # all that are named in its source, except those in a manifest
    manifests: tuple[ManifestName, ...] = ()

    @property
    def file_entries(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.files, *map(str, self.manifests))))


NO_IDS = Named()


def is_plain(file_id: str) -> bool:
    """Return whether an id can be written in a footer: an import may hold any id."""
    return _PLAIN.fullmatch(file_id) is not None


def with_footer(text: str, named: Named) -> str:
    """Return the summary with its footer, which replaces an earlier one. Without ids there is none."""
    lines = [
        f"{start} {', '.join(dict.fromkeys(ids))}]"
        for start, ids in ((SUMMARIES, named.summaries), (FILES, named.file_entries))
        if ids
    ]
    body = without_footer(text)
    return "\n\n".join((body, "\n".join(lines))) if lines else body


def files_in_footer(text: str) -> Named:
    footer = text[len(without_footer(text)) :]
    lines = (
        line.removeprefix(FILES).strip().removesuffix("]") for line in footer.splitlines() if line.startswith(FILES)
    )
    return named_by(entry for line in lines for entry in line.split(", "))


def named_by(entries: Iterable[str]) -> Named:
    files: dict[str, None] = {}
    manifests: dict[str, ManifestName] = {}
    for entry in entries:
        listed = _LISTED.fullmatch(entry)
        if listed:
            manifests[listed[2]] = ManifestName(id=listed[2], count=int(listed[1]))
        elif entry:
            files[entry] = None
    return Named(files=tuple(files), manifests=tuple(manifests.values()))


def without_footer(text: str) -> str:
    """Return the summary without its footer, in linear time."""
    end = len(text.rstrip())
    start = _footer_before(text, end)
    while start >= 0:
        end = start
        while end and text[end - 1].isspace():
            end -= 1
        start = _footer_before(text, end)
    return text[:end]


def _footer_before(text: str, end: int) -> int:
    start = text.rfind(_START, 0, end)
    if start < 0 or not text.startswith((FILES, SUMMARIES), start, end):
        return -1
    return start if text.find("]", start, end) == end - 1 else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileManifest:
    name: ManifestName
    text: str


def read_file_manifest(text: str) -> Named:
    """Return the files and manifests that a manifest lists. It may come from an import and hold anything."""
    lines = text.split("\n")
    named = named_by(line for line in lines if not line.startswith('"'))
    files = dict.fromkeys(named.files)
    for line in lines:
        if line.startswith('"'):
            try:
                files[str(json.loads(line))] = None
            except ValueError:
                files[line] = None
    return replace(named, files=tuple(files))


def manifest_path(summary_id: str) -> str:
    return f"{FOLDER}{summary_id}.txt"


def is_file_manifest(path: str) -> bool:
    return path.startswith(FOLDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    named: Named
    manifest: FileManifest | None = None


def name_files(named: Named, room: int, manifest_id: str) -> Naming:
    """Name all files if that takes no more than ``room`` tokens; else the newest, and all in a manifest of this id.

    The manifest is named however small ``room`` is.
    """
    is_short = len(named.file_entries) <= 1 or _tokens(named) <= room
    if is_short and all(map(is_plain, named.files)):
        return Naming(named=named)
    files = tuple(dict.fromkeys(named.files))
    # One entry a line, as in a footer. An id that does not fit a line is written as JSON.
    lines = [file_id if is_plain(file_id) else json.dumps(file_id) for file_id in files]
    lines += map(str, named.manifests)
    name = ManifestName(id=manifest_id, count=len(lines))
    listed = Named(summaries=named.summaries, manifests=(name,))
    newest = tuple(filter(is_plain, files))[-NEWEST:]
    while newest and _tokens(replace(listed, files=newest)) > room:
        newest = newest[1:]
    manifest = FileManifest(name=name, text="".join(f"{line}\n" for line in lines))
    return Naming(named=replace(listed, files=newest), manifest=manifest)


def _tokens(named: Named) -> int:
    return estimate_text(with_footer("", Named(files=named.files, manifests=named.manifests)))
