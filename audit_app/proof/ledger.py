"""The proof of ledgers: each session's chain and the rows bound to it, and the directory of all sessions.

A session's ledger is followed in segments, in several processes at once if need be, each from the hash before its first
entry. Added up in order, segments give the same result as one pass over all entries.

The directory is a chain of its own, so removing a session and everything that belongs to it requires rewriting the
directory too. It cannot know what came after its last entry about a session: detecting a cut there needs a head that was
kept outside of the database.
"""

# ruff: noqa: S608 - the names in these statements come from the models.

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, cast

import orjson
from django.apps import apps
from django.db import connections
from django.db.models.query import QuerySet
from django.utils.translation import gettext_noop

from mnesis_core.context.replay import Projection
from mnesis_core.errors import fill
from mnesis_core.events import FORMAT_VERSION, GENESIS, EventType, entry_hash, row_commitment, row_key
from sessions_app.database.guards.triggers import guarded_models
from sessions_app.database.tables import Commitments, commitments_of, fetch, time_in_sql
from sessions_app.database.threads import snapshot

ENTRIES_AT_A_TIME = 4_000
ROWS_A_QUERY = 200  # rows held at once: more are hardly faster, and one row may have 20 MB
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)  # raised by forged bodies
_ID, _SALT, _SESSION = -3, -2, -1  # positions in a row as it is read, after the proven columns

_ENTRIES = (
    "SELECT seq, type, body, prev_hash, hash, {at} FROM events"
    " WHERE session_id = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s"
)
_BEFORE = "SELECT seq, hash FROM events WHERE session_id = %s AND seq > 0 AND seq <= %s ORDER BY seq DESC LIMIT 1"
_ENDS = (
    "SELECT seq FROM (SELECT seq, ROW_NUMBER() OVER (ORDER BY seq) AS place, LEAD(seq) OVER (ORDER BY seq) AS next"
    " FROM events WHERE session_id = %s AND seq > 0) AS entries WHERE place / %s * %s = place OR next IS NULL ORDER BY seq"
)
_NO_END = 2**63 - 1
_ALL = "SELECT seq, type, body, prev_hash, hash, session_id, entries FROM directory_entries WHERE seq > %s ORDER BY seq LIMIT %s"
_OWNERS = "SELECT owner_id, organisation_id, (SELECT id FROM organisations WHERE slug = 'default') FROM sessions WHERE id = %s"
_OF_SESSION = (
    "SELECT d.seq, d.type, d.body, d.prev_hash, d.hash, d.entries, {at}, e.hash FROM directory_entries d"
    " LEFT JOIN events e ON e.session_id = d.session_id AND e.seq = d.entries WHERE d.session_id = %s ORDER BY d.seq"
)

Progress = Callable[[int], None]
"""Called with the number of entries done so far."""
Entry = tuple[int, str, str, str, str]
"""seq, type, body, prev_hash, hash."""
DatedEntry = tuple[int, str, str, str, str, str]
"""seq, type, body, prev_hash, hash, and the time in the row."""
Row = tuple[str, str]
"""Table and id."""


class Finding(NamedTuple):
    seq: int
    kind: str
    detail: str


class Cut(NamedTuple):
    later: tuple[str, ...]  # empty for the frozen columns
    names: tuple[str, ...]
    values: Callable[[Sequence[Any]], Sequence[Any]]
    is_free: bool  # the columns may be set again, so only the last claim counts


Claim = tuple[int, str, Cut]
"""The seq of an entry, its commitment and the columns that it covers."""


