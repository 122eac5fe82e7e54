"""The hash chain of every session, read once through: does each entry follow from the one before it?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, cast

import orjson
from django.apps import apps
from django.db import connections
from django.db.models.query import QuerySet

from mnesis_core.ledger import GENESIS, entry_hash, row_commitment, row_key
from sessions_app.database.commitments import SALT, Commitments, commitments_of, time_in_sql
from sessions_app.database.fast_sql import fetch
from sessions_app.database.threads import snapshot
from sessions_app.guards.triggers import guarded_models

Entry = tuple[int, str, str, str, str]
"""seq, type, body, prev_hash, hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """Where a session's ledger ends."""

    session_id: str
    seq: int
    hash: str
    problem: str = ""
    """What is wrong with the chain; empty when nothing is."""


def chain_heads(*, using: str) -> Iterator[ChainHead]:
    """The head of every session that has entries, in the order of the database's own choice."""
    rows: QuerySet[Any, Any] = QuerySet(apps.get_model("sessions_app", "Event"), using=using)
    columns = rows.order_by("session_id", "seq").values_list("session_id", "seq", "type", "body", "prev_hash", "hash")
    for session_id, entries in groupby(columns.iterator(chunk_size=2_000), key=itemgetter(0)):
        yield chain_head(session_id, (entry[1:] for entry in entries))


def chain_head(session_id: str, entries: Iterator[Entry]) -> ChainHead:
    """Follow one session's entries, in order, to the last."""
    seq, head, problem = 0, GENESIS, ""
    for found, type, body, prev_hash, hash in entries:
        problem = problem or entry_problem(seq, head, (found, type, body, prev_hash, hash))
        seq, head = found, hash
    return ChainHead(session_id=session_id, seq=seq, hash=head, problem=problem)


def entry_problem(seq: int, head: str, entry: Entry) -> str:
    """Why an entry does not follow the head before it; empty when it does."""
    found, type, body, prev_hash, hash = entry
    if found != seq + 1:
        return f"entry {seq + 1} is missing"
    if prev_hash != head:
        return f"entry {found} does not follow entry {seq}"
    try:
        is_right = hash == entry_hash(prev_hash=prev_hash, seq=found, type=type, body=body)
    except ValueError:  # where a hash should be there is something else
        is_right = False
    return "" if is_right else f"entry {found} is not what was hashed"


# The rows of one session against what its entries say of them.

# ruff: noqa: S608 - the names in these statements are the models' own, nobody else's.


ROWS_A_QUERY = 200
"""Which are held at once: more are hardly faster, and one may have 20 MB."""

_ID, _SALT, _SESSION = -3, -2, -1
"""Places in a row as it is read, after the proven columns."""
Row = tuple[str, str]
"""Table and id."""


class Cut(NamedTuple):
    """Columns of a table that one commitment is made of."""

    later: tuple[str, ...]
    """Their names, where they are not the frozen ones."""
    names: tuple[str, ...]
    values: Callable[[Sequence[Any]], Sequence[Any]]
    """Takes them from a row as it is read."""
    is_free: bool
    """Whether they may be set again, so that only the last claim counts."""


Claim = tuple[int, str, Cut]
"""What an entry says of a row: the entry's seq and its commitment to some columns."""


class Finding(NamedTuple):
    """A row or a value that is not what the entries say."""

    seq: int
    kind: str
    detail: str


