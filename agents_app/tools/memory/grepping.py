"""Search for a model: the whole history, session after session upwards, and the contents of files, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from time import monotonic

from django.utils.translation import gettext_noop

from agents_app.tools.memory.reach import Family, Paths, find, load_paths, wanted_id
from compaction_app.queries import covering_summaries, load_summary, within_summary
from files_app.queries import list_files, load_file_reference, search_file, versions_of
from mnesis_core.errors import FileContentNotFound, FileNotText, InvalidRequest, NotFound
from mnesis_core.files.lines import FileSearch, Mode, parse_lines
from mnesis_core.files.references import version_of
from mnesis_core.llm.tokens import characters_within, estimate_text
from mnesis_core.messages import ToolPart
from mnesis_core.records import FileReference
from mnesis_core.text import visible_text
from sessions_app.record.message_queries import first_seq_of_turn, load_part
from sessions_app.search.ranked import AROUND, answer
from sessions_app.search.search import (
    EVERYTHING,
    Filters,
    Hit,
    Kind,
    Line,
    Passage,
    Scope,
    SearchResult,
    merged,
    search,
    with_passages,
)
from sessions_app.search.search import Mode as SearchMode

PAGE, LARGEST_PAGE = 20, 50
TOKENS, LEAST_TOKENS = 1_000, 100  # of one answer: what it has by default, and what every one may have
TOKENS_A_HIT = 200
HEAD_TOKENS, HIT_TOKENS = 40, 15  # of its first line, and of where a hit is
MENTIONS = 10
SECONDS = 3.0  # of one search of files, and a file's time more (see files_app.contents)
FILES_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A search of a history, and the most that its answer may tell."""

    pattern: str
    mode: SearchMode = "ranked"
    kind: Kind = "all"
    summary_id: str = ""
    filters: Filters = EVERYTHING
    limit: int | None = None
    max_tokens: int | None = None
    """The default is ``TOKENS``, or more when the caller asks for many hits."""
    around: int | None = None
    cursor: str = ""
    turn_id: str = ""
    """The running turn, whose own messages answer no question."""


def grep(family: Family, asked: Asked) -> str:
    """Return a page of hits as text, within the tokens that are allowed; one hit is always told.

    :raises InvalidRequest: the pattern or the cursor cannot be understood.
    :raises SummaryNotFoundError: there is no such summary in the family.
    """
    scopes = _scopes(family, asked)
    at, inner = _place_of(asked.cursor, len(scopes))
    room = min(max(PAGE if asked.limit is None else asked.limit, 1), LARGEST_PAGE)
    most = tokens_for(asked.limit) if asked.max_tokens is None else max(asked.max_tokens, LEAST_TOKENS)
    tokens = most - HEAD_TOKENS
    found: list[tuple[str, SearchResult]] = []
    while at < len(scopes) and room > 0:
        scope, start = scopes[at], inner
        result = _search(scope, asked, limit=room, cursor=start)
        sizes = list(_sizes(result.hits))
        fitting = sum(size <= tokens for size in accumulate(sizes))
        fitting = max(fitting, int(not any(earlier.hits for _, earlier in found) and bool(sizes)))
        if 0 < fitting < len(sizes):
            result = _search(scope, asked, limit=fitting, cursor=start)
        if fitting or not sizes:
            found.append((str(scope.session_id), result))
            inner = result.next_cursor
            at += inner is None
        if fitting < len(sizes):
            break
        tokens, room = tokens - sum(sizes), room - fitting
    told = [_told(result, id, is_only=len(scopes) == 1, around=asked.around) for id, result in found]
    return _cut("\n".join([_head(scopes, found, at, inner), *filter(None, told)]), most)


def tokens_for(limit: int | None) -> int:
    """Return how many tokens an answer has whose caller names no number of them."""
    return max(TOKENS, TOKENS_A_HIT * min(limit or 0, LARGEST_PAGE))


def _scopes(family: Family, asked: Asked) -> list[Scope]:
    if asked.summary_id.strip():
        place = find(family, wanted_id(asked.summary_id))
        summary = load_summary(place.id, session_id=place.session_id)
        scope = Scope(owner_id=family.owner_id, kind=asked.kind, filters=asked.filters)
        return [within_summary(scope, summary)]
    own = family.line[0].id
    before = first_seq_of_turn(asked.turn_id, session_id=own) if asked.turn_id else None
    return [
        Scope(
            owner_id=family.owner_id,
            session_id=session_id,
            kind=asked.kind,
            filters=asked.filters,
            before_seq=before if session_id == own else None,
        )
        for session_id in family.searched
    ]


def _place_of(cursor: str, sessions: int) -> tuple[int, str | None]:
    session, _, rest = (cursor.strip() or "0:").partition(":")
    if not (session.isascii() and session.isdecimal() and len(session) < 4 and int(session) < sessions):
        raise InvalidRequest(gettext_noop("cursor must be the one that the page before ended with"), field="cursor")
    return int(session), rest or None


def _search(scope: Scope, asked: Asked, *, limit: int, cursor: str | None) -> SearchResult:
    return answer(scope, asked.pattern, mode=asked.mode, limit=limit, cursor=cursor, around=asked.around)


