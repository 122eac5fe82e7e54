"""The search index, kept up to date in the transaction that writes the rows, so that a row and its words commit together.

It is derived from the record: ``rebuild`` makes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.utils import CursorWrapper

from mnesis_core.search import words_of
from mnesis_core.text import decode_text, encode_text
from sessions_app.database.fast_sql import fetch
from sessions_app.search.engines import COLUMNS, ROWS_A_STATEMENT, NewEntry, engine, stored_words

# ruff: noqa: S608 - names in these statements are constants; user text is passed as values.

# Characters of an entry: a tsvector holds 1 MB, and a text of 20 MB is not read whole for one snippet.
PIECE = 30_000
OVERLAP = 1_000  # characters shared by two pieces: a longer match may be missed at their border
PARTS = "message_parts"

_KIND_OF = {"text": "messages", "reasoning": "messages", "patch": "messages", "file_ref": "messages", "tool": "tools"}
_PARTS_AFTER = """
    SELECT m.seq, p.id, p.part_type, p.label, p.tool_name, p.content, p.tool_input, p.output, p.error_message
    FROM message_parts p JOIN messages m ON m.id = p.message_id
    WHERE m.session_id = %s AND m.seq > %s AND m.seq <= %s ORDER BY m.seq, p.part_index"""
_SEQ_OF_PART = "SELECT m.seq FROM message_parts p JOIN messages m ON m.id = p.message_id WHERE p.id = %s"
MESSAGES_AT_ONCE = 50


class Text(NamedTuple):
    """A findable text, as its row stores it."""

    kind: str
    source_id: str
    field: str
    first_seq: int
    last_seq: int
    text: str
    names: str = ""  # words of other columns: the tool's name, the files of a patch
    words: tuple[set[str], ...] | None = None  # of each piece, if they were already extracted


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table of another app whose texts can be found; it has the columns ``id`` and ``session_id``."""

    table: str
    field: str
    part_type: str
    first_seq: str = "first_seq"
    last_seq: str = "last_seq"


class Collector(Protocol):
    cursor: CursorWrapper
    texts: list[Text]

    def flush(self) -> None: ...


SOURCES: dict[str, Source] = {}  # by kind; registered by each app when it is ready, since imports follow foreign keys


def add(record: Collector, *texts: Text) -> None:
    """Make texts findable; they are written with the rows at the end of the change."""
    record.texts.extend(texts)


def add_row(record: Collector, kind: str, row: Any) -> None:
    """Make a new row findable whose source is registered for this kind."""
    source = SOURCES[kind]
    first, last, text = (getattr(row, name) for name in (source.first_seq, source.last_seq, source.field))
    add(record, Text(kind=kind, source_id=row.id, field=source.field, first_seq=first, last_seq=last, text=text))


def add_result(record: Collector, part_id: str, *, output: str | None, error_message: str | None) -> None:
    """Make a tool's result findable; its call already is."""
    record.flush()  # the part may be among the rows that wait
    record.cursor.execute(_SEQ_OF_PART, [part_id])
    [seq] = record.cursor.fetchone()
    results = {"output": output, "error_message": error_message}
    stored = {field: text and encode_text(text) for field, text in results.items()}
    add(record, *_tool_texts(part_id, seq, **stored))


def texts_of_part(row: Any, seq: int) -> list[Text]:
    """The search index, kept up to date in the transaction that writes the rows, so that a row and its words commit together.

    It is derived from the record: ``rebuild`` makes it again.
    """
    if row.part_type == "tool":
        call = Text(
            kind="tools",
            source_id=row.id,
            field="tool_input",
            first_seq=seq,
            last_seq=seq,
            text=row.tool_input,
            names=row.tool_name,
        )
        return [call, *_tool_texts(row.id, seq, output=row.output, error_message=row.error_message)]
    kind = _KIND_OF.get(row.part_type)
    if kind is None or not row.content:
        return []
    names = row.label if row.part_type == "patch" else ""
    return [
        Text(kind=kind, source_id=row.id, field="content", first_seq=seq, last_seq=seq, text=row.content, names=names)
    ]