@dataclass(slots=True)
class Accounts:
    """What a stretch of entries accounts for, and what it leaves to other stretches of the same session."""

    claimed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By table, the ids of rows that are there and whose insert is told."""
    untold: dict[Row, set[str]] = field(default_factory=dict)
    """Columns of those rows that hold a value of which no entry has told so far."""
    told: dict[Row, set[str]] = field(default_factory=dict)
    """Columns of which it tells in rows that an earlier stretch inserted."""
    latest: dict[tuple[str, str, str], Claim] = field(default_factory=dict)
    """By table, id and column, the last claim about a value that may be set again."""

    def add(self, later: Accounts) -> None:
        """Take in those of the next stretch."""
        for table, ids in later.claimed.items():
            self.claimed[table] |= ids
        self.untold |= later.untold
        for row, columns in later.told.items():
            self.tell(row, columns)
        self.latest |= later.latest

    def tell(self, row: Row, columns: set[str]) -> None:
        """Take in what an entry tells of a row after its insert."""
        if row not in self.untold:
            self.told[row] = self.told.get(row, set()) | columns
        elif not (left := self.untold[row] - columns):
            del self.untold[row]
        else:
            self.untold[row] = left


class BoundRows:
    """Takes in the claims of a session's entries, in order; then says what no claim accounts for."""

    def __init__(self, session_id: str, *, using: str, accounts: Accounts | None = None) -> None:
        self.accounts = accounts or Accounts()
        self._session_id = session_id
        self._using = using
        [(self._salt,)] = fetch("SELECT salt FROM sessions WHERE id = %s", [session_id], using=using)
        self._bindings = _bindings()
        self._frozen = _frozen_cuts()
        self._claims: dict[str, dict[str, list[Claim]]] = defaultdict(dict)
        self._unknown: list[Finding] = []

    def take(self, seq: int, bound: Sequence[Any]) -> None:
        """Take in what an entry's body says of rows.

        :raises ValueError: it has another shape.
        :raises TypeError: the same.
        """
        for table, id, commitment, *columns in bound:
            cut = _cut(table, tuple(columns[0])) if columns else self._frozen.get(table)
            if type(id) is not str or "\x00" in id:
                raise ValueError(f"{id!r} is no row's id")
            if cut is None:
                self._unknown.append(Finding(seq, "row", f"{table}: there is no such table or column"))
            elif cut.is_free:
                self.accounts.latest[table, id, cut.later[0]] = (seq, commitment, cut)
            else:
                self._claims[table].setdefault(id, []).append((seq, commitment, cut))

    def check(self) -> Iterator[Finding]:
        """What does not fit of what was taken in; a value that may be set again is kept for the end."""
        unknown, self._unknown = self._unknown, []
        yield from unknown
        claims, self._claims = self._claims, defaultdict(dict)
        for table, by_id in claims.items():
            ids = list(by_id)
            for start in range(0, len(ids), ROWS_A_QUERY):
                yield from self._compare(self._bindings[table], ids[start : start + ROWS_A_QUERY], by_id)

    def finish(self) -> Iterator[Finding]:
        """What is left to say when every claim was taken in: last values, and what no entry tells of."""
        latest, self.accounts.latest = self.accounts.latest, {}
        for (table, id, _), claim in latest.items():
            self._claims[table].setdefault(id, []).append(claim)
        yield from self.check()
        for table in self._bindings:
            yield from self._unexplained(table)
        yield from self._untold()

    def _compare(self, binding: Commitments, ids: list[str], claims: dict[str, list[Claim]]) -> Iterator[Finding]:
        table, rows = binding.table, self._read(binding, ids)
        for row in rows:
            id, told = row[_ID], 0
            key = row_key(row[_SALT] or self._salt, table=table, id=id)
            for seq, commitment, cut in claims[id]:
                # The frozen columns come first. To name zip's argument would take a third of the line's time.
                values = cut.values(row) if cut.later else row
                held = {name: value for name, value in zip(cut.names, values) if value is not None}  # noqa: B905
                if row_commitment(key, held) != commitment:
                    yield Finding(seq, "row", f"{table} {id} {', '.join(cut.later)}".rstrip())
                if cut.later:
                    told += len(held)
            self._account(binding, row, claims[id], told)
        if len(rows) < len(ids):
            missing = sorted(set(ids) - {row[_ID] for row in rows})
            yield from (Finding(seq, "missing", f"{table} {id}") for id in missing for seq, _, _ in claims[id])

    def _account(self, binding: Commitments, row: Sequence[Any], claims: list[Claim], told: int) -> None:
        id, later = row[_ID], row[len(binding.frozen) : _ID]
        is_inserted = not claims[0][2].later or not all(cut.later for _, _, cut in claims)
        if is_inserted:
            self.accounts.claimed[binding.table].add(id)
            if len(claims) < 3 and told == len(later) - later.count(None):
                return
        names = {name for _, _, cut in claims for name in cut.later}
        if not is_inserted:
            self.accounts.tell((binding.table, id), names)
        elif untold := {name for name, value in zip(binding.later, later, strict=True) if value is not None} - names:
            self.accounts.untold[binding.table, id] = untold

    def _untold(self) -> Iterator[Finding]:
        """Values that no entry tells of, and that are there: a later look may have seen what was set meanwhile."""
        for (table, id), columns in sorted(self.accounts.untold.items()):
            for row in self._read(self._bindings[table], [id]):
                named = zip(self._bindings[table].fields, row, strict=False)
                for column in sorted(name for name, value in named if value is not None and name in columns):
                    yield Finding(0, "unexplained", f"{table} {id} {column}")

    def _unexplained(self, table: str) -> Iterator[Finding]:
        owner, claimed = _owner(self._bindings[table]), self.accounts.claimed[table]
        among = f"FROM {table} WHERE {owner} = %s"
        [(count,)] = fetch(f"SELECT COUNT(*) {among}", [self._session_id], using=self._using)
        # All that is claimed is there, so that as many rows are the same rows.
        if count != len(claimed):
            ids = {id for (id,) in fetch(f"SELECT id {among}", [self._session_id], using=self._using)}
            yield from (Finding(0, "unexplained", f"{table} {id}") for id in sorted(ids - claimed))

    def _read(self, binding: Commitments, ids: Sequence[str]) -> list[Sequence[Any]]:
        """Proven columns, id, salt and session of those of the rows that are the session's."""
        vendor = connections[self._using].vendor
        rows = fetch(_select(binding, vendor, len(ids)), [ids] if vendor == "postgresql" else ids, using=self._using)
        return [binding.plain(row) for row in rows if row[_SESSION] == self._session_id]


