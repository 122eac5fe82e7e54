"""Search for a model: the whole history, session after session upwards, and the contents of files, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic

from agents_app.tools.memory.paths import Paths, load_paths
from agents_app.tools.memory.reach import Family, find, wanted_id
from compaction_app.queries import covering_summaries, load_summary, within_summary
from files_app.queries import list_files, load_file_reference, search_file, versions_of
from mnesis_core.errors import FileContentNotFound, FileNotText, InvalidRequest, NotFound
from mnesis_core.files.lines import FileSearch, Mode, parse_lines
from mnesis_core.files.references import version_of
from mnesis_core.messages import ToolPart
from mnesis_core.records import FileReference
from mnesis_core.text import visible_text
from sessions_app.record.message_queries import load_part
from sessions_app.search.search import Hit, Scope, SearchResult, search
from sessions_app.search.search import Mode as SearchMode

LARGEST_PAGE = 50
MENTIONS = 10
SECONDS = 3.0  # of one search of files, and a file's time more (see files_app.contents)
FILES_AT_ONCE = 100


def grep(family: Family, pattern: str, *, mode: SearchMode, summary_id: str, limit: int, cursor: str) -> str:
    """Return a page of hits as text, grouped by the summaries that stand for them.

    :raises InvalidRequest: the pattern or the cursor cannot be understood.
    :raises SummaryNotFoundError: there is no such summary in the family.
    """
    scopes = [Scope(owner_id=family.owner_id, session_id=session_id) for session_id in family.searched]
    if summary_id.strip():
        summary_place = find(family, wanted_id(summary_id))
        summary = load_summary(summary_place.id, session_id=summary_place.session_id)
        scopes = [within_summary(Scope(owner_id=family.owner_id), summary)]
    found: list[tuple[str, SearchResult]] = []
    session, _, rest = (cursor.strip() or "0:").partition(":")
    if not (session.isascii() and session.isdecimal() and len(session) < 4 and int(session) < len(scopes)):
        raise InvalidRequest("cursor must be the one that the page before ended with", field="cursor")
    at, inner = int(session), rest or None
    room = min(max(limit, 1), LARGEST_PAGE)
    while at < len(scopes) and room > 0:
        result = search(scopes[at], pattern, mode=mode, limit=room, cursor=inner)
        found.append((str(scopes[at].session_id), result))
        room -= len(result.hits)
        inner = result.next_cursor
        if inner is None:
            at += 1
    hits = sum(len(result.hits) for _, result in found)
    searched = sum(result.messages_searched for _, result in found)
    total = sum(result.messages_total for _, result in found)
    amount = f"{searched}" if searched == total else f"{searched} of {total}"
    is_only = len(scopes) == 1
    above = "" if is_only else f", in {len(found)} of {len(scopes)} sessions (this one and those above it)"
    more = f" There may be more: go on with cursor={at}:{inner or ''}" if at < len(scopes) else ""
    head = f"{hits} hits in {amount} messages searched{above}.{more}"
    return "\n".join([head, *(line for id, result in found for line in _group_hits(id, result.hits, is_only=is_only))])


def find_mentions(family: Family, id: str) -> list[Hit]:
    """Return where an id was said, except in what a memory tool was asked about it."""
    found: list[Hit] = []
    for session_id in family.searched:
        scope = Scope(owner_id=family.owner_id, session_id=session_id)
        try:
            found += search(scope, f'"{id}"', limit=LARGEST_PAGE).hits
        except InvalidRequest:  # there is no word in it
            return []
    mentions = []
    for hit in found:
        part = load_part(hit.source_id, session_id=hit.session_id).part if hit.field == "tool_input" else None
        if not (isinstance(part, ToolPart) and part.tool_name.startswith("lcm_")):
            mentions.append(hit)
    return mentions[:MENTIONS]


def describe_hit(hit: Hit, paths: Paths) -> str:
    is_placed = hit.message_id or hit.kind == "summaries"
    beside = f", {where}" if is_placed and (where := paths.beside(hit.branch, hit.last_seq)) else ""
    if hit.message_id is None:
        place = f"{hit.part_type} {hit.source_id} (messages {hit.message_seq} to {hit.last_seq}{beside})"
    else:
        place = f"message {hit.message_seq} ({hit.message_id}, {hit.source_id}, {hit.role}, {hit.part_type}{beside})"
    return f"- {place}: {hit.snippet}"


def describe_hits(hits: Sequence[Hit]) -> list[str]:
    paths = {session_id: load_paths(session_id) for session_id in {hit.session_id for hit in hits}}
    return [describe_hit(hit, paths[hit.session_id]) for hit in hits]


def _group_hits(session_id: str, hits: Sequence[Hit], *, is_only: bool) -> Iterator[str]:
    # The groups stand in the order of their best hits.
    paths = load_paths(session_id)
    said = [hit.message_seq for hit in hits if hit.message_id]
    covering = covering_summaries(session_id, said, path=paths.chosen)
    groups: dict[str, list[str]] = {}
    for hit in hits:
        if not hit.message_id:
            group = "Summaries and files"
        elif summary_id := covering.get(hit.message_seq):
            group = f"Summarised by {summary_id}"
        else:
            group = "Not summarised"
        groups.setdefault(group, []).append(describe_hit(hit, paths))
    where = "" if is_only else f" in session {session_id}"
    for group, lines in groups.items():
        yield f"{group}{where}:"
        yield from lines


def grep_files(family: Family, pattern: str, *, mode: Mode, file_id: str, limit: int, cursor: str) -> str:
    """Return a page of lines as text, under the files that they stand in.

    :raises InvalidRequest: the pattern or the cursor cannot be understood.
    :raises FileNotText: ``file_id`` names a file that has no lines.
    :raises NotFound: ``file_id`` names no file of the family.
    """
    parse_lines(pattern, mode)
    begin, _, inner = cursor.strip().partition(":")
    files = _iterate_files(family, begin)
    if file_id:
        named = find(family, file_id)
        if named.kind != "file":
            raise InvalidRequest("file_id must be the id of a file (file_…)", field="file_id")
        files = iter([load_file_reference(named.id, session_id=named.session_id)])
    found: list[FileSearch] = []
    left, searched, skipped, following = min(max(limit, 1), LARGEST_PAGE), 0, 0, ""
    deadline = monotonic() + SECONDS
    for file in files:
        if following or left == 0 or monotonic() > deadline:
            following = following or f"{file.id}:"
            break
        place = inner if file_id or file.id == begin else ""
        try:
            result = search_file(
                file.id, pattern=pattern, mode=mode, limit=left, cursor=place or None, session_id=file.session_id
            )
        except (FileNotText, FileContentNotFound):
            if file_id:
                raise FileNotText(file_id=file_id) from None
            skipped += 1
            continue
        left -= len(result.hits)
        found += [result] if result.hits else []
        following = f"{file.id}:{result.next_cursor}" if result.next_cursor else ""
        searched += 0 if result.next_cursor else 1
    about = f" {skipped} files are no text or not kept here." if skipped else ""
    more = f" There may be more: go on with cursor={following}" if following else ""
    head = (
        f"{sum(len(result.hits) for result in found)} lines found; {searched} files searched to their end.{about}{more}"
    )
    return "\n".join([head, *(line for result in found for line in _describe_result(result))])


def _iterate_files(family: Family, begin: str) -> Iterator[FileReference]:
    # The nearest session first, each one's newest file first, from the file on that the cursor names.
    sessions = [kin.id for kin in family.line]
    first: FileReference | None = None
    if begin:
        with suppress(NotFound):
            first = load_file_reference(begin, owner_id=family.owner_id)
        if first is None or first.session_id not in sessions:
            raise InvalidRequest("cursor must be the one that the page before ended with", field="cursor")
        yield first
        sessions = sessions[sessions.index(first.session_id) :]
    for session_id in sessions:
        before = first.id if first and session_id == first.session_id else None
        while files := list_files(owner_id=family.owner_id, session_id=session_id, before=before, limit=FILES_AT_ONCE):
            yield from files
            before = files[-1].id


def _describe_result(result: FileSearch) -> Iterator[str]:
    number = version_of(result.file, versions_of(result.file))
    version = f", version {number}" if number else ""
    upto = "" if result.next_cursor is None else f", searched up to byte {result.searched_bytes} of {result.size}"
    yield f"{result.file.id} {visible_text(result.file.path) or 'no path'}{version}{upto}:"
    for hit in result.hits:
        often = f", {hit.count} matches" if hit.count > 1 else ""
        yield f"- line {hit.number} (byte {hit.offset}{often}): {visible_text(hit.text)}"
