"""Search in the record: every word that was ever said, in context or not, with the same answer on both databases.

The index finds candidates, newest first; their texts prove and rate them. The best of the newest hundred come
first, then the best of those before, and so on: an answer costs the same at any length of history, and a cursor
stays true while new messages come.
"""

# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, NamedTuple

from django.db import connection

from mnesis_core.errors import InvalidRequest
from mnesis_core.search import Query, parse_pattern, parse_words, readable, snippet
from mnesis_core.text import decode_text
from sessions_app.search.engines import engine
from sessions_app.search.index import PARTS, PIECE, SOURCES

Mode = Literal["text", "regex"]
Kind = Literal["messages", "tools", "summaries", "files", "all"]

WINDOW = 100
"""Candidates that are rated together."""
CHARACTERS, SECONDS = 50_000_000, 2.0
"""What one request reads at most before it answers with what it has."""
NEWEST = 2**63 - 1

_ENTRY = "e.id, e.session_id, e.kind, e.source_id, e.field, e.first_seq, e.last_seq, e.start"
# A long text has many entries, and its row is read once for all of them.
_STRETCHES = """
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
    " AND NOT EXISTS (SELECT 1 FROM messages f WHERE f.id = s.forked_message_id AND f.seq > s.message_seq)"
)
"""A session that was deleted is out of sight, and so is a fork until it is whole (``queries.visible_sessions``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is searched: all sessions of a person, or one; perhaps one kind of text, or some messages."""

    owner_id: int
    session_id: str | None = None
    kind: Kind = "all"
    first_seq: int | None = None
    last_seq: int | None = None
    """With ``first_seq``: texts of these messages only. For one session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One place: a part of a message, or what another table holds about some messages."""

    session_id: str
    session_title: str
    kind: str
    source_id: str
    """The part, the summary or the file."""
    field: str
    message_id: str | None
    message_seq: int
    """The (first) message."""
    last_seq: int
    role: str
    part_type: str
    snippet: str
    matches: tuple[tuple[int, int], ...]
    """Places in the snippet: (first, after the last) character."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Hits, and how much was searched for them."""

    hits: tuple[Hit, ...]
    messages_searched: int
    messages_total: int
    cut_off: bool
    """True when the request's limit of text or time ended it early; the cursor goes on."""
    next_cursor: str | None

    @property
    def more(self) -> bool:
        """True when there may be more hits."""
        return self.next_cursor is not None


class _Candidate(NamedTuple):
    id: int
    session_id: str
    kind: str
    source_id: str
    field: str
    first_seq: int
    last_seq: int
    message_id: str | None
    role: str
    part_type: str
    text: str


@dataclass(slots=True, kw_only=True)
class _Walk:
    """How far a search came."""

    below: int
    """The entries still to be searched have lower ids."""
    skip: int
    """Of the window below, the best that were shown already."""
    lowest: int = NEWEST
    """All entries from this id on were read, here or for an earlier page."""
    ended: bool = False
    cut_off: bool = False


def search(scope: Scope, text: str, *, mode: Mode = "text", limit: int = 20, cursor: str | None = None) -> SearchResult:
    """Find words (all of them; ``"side by side"``; ``begin*``) or a regular expression (RE2) in what may be seen.

    :raises InvalidRequest: the query or the cursor cannot be understood.
    """
    query: Query = parse_pattern(text) if mode == "regex" else parse_words(text)
    walk = _place(cursor)
    found = _find(scope, query, walk, limit)
    total = _count_messages(scope)
    # An index has looked at everything; without one, what was walked through was looked at.
    everything = walk.ended or (query.words and not walk.cut_off)
    return SearchResult(
        hits=_hits(found, query),
        messages_searched=total if everything else min(total, _count_walked(scope, walk.lowest)),
        messages_total=total,
        cut_off=walk.cut_off,
        next_cursor=None if walk.ended else f"{walk.below}.{walk.skip}",
    )


def _place(cursor: str | None) -> _Walk:
    below, _, skip = (cursor or f"{NEWEST}.0").partition(".")
    if not all(number.isascii() and number.isdecimal() and len(number) < 20 for number in (below, skip)):
        raise InvalidRequest("cursor must be the next_cursor of the page before", field="cursor")
    return _Walk(below=min(int(below), NEWEST), skip=int(skip))


def _find(scope: Scope, query: Query, walk: _Walk, limit: int) -> list[_Candidate]:
    found: list[_Candidate] = []
    read, deadline = 0, monotonic() + SECONDS
    while len(found) < limit and not walk.ended and not walk.cut_off:
        window = _window(scope, query, walk.below)
        rated = _rated(window, query)
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


def _rated(window: list[_Candidate], query: Query) -> list[_Candidate]:
    rates = {candidate.id: query.rate(candidate.text) for candidate in window}
    return sorted((one for one in window if rates[one.id]), key=lambda one: (-rates[one.id], -one.id))


def _window(scope: Scope, query: Query, below: int) -> list[_Candidate]:
    """The newest entries below an id that may match, newest first, with their texts."""
    condition, values = _condition(scope)
    with connection.cursor() as cursor:
        if query.words:
            words = engine().query(query.words, owner_id=scope.owner_id, session_id=scope.session_id)
            select = engine().select(_ENTRY, condition, limit=WINDOW)
            return _with_texts(cursor, engine().fetch(cursor, select, [words, below, *values]))
        cursor.execute(
            f"SELECT {_ENTRY} FROM search_entries e WHERE e.id < %s{condition} ORDER BY e.id DESC LIMIT {WINDOW}",
            [below, *values],
        )
        return _with_texts(cursor, cursor.fetchall())


def _condition(scope: Scope) -> tuple[str, list[Any]]:
    wanted = {
        "e.session_id = %s": scope.session_id,
        "e.kind = %s": None if scope.kind == "all" else scope.kind,
        "e.first_seq >= %s": scope.first_seq,
        "e.last_seq <= %s": scope.last_seq,
    }
    if scope.session_id is None:
        wanted["e.owner_id = %s"] = scope.owner_id
        wanted[f"EXISTS (SELECT 1 FROM sessions s WHERE s.id = e.session_id AND {VISIBLE})"] = None
    used = {condition: value for condition, value in wanted.items() if value is not None or "%s" not in condition}
    return "".join(f" AND {condition}" for condition in used), [value for value in used.values() if value is not None]


def _with_texts(cursor: Any, entries: list[Any]) -> list[_Candidate]:
    by_kind: dict[str, list[int]] = defaultdict(list)
    for id, _, kind, *_ in entries:
        by_kind[kind if kind in SOURCES else PARTS].append(id)
    stretches: dict[tuple[str, str], tuple[Any, ...]] = {}
    for kind, ids in by_kind.items():
        cursor.execute(_stretches(kind, len(ids)), [*ids, PIECE])
        stretches |= {(row[0], row[1]): row[2:] for row in cursor.fetchall()}
    # A row that is not there any more has no stretch; the record has none such.
    return [_candidate(entry, *stretches[entry[3], entry[4]]) for entry in entries if (entry[3], entry[4]) in stretches]


def _stretches(kind: str, count: int) -> str:
    places = ", ".join(["%s"] * count)
    if kind == PARTS:
        names = "p.message_id, m.role, p.part_type"
        return _STRETCHES.format(places=places, names=names, text=_PART_TEXT, joins=_PART_JOINS)
    source = SOURCES[kind]
    joins = f"JOIN {source.table} x ON x.id = r.source_id"
    names = f"NULL, '', '{source.part_type}'"
    return _STRETCHES.format(places=places, names=names, text=f"x.{source.field}", joins=joins)


def _candidate(entry: Any, first: int, message_id: str | None, role: str, part_type: str, text: str) -> _Candidate:
    start = entry[-1] - first
    piece = text[start : start + PIECE]
    return _Candidate._make((*entry[:-1], message_id, role, part_type, readable(decode_text(piece))))


def _hits(found: list[_Candidate], query: Query) -> tuple[Hit, ...]:
    ids = list({candidate.session_id for candidate in found})
    if not ids:
        return ()
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, title FROM sessions WHERE id IN ({', '.join(['%s'] * len(ids))})", ids)
        titles = {id: decode_text(title) for id, title in cursor.fetchall()}
    return tuple(_hit(candidate, query, titles[candidate.session_id]) for candidate in found)


def _hit(candidate: _Candidate, query: Query, session_title: str) -> Hit:
    piece = snippet(candidate.text, query)
    return Hit(
        session_id=candidate.session_id,
        session_title=session_title,
        kind=candidate.kind,
        source_id=candidate.source_id,
        field=candidate.field,
        message_id=candidate.message_id,
        message_seq=candidate.first_seq,
        last_seq=candidate.last_seq,
        role=candidate.role,
        part_type=candidate.part_type,
        snippet=piece.text,
        matches=piece.matches,
    )


def _count_messages(scope: Scope) -> int:
    """The messages in scope: they are numbered without a gap."""
    whose, value = ("s.id", scope.session_id) if scope.session_id else ("s.owner_id", scope.owner_id)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT COALESCE(SUM(s.message_seq), 0) FROM sessions s WHERE {whose} = %s AND {VISIBLE}", [value]
        )
        total = int(cursor.fetchone()[0])
    if scope.first_seq is None or scope.last_seq is None:
        return total
    return max(0, min(total, scope.last_seq) - scope.first_seq + 1)


def _count_walked(scope: Scope, lowest: int) -> int:
    """The messages of which something was read."""
    condition, values = _condition(scope)
    messages = f"SELECT DISTINCT session_id, first_seq FROM search_entries e WHERE e.id >= %s{condition}"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT COUNT(*) FROM ({messages} AND e.kind IN ('messages', 'tools')) AS walked", [lowest, *values]
        )
        [count] = cursor.fetchone()
    return int(count)
