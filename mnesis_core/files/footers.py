"""The footer by which a summary names the files of its sources, and the summaries that it stands for.

It is the engine's work, never the model's (seed 000, LCM paper 2.2): what a model writes there is replaced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from mnesis_core.llm.tokens import estimate_text

_START = "[LCM "
FILES = f"{_START}File IDs:"
SUMMARIES = f"{_START}Summary IDs:"
_PLAIN = re.compile(r"[\w.:@+%=~/|-]{1,64}", re.ASCII)
_LISTED = re.compile(r"(\d{1,15}) listed in (\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestName:
    id: str
    # Entries: ids of files and of further manifests.
    count: int

    def __str__(self) -> str:
        return f"{self.count} listed in {self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The ids that a summary has to name."""

    # What a condensed summary was made of, in order.
    summaries: tuple[str, ...] = ()
    # All files named in its source, except those in a manifest.
    files: tuple[str, ...] = ()
    manifests: tuple[ManifestName, ...] = ()

    @property
    def file_entries(self) -> tuple[str, ...]:
        """Return files and manifests as they are written, each once."""
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
    return named_by(entry for line in _file_lines(footer) for entry in line.split(", "))


def named_by(entries: Iterable[str]) -> Named:
    """Return the files and manifests of entries written as in a footer."""
    files: dict[str, None] = {}
    manifests: dict[str, ManifestName] = {}
    for entry in entries:
        listed = _LISTED.fullmatch(entry)
        if listed:
            manifests[listed[2]] = ManifestName(id=listed[2], count=int(listed[1]))
        elif entry:
            files[entry] = None
    return Named(files=tuple(files), manifests=tuple(manifests.values()))


def _file_lines(footer: str) -> Iterator[str]:
    for line in footer.splitlines():
        if line.startswith(FILES):
            yield line.removeprefix(FILES).strip().removesuffix("]")


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
    """Return where the footer that ends at ``end`` begins; -1 if there is none."""
    start = text.rfind(_START, 0, end)
    if start < 0 or not text.startswith((FILES, SUMMARIES), start, end):
        return -1
    return start if text.find("]", start, end) == end - 1 else -1


# File manifests: files that list the ids which a summary's footer has no room for. One may list others.

FOLDER = ".mnesis/manifests/"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileManifest:
    name: ManifestName
    text: str


def file_manifest(manifest_id: str, named: Named) -> FileManifest:
    """Return a manifest of the files and manifests in ``named``, one entry a line, as in a footer.

    An id that does not fit a line is written as JSON.
    """
    lines = [*map(_line, dict.fromkeys(named.files)), *map(str, named.manifests)]
    return FileManifest(
        name=ManifestName(id=manifest_id, count=len(lines)), text="".join(f"{line}\n" for line in lines)
    )


def read_file_manifest(text: str) -> Named:
    """Return the files and manifests that a manifest lists. It may come from an import and hold anything."""
    lines = text.split("\n")
    named = named_by(line for line in lines if not line.startswith('"'))
    foreign = [_unquoted(line) for line in lines if line.startswith('"')]
    return replace(named, files=tuple(dict.fromkeys((*named.files, *foreign))))


def manifest_path(summary_id: str) -> str:
    return f"{FOLDER}{summary_id}.txt"


def is_file_manifest(path: str) -> bool:
    return path.startswith(FOLDER)


def _line(file_id: str) -> str:
    return file_id if is_plain(file_id) else json.dumps(file_id)


def _unquoted(line: str) -> str:
    try:
        return str(json.loads(line))
    except ValueError:
        return line


# Which files a summary names itself, and which in a manifest: no id is lost, and none is in the way of the text.

# Tokens of all file ids under one summary, some twenty ids. More would be sent with every call and rarely read.
MOST_TOKENS = 400
# A footer of files takes at most this part of the budget's low mark: half of the summary's limit.
SHARE_OF_TARGET = 8
# Also at most this part of the summary's own room, or nothing would be gained.
SHARE_OF_SOURCE = 2
# Also of a level 3 excerpt, which has few tokens to quote with.
SHARE_OF_EXCERPT = 4
# Files named beside a manifest if there is room: the latest are most likely to be asked for.
NEWEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What goes into a footer, and the manifest that holds the rest."""

    named: Named
    manifest: FileManifest | None = None


def name_files(named: Named, room: int, manifest_id: str) -> Naming:
    """Name all files if that takes no more than ``room`` tokens; else the newest, and all in a manifest of this id.

    The manifest is named however small ``room`` is.
    """
    is_short = len(named.file_entries) <= 1 or _tokens(named) <= room
    if is_short and all(map(is_plain, named.files)):
        return Naming(named=named)
    manifest = file_manifest(manifest_id, named)
    listed = Named(summaries=named.summaries, manifests=(manifest.name,))
    newest = [file_id for file_id in dict.fromkeys(named.files) if is_plain(file_id)][-NEWEST:]
    while newest and _tokens(replace(listed, files=tuple(newest))) > room:
        newest = newest[1:]
    return Naming(named=replace(listed, files=tuple(newest)), manifest=manifest)


def _tokens(named: Named) -> int:
    return estimate_text(with_footer("", Named(files=named.files, manifests=named.manifests)))