@dataclass(slots=True)
class Accounts:
    """What a segment of entries accounts for, and what it leaves to other segments of the same session."""

    # By table, the ids of existing rows whose insert an entry records.
    claimed: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    # Columns of those rows with a value that no entry has recorded so far.
    untold: dict[Row, set[str]] = field(default_factory=dict)
    # Columns recorded for rows that an earlier segment inserted.
    told: dict[Row, set[str]] = field(default_factory=dict)
    # By table, id and column: the last claim about a value that may be set again.
    latest: dict[tuple[str, str, str], Claim] = field(default_factory=dict)

    def add(self, later: Accounts) -> None:
        for table, ids in later.claimed.items():
            self.claimed[table] |= ids
        self.untold |= later.untold
        for row, columns in later.told.items():
            self.tell(row, columns)
        self.latest |= later.latest

    def tell(self, row: Row, columns: set[str]) -> None:
        if row not in self.untold:
            self.told[row] = self.told.get(row, set()) | columns
        elif not (left := self.untold[row] - columns):
            del self.untold[row]
        else:
            self.untold[row] = left


class BoundRows:
    def __init__(self, session_id: str, *, using: str, accounts: Accounts | None = None) -> None:
        self.accounts = accounts or Accounts()
        self._session_id = session_id
        self._using = using
        [(self._salt,)] = fetch("SELECT salt FROM sessions WHERE id = %s", [session_id], using=using)
        self._bindings = _bindings()
        self._frozen = {table: _cut(table, ()) for table in self._bindings}
        self._claims: dict[str, dict[str, list[Claim]]] = defaultdict(dict)
        self._unknown: list[Finding] = []

    def take(self, seq: int, bound: Any) -> None:
        """Collect what an entry's body claims about rows.

        :raises ValueError: or ``TypeError``, if the body has another shape.
        """
        if type(bound) is not list:
            raise ValueError(f"{bound!r} are no claims")
        for claim in bound:
            table, id, commitment, *columns = claim
            if type(claim) is not list or len(claim) > 4 or type(commitment) is not str:
                raise ValueError(f"{claim!r} is no claim")
            if type(id) is not str or "\x00" in id:
                raise ValueError(f"{id!r} is no row's id")
            if columns and (type(columns[0]) is not list or not columns[0]):
                raise ValueError(f"{columns!r} are no names of columns")
            cut = _cut(table, tuple(columns[0])) if columns else self._frozen.get(table)
            if cut is None:
                words = fill(gettext_noop("%(table)s: there is no such table or column"), {"table": table})
                self._unknown.append(Finding(seq, "row", words))
            elif cut.is_free:
                self.accounts.latest[table, id, cut.later[0]] = (seq, commitment, cut)
            else:
                self._claims[table].setdefault(id, []).append((seq, commitment, cut))

    def check(self) -> Iterator[Finding]:
        """Yield what differs among the claims collected so far; values that may be set again are kept for ``finish``."""
        unknown, self._unknown = self._unknown, []
        yield from unknown
        claims, self._claims = self._claims, defaultdict(dict)
        for table, by_id in claims.items():
            ids = list(by_id)
            for start in range(0, len(ids), ROWS_A_QUERY):
                yield from self._compare(self._bindings[table], ids[start : start + ROWS_A_QUERY], by_id)

    def finish(self) -> Iterator[Finding]:
        """Yield what remains once every claim is collected: last values, and rows and values that no entry records."""
        latest, self.accounts.latest = self.accounts.latest, {}
        for (table, id, _), claim in latest.items():
            self._claims[table].setdefault(id, []).append(claim)
        yield from self.check()
        for table, binding in self._bindings.items():
            claimed, among = self.accounts.claimed[table], f"FROM {table} WHERE {_owner(binding)} = %s"
            [(count,)] = fetch(f"SELECT COUNT(*) {among}", [self._session_id], using=self._using)
            # Every claimed row exists, so equal counts mean the same rows.
            if count != len(claimed):
                ids = {id for (id,) in fetch(f"SELECT id {among}", [self._session_id], using=self._using)}
                yield from (Finding(0, "unexplained", f"{table} {id}") for id in sorted(ids - claimed))
        # A row is read again: a later segment may have seen what was set meanwhile.
        for (table, id), columns in sorted(self.accounts.untold.items()):
            for row in self._read(self._bindings[table], [id]):
                named = zip(self._bindings[table].fields, row, strict=False)
                for column in sorted(name for name, value in named if value is not None and name in columns):
                    yield Finding(0, "unexplained", f"{table} {id} {column}")

    def _compare(self, binding: Commitments, ids: list[str], claims: dict[str, list[Claim]]) -> Iterator[Finding]:
        table, rows = binding.table, self._read(binding, ids)
        for row in rows:
            id, later, told = row[_ID], row[len(binding.frozen) : _ID], 0
            key = row_key(row[_SALT] or self._salt, table=table, id=id)
            for seq, commitment, cut in claims[id]:
                # The frozen columns come first. Naming zip's argument would take a third of the line's time.
                values = cut.values(row) if cut.later else row
                held = {name: value for name, value in zip(cut.names, values) if value is not None}  # noqa: B905
                if row_commitment(key, held) != commitment:
                    yield Finding(seq, "row", f"{table} {id} {', '.join(cut.later)}".rstrip())
                if cut.later:
                    told += len(held)
            is_inserted = not claims[id][0][2].later or not all(cut.later for _, _, cut in claims[id])
            if is_inserted:
                self.accounts.claimed[table].add(id)
                if len(claims[id]) < 3 and told == len(later) - later.count(None):
                    continue
            names = {name for _, _, cut in claims[id] for name in cut.later}
            if not is_inserted:
                self.accounts.tell((table, id), names)
            elif untold := {name for name, held in zip(binding.later, later, strict=True) if held is not None} - names:
                self.accounts.untold[table, id] = untold
        if len(rows) < len(ids):
            missing = sorted(set(ids) - {row[_ID] for row in rows})
            yield from (Finding(seq, "missing", f"{table} {id}") for id in missing for seq, _, _ in claims[id])

    def _read(self, binding: Commitments, ids: Sequence[str]) -> list[Sequence[Any]]:
        vendor = connections[self._using].vendor
        rows = fetch(_select(binding, vendor, len(ids)), [ids] if vendor == "postgresql" else ids, using=self._using)
        return [binding.plain(row) for row in rows if row[_SESSION] == self._session_id]


