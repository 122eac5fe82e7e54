"""Search in the record: every word that was ever said, in context or not, with the same answer on both databases.

The index finds candidates, newest first; their texts confirm and rate them. The best of the newest hundred come first,
then the best of the hundred before, and so on: an answer costs the same at any length of history, and a cursor stays
valid while new messages come.
"""

# ruff: noqa: S608 - names in these statements are constants; user text is passed as values.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic
from typing import Any, Literal, NamedTuple, get_args

from django.db import connection
from django.utils.translation import gettext_noop

from mnesis_core.context.branches import END, Stretch
from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import PatchPart, ReasoningPart, RefusalPart, Role, TextPart
from mnesis_core.records import record_of
from mnesis_core.search.ranking import GAP
from mnesis_core.search.words import Marks, Query, fold, parse_pattern, parse_words, readable, snippet
from mnesis_core.text import decode_text, encode_text, excerpt, read_time, spaced_json
from sessions_app.database.tables import fetch, select_columns, time_of
from sessions_app.models import Message, Session
from sessions_app.ownership import HOME, TEMPORARY, owned_by
from sessions_app.search.index import CALLS, JSON_TOLD, PARTS, PIECE, SOURCES, TOLD, engine

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
SPEAKER = "speaker_"
"""The prefix of a session's labels that name the speaker of a role."""
MOST_SESSIONS = 2_000
"""The number of sessions in which a speaker's name is looked for, the newest first."""

_MESSAGE = "EXISTS (SELECT 1 FROM messages m WHERE m.session_id = e.session_id AND m.seq = e.first_seq AND {})"
_PART = "EXISTS (SELECT 1 FROM message_parts p WHERE p.id = e.source_id AND {})"
# The item of a message that a model reads now, and what a tool returned while it is no tombstone.
_LIVE = (
    "EXISTS (SELECT 1 FROM context_items c WHERE c.session_id = e.session_id AND c.item_id = m.id"
    " AND c.item_type = 'message' AND c.removed_seq IS NULL)"
    " AND NOT (e.field IN ('output', 'error_message')"
    " AND EXISTS (SELECT 1 FROM message_parts p WHERE p.id = e.source_id AND p.compacted_at IS NOT NULL))"
)
# ``replace`` compares the same way on both databases; LIKE does not.
_HAS = "replace(COALESCE(p.{0}, ''), %s, '') <> COALESCE(p.{0}, '')"
_OF_FILE = " OR ".join(_HAS.format(column) for column in ("tool_input", "content", "label"))
_IN_PROJECT = "EXISTS (SELECT 1 FROM sessions q WHERE q.id = e.session_id AND q.project_id = %s)"
LONGEST_LINE = 240
"""The number of characters shown of a message beside a hit."""
READ_OF_LINE = LONGEST_LINE + 1
"""The number of characters read of it: one more, which tells that the message goes on."""

_OF_MESSAGE = ("session_id", "seq", "created_at", "branch", "role", "id")
# A message is shown by what it says in words, or else by its first tool call.
_ORDER = (TextPart.type, RefusalPart.type, *CALLS, PatchPart.type, ReasoningPart.type)
_SHOWN = (*TOLD, *CALLS)
_LINES = f"""
    WITH w (session_id, seq) AS (VALUES {{places}})
    SELECT {{columns}}, p.part_type, p.tool_name, substr(p.content, 1, {READ_OF_LINE}),
        substr(p.tool_input, 1, {READ_OF_LINE}), substr(COALESCE(p.output, p.error_message, ''), 1, {READ_OF_LINE})
    FROM w JOIN messages m ON m.session_id = w.session_id AND m.seq = w.seq
    LEFT JOIN message_parts p ON p.id = (
        SELECT q.id FROM message_parts q WHERE q.message_id = m.id AND q.part_type IN {_SHOWN!r}
        ORDER BY CASE q.part_type {" ".join(f"WHEN '{kind}' THEN {at}" for at, kind in enumerate(_ORDER))} ELSE 9 END,
            q.part_index LIMIT 1
    )"""


