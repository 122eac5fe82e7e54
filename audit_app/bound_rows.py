"""The rows of one session against what its entries say of them."""
# ruff: noqa: S608 - the names in these statements are the models' own, nobody else's.

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Count, Q
from django.db.models.query import QuerySet

from mnesis_core.ledger import row_commitment, row_text_names
from sessions_app.binding import SALT, Binding, binding_of
from sessions_app.guards import guarded_models

IDS_A_QUERY = 500


class Claim(NamedTuple):
    """What an entry says of a row: the commitment to its frozen columns, or to the ``columns`` that it set."""

    seq: int
    table: str
    id: str
    commitment: str
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, seq: int, bound: Sequence[Any]) -> Claim:
        """From an entry's body.

        :raises ValueError: it has another shape.
        """
        table, id, commitment, *columns = bound
        return cls(seq, table, id, commitment, tuple(columns[0]) if columns else ())


class Finding(NamedTuple):
    """A row or a value that is not what the entries say."""

    seq: int
    kind: str
    detail: str


class BoundRows:
    """Takes in the claims of a session's entries, in order; then says what no claim accounts for."""

    def __init__(self, session_id: str, salt: str, database: BaseDatabaseWrapper) -> None:
        self._session_id = session_id
        self._salt = salt
        self._database = database
        self._bindings = {model._meta.db_table: binding_of(model) for model in guarded_models() if model.rules.bound}
        self._claimed: dict[str, set[str]] = defaultdict(set)
        self._told: dict[str, Counter[str]] = defaultdict(Counter)
        self._latest: dict[tuple[str, str, str], Claim] = {}

    def check(self, claims: Iterable[Claim]) -> Iterator[Finding]:
        """What does not fit; a value that may be set again is kept for the end, where its last claim counts."""
        groups: dict[tuple[str, tuple[str, ...]], list[Claim]] = defaultdict(list)
        for claim in claims:
            if not self._is_known(claim):
                yield Finding(claim.seq, "row", f"{claim.table}: there is no such table or column")
            elif self._bindings[claim.table].free.issuperset(claim.columns) and claim.columns:
                self._latest[claim.table, claim.id, claim.columns[0]] = claim
            else:
                groups[claim.table, claim.columns].append(claim)
        for (table, columns), members in groups.items():
            yield from self._compare(self._bindings[table], columns, members)

    def finish(self) -> Iterator[Finding]:
        """What is left to say when every claim was taken in: last values, and what no entry tells of."""
        latest, self._latest = self._latest, {}
        for (table, _, column), claim in latest.items():
            yield from self._compare(self._bindings[table], (column,), [claim])
        for table, binding in self._bindings.items():
            rows = self._rows_of(binding)
            for id in sorted(set(rows.values_list("id", flat=True).iterator()) - self._claimed[table]):
                yield Finding(0, "unexplained", f"{table} {id}")

    def count_entries(self) -> int:
        """The session's entries, wherever they stand."""
        with self._database.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM events WHERE session_id = %s", [self._session_id])
            return int(cursor.fetchone()[0])

    def untold(self) -> list[tuple[str, str]]:
        """(table, column) of values that more rows hold than entries tell of."""
        found = []
        for table, binding in self._bindings.items():
            changeable = sorted(binding.provable.difference(binding.frozen))
            counts = {f"count_{column}": Count("pk", filter=_holds(binding, column)) for column in changeable}
            held = self._rows_of(binding).aggregate(**counts)
            found += [(table, column) for column in changeable if held[f"count_{column}"] > self._told[table][column]]
        return found

    def holders(self, table: str, column: str) -> set[str]:
        """The rows that hold a value in a column."""
        binding = self._bindings[table]
        return set(self._rows_of(binding).filter(_holds(binding, column)).values_list("id", flat=True))

    def _is_known(self, claim: Claim) -> bool:
        binding = self._bindings.get(claim.table)
        return binding is not None and binding.provable.issuperset(claim.columns)

    def _compare(self, binding: Binding, columns: tuple[str, ...], claims: list[Claim]) -> Iterator[Finding]:
        chosen = columns or binding.frozen
        for start in range(0, len(claims), IDS_A_QUERY):
            some = claims[start : start + IDS_A_QUERY]
            found = self._read(binding, chosen, [claim.id for claim in some])
            for seq, table, id, commitment, named in some:
                if id not in found:
                    yield Finding(seq, "missing", f"{table} {id}")
                    continue
                salt, text = found[id]
                if row_commitment(salt, table=table, id=id, text=text) != commitment:
                    yield Finding(seq, "row", f"{table} {id} {', '.join(named)}".rstrip())
                if named:
                    self._told[table].update(row_text_names(text))
            if not columns:
                self._claimed[binding.table].update(found)

    def _read(self, binding: Binding, columns: Sequence[str], ids: list[str]) -> dict[str, tuple[str, str]]:
        """Id -> salt and text of the columns."""
        expression = binding.sql(columns, self._database.vendor)
        if expression is None:
            rows = self._rows_of(binding).filter(id__in=ids).values()
            return {row["id"]: (row.get(SALT) or self._salt, binding.text(row, columns)) for row in rows}
        salt = SALT if binding.has_salt else "NULL"
        owner = "id" if binding.table == "sessions" else "session_id"
        text = expression.replace("%", "%%")
        # Not WHERE session_id = …: SQLite would walk through the whole session for each of the ids.
        sql = f"SELECT id, {salt}, {text}, {owner} FROM {binding.table} WHERE id IN ({', '.join(['%s'] * len(ids))})"
        with self._database.cursor() as cursor:
            cursor.execute(sql, ids)
            rows = cursor.fetchall()
        return {id: (salt or self._salt, text) for id, salt, text, owner in rows if owner == self._session_id}

    def _rows_of(self, binding: Binding) -> QuerySet[Any]:
        rows: QuerySet[Any] = QuerySet(binding.model, using=self._database.alias)
        return rows.filter(**{"id" if binding.table == "sessions" else "session_id": self._session_id})


def _holds(binding: Binding, column: str) -> Q:
    field = binding.fields[column]
    holds = Q(**{f"{field.name}__isnull": False})
    return holds if field.get_default() is None else holds & ~Q(**{field.name: field.get_default()})
