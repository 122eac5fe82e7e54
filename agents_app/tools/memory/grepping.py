"""The whole history searched, session after session upwards, and the hits grouped by what stands for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic

from agents_app.tools.memory.reach import Family, find, wanted_id
from compaction_app.queries import covering_summaries, load_summary
from files_app.lines import search_file
from files_app.queries import list_files, load_file_reference, versions_of
from mnesis_core.errors import FileContentNotFound, FileNotText, InvalidRequest, NotFound
from mnesis_core.files.lines import FileSearch, LineHit
from mnesis_core.files.patterns import Mode, parse_lines
from mnesis_core.files.references import version_of
from mnesis_core.messages import ToolPart
from mnesis_core.records import FileReference
from mnesis_core.text import visible_text
from sessions_app.record.message_queries import load_part
from sessions_app.search.search import Hit, Scope, SearchResult, search
from sessions_app.search.search import Mode as SearchMode

LARGEST_PAGE = 50
MENTIONS = 10
"""Places that are told of an id which names nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page begins: in which of the sessions, and after what of it."""

    session: int = 0
    cursor: str | None = None

    def write(self) -> str:
        """The place as a cursor."""
        return f"{self.session}:{self.cursor or ''}"


def grep(family: Family, pattern: str, *, mode: SearchMode, summary_id: str, limit: int, cursor: str) -> str:
    """A page of hits as text.

    :raises InvalidRequest: the pattern or the cursor cannot be understood.
    :raises SummaryNotFoundError: there is no such summary in the family.
    """
    scopes = _scopes(family, summary_id)
    place = _read_place(cursor, len(scopes))
    found: list[tuple[str, SearchResult]] = []
    after: Place | None = place
    room = min(max(limit, 1), LARGEST_PAGE)
    while after is not None and room > 0:
        result = search(scopes[after.session], pattern, mode=mode, limit=room, cursor=after.cursor)
        found.append((str(scopes[after.session].session_id), result))
        room -= len(result.hits)
        after = _next_place(after, result, len(scopes))
    return _page(found, after, sessions=len(scopes), place=place)


def find_mentions(family: Family, id: str) -> list[Hit]:
    """Where a text that looks like an id was said; what a memory tool was asked about it does not count."""
    found: list[Hit] = []
    for session_id in family.searched:
        scope = Scope(owner_id=family.owner_id, session_id=session_id)
        try:
            found += search(scope, f'"{id}"', limit=LARGEST_PAGE).hits
        except InvalidRequest:  # there is no word in it
            return []
    return [hit for hit in found if not _is_asked(hit)][:MENTIONS]


def describe_hit(hit: Hit) -> str:
    """A hit as one line."""
    if hit.message_id is None:
        return f"- {hit.part_type} {hit.source_id} (messages {hit.message_seq} to {hit.last_seq}): {hit.snippet}"
    place = f"message {hit.message_seq} ({hit.message_id}, {hit.source_id}, {hit.role}, {hit.part_type})"
    return f"- {place}: {hit.snippet}"


def _is_asked(hit: Hit) -> bool:
    if hit.field != "tool_input":
        return False
    part = load_part(hit.source_id, session_id=hit.session_id).part
    return isinstance(part, ToolPart) and part.tool_name.startswith("lcm_")


def _scopes(family: Family, summary_id: str) -> list[Scope]:
    if not summary_id.strip():
        return [Scope(owner_id=family.owner_id, session_id=session_id) for session_id in family.searched]
    found = find(family, wanted_id(summary_id))
    summary = load_summary(found.id, session_id=found.session_id)
    scope = Scope(owner_id=family.owner_id, session_id=found.session_id)
    return [replace(scope, first_seq=summary.first_seq, last_seq=summary.last_seq)]


def _read_place(cursor: str, sessions: int) -> Place:
    session, _, rest = (cursor.strip() or "0:").partition(":")
    if not (session.isascii() and session.isdecimal() and len(session) < 4 and int(session) < sessions):
        raise InvalidRequest("cursor must be the one that the page before ended with", field="cursor")
    return Place(session=int(session), cursor=rest or None)


def _next_place(place: Place, result: SearchResult, sessions: int) -> Place | None:
    if result.next_cursor is not None:
        return replace(place, cursor=result.next_cursor)
    return Place(session=place.session + 1) if place.session + 1 < sessions else None


def _page(found: Sequence[tuple[str, SearchResult]], after: Place | None, *, sessions: int, place: Place) -> str:
    hits = sum(len(result.hits) for _, result in found)
    searched = sum(result.messages_searched for _, result in found)
    total = sum(result.messages_total for _, result in found)
    amount = f"{searched}" if searched == total else f"{searched} of {total}"
    above = f", in {len(found)} of {sessions} sessions (this one and those above it)" if sessions > 1 else ""
    more = f" There may be more: go on with cursor={after.write()}" if after else ""
    head = f"{hits} hits in {amount} messages searched{above}.{more}"
    return "\n".join(
        [head, *(line for id, result in found for line in _groups(id, result.hits, is_only=sessions == 1))]
    )


def _groups(session_id: str, hits: Sequence[Hit], *, is_only: bool) -> Iterator[str]:
    """The hits of a session under the summaries that stand for them, in the order of each one's best hit."""
    covering = covering_summaries(session_id, [hit.message_seq for hit in hits if hit.message_id])
    groups: dict[str, list[str]] = {}
    for hit in hits:
        groups.setdefault(_group(hit, covering), []).append(describe_hit(hit))
    where = "" if is_only else f" in session {session_id}"
    for group, lines in groups.items():
        yield f"{group}{where}:"
        yield from lines


def _group(hit: Hit, covering: Mapping[int, str]) -> str:
    if not hit.message_id:
        return "Summaries and files"
    summary_id = covering.get(hit.message_seq)
    return f"Summarised by {summary_id}" if summary_id else "Not summarised"


# What files hold, searched line by line: those of a session and of the ones above it, newest first.

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
        return _file_page(walk)
    deadline = monotonic() + SECONDS
    for file in _files(family, begin):
        if walk.cursor or walk.left == 0 or monotonic() > deadline:
            walk.cursor = walk.cursor or f"{file.id}:"
            break
        _search(walk, file, pattern, mode, inner if file.id == begin else "")
    return _file_page(walk)


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


def _file_page(walk: _Walk) -> str:
    hits = sum(len(result.hits) for result in walk.found)
    skipped = f" {walk.skipped} files are no text or not kept here." if walk.skipped else ""
    more = f" There may be more: go on with cursor={walk.cursor}" if walk.cursor else ""
    head = f"{hits} lines found; {walk.searched} files searched to their end.{skipped}{more}"
    return "\n".join([head, *(line for result in walk.found for line in _file_group(result))])


def _file_group(result: FileSearch) -> Iterator[str]:
    version = version_of(result.file, versions_of(result.file))
    told = f", version {version}" if version else ""
    searched = "" if result.next_cursor is None else f", searched up to byte {result.searched_bytes} of {result.size}"
    yield f"{result.file.id} {visible_text(result.file.path) or 'no path'}{told}{searched}:"
    yield from map(_line, result.hits)


def _line(hit: LineHit) -> str:
    often = f", {hit.count} matches" if hit.count > 1 else ""
    return f"- line {hit.number} (byte {hit.offset}{often}): {visible_text(hit.text)}"