# Filters of a search beside its words: the time, the speaker, the tool, the file and the branch of what was said.


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    since: datetime | None = None
    until: datetime | None = None
    """The time before which something was said."""
    speaker: str = ""
    """A role, or a person's name as it stands in the session's labels."""
    tool: str = ""
    file: str = ""
    """The id of a file, or any part of its path."""
    branch: int | None = None
    project_id: str = ""
    """The project that sessions are in, which the caller knows to be one of the person's."""
    compacted: bool | None = None
    """The model no longer reads it as it was said; ``None`` for both."""

    def __bool__(self) -> bool:
        return self != EVERYTHING

    def conditions(self, *, owner_id: int, session_id: str | None) -> Iterator[tuple[str, list[Any]]]:
        """Yield conditions on an entry ``e`` with their values."""
        adapt = connection.ops.adapt_datetimefield_value
        if self.speaker or self.compacted is not None:
            yield "e.kind IN ('messages', 'tools')", []  # the record itself, without summaries and files
        plain = {
            _MESSAGE.format("m.created_at >= %s"): self.since and adapt(self.since),
            _MESSAGE.format("m.created_at < %s"): self.until and adapt(self.until),
            _MESSAGE.format("m.branch = %s"): self.branch,
            _IN_PROJECT: self.project_id or None,
        }
        yield from ((condition, [value]) for condition, value in plain.items() if value is not None)
        if self.compacted is not None:
            yield _MESSAGE.format(f"NOT ({_LIVE})" if self.compacted else _LIVE), []
        if self.speaker in get_args(Role):
            yield _MESSAGE.format("m.role = %s"), [self.speaker]
        elif self.speaker:
            yield _said_by(self.speaker, owner_id=owner_id, session_id=session_id)
        if self.tool:
            yield f"e.kind = 'tools' AND {_PART.format('p.tool_name = %s')}", [encode_text(self.tool)]
        if self.file:
            text = encode_text(self.file)
            yield f"(e.source_id = %s OR {_PART.format(f'({_OF_FILE})')})", [text, text, text, text]


EVERYTHING = Filters()


def read_filters(*, since: str = "", until: str = "", branch: int | None = None, **others: Any) -> Filters:
    """:raises InvalidRequest: a time is none, or there can be no such branch."""
    if branch is not None and not 0 <= branch <= END:
        raise InvalidRequest(gettext_noop("branch must be the number of a branch"), field="branch")
    return Filters(since=read_time(since, "since"), until=read_time(until, "until"), branch=branch, **others)


def _said_by(name: str, *, owner_id: int, session_id: str | None) -> tuple[str, list[Any]]:
    sessions = Session.objects.filter(owned_by(owner_id)).order_by("-updated_at")
    if session_id is not None:
        sessions = Session.objects.filter(id=session_id)
    wanted = fold(readable(name)).split()
    pairs = [
        (id, role)
        for id, labels in sessions.values_list("id", "labels")[:MOST_SESSIONS]
        for role, called in speakers_in(labels).items()
        if wanted and set(wanted) <= set(fold(called).split())
    ]
    if not pairs:
        return "1 = 0", []
    places = ", ".join(["(%s, %s)"] * len(pairs))
    return _MESSAGE.format(f"(m.session_id, m.role) IN (VALUES {places})"), [value for pair in pairs for value in pair]


def speakers_in(labels: dict[str, Any]) -> dict[str, str]:
    """Return the name of who speaks in each role, where labels tell it."""
    return {key.removeprefix(SPEAKER): readable(str(name)) for key, name in labels.items() if key.startswith(SPEAKER)}


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

    Ranked questions are asked in ``sessions_app.search.ranked``.

    :raises InvalidRequest: the query or the cursor cannot be understood.
    """
    query: Query = parse_pattern(text) if mode == "regex" else parse_words(text)
    below, _, skip = (cursor or f"{NEWEST}.0").partition(".")
    if not all(number.isascii() and number.isdecimal() and len(number) < 20 for number in (below, skip)):
        raise InvalidRequest(gettext_noop("cursor must be the next_cursor of the page before"), field="cursor")
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


# Passages: a hit with the messages before and after it, each as one line with its speaker and time.


class _Told(NamedTuple):
    branch: int
    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Messages that stand together around one hit or several."""

    hits: tuple[Hit, ...]
    """The hits of the passage, the best first."""
    lines: tuple[Line, ...]
    """The messages in order; empty for a hit that is no message."""


