"""Search in the record: every word that was ever said, in context or not, with the same answer on both databases.

The index finds candidates, newest first; their texts confirm and rate them. The best of the newest hundred come first,
then the best of the hundred before, and so on: an answer costs the same at any length of history, and a cursor stays
valid while new messages come.
"""

# ruff: noqa: S608 - names in these statements are constants; user text is passed as values.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, Literal, NamedTuple

from django.db import connection

from mnesis_core.context.branches import Stretch
from mnesis_core.errors import InvalidRequest
from mnesis_core.records import record_of
from mnesis_core.search.words import Marks, Query, parse_pattern, parse_words, readable, snippet
from mnesis_core.text import decode_text, spaced_json
from sessions_app.database.tables import fetch
from sessions_app.ownership import HOME, TEMPORARY
from sessions_app.search.filters import EVERYTHING, Filters
from sessions_app.search.index import JSON_TOLD, PARTS, PIECE, SOURCES, engine

Mode = Literal["ranked", "text", "regex"]
Kind = Literal["messages", "tools", "summaries", "files", "all"]

WINDOW = 100  # candidates that are rated together
# The most that one request reads before it answers with what it has.
CHARACTERS, SECONDS = 50_000_000, 2.0
NEWEST = 2**63 - 1

ENTRY = "e.id, e.session_id, e.kind, e.source_id, e.field, e.first_seq, e.last_seq, e.start"
# A long text has many entries, and its row is read once for all of them.
_SEGMENTS = """
    WITH r AS (
        SELECT source_id, field, MIN(start) AS first, MAX(start) AS last FROM search_entries
        WHERE id IN ({places}) GROUP BY source_id, field
    )
    SELECT r.source_id, r.field, r.first, {names},
        substr({text}, CAST(r.first AS integer) + 1, CAST(r.last - r.first AS integer) + %s) FROM r {joins}"""
_PART_TEXT = """CASE r.field WHEN 'content' THEN p.content WHEN 'tool_input' THEN p.tool_input
    WHEN 'output' THEN p.output ELSE p.error_message END"""
_PART_JOINS = "JOIN message_parts p ON p.id = r.source_id JOIN messages m ON m.id = p.message_id"