@lru_cache(maxsize=1_000)
def _select(binding: Commitments, vendor: str, ids: int) -> str:
    columns = (binding.in_sql(vendor), "id", SALT if binding.has_salt else "NULL", _owner(binding))
    among = "= ANY(%s)" if vendor == "postgresql" else f"IN ({', '.join(['%s'] * ids)})"
    # Not WHERE session_id = …: SQLite would walk through the whole session for each of the ids.
    return f"SELECT {', '.join(columns)} FROM {binding.table} WHERE id {among}"


@cache
def _bindings() -> dict[str, Commitments]:
    return {model._meta.db_table: commitments_of(model) for model in guarded_models() if model.rules.bound}


def _owner(binding: Commitments) -> str:
    return "id" if binding.table == "sessions" else "session_id"


@cache
def _frozen_cuts() -> dict[str, Cut | None]:
    return {table: _cut(table, ()) for table in _bindings()}


@lru_cache(maxsize=1_000)
def _cut(table: str, columns: tuple[str, ...]) -> Cut | None:
    """What a claim about these columns, or about the frozen ones, is about; ``None`` where it can be about nothing."""
    if (binding := _bindings().get(table)) is None:
        return None
    places = {name: place for place, name in enumerate(binding.fields)}
    if not places.keys() >= set(columns) or len(set(columns)) < len(columns):
        return None
    names = columns or binding.frozen
    # With one place, an itemgetter gives no tuple.
    values = itemgetter(*(places[name] for name in names), *([0] if len(names) == 1 else []))
    return Cut(columns, names, values, bool(columns) and binding.free.issuperset(columns))


# The directory of sessions against the sessions: is any gone, cut off, unknown to it, or somebody else's now?
#
# The directory is a chain of its own, so whoever takes a session away with all that is its own has to rewrite that too. What
# came after its last entry about a session it cannot know: a cut there needs a head that was kept outside.

ENTRIES_AT_A_TIME = 4_000
_ALL = "SELECT seq, type, body, prev_hash, hash, session_id, entries FROM directory_entries WHERE seq > %s ORDER BY seq LIMIT %s"
_OF_SESSION = (
    "SELECT d.seq, d.type, d.body, d.prev_hash, d.hash, d.entries, {at}, e.hash FROM directory_entries d"
    " LEFT JOIN events e ON e.session_id = d.session_id AND e.seq = d.entries WHERE d.session_id = %s ORDER BY d.seq"
)
_OWNER = "SELECT owner_id FROM sessions WHERE id = %s"


def directory_findings(*, using: str) -> Iterator[tuple[str, Finding]]:
    """What is wrong with the whole directory, and which sessions are gone that it tells of; each with its session."""
    with snapshot(using=using):
        told: dict[str, int] = {}
        seq, head = 0, GENESIS
        while rows := fetch(_ALL, [seq, ENTRIES_AT_A_TIME], using=using):
            if rows[-1][0] <= seq:
                raise ValueError("the entries of a damaged table come in no order, and without an end")
            for *entry, session_id, entries in rows:
                if words := entry_problem(seq, head, cast("Entry", tuple(entry))):
                    yield "", Finding(entry[0], "chain", f"directory_entries: {words}")
                seq, head = entry[0], entry[4]
                told[session_id] = entries
        there = {id for (id,) in fetch("SELECT id FROM sessions", using=using)}
    for session_id, entries in told.items():
        if session_id not in there:
            yield (
                session_id,
                Finding(entries, "missing", f"sessions {session_id}: gone, with {entries:,} entries or more"),
            )


def findings_of_session(session_id: str, *, using: str) -> Iterator[Finding]:
    """How an existing session differs from what the directory says."""
    sql = _OF_SESSION.format(at=time_in_sql("d.created_at", connections[using].vendor))
    rows = fetch(sql, [session_id], using=using)
    told: Any = {}
    for seq, type, body, prev_hash, hash, entries, at, found in rows:
        told = _told(body)
        if entry_problem(seq - 1, prev_hash, (seq, type, body, prev_hash, hash)):
            yield Finding(0, "chain", f"directory_entries: entry {seq} is not what was hashed")
        elif (told.get("session_id"), told.get("entries"), told.get("at")) != (session_id, entries, at):
            yield Finding(0, "row", f"directory_entries {seq}")
        elif found is None:
            yield Finding(entries, "head", f"the directory has seen entry {entries}, which is not there")
        elif found != told.get("head"):
            yield Finding(entries, "head", f"entry {entries} is another one than the directory has seen")
    if not rows:
        yield Finding(0, "unexplained", f"sessions {session_id}: the directory does not tell of it")
        return
    [(owner_id,)] = fetch(_OWNER, [session_id], using=using)
    if owner_id != told.get("owner_id"):
        words = f"it belongs to account {owner_id}, by the directory to account {told.get('owner_id')}"
        yield Finding(0, "owner", f"sessions {session_id}: {words}")


def _told(body: Any) -> Any:
    try:
        told = orjson.loads(body)
    except (ValueError, TypeError):
        return {}
    return told if isinstance(told, dict) else {}