def with_passages(
    hits: Collection[Hit],
    texts: Mapping[tuple[str, str], str],
    *,
    around: int,
    speakers: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Hit]:
    """Return hits with what is around them. A message that is around several is told with the first of them only.

    :param texts: how a hit's own line is shown, by its row and field, where that is not its snippet
    :param speakers: what ``speakers_of`` returns for their sessions, where the caller has read it
    """
    said = {(hit.session_id, hit.message_seq) for hit in hits if hit.message_id}
    places = {(session, seq + step) for session, seq in said for step in range(-around, around + 1)}
    told = _told(places, speakers or speakers_of({session for session, _ in said}))
    known: set[tuple[str, int]] = set()
    found = []
    for hit in hits:
        own = told.get((hit.session_id, hit.message_seq)) if hit.message_id else None
        beside = [] if own is None else list(_beside(own, hit.session_id, told, around))
        lines = [line for line in beside if line.text and (hit.session_id, line.seq) not in known]
        if own is not None:
            lines.append(replace(own.line, text=texts.get((hit.source_id, hit.field), hit.snippet), is_hit=True))
        known.update((hit.session_id, line.seq) for line in lines)
        found.append(replace(hit, passage=tuple(sorted(lines, key=lambda line: line.seq))))
    return found


def _beside(own: _Told, session_id: str, told: Mapping[tuple[str, int], _Told], around: int) -> Iterator[Line]:
    for seq in range(own.line.seq - around, own.line.seq + around + 1):
        other = told.get((session_id, seq))
        if other is None or seq == own.line.seq or other.branch != own.branch:
            continue
        if abs(other.line.said_at - own.line.said_at) <= GAP:
            yield other.line


def merged(hits: Collection[Hit], *, around: int) -> list[Passage]:
    """Return the passages of hits, those that touch as one, in the order of their best hits.

    :param around: the number that ``with_passages`` was given for these hits
    """
    groups: list[list[Hit]] = []
    for hit in hits:
        near = [group for group in groups if any(_touch(hit, other, around) for other in group)]
        whole = [*(one for group in near for one in group), hit]
        if near:
            near[0][:] = whole
            groups = [group for group in groups if not any(group is other for other in near[1:])]
        else:
            groups.append(whole)
    return [Passage(hits=tuple(group), lines=tuple(_lines(group))) for group in groups]


def _touch(one: Hit, other: Hit, around: int) -> bool:
    if not (one.message_id and other.message_id) or (one.session_id, one.branch) != (other.session_id, other.branch):
        return False
    if abs(one.message_seq - other.message_seq) > 2 * around + 1:
        return False
    times = [line.said_at for hit in (one, other) for line in hit.passage if line.is_hit]
    return len(times) == 2 and abs(times[0] - times[1]) <= GAP


def _lines(hits: Collection[Hit]) -> list[Line]:
    """Return the lines of hits in order, each message once, as the hit that it is if it is one."""
    lines: dict[int, Line] = {}
    for line in (line for hit in hits for line in hit.passage):
        if line.is_hit or line.seq not in lines:
            lines[line.seq] = line
    return [lines[seq] for seq in sorted(lines)]


def _told(places: Collection[tuple[str, int]], names: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, int], _Told]:
    if not places:
        return {}
    pairs = ", ".join(["(%s, %s)"] * len(places))
    statement = _LINES.format(places=pairs, columns=select_columns(Message, "m", _OF_MESSAGE))
    return {
        (session_id, seq): _Told(
            branch,
            Line(
                message_id=id,
                seq=seq,
                role=role,
                speaker=names.get(session_id, {}).get(role, ""),
                tool_name=readable(decode_text(tool_name or "")),
                said_at=time_of(at),
                text=_text(kind, content, tool_input, output),
                is_hit=False,
            ),
        )
        for session_id, seq, at, branch, role, id, kind, tool_name, content, tool_input, output in fetch(
            statement, [value for place in places for value in place]
        )
    }


def _text(kind: str | None, content: str | None, tool_input: str | None, output: str | None) -> str:
    if kind is None:
        return ""
    text = f"{tool_input} {output}" if kind in CALLS else content or ""
    text = decode_text(text)
    return excerpt(readable(spaced_json(text) if kind in JSON_TOLD else text), LONGEST_LINE)


def speakers_of(sessions: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return by session the name of who speaks in each role, where its labels tell it."""
    labels = Session.objects.filter(id__in=list(sessions)).values_list("id", "labels")
    return {id: speakers_in(of) for id, of in labels}
