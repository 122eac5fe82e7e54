"""The full-text index of each database behind one interface: words go in, entries with all wanted words come out.

The words are made in Python (``mnesis_core.search``) and neither database changes them: FTS5 divides at spaces only, and
PostgreSQL gets a tsvector, not a text. Every word begins with its owner's number, so that a common word or a prefix
costs what that person has written, not what all have; one more word names the session. Positions are left out, which
keeps the index small: what needs them is checked on the text itself, the same on both databases.

The index is written in the transaction that writes the rows, so that a row and its words commit together. It is derived
from the record: ``rebuild`` makes it again. System checks report what is missing:

* ``mnesis.E008`` Python's SQLite was built without FTS5
* ``mnesis.E009`` the database has no search index; asks the database, so it runs with ``--database default`` only
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple

from django.apps import AppConfig
from django.core.checks import Error, Tags, register
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper
from django.utils.translation import gettext_noop

from mnesis_core.errors import fill
from mnesis_core.messages import (
    AudioPart,
    CitationPart,
    DocumentPart,
    FileRefPart,
    ImagePart,
    PatchPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolPart,
)
from mnesis_core.search.words import IndexWord, words_of
from mnesis_core.text import decode_text, encode_text, spaced_json
from mnesis_core.values import dataclass
from sessions_app.database.guards.checks import SITE
from sessions_app.database.tables import fetch, run

# ruff: noqa: S608 - names in these statements are constants; user text is passed as values.

COLUMNS = "owner_id, session_id, kind, source_id, field, first_seq, last_seq, start"
STORED = f"{COLUMNS}, length"
ROWS_A_STATEMENT = 200
# Characters of an entry: a tsvector holds 1 MB, and a text of 20 MB is not read whole for one snippet.
PIECE = 30_000
OVERLAP = 1_000  # characters shared by two pieces: a longer match may be missed at their border
PARTS = "message_parts"

CALLS = (ToolPart.type, ProviderToolPart.type)
# Types of parts with a findable text in ``content``; in the first ones it is JSON.
JSON_TOLD = (FileRefPart.type, ImagePart.type, AudioPart.type, DocumentPart.type, CitationPart.type)
TOLD = (*JSON_TOLD, TextPart.type, ReasoningPart.type, RefusalPart.type, PatchPart.type)
_PARTS_AFTER = """
    SELECT m.seq, p.id, p.part_type, p.label, p.tool_name, p.content, p.tool_input, p.output, p.error_message
    FROM message_parts p JOIN messages m ON m.id = p.message_id
    WHERE m.session_id = %s AND m.seq > %s AND m.seq <= %s ORDER BY m.seq, p.part_index"""
_SEQ_OF_PART = "SELECT m.seq FROM message_parts p JOIN messages m ON m.id = p.message_id WHERE p.id = %s"
MESSAGES_AT_ONCE = 50
CURE = gettext_noop("'manage.py rebuild_search' makes the index again")
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
    is_json: bool = False

    def columns(self, owner_id: int, session_id: str, start: int) -> Columns:
        """Return the values of the entry for the piece that begins at ``start``."""
        place = (self.source_id, self.field, self.first_seq, self.last_seq)
        return owner_id, session_id, self.kind, *place, start


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table of another app whose texts can be found; it has the columns ``id`` and ``session_id``."""

    table: str
    field: str
    part_type: str
    first_seq: str = "first_seq"
    last_seq: str = "last_seq"
    branch: str = "0"  # a column of the table, or 0


SOURCES: dict[str, Source] = {}  # by kind; registered by each app when it is ready, since imports follow foreign keys


class NewEntry(NamedTuple):
    columns: Columns
    length: int
    words: str


def stored_words(words: Iterable[str], *, owner_id: int, session_id: str) -> str:
    return f" {owner_id}@".join([_session_word(session_id), *words])


@lru_cache(maxsize=256)
def _session_word(session_id: str) -> str:
    # Only an accelerator: entries are also compared with the session itself.
    return "@" + "".join(char for char in session_id.lower() if char.isascii() and char.isalnum())