@lru_cache(maxsize=1_000)
def _select(binding: Commitments, vendor: str, ids: int) -> str:
    columns = (binding.in_sql(vendor), "id", binding.salt or "NULL", _owner(binding))
    among = "= ANY(%s)" if vendor == "postgresql" else f"IN ({', '.join(['%s'] * ids)})"
    # With WHERE session_id = …, SQLite would walk through the whole session for each id.
    return f"SELECT {', '.join(columns)} FROM {binding.table} WHERE id {among}"


@cache
def _bindings() -> dict[str, Commitments]:
    return {model._meta.db_table: commitments_of(model) for model in guarded_models() if model.rules.bound}


def _owner(binding: Commitments) -> str:
    return "id" if binding.table == "sessions" else "session_id"


@lru_cache(maxsize=1_000)
def _cut(table: str, columns: tuple[str, ...]) -> Cut | None:
    """Return the columns that a claim covers, or ``None`` when the table or a column does not exist."""
    if (binding := _bindings().get(table)) is None:
        return None
    places = {name: place for place, name in enumerate(binding.fields)}
    if not places.keys() >= set(columns) or len(set(columns)) < len(columns):
        return None
    names = columns or binding.frozen
    # With one place, an itemgetter gives no tuple.
    values = itemgetter(*(places[name] for name in names), *([0] if len(names) == 1 else []))
    return Cut(columns, names, values, bool(columns) and binding.free.issuperset(columns))


@dataclass(slots=True)
class LedgerSegment:
    """The result of following a segment: the head it ends at, what it proves and what it comes to."""

    seq: int
    hash: str
    entries: int = 0
    commitments: int = 0
    first_form: int = 0  # entries from before each named its form
    projection: Projection = field(default_factory=Projection)
    accounts: Accounts = field(default_factory=Accounts)
    findings: list[Finding] = field(default_factory=list)
    # The account that began the session and its organisation, if the first entry is here.
    began_by: tuple[Any, ...] = ()
    is_unbound: bool = False  # the session began before rows were bound to the ledger

    def add(self, later: LedgerSegment) -> None:
        self.seq, self.hash = later.seq, later.hash
        self.entries += later.entries
        self.commitments += later.commitments
        self.first_form += later.first_form
        self.projection.add(later.projection)
        self.accounts.add(later.accounts)
        self.findings += later.findings
        self.began_by = self.began_by or later.began_by
        self.is_unbound = self.is_unbound or later.is_unbound