VISIBLE = (
    "s.deleted_at IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM messages f WHERE f.id = s.forked_message_id AND f.seq > s.message_seq"
    " AND NOT EXISTS (SELECT 1 FROM turns w WHERE w.session_id = s.id AND w.idempotency_key = f.id))"
)
"""Deleted sessions are hidden, and so are incomplete forks (``session_queries.visible_sessions``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is searched: all sessions of a person but temporary chats, or one; optionally one kind of text, or some messages."""

    owner_id: int
    session_id: str | None = None
    kind: Kind = "all"
    first_seq: int | None = None
    last_seq: int | None = None  # with first_seq: only texts of these messages, in one session
    stretches: tuple[Stretch, ...] = ()  # with them, in a session with branches: where these messages are
    messages: int = 0  # and how many they are
    filters: Filters = EVERYTHING
    before_seq: int | None = None  # of a ranked search: only messages with lower numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One message of a passage, or the text that was found, as far as it is shown."""

    message_id: str
    seq: int
    role: str
    speaker: str  # a person's name, where the session's labels have one
    tool_name: str
    said_at: datetime
    text: str
    is_hit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One match: a part of a message, or a row of another table about some messages."""

    session_id: str
    session_title: str
    kind: str
    source_id: str
    field: str
    message_id: str | None
    message_seq: int  # the first message
    last_seq: int
    branch: int  # of the message, or for which a summary was made; 0 of what belongs to no branch
    role: str
    part_type: str
    snippet: str
    matches: tuple[tuple[int, int], ...]  # ranges of the snippet: first and one after the last character
    passage: tuple[Line, ...] = ()  # the message among those around it; empty for what is no message


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    hits: tuple[Hit, ...]
    messages_searched: int
    messages_total: int
    cut_off: bool  # whether the request's limit of text or time ended it early; the cursor goes on
    next_cursor: str | None
    mode: Mode = "text"  # the one that found them
    note: str = ""  # why it is another one than was asked for

    @property
    def more(self) -> bool:
        return self.next_cursor is not None


class Candidate(NamedTuple):
    id: int
    session_id: str
    kind: str
    source_id: str
    field: str
    first_seq: int
    last_seq: int
    message_id: str | None
    branch: int
    role: str
    part_type: str
    text: str


@dataclass(slots=True, kw_only=True)
class _Walk:
    below: int  # entries still to be searched have lower ids
    skip: int  # the best of the window below that were already shown
    lowest: int = NEWEST  # all entries from this id on were read, here or for an earlier page
    ended: bool = False
    cut_off: bool = False


def search(scope: Scope, text: str, *, mode: Mode = "text", limit: int = 20, cursor: str | None = None) -> SearchResult:
    """Find words (all of them; ``"side by side"``; ``begin*``) or a regular expression (RE2) in visible sessions.

    Ranked questions are asked in ``sessions_app.search.answers``.

    :raises InvalidRequest: the query or the cursor cannot be understood.
    """
    query: Query = parse_pattern(text) if mode == "regex" else parse_words(text)
    below, _, skip = (cursor or f"{NEWEST}.0").partition(".")
    if not all(number.isascii() and number.isdecimal() and len(number) < 20 for number in (below, skip)):
        raise InvalidRequest("cursor must be the next_cursor of the page before", field="cursor")
    walk = _Walk(below=min(int(below), NEWEST), skip=int(skip))
    found = _find(scope, query, walk, limit)
    hits = hits_of(found, query)
    total = messages_in(scope)
    searched = total
    # The index covers everything; without it, only the entries that were read were searched.
    if not walk.ended and (walk.cut_off or not query.words):
        condition, values = condition_of(scope)
        messages = f"SELECT DISTINCT session_id, first_seq FROM search_entries e WHERE e.id >= %s{condition}"
        count = f"SELECT COUNT(*) FROM ({messages} AND e.kind IN ('messages', 'tools')) AS walked"
        searched = min(total, int(fetch(count, [walk.lowest, *values])[0][0]))
    return SearchResult(
        hits=tuple(hits),
        mode=mode,
        messages_searched=searched,
        messages_total=total,
        cut_off=walk.cut_off,
        next_cursor=None if walk.ended else f"{walk.below}.{walk.skip}",
    )


def hits_of(found: Sequence[Candidate], query: Marks, *, is_densest: bool = False) -> list[Hit]:
    ids = list({candidate.session_id for candidate in found})
    places = ", ".join(["%s"] * len(ids))
    titles = dict(fetch(f"SELECT id, title FROM sessions WHERE id IN ({places})", ids)) if ids else {}
    return [
        record_of(
            Hit,
            candidate,
            session_title=decode_text(titles[candidate.session_id]),
            message_seq=candidate.first_seq,
            snippet=piece.text,
            matches=piece.matches,
            passage=(),
        )
        for candidate in found
        for piece in [snippet(candidate.text, query, is_densest=is_densest)]
    ]


def messages_in(scope: Scope) -> int:
    """Return how many messages a scope has."""
    # Messages are numbered without a gap.
    values: list[int | str]
    whose, values = f"s.owner_id = %s AND s.organisation_id = {HOME} AND NOT {TEMPORARY}", [scope.owner_id] * 2
    if scope.session_id:
        whose, values = "s.id = %s", [scope.session_id]
    numbers = f"SELECT COALESCE(SUM(s.message_seq), 0) FROM sessions s WHERE {whose} AND {VISIBLE}"
    total = int(fetch(numbers, values)[0][0])
    if scope.first_seq is not None and scope.last_seq is not None:
        total = scope.messages or max(0, min(total, scope.last_seq) - scope.first_seq + 1)
    return total


def _find(scope: Scope, query: Query, walk: _Walk, limit: int) -> list[Candidate]:
    """Return the best of the newest window of entries below ``walk.below`` that may match, and of older ones up to ``limit``."""
    condition, values = condition_of(scope)
    index, words = engine(), ""
    select = f"SELECT {ENTRY} FROM search_entries e WHERE e.id < %s{condition} ORDER BY e.id DESC LIMIT {WINDOW}"
    if query.words:
        words = index.query(query.words, owner_id=scope.owner_id, session_id=scope.session_id)
        select = index.select(ENTRY, condition, limit=WINDOW)
    found: list[Candidate] = []
    read, deadline = 0, monotonic() + SECONDS
    while len(found) < limit and not walk.ended and not walk.cut_off:
        with connection.cursor() as cursor:
            if words:
                entries = index.fetch(cursor, select, [words, walk.below, *values])
            else:
                cursor.execute(select, [walk.below, *values])
                entries = cursor.fetchall()
            window = with_texts(cursor, entries)
        rates = {candidate.id: query.rate(candidate.text) for candidate in window}
        rated = sorted((one for one in window if rates[one.id]), key=lambda one: (-rates[one.id], -one.id))
        taken = rated[walk.skip : walk.skip + limit - len(found)]
        found += taken
        walk.lowest = window[-1].id if window else walk.lowest
        if walk.skip + len(taken) < len(rated):
            walk.below, walk.skip = window[0].id + 1, walk.skip + len(taken)
            break
        walk.below, walk.skip, walk.ended = walk.lowest, 0, len(window) < WINDOW
        read += sum(len(candidate.text) for candidate in window)
        walk.cut_off = not walk.ended and len(found) < limit and (read > CHARACTERS or monotonic() > deadline)
    return found


def condition_of(scope: Scope) -> tuple[str, list[Any]]:
    wanted = {
        "e.session_id = %s": scope.session_id,
        "e.kind = %s": None if scope.kind == "all" else scope.kind,
        "e.first_seq >= %s": scope.first_seq,
        "e.last_seq <= %s": scope.last_seq,
    }
    if scope.session_id is None:
        wanted["e.owner_id = %s"] = scope.owner_id
        own = f"s.id = e.session_id AND s.organisation_id = {HOME} AND NOT {TEMPORARY} AND {VISIBLE}"
        wanted[f"EXISTS (SELECT 1 FROM sessions s WHERE {own})"] = scope.owner_id
    used = {condition: value for condition, value in wanted.items() if value is not None or "%s" not in condition}
    narrowed = list(scope.filters.conditions(owner_id=scope.owner_id, session_id=scope.session_id))
    values = [value for value in used.values() if value is not None]
    values += [value for _, given in narrowed for value in given]
    conditions = [*used, *(condition for condition, _ in narrowed)]
    if stretches := scope.stretches:
        # In groups, since SQLite allows expressions of depth 1,000.
        one, size = "(b.branch = %s AND b.seq BETWEEN %s AND %s)", 200
        groups = [" OR ".join([one] * len(stretches[start : start + size])) for start in range(0, len(stretches), size)]
        ends = (
            "SELECT COUNT(*) FROM messages b WHERE b.session_id = e.session_id AND b.seq IN (e.first_seq, e.last_seq)"
        )
        is_there = " OR ".join(f"({group})" for group in groups)
        conditions += [f"({ends} AND ({is_there})) = CASE WHEN e.first_seq = e.last_seq THEN 1 ELSE 2 END"]
        values += [value for stretch in stretches for value in stretch]
    return "".join(f" AND {condition}" for condition in conditions), values


def with_texts(cursor: Any, entries: list[Any]) -> list[Candidate]:
    by_kind: dict[str, list[int]] = defaultdict(list)
    for id, _, kind, *_ in entries:
        by_kind[kind if kind in SOURCES else PARTS].append(id)
    segments: dict[tuple[str, str], tuple[Any, ...]] = {}
    for kind, ids in by_kind.items():
        names, text, joins = "p.message_id, m.branch, m.role, p.part_type", _PART_TEXT, _PART_JOINS
        if kind != PARTS:
            source = SOURCES[kind]
            names, text = f"NULL, {source.branch}, '', '{source.part_type}'", f"x.{source.field}"
            joins = f"JOIN {source.table} x ON x.id = r.source_id"
        places = ", ".join(["%s"] * len(ids))
        cursor.execute(_SEGMENTS.format(places=places, names=names, text=text, joins=joins), [*ids, PIECE])
        segments |= {(row[0], row[1]): row[2:] for row in cursor.fetchall()}
    candidates = []
    for *entry, start in entries:
        if (segment := segments.get((entry[3], entry[4]))) is None:
            continue  # an entry without its row, which an intact record never has
        first, message_id, branch, role, part_type, text = segment
        piece = decode_text(text[start - first : start - first + PIECE])
        piece = spaced_json(piece) if part_type in JSON_TOLD else piece
        candidates.append(Candidate._make((*entry, message_id, branch, role, part_type, readable(piece))))
    return candidates