class Engine:
    """What the databases do differently. Each also has:

    ``select(columns, condition, limit=)``, which returns a SELECT of entries ``e``, newest first, whose first two values
    are the query and an exclusive upper id; ``fetch(cursor, select, values)``, which returns the rows of such a SELECT,
    found through the index; ``count_of(session_id)``, which returns a SELECT, with its values, that counts a session's
    entries whose words are in the index; and ``counts``, a SELECT that counts the entries of one query, up to a limit.
    """

    name = "search_words"
    create: Sequence[str]
    drop: Sequence[str]
    clear: Sequence[str]
    term: str
    prefix_term: str
    and_: str
    or_: str

    def query(self, words: Sequence[IndexWord], *, owner_id: int, session_id: str | None) -> str:
        """Return a query for entries with all words, in the index's own syntax, free of characters from a user."""
        terms = [(self.prefix_term if word.prefix else self.term).format(f"{owner_id}@{word.text}") for word in words]
        if session_id is not None:
            terms.insert(0, self.term.format(_session_word(session_id)))
        return self.and_.join(terms)

    def query_any(self, words: Sequence[IndexWord], *, owner_id: int, session_id: str | None) -> str:
        """Return a query for entries with any of the words."""
        terms = [(self.prefix_term if word.prefix else self.term).format(f"{owner_id}@{word.text}") for word in words]
        session = "" if session_id is None else self.term.format(_session_word(session_id)) + self.and_
        return f"{session}({self.or_.join(terms)})"


class Sqlite(Engine):
    """FTS5 without contents; the rowid is the entry's id."""

    create = (
        "CREATE VIRTUAL TABLE search_words USING fts5"
        "(words, content='', columnsize=0, detail=none, tokenize=\"ascii tokenchars '@'\")",
    )
    drop = ("DROP TABLE search_words",)
    clear = ("INSERT INTO search_words (search_words) VALUES ('delete-all')", "DELETE FROM search_entries")
    term, prefix_term, and_, or_ = '"{}"', '"{}" *', " AND ", " OR "
    counts = "SELECT COUNT(*) FROM (SELECT 1 FROM search_words WHERE search_words MATCH %s LIMIT {limit}) AS counted"

    def insert(self, cursor: CursorWrapper, entries: Sequence[NewEntry]) -> None:
        places = ", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s, %s)"] * len(entries))
        values = [value for entry in entries for value in (*entry.columns, entry.length)]
        done = run(cursor, f"INSERT INTO search_entries ({STORED}) VALUES {places}", values)
        # This transaction locks the whole database, so the ids are consecutive.
        first = done.lastrowid - len(entries) + 1
        rows = [value for id, entry in enumerate(entries, first) for value in (id, entry.words)]
        run(cursor, "INSERT INTO search_words (rowid, words) VALUES " + ", ".join(["(%s, %s)"] * len(entries)), rows)

    def select(self, columns: str, condition: str, *, limit: int) -> str:
        # CROSS makes SQLite start with the index, which answers newest first and can stop early.
        return (
            f"SELECT {columns} FROM search_words w CROSS JOIN search_entries e ON e.id = w.rowid"
            f" WHERE w.search_words MATCH %s AND w.rowid < %s{condition} ORDER BY w.rowid DESC LIMIT {limit}"
        )

    def fetch(self, cursor: CursorWrapper, select: str, values: Sequence[Any]) -> list[Any]:
        cursor.execute(select, values)
        return list(cursor.fetchall())

    @contextmanager
    def asked(self, cursor: CursorWrapper) -> Iterator[None]:
        """Have the statements of the block find their rows through the index."""
        yield

    def count_of(self, session_id: str) -> tuple[str, Sequence[Any]]:
        select = (
            "SELECT COUNT(*) FROM search_words w CROSS JOIN search_entries e ON e.id = w.rowid"
            " WHERE w.search_words MATCH %s AND e.session_id = %s"
        )
        return select, [f'"{_session_word(session_id)}"', session_id]

    def is_there(self, cursor: CursorWrapper) -> bool:
        cursor.execute("SELECT 1 FROM sqlite_master WHERE name = %s", [self.name])
        return cursor.fetchone() is not None


