"""SQL, as in dumps: tables with their columns, how many rows are inserted into each, and which other statements. SQLite's
databases: tables with columns and row counts, indexes, views; read only, and nothing of their own is run.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count as count_from

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.source import HEAD_BYTES, Findings, Source, Unreadable, counted, listed, shown

MOST_TABLES = 500
MOST_CHARACTERS = 201_326_592
BEGINNING_CHARACTERS = 400
DEFINITION_CHARACTERS = 20_000
_SPECIAL = re.compile(r"'[^'\\]*+'|\"[^\"\\]*+\"|`[^`]*+`|['\"`();]|--|/\*|\$[A-Za-z_0-9]{0,60}\$")
_CREATE = re.compile(
    r"CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+|LOCAL\s+)?(?:TEMP(?:ORARY)?\s+|UNLOGGED\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?([^\s(]+)",
    re.I,
)
_INSERT = re.compile(r"(?:INSERT|REPLACE)\s+(?:\w+\s+){0,3}?INTO\s+([^\s(]+)", re.I)
_COPY = re.compile(r"COPY\s+([^\s(]+)[^;]*?FROM\s+stdin", re.I)
_FIRST_WORDS = re.compile(r"\s*([A-Za-z]+)(?:\s+([A-Za-z]+))?")
_IN_DEFINITION = re.compile(r"'[^']*+'|[(),]")
_NO_COLUMNS = ("primary", "foreign", "unique", "constraint", "check", "key", "index", "exclude", "fulltext", "like")

MOST_DATABASE_TABLES = 60
COUNT_STEPS = 20_000  # Calls of the progress handler, each after ``STEP`` instructions, for all statements together.
STEP = 10_000
_SCHEMA = "SELECT type, name, tbl_name, substr(sql, 1, 200) FROM sqlite_schema LIMIT 5000"


@dataclass(slots=True)
class _Table:
    columns: list[str] = field(default_factory=list)
    rows: int = 0


class _Script:
    def __init__(self, *, has_backslashes: bool) -> None:
        self.tables: dict[str, _Table] = {}
        self.others: Counter[str] = Counter()
        self.statements = 0
        self._endings = {
            "'": re.compile(r"\\.|'" if has_backslashes else "'"),
            '"': re.compile(r"\\.|\"" if has_backslashes else '"'),
            "`": re.compile("`"),
            "/*": re.compile(r"\*/"),
        }
        self._within = ""
        self._copied: _Table | None = None
        self._begin()

    def _begin(self) -> None:
        self._text: list[str] = []
        self._length = 0
        self._depth = 0
        self._groups = 0

    def take(self, line: str) -> None:
        if self._copied is not None:
            if line == "\\.":
                self._copied = None
            else:
                self._copied.rows += 1
            return
        position = 0
        while position < len(line):
            position = self._skip(line, position) if self._within else self._advance(line, position)
        self._keep(" ")

    def _skip(self, line: str, position: int) -> int:
        ending = self._endings.get(self._within)
        if ending is None:  # a dollar tag, of which a file may have many
            found = line.find(self._within, position)
            end = found + len(self._within) if found >= 0 else -1
        else:
            end = next((match.end() for match in ending.finditer(line, position) if match.group()[0] != "\\"), -1)
        if end < 0:
            return len(line)
        self._within = ""
        return end

    def _advance(self, line: str, position: int) -> int:
        match = _SPECIAL.search(line, position)
        if match is None:
            self._keep(line[position:])
            return len(line)
        found = match.group()
        self._keep(line[position : match.start()])
        if found == "--":
            return len(line)
        if found == ";":
            self.end()
        elif found in "()":
            self._keep(found)
            self._depth += 1 if found == "(" else -1
            if found == "(" and self._depth == 1:
                self._groups += 1
        elif len(found) > 1 and found[0] in "'\"`":
            self._keep(found)
        else:
            self._within = found
        return match.end()

    def _keep(self, text: str) -> None:
        limit = DEFINITION_CHARACTERS if self._text and self._text[0][:6].upper() == "CREATE" else BEGINNING_CHARACTERS
        if self._length < limit and (self._text or text.strip()):
            text = text[:limit] if self._text else text.lstrip()[:limit]
            self._text.append(text)
            self._length += len(text)

    def end(self) -> None:
        text, groups = "".join(self._text).strip(), self._groups
        self._begin()
        if not text:
            return
        self.statements += 1
        if (insert := _INSERT.match(text)) is not None:
            names_columns = text[insert.end() :].lstrip().startswith("(")
            self._table(insert.group(1)).rows += max(1, groups - names_columns)
        elif (create := _CREATE.match(text)) is not None:
            self._table(create.group(1)).columns = _columns(text[create.end() :])
        elif (copy := _COPY.match(text)) is not None:
            self._copied = self._table(copy.group(1))
        elif (words := _FIRST_WORDS.match(text)) is not None:
            name = " ".join(word.upper()[:30] for word in words.groups() if word)
            name = name if name.startswith(("CREATE", "ALTER", "DROP")) else name.split(" ")[0]
            if name in self.others or len(self.others) < MOST_TABLES:
                self.others[name] += 1

    def _table(self, name: str) -> _Table:
        name = name.replace("`", "").replace('"', "")[:200]
        if name not in self.tables and len(self.tables) >= MOST_TABLES:
            return _Table()
        return self.tables.setdefault(name, _Table())


def _columns(definition: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for match in _IN_DEFINITION.finditer(definition):
        if match.group() == "(":
            depth += 1
            start = match.end() if depth == 1 else start
        elif depth == 1 and match.group() in ",)":
            parts.append(definition[start : match.start()])
            start = match.end()
        depth -= match.group() == ")"
    words = [part.split(None, 2)[:2] for part in parts if part.strip()]
    return [" ".join(word).replace("`", "").replace('"', "") for word in words if word[0].lower() not in _NO_COLUMNS]


def explore(source: Source) -> Findings:
    head = source.head(HEAD_BYTES)
    script = _Script(has_backslashes=b"`" in head or b"MySQL" in head or b"MariaDB" in head)
    characters = 0
    for line in source.lines():
        script.take(line)
        characters += len(line) + 1
        if characters > MOST_CHARACTERS:
            break
    script.end()
    if not script.statements:
        raise Unreadable(gettext_noop("it has no SQL statement"))
    rows = sum(table.rows for table in script.tables.values())
    lines = [
        f"{counted(script.statements, 'statement')}, {counted(len(script.tables), 'table')}, {counted(rows, 'inserted row')}"
    ]
    if script.others:
        others = listed((f"{name} ×{count:,}" for name, count in script.others.most_common()), most=12)
        lines.append(f"Other statements: {others}")
    lines += [
        f"{shown(name)} ({counted(table.rows, 'row')})" + (f": {listed(table.columns)}" if table.columns else "")
        for name, table in sorted(script.tables.items(), key=lambda pair: -pair[1].rows)[:60]
    ]
    covered = "all of it" if characters <= MOST_CHARACTERS else f"the first {characters:,} characters"
    return Findings(lines=lines, covered=covered)


def explore_sqlite(source: Source) -> Findings:
    steps = count_from(1)
    try:
        uri = f"{source.path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 16_777_216)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(lambda: next(steps) > COUNT_STEPS, STEP)
            return _database(connection)
    except sqlite3.Error as error:
        raise Unreadable(
            fill(gettext_noop("not a readable SQLite database: %(reason)s"), {"reason": shown(str(error))})
        ) from None


def _database(connection: sqlite3.Connection) -> Findings:
    rows = connection.execute(_SCHEMA).fetchall()
    tables = [(name, sql or "") for type_, name, _, sql in rows if type_ == "table" and not name.startswith("sqlite_")]
    lines = [f"{counted(len(tables), 'table')}: {listed(name for name, _ in tables)}"]
    uncounted = 0
    for name, sql in tables[:MOST_DATABASE_TABLES]:
        # A virtual table is not asked, since its module would run.
        if sql.upper().startswith("CREATE VIRTUAL"):
            count, columns = None, shown(sql, characters=120)
        else:
            count, columns = _rows_and_columns(connection, name)
        uncounted += count is None
        lines.append(f"{shown(name)} ({'rows not counted' if count is None else counted(count, 'row')}): {columns}")
    for one in ("view", "trigger"):
        if names := [name for type_, name, *_ in rows if type_ == one]:
            lines.append(f"{counted(len(names), one)}: {listed(names)}")
    if indexes := [f"{name} on {table}" for type_, name, table, sql in rows if type_ == "index" and sql]:
        lines.append(f"{counted(len(indexes), 'index', 'indexes')}: {listed(indexes)}")
    is_all = len(tables) <= MOST_DATABASE_TABLES
    covered = "all of it" if is_all else f"{MOST_DATABASE_TABLES} of {len(tables):,} tables"
    return Findings(
        lines=lines, covered=covered + (f"; rows of {counted(uncounted, 'table')} not counted" if uncounted else "")
    )


def _rows_and_columns(connection: sqlite3.Connection, table: str) -> tuple[int | None, str]:
    quoted = '"' + table.replace('"', '""') + '"'
    try:
        count = int(connection.execute(f"SELECT count(*) FROM {quoted}").fetchone()[0])  # noqa: S608
    except sqlite3.Error:  # counting takes too long, or the table is broken
        count = None
    try:
        found = connection.execute(f"PRAGMA table_xinfo({quoted})").fetchmany(300)
    except sqlite3.Error as error:
        return count, shown(str(error))
    return count, listed(f"{name} {type_}".strip() + (" key" if key else "") for _, name, type_, _, _, key, _ in found)