def _tool_texts(part_id: str, seq: int, **results: str | None) -> list[Text]:
    return [
        Text(kind="tools", source_id=part_id, field=field, first_seq=seq, last_seq=seq, text=text)
        for field, text in results.items()
        if text
    ]


def write(cursor: CursorWrapper, texts: Sequence[Text], *, owner_id: int, session_id: str) -> None:
    """Write the entries of texts of one session: one statement for all of them on PostgreSQL, two on SQLite."""
    entries = (
        NewEntry(
            owner_id=owner_id,
            session_id=session_id,
            kind=text.kind,
            source_id=text.source_id,
            field=text.field,
            first_seq=text.first_seq,
            last_seq=text.last_seq,
            start=start,
            words=stored_words(
                _words_of(text, start) if text.words is None else text.words[place],
                owner_id=owner_id,
                session_id=session_id,
            ),
        )
        for text in texts
        if is_findable(text)
        for place, start in enumerate(starts_of(text))
    )
    # A few at a time: a text of 20 MB has seven hundred.
    while some := list(islice(entries, ROWS_A_STATEMENT)):
        engine(cursor.db).insert(cursor, some)


def is_findable(text: Text) -> bool:
    return bool(text.text or text.names)


def with_words(text: Text) -> Text:
    """Return the text with its words. Extracting them takes longer than everything else, so do it before taking a lock."""
    return text._replace(words=tuple(_words_of(text, start) for start in starts_of(text)))


def starts_of(text: Text) -> range:
    """Return where the pieces of a text begin, each of which has an entry."""
    return range(0, max(1, len(text.text) - OVERLAP), PIECE - OVERLAP)


def _words_of(text: Text, start: int) -> set[str]:
    words = words_of(decode_text(text.text[start : start + PIECE]))
    return words | words_of(decode_text(text.names)) if text.names and start == 0 else words


def rebuild(
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    using: str = DEFAULT_DB_ALIAS,
    sources: Mapping[str, Source] = SOURCES,
) -> int:
    """Make the whole index again from the record and return the number of sessions.

    Each session is one transaction, so writers wait for one at most; until the end a search finds what is done so far.
    """
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        for statement in engine(connections[using]).clear:
            cursor.execute(statement)
        # The most recently active sessions come last, since newer entries have higher ids.
        cursor.execute("SELECT id FROM sessions WHERE deleted_at IS NULL ORDER BY updated_at, id")
        ids = [id for (id,) in cursor.fetchall()]
    for done, session_id in enumerate(ids, 1):
        with transaction.atomic(using=using), connections[using].cursor() as cursor:
            rebuild_session(cursor, session_id, sources)
        progress(done, len(ids))
    return len(ids)


def rebuild_session(cursor: CursorWrapper, session_id: str, sources: Mapping[str, Source] = SOURCES) -> None:
    """Make the entries of one session again, inside a transaction."""
    lock = " FOR UPDATE" if cursor.db.features.has_select_for_update else ""
    cursor.execute(f"SELECT owner_id, message_seq FROM sessions WHERE id = %s{lock}", [session_id])
    owner_id, last_seq = cursor.fetchone()
    # On SQLite their words stay behind, with ids that lead nowhere and are not used again.
    cursor.execute("DELETE FROM search_entries WHERE session_id = %s", [session_id])
    for texts in texts_of_session(cursor, session_id, last_seq=last_seq, sources=sources):
        write(cursor, texts, owner_id=owner_id, session_id=session_id)