class Postgresql(Engine):
    """A tsvector without positions, with a GIN index."""

    create = (
        "ALTER TABLE search_entries ADD COLUMN words tsvector NOT NULL",
        # New words wait in a list that every search reads: at most 1 MB of it instead of 4.
        "CREATE INDEX search_words ON search_entries USING gin (words) WITH (gin_pending_list_limit = 1024)",
    )
    drop = ("ALTER TABLE search_entries DROP COLUMN words",)
    clear = ("DELETE FROM search_entries",)
    term, prefix_term, and_, or_ = "'{}'", "'{}':*", " & ", " | "
    counts = "SELECT COUNT(*) FROM (SELECT 1 FROM search_entries WHERE words @@ %s::tsquery LIMIT {limit}) AS counted"

    def insert(self, cursor: CursorWrapper, entries: Sequence[NewEntry]) -> None:
        places = ", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s::tsvector)"] * len(entries))
        values = [value for entry in entries for value in (*entry.columns, entry.length, entry.words)]
        run(cursor, f"INSERT INTO search_entries ({STORED}, words) VALUES {places}", values)

    def select(self, columns: str, condition: str, *, limit: int) -> str:
        # MATERIALIZED, because the planner would otherwise walk all owners' entries, newest first, for the limit's sake.
        return (
            f"WITH e AS MATERIALIZED (SELECT id, {STORED} FROM search_entries WHERE words @@ %s::tsquery)"
            f" SELECT {columns} FROM e WHERE e.id < %s{condition} ORDER BY e.id DESC LIMIT {limit}"
        )

    def fetch(self, cursor: CursorWrapper, select: str, values: Sequence[Any]) -> list[Any]:
        with self.asked(cursor):
            cursor.execute(select, values)
            return list(cursor.fetchall())

    @contextmanager
    def asked(self, cursor: CursorWrapper) -> Iterator[None]:
        """Have the statements of the block find their rows through the index."""
        # The rows are narrow and their words are stored elsewhere, so the planner underrates a sequential scan.
        is_inside = cursor.db.in_atomic_block
        with transaction.atomic(using=cursor.db.alias):
            cursor.execute("SET LOCAL enable_seqscan = off")
            yield
            if is_inside:  # else the transaction ends with the block, and the setting with it
                cursor.execute("SET LOCAL enable_seqscan TO DEFAULT")

    def count_of(self, session_id: str) -> tuple[str, Sequence[Any]]:
        select = "SELECT COUNT(*) FROM search_entries WHERE session_id = %s AND words @@ %s::tsquery"
        return select, [session_id, f"'{_session_word(session_id)}'"]

    def is_there(self, cursor: CursorWrapper) -> bool:
        cursor.execute("SELECT to_regclass(%s)", [self.name])
        [found] = cursor.fetchone()
        return found is not None


ENGINES: dict[str, Sqlite | Postgresql] = {"sqlite": Sqlite(), "postgresql": Postgresql()}


def engine(database: BaseDatabaseWrapper | None = None) -> Sqlite | Postgresql:
    return ENGINES[(database or connection).vendor]


def add_row(record: Any, kind: str, row: Any) -> None:
    source = SOURCES[kind]
    first, last, text = (getattr(row, name) for name in (source.first_seq, source.last_seq, source.field))
    record.texts.append(Text(kind, row.id, source.field, first, last, text))


def add_result(record: Any, part_id: str, *, output: str | None, error_message: str | None) -> None:
    """Make a tool's result findable; its call already is."""
    record.flush()  # the part may be among the rows that wait
    record.cursor.execute(_SEQ_OF_PART, [part_id])
    [seq] = record.cursor.fetchone()
    results = {"output": output, "error_message": error_message}
    stored = {field: text and encode_text(text) for field, text in results.items()}
    record.texts += _tool_texts(part_id, seq, **stored)


def texts_of_part(row: Any, seq: int) -> list[Text]:
    if row.part_type in CALLS:
        call = Text("tools", row.id, "tool_input", seq, seq, row.tool_input, row.tool_name)
        return [call, *_tool_texts(row.id, seq, output=row.output, error_message=row.error_message)]
    if row.part_type not in TOLD or not row.content:
        return []
    names = row.label if row.part_type == PatchPart.type else ""
    is_json = row.part_type in JSON_TOLD
    return [Text("messages", row.id, "content", seq, seq, row.content, names, is_json=is_json)]


def _tool_texts(part_id: str, seq: int, **results: str | None) -> list[Text]:
    return [Text("tools", part_id, field, seq, seq, text) for field, text in results.items() if text]