def follow(
    session_id: str,
    after: int = 0,
    upto: int = _NO_END,
    *,
    using: str = "default",
    progress: Progress = lambda seq: None,
) -> LedgerSegment:
    """Follow the entries of an existing session with ``after < seq <= upto``."""
    [(seq, hash), *_] = [*fetch(_BEFORE, [session_id, after], using=using), (0, GENESIS)]
    rows = BoundRows(session_id, using=using)
    segment = LedgerSegment(seq, hash, accounts=rows.accounts)
    while entries := read_entries(session_id, segment.seq, upto, using=using):
        if entries[-1][0] <= segment.seq:
            raise ValueError("the entries of a damaged table come in no order, and without an end")
        for entry in entries:
            _take(segment, entry, rows)
        segment.findings += rows.check()
        progress(segment.seq)
    return segment


def _take(segment: LedgerSegment, entry: DatedEntry, rows: BoundRows) -> None:
    seq, type, body, _, hash, at = entry
    if words := entry_problem(segment.seq, segment.hash, entry[:5]):
        segment.findings.append(Finding(seq, "chain", words))
    segment.seq, segment.hash = seq, hash
    segment.entries += 1
    try:
        data = orjson.loads(body)
        segment.projection.apply(seq, type, data)
        bound = data.get("rows", [])
        rows.take(seq, bound)
    except UNREADABLE:
        text = gettext_noop("the body of entry %(number)s says nothing that could be understood")
        segment.findings.append(Finding(seq, "chain", fill(text, {"number": str(seq)})))
        return
    segment.commitments += len(bound)
    form = data.get("v", 1)
    segment.first_form += form == 1
    if form not in (1, FORMAT_VERSION):
        text = gettext_noop("entry %(number)s is of form %(form)s, which this version does not know")
        segment.findings.append(Finding(seq, "chain", fill(text, {"number": str(seq), "form": str(form)})))
    if at != data.get("at", at):
        segment.findings.append(Finding(seq, "row", f"events {seq} created_at"))
    if type == EventType.SESSION_CREATED:
        segment.is_unbound, segment.began_by = not bound, (data.get("owner_id"), data.get("organisation"))


def read_entries(session_id: str, after: int, upto: int = _NO_END, *, using: str = "default") -> list[DatedEntry]:
    sql = _ENTRIES.format(at=time_in_sql("created_at", connections[using].vendor))
    return cast("list[DatedEntry]", fetch(sql, [session_id, after, upto, ENTRIES_AT_A_TIME], using=using))


def segment_ends(session_id: str, entries: int, *, using: str = "default") -> list[int]:
    """Return the seq of the last entry of each segment, of ``entries`` existing entries each."""
    return [seq for (seq,) in fetch(_ENDS, [session_id, entries, entries], using=using)]


def directory_findings(*, using: str) -> Iterator[tuple[str, Finding]]:
    """Yield what is wrong with the whole directory, and the sessions it names that are gone, each with its session's id."""
    with snapshot(using=using):
        told: dict[str, int] = {}
        seq, head = 0, GENESIS
        while rows := fetch(_ALL, [seq, ENTRIES_AT_A_TIME], using=using):
            if rows[-1][0] <= seq:
                raise ValueError("the entries of a damaged table come in no order, and without an end")
            for *entry, session_id, entries in rows:
                if words := entry_problem(seq, head, cast("Entry", tuple(entry))):
                    yield "", Finding(entry[0], "chain", _of_directory(words))
                seq, head = entry[0], entry[4]
                told[session_id] = entries
        there = {id for (id,) in fetch("SELECT id FROM sessions", using=using)}
    for session_id, entries in told.items():
        if session_id not in there:
            text = gettext_noop("sessions %(id)s: gone, with %(count)s entries or more")
            yield session_id, Finding(entries, "missing", fill(text, {"id": session_id, "count": entries}))


