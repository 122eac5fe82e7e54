"""What files hold, searched line by line: those of a session and of the ones above it, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic

from agents_app.tools.family import Family, find
from agents_app.tools.grepping import LARGEST_PAGE
from files_app.lines import search_file
from files_app.queries import list_files, load_file_reference, versions_of
from mnesis_core.attachments import version_of
from mnesis_core.errors import FileContentNotFound, FileNotText, InvalidRequest, NotFound
from mnesis_core.file_lines import FileSearch, LineHit
from mnesis_core.line_patterns import Mode, parse_lines
from mnesis_core.record import FileReference
from mnesis_core.visible import visible_text

SECONDS = 3.0
"""Of one call, and a file's time more (``files_app.lines``)."""
FILES_AT_ONCE = 100
"""That are looked up."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    """How far a search came, and what it found."""

    left: int
    """Hits that may still be shown."""
    found: list[FileSearch] = field(default_factory=list)
    searched: int = 0
    """Files that were looked at to their end."""
    skipped: int = 0
    """Files that are no text, or not kept here."""
    cursor: str = ""


def grep_files(family: Family, pattern: str, *, mode: Mode, file_id: str, limit: int, cursor: str) -> str:
    """A page of lines as text, under the files that they stand in.

    :raises InvalidRequest: the pattern or the cursor cannot be understood.
    :raises FileNotText: ``file_id`` names a file that has no lines.
    :raises NotFound: ``file_id`` names no file of the family.
    """
    parse_lines(pattern, mode)
    begin, _, inner = cursor.strip().partition(":")
    walk = _Walk(left=min(max(limit, 1), LARGEST_PAGE))
    if file_id:
        _search(walk, _file(family, file_id), pattern, mode, inner)
        if walk.skipped:
            raise FileNotText(file_id=file_id)
        return _page(walk)
    deadline = monotonic() + SECONDS
    for file in _files(family, begin):
        if walk.cursor or walk.left == 0 or monotonic() > deadline:
            walk.cursor = walk.cursor or f"{file.id}:"
            break
        _search(walk, file, pattern, mode, inner if file.id == begin else "")
    return _page(walk)


def _search(walk: _Walk, file: FileReference, pattern: str, mode: Mode, cursor: str) -> None:
    try:
        result = search_file(
            file.id, pattern=pattern, mode=mode, limit=walk.left, cursor=cursor or None, session_id=file.session_id
        )
    except (FileNotText, FileContentNotFound):
        walk.skipped += 1
        return
    walk.left -= len(result.hits)
    walk.found += [result] if result.hits else []
    if result.next_cursor:
        walk.cursor = f"{file.id}:{result.next_cursor}"
    else:
        walk.searched += 1


def _file(family: Family, file_id: str) -> FileReference:
    found = find(family, file_id)
    if found.kind != "file":
        raise InvalidRequest("file_id must be the id of a file (file_…)", field="file_id")
    return load_file_reference(found.id, session_id=found.session_id)


def _files(family: Family, begin: str) -> Iterator[FileReference]:
    """The files of a line of sessions, nearest session first, each one's newest first, from one of them on."""
    sessions = [kin.id for kin in family.line]
    first = _begun(family, begin) if begin else None
    if first is not None:
        yield first
        sessions = sessions[sessions.index(first.session_id) :]
    for session_id in sessions:
        before = first.id if first and session_id == first.session_id else None
        while files := list_files(owner_id=family.owner_id, session_id=session_id, before=before, limit=FILES_AT_ONCE):
            yield from files
            before = files[-1].id


def _begun(family: Family, file_id: str) -> FileReference:
    try:
        file = load_file_reference(file_id, owner_id=family.owner_id)
    except NotFound:
        file = None
    if file is None or file.session_id not in {kin.id for kin in family.line}:
        raise InvalidRequest("cursor must be the one that the page before ended with", field="cursor")
    return file


def _page(walk: _Walk) -> str:
    hits = sum(len(result.hits) for result in walk.found)
    skipped = f" {walk.skipped} files are no text or not kept here." if walk.skipped else ""
    more = f" There may be more: go on with cursor={walk.cursor}" if walk.cursor else ""
    head = f"{hits} lines found; {walk.searched} files searched to their end.{skipped}{more}"
    return "\n".join([head, *(line for result in walk.found for line in _group(result))])


def _group(result: FileSearch) -> Iterator[str]:
    version = version_of(result.file, versions_of(result.file))
    told = f", version {version}" if version else ""
    searched = "" if result.next_cursor is None else f", searched up to byte {result.searched_bytes} of {result.size}"
    yield f"{result.file.id} {visible_text(result.file.path) or 'no path'}{told}{searched}:"
    yield from map(_line, result.hits)


def _line(hit: LineHit) -> str:
    often = f", {hit.count} matches" if hit.count > 1 else ""
    return f"- line {hit.number} (byte {hit.offset}{often}): {visible_text(hit.text)}"