def write(cursor: CursorWrapper, texts: Sequence[Text], *, owner_id: int, session_id: str) -> None:
    """Write the entries of texts of one session: one statement for all of them on PostgreSQL, two on SQLite."""
    entries = (
        NewEntry(
            text.columns(owner_id, session_id, start),
            min(len(text.text) - start, PIECE),
            stored_words(
                _words_of(text, start) if text.words is None else text.words[place],
                owner_id=owner_id,
                session_id=session_id,
            ),
        )
        for text in filter(is_findable, texts)
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
    piece = decode_text(text.text[start : start + PIECE])
    words = words_of(spaced_json(piece) if text.is_json else piece)
    return words | words_of(decode_text(text.names)) if text.names and start == 0 else words


def rebuild(progress: Callable[[int, int], None] = lambda done, total: None, *, using: str = DEFAULT_DB_ALIAS) -> int:
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
            rebuild_session(cursor, session_id)
        progress(done, len(ids))
    return len(ids)


def rebuild_session(cursor: CursorWrapper, session_id: str) -> None:
    """Make the entries of one session again, inside a transaction."""
    lock = " FOR UPDATE" if cursor.db.features.has_select_for_update else ""
    cursor.execute(f"SELECT owner_id, message_seq FROM sessions WHERE id = %s{lock}", [session_id])
    owner_id, last_seq = cursor.fetchone()
    # On SQLite their words stay behind, with ids that lead nowhere and are not used again.
    cursor.execute("DELETE FROM search_entries WHERE session_id = %s", [session_id])
    for texts in texts_of_session(cursor, session_id, last_seq=last_seq):
        write(cursor, texts, owner_id=owner_id, session_id=session_id)


def texts_of_session(cursor: CursorWrapper, session_id: str, *, last_seq: int) -> Iterator[list[Text]]:
    """Yield everything that can be found of a session: some messages at a time, then each source."""
    for seq in range(0, last_seq, MESSAGES_AT_ONCE):
        cursor.execute(_PARTS_AFTER, [session_id, seq, seq + MESSAGES_AT_ONCE])
        names = [column[0] for column in cursor.description]
        rows = [SimpleNamespace(**dict(zip(names, values, strict=True))) for values in cursor.fetchall()]
        yield [text for row in rows for text in texts_of_part(row, row.seq)]
    for kind, source in SOURCES.items():
        cursor.execute(
            f"SELECT id, {source.first_seq}, {source.last_seq}, {source.field} FROM {source.table}"
            " WHERE session_id = %s ORDER BY id",
            [session_id],
        )
        yield [Text(kind, id, source.field, first, last, text) for id, first, last, text in cursor.fetchall()]


def search_differences(session_id: str, *, using: str) -> Iterator[str]:
    """Yield a sentence for each difference between an existing session and its entries.

    Entries are compared, and the word of the session that each of them holds; their other words are not made again.
    """
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
        text = gettext_noop("the words of %(count)s entries of the search index are gone; %(reason)s")
        yield fill(text, {"count": entries - marked, "reason": CURE})


def stray_entries(*, using: str) -> Iterator[str]:
    """Yield a sentence for each missing session that has entries."""
    for session_id, count in fetch(_STRAYS, using=using):
        text = gettext_noop("%(count)s entries of the search index are of %(id)s, which is not there; %(reason)s")
        yield fill(text, {"count": count, "id": session_id, "reason": CURE})


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
                yield from (text.columns(owner_id, session_id, start) for start in starts_of(text))


def _differences(present: set[Columns], expected: set[Columns]) -> Iterator[str]:
    missing = gettext_noop("%(count)s entries are not in the search index, the first of them %(what)s; %(reason)s")
    strange = gettext_noop(
        "%(count)s entries of the search index are of no text, the first of them %(what)s; %(reason)s"
    )
    for these, text in ((expected - present, missing), (present - expected, strange)):
        if these:
            _, _, kind, source_id, field, *_ = min(these)
            yield fill(text, {"count": len(these), "what": f"{kind} {source_id} {field}", "reason": CURE})
    if present == expected:
        yield fill(gettext_noop("entries stand twice in the search index; %(reason)s"), {"reason": CURE})


def register_checks() -> None:
    register(check_fts5, SITE)
    register(check_index, Tags.database)


def check_fts5(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[Error]:
    return fts5_errors() if any(connections[alias].vendor == "sqlite" for alias in connections) else []


def check_index(
    app_configs: Sequence[AppConfig] | None, databases: Iterable[str] | None = None, **_: Any
) -> list[Error]:
    asked = [connections[alias] for alias in databases or () if connections[alias].vendor in ENGINES]
    hint = "Run manage.py migrate, then manage.py rebuild_search."
    return [Error(text, hint=hint, id="mnesis.E009") for connection in asked for text in index_differences(connection)]


def index_differences(connection: BaseDatabaseWrapper) -> list[str]:
    index = engine(connection)
    with connection.cursor() as cursor:
        return [] if index.is_there(cursor) else [f"The search index {index.name} is not there."]


def fts5_errors() -> list[Error]:
    if "fts5" in modules():
        return []
    return [
        Error(
            "This Python's SQLite has no full-text search (FTS5), which the search index is made of.",
            hint="Use a Python whose sqlite3 module was built with FTS5, or PostgreSQL.",
            id="mnesis.E008",
        )
    ]


def modules() -> set[str]:
    with closing(sqlite3.connect(":memory:")) as memory:
        return {name for (name,) in memory.execute("SELECT name FROM pragma_module_list")}