def _sizes(hits: Sequence[Hit]) -> Iterator[int]:
    """Yield about how many tokens each hit takes after those before it."""
    shown: dict[tuple[str, int], int] = {}
    for hit in hits:
        size = HIT_TOKENS if (hit.session_id, hit.message_seq) not in shown else 0
        for line in hit.passage:
            tokens = estimate_text(f"#{line.seq} {line.speaker or line.role}: {line.text}\n")
            size += tokens - shown.get((hit.session_id, line.seq), 0)
            shown[hit.session_id, line.seq] = tokens
        yield size if hit.passage else size + estimate_text(hit.snippet)


def _cut(text: str, tokens: int) -> str:
    """Shorten an answer whose only hit is too long."""
    kept = text[: characters_within(text, tokens)]
    return text if kept == text else f"{kept.rstrip()}…"


def _head(scopes: Sequence[Scope], found: Sequence[tuple[str, SearchResult]], at: int, inner: str | None) -> str:
    hits = sum(len(result.hits) for _, result in found)
    searched = sum(result.messages_searched for _, result in found)
    total = sum(result.messages_total for _, result in found)
    amount = f"{searched}" if searched == total else f"{searched} of {total}"
    above = f", in {len(found)} of {len(scopes)} sessions (this one and those above it)" if len(scopes) > 1 else ""
    more = f" There may be more: go on with cursor={at}:{inner or ''}" if at < len(scopes) else ""
    notes = "".join(f"\n{note}" for note in dict.fromkeys(result.note for _, result in found) if note)
    return f"{hits} hits in {amount} messages searched{above}.{more}{notes}"


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
    return with_passages(mentions[:MENTIONS], {}, around=0)


def describe_hits(hits: Sequence[Hit]) -> list[str]:
    """Return a line for each hit of any sessions."""
    paths = {session_id: load_paths(session_id) for session_id in {hit.session_id for hit in hits}}
    return [f"- {_line(hit, paths[hit.session_id])}" for hit in hits]


def _told(result: SearchResult, session_id: str, *, is_only: bool, around: int | None) -> str:
    """Return the hits of one session as text: passages, or lines under the summaries that stand for them."""
    paths = load_paths(session_id)
    said = [hit.message_seq for hit in result.hits if hit.message_id]
    covering = covering_summaries(session_id, said, path=paths.chosen)
    where = "" if is_only else f" in session {session_id}"
    if result.mode == "ranked":
        passages = merged(result.hits, around=AROUND if around is None else around)
        return "\n".join(_passage(passage, paths, covering, where) for passage in passages)
    groups: dict[str, list[str]] = {}
    for hit in result.hits:
        # The groups stand in the order of their best hits.
        groups.setdefault(_group(hit, covering), []).append(f"- {_line(hit, paths)}")
    return "\n".join(f"{group}{where}:\n" + "\n".join(lines) for group, lines in groups.items())


def _group(hit: Hit, covering: Mapping[int, str]) -> str:
    if not hit.message_id:
        return "Summaries and files"
    summary_id = covering.get(hit.message_seq)
    return f"Summarised by {summary_id}" if summary_id else "Not summarised"


def _line(hit: Hit, paths: Paths) -> str:
    return f"{_place(hit, paths)}: {hit.snippet}"


def _passage(passage: Passage, paths: Paths, covering: Mapping[int, str], where: str) -> str:
    best = passage.hits[0]
    if not passage.lines:
        return f"- {_line(best, paths)}"
    summary_id = covering.get(best.message_seq)
    covered = f", summarised by {summary_id}" if summary_id else ""
    lines = [
        f"{'>' if line.is_hit else ' '} #{line.seq} {line.speaker or line.role}{_by_tool(line)}: {line.text}"
        for line in passage.lines
    ]
    return "\n".join([f"{_place(best, paths, is_short=True)}{covered}{where}:", *lines])


def _by_tool(line: Line) -> str:
    return f", {line.tool_name}" if line.tool_name else ""


def _place(hit: Hit, paths: Paths, *, is_short: bool = False) -> str:
    """Return where a hit is: its handle, who said it and when, and whether it is beside the path."""
    is_placed = hit.message_id or hit.kind == "summaries"
    beside = f", {mark}" if is_placed and (mark := paths.beside(hit.branch, hit.last_seq)) else ""
    if hit.message_id is None:
        return f"{hit.part_type} {hit.source_id} (messages {hit.message_seq} to {hit.last_seq}{beside})"
    own = next((line for line in hit.passage if line.is_hit), None)
    said_at = f"{own.said_at:%Y-%m-%d %H:%M}" if own else ""
    speaker = "" if is_short or own is None else f"{own.speaker or own.role}{_by_tool(own)}, "
    return f"#{hit.message_seq} ({speaker}{said_at}{beside})"


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
            raise InvalidRequest(gettext_noop("file_id must be the id of a file (file_…)"), field="file_id")
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
            raise InvalidRequest(gettext_noop("cursor must be the one that the page before ended with"), field="cursor")
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