def texts_of_session(
    cursor: CursorWrapper, session_id: str, *, last_seq: int, sources: Mapping[str, Source] = SOURCES
) -> Iterator[list[Text]]:
    """Yield everything that can be found of a session: some messages at a time, then each source."""
    for seq in range(0, last_seq, MESSAGES_AT_ONCE):
        cursor.execute(_PARTS_AFTER, [session_id, seq, seq + MESSAGES_AT_ONCE])
        names = [column[0] for column in cursor.description]
        rows = [SimpleNamespace(**dict(zip(names, values, strict=True))) for values in cursor.fetchall()]
        yield [text for row in rows for text in texts_of_part(row, row.seq)]
    for kind, source in sources.items():
        cursor.execute(
            f"SELECT id, {source.first_seq}, {source.last_seq}, {source.field} FROM {source.table}"
            " WHERE session_id = %s ORDER BY id",
            [session_id],
        )
        yield [
            Text(kind=kind, source_id=id, field=source.field, first_seq=first, last_seq=last, text=text)
            for id, first, last, text in cursor.fetchall()
        ]


# The index against the record: whether it has every text that can be found and nothing else. Entries are compared, and
# the word of the session that each of them holds; the other words of an entry are not made again.

CURE = "'manage.py rebuild_search' makes the index again"
ENTRIES_AT_A_TIME = 4_000
# Messages are counted, because the session's own number of them may be damaged and huge.
_SESSION = (
    "SELECT owner_id, (SELECT COUNT(*) FROM messages m WHERE m.session_id = s.id), deleted_at IS NULL"
    " FROM sessions s WHERE id = %s"
)
_ENTRIES = (
    f"SELECT id, {COLUMNS} FROM search_entries WHERE session_id = %s AND id > %s ORDER BY id LIMIT {ENTRIES_AT_A_TIME}"
)
_STRAYS = """
    SELECT e.session_id, COUNT(*) FROM search_entries e
    WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = e.session_id) GROUP BY e.session_id ORDER BY e.session_id"""

Columns = tuple[Any, ...]  # the values of an entry, in the order of COLUMNS


def search_differences(session_id: str, *, using: str) -> Iterator[str]:
    """Yield a sentence for each difference between an existing session and its entries."""
    [(owner_id, last_seq, is_searched)] = fetch(_SESSION, [session_id], using=using)
    # Sums of hashes are compared first, so that equal sets, nearly all of them, need not be held in memory.
    present = expected = entries = 0
    for columns in _present(session_id, using):
        present, entries = present + hash(columns), entries + 1
    if not is_searched and not entries:
        return
    for columns in _expected(session_id, owner_id, last_seq, using):
        expected += hash(columns)
    if present != expected:
        yield from _differences(set(_present(session_id, using)), set(_expected(session_id, owner_id, last_seq, using)))
    [(marked,)] = fetch(*engine(connections[using]).count_of(session_id), using=using)
    if marked != entries:
        yield f"the words of {entries - marked:,} entries of the search index are gone; {CURE}"


def stray_entries(*, using: str) -> Iterator[str]:
    """Yield a sentence for each missing session that has entries."""
    for session_id, count in fetch(_STRAYS, using=using):
        yield f"{count:,} entries of the search index are of {session_id}, which is not there; {CURE}"


def _present(session_id: str, using: str) -> Iterator[Columns]:
    last = 0
    while rows := fetch(_ENTRIES, [session_id, last], using=using):
        yield from (tuple(columns) for _, *columns in rows)
        if rows[-1][0] <= last:
            raise ValueError("the rows of a damaged index come in no order, and without an end")
        last = rows[-1][0]


def _expected(session_id: str, owner_id: int, last_seq: int, using: str) -> Iterator[Columns]:
    with connections[using].cursor() as cursor:
        for texts in texts_of_session(cursor, session_id, last_seq=last_seq):
            for text in filter(is_findable, texts):
                place = (text.source_id, text.field, text.first_seq, text.last_seq)
                yield from ((owner_id, session_id, text.kind, *place, start) for start in starts_of(text))


def _differences(present: set[Columns], expected: set[Columns]) -> Iterator[str]:
    for these, words in (
        (expected - present, "are not in the search index"),
        (present - expected, "of the search index are of no text"),
    ):
        if these:
            _, _, kind, source_id, field, *_ = min(these)
            yield f"{len(these):,} entries {words}, the first of them {kind} {source_id} {field}; {CURE}"
    if present == expected:
        yield f"entries stand twice in the search index; {CURE}"