def findings_of_session(session_id: str, *, using: str) -> Iterator[Finding]:
    """Yield how an existing session differs from its entries in the directory."""
    sql = _OF_SESSION.format(at=time_in_sql("d.created_at", connections[using].vendor))
    rows = fetch(sql, [session_id], using=using)
    told: Any = {}
    for seq, type, body, prev_hash, hash, entries, at, found in rows:
        told = {}
        with suppress(ValueError, TypeError):
            value = orjson.loads(body)
            told = value if isinstance(value, dict) else {}
        if entry_problem(seq - 1, prev_hash, (seq, type, body, prev_hash, hash)):
            words = fill(gettext_noop("entry %(number)s is not what was hashed"), {"number": str(seq)})
            yield Finding(0, "chain", _of_directory(words))
        elif (told.get("session_id"), told.get("entries"), told.get("at")) != (session_id, entries, at):
            yield Finding(0, "row", f"directory_entries {seq}")
        elif found is None:
            text = gettext_noop("the directory has seen entry %(number)s, which is not there")
            yield Finding(entries, "head", fill(text, {"number": str(entries)}))
        elif found != told.get("head"):
            text = gettext_noop("entry %(number)s is another one than the directory has seen")
            yield Finding(entries, "head", fill(text, {"number": str(entries)}))
    if not rows:
        words = fill(gettext_noop("sessions %(id)s: the directory does not tell of it"), {"id": session_id})
        yield Finding(0, "unexplained", words)
        return
    [(owner_id, organisation, sites_own)] = fetch(_OWNERS, [session_id], using=using)
    # Entries from before organisations name none.
    found, directory = (owner_id, organisation), (told.get("owner_id"), told.get("organisation", sites_own))
    if found != directory:
        text = gettext_noop(
            "sessions %(id)s: it belongs to account %(owner)s of %(organisation)s,"
            " by the directory to account %(told_owner)s of %(told_organisation)s"
        )
        owners = zip(("owner", "organisation", "told_owner", "told_organisation"), (*found, *directory), strict=True)
        yield Finding(0, "owner", fill(text, {"id": session_id, **{name: str(value) for name, value in owners}}))


def _of_directory(words: str) -> str:
    return fill(gettext_noop("directory_entries: %(reason)s"), {"reason": words})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    session_id: str
    seq: int
    hash: str
    problem: str = ""  # empty when the chain is whole


def chain_heads(*, using: str) -> Iterator[ChainHead]:
    """Yield the head of every session that has entries, in the database's order."""
    rows: QuerySet[Any, Any] = QuerySet(apps.get_model("sessions_app", "Event"), using=using)
    columns = rows.order_by("session_id", "seq").values_list("session_id", "seq", "type", "body", "prev_hash", "hash")
    for session_id, entries in groupby(columns.iterator(chunk_size=2_000), key=itemgetter(0)):
        seq, head, problem = 0, GENESIS, ""
        for _, *entry in entries:
            problem = problem or entry_problem(seq, head, cast("Entry", tuple(entry)))
            seq, head = entry[0], entry[4]
        yield ChainHead(session_id=session_id, seq=seq, hash=head, problem=problem)


def entry_problem(seq: int, head: str, entry: Entry) -> str:
    """Say why an entry does not follow the head before it, or return an empty string."""
    found, type, body, prev_hash, hash = entry
    if found != seq + 1:
        return fill(gettext_noop("entry %(number)s is missing"), {"number": str(seq + 1)})
    if prev_hash != head:
        return fill(
            gettext_noop("entry %(number)s does not follow entry %(last)s"), {"number": str(found), "last": str(seq)}
        )
    try:
        is_right = hash == entry_hash(prev_hash=prev_hash, seq=found, type=type, body=body)
    except ValueError:  # prev_hash is not a hash
        is_right = False
    return "" if is_right else fill(gettext_noop("entry %(number)s is not what was hashed"), {"number": str(found)})
