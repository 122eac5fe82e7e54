"""Sections 5, 6.3, 8 and 11: the chain of a session, what it claims of rows, and the contents of files."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tests.support.proof.second_verifier.replay import Nothing, apply, replay_problems
from tests.support.proof.second_verifier.runs import run_problems
from tests.support.proof.second_verifier.tree import tree_problems
from tests.support.proof.second_verifier.values import (
    GENESIS,
    Problem,
    Row,
    Session,
    Strange,
    Table,
    columns_text,
    commitment,
    entry_hash,
    is_empty,
    row_key,
    tables,
    time_text,
)

FORMS = (1, 2)
OUTPUTS = "tool-outputs/"
Found = tuple[int, str, str]
_SHA256 = re.compile("[0-9a-f]{64}")


class Claim(NamedTuple):
    seq: int
    table: str
    id: str
    commitment: str
    columns: tuple[str, ...] | None  # None for an insert


def problems_of_session(session: Session) -> list[Problem]:
    """Return everything that a session's own rows show to be wrong, in no particular order."""
    state: dict[str, Any] = {}
    claims = Claims(session)
    found = [*_chain_problems(session, state, claims), *claims.problems()]
    subjects = {
        "replay": [*replay_problems(state, session), *tree_problems(session), *run_problems(session)],
        "content": list(_content_problems(session)),
    }
    found += [(0, kind, subject) for kind, some in subjects.items() for subject in some]
    return [Problem(session.id, *problem) for problem in found]


def _chain_problems(session: Session, state: dict[str, Any], claims: Claims) -> Iterator[Found]:
    seq, hash = 0, GENESIS
    entries = sorted(session.rows("events"), key=lambda entry: entry["seq"])
    if entries and entries[0]["seq"] < 1:
        yield 0, "chain", ""
    for entry in entries:
        if entry["seq"] < 1:
            continue
        if not follows(seq, hash, entry):
            yield entry["seq"], "chain", ""
        seq, hash = entry["seq"], entry["hash"]
        try:
            yield from _read_body(entry, state, claims)
        except (Nothing, ValueError, RecursionError):
            yield seq, "chain", ""
    if (session.row["event_seq"], session.row["head_hash"]) != (seq, hash):
        yield seq, "head", ""


def _read_body(entry: Row, state: dict[str, Any], claims: Claims) -> Iterator[Found]:
    seq, type, body = entry["seq"], entry["type"], json.loads(entry["body"])
    if not isinstance(body, dict):
        raise Nothing
    if body.get("v", 1) not in FORMS:
        yield seq, "chain", ""
    apply(state, seq, type, body)
    said = body.get("rows", [])
    if not isinstance(said, list):
        raise Nothing
    for claim in said:
        yield from claims.take(_claim(seq, claim))
    if "at" in body and body["at"] != _time(entry["created_at"]):
        yield seq, "row", f"events {seq} created_at"
    if type == "session.created":
        claims.are_missing = not said


def follows(seq: int, hash: str, entry: Row) -> bool:
    if entry["seq"] != seq + 1 or entry["prev_hash"] != hash:
        return False
    try:
        return bool(entry["hash"] == entry_hash(hash, entry["seq"], entry["type"], entry["body"]))
    except ValueError:  # the hash before is none
        return False


def _time(value: Any) -> str:
    try:
        return time_text(value)
    except Strange:
        return ""


def _claim(seq: int, claim: Any) -> Claim:
    if not isinstance(claim, list) or len(claim) not in (3, 4) or not all(isinstance(text, str) for text in claim[:3]):
        raise Nothing
    columns = claim[3] if len(claim) == 4 else None
    if "\0" in claim[1] or (columns is not None and not _are_names(columns)):
        raise Nothing
    return Claim(seq, claim[0], claim[1], claim[2], None if columns is None else tuple(columns))


def _are_names(columns: Any) -> bool:
    return isinstance(columns, list) and bool(columns) and all(isinstance(name, str) for name in columns)


class Claims:
    """What the entries of a session claim of its rows."""

    def __init__(self, session: Session) -> None:
        self.are_missing = False  # the session is from before commitments
        self._session = session
        self._rows = {
            name: {row["id"]: row for row in session.rows(name)} for name, table in tables().items() if table.is_bound
        }
        self._inserted: dict[str, set[str]] = {name: set() for name in self._rows}
        self._listed: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._last: dict[tuple[str, str, str], Claim] = {}

    def take(self, claim: Claim) -> Iterator[Found]:
        table = tables().get(claim.table)
        if table is None or not _is_claimable(table, claim.columns):
            yield claim.seq, "row", claim.table
            return
        if claim.columns is None:
            self._inserted[claim.table].add(claim.id)
        else:
            self._listed[claim.table, claim.id].update(claim.columns)
        if claim.columns and set(claim.columns) <= table.classes.get("free", {}).keys():
            self._last[claim.table, claim.id, claim.columns[0]] = claim
        else:
            yield from self._compare(claim)

    def problems(self) -> Iterator[Found]:
        """Yield what shows once all entries are read."""
        if self.are_missing:
            return
        for claim in self._last.values():
            yield from self._compare(claim)
        for name, by_id in self._rows.items():
            yield from ((0, "unexplained", f"{name} {id}") for id in by_id.keys() - self._inserted[name])
            for id in by_id.keys() & self._inserted[name]:
                for column in _unlisted(tables()[name], by_id[id], self._listed[name, id]):
                    yield 0, "unexplained", f"{name} {id} {column}"

    def _compare(self, claim: Claim) -> Iterator[Found]:
        row = self._rows[claim.table].get(claim.id)
        if row is None:
            yield claim.seq, "missing", f"{claim.table} {claim.id}"
        elif not _fits(self._session, claim, row):
            yield claim.seq, "row", f"{claim.table} {claim.id} {', '.join(claim.columns or ())}".rstrip()


def _is_claimable(table: Table, columns: tuple[str, ...] | None) -> bool:
    names = columns or ()
    return table.is_bound and table.claimed.keys() >= set(names) and len(set(names)) == len(names)


def _fits(session: Session, claim: Claim, row: Row) -> bool:
    table = tables()[claim.table]
    columns = sorted(table.classes["frozen"]) if claim.columns is None else claim.columns
    salt = row.get("own_salt" if claim.table == "sessions" else "salt") or session.row["salt"]
    try:
        text = columns_text([table.columns[name] for name in columns], row)
    except Strange:
        return False
    return commitment(row_key(salt, claim.table, claim.id), text) == claim.commitment


def _unlisted(table: Table, row: Row, listed: set[str]) -> Iterator[str]:
    later: Mapping[str, Any] = {**table.classes.get("once", {}), **table.classes.get("free", {})}
    yield from (name for name, column in later.items() if name not in listed and not is_empty(column, row.get(name)))


def _content_problems(session: Session) -> Iterator[str]:
    references = sorted(session.rows("file_references"), key=lambda row: row["added_seq"])
    for content_id in {row["content_id"] for row in references}:
        of_it = [row for row in references if row["content_id"] == content_id]
        data = session.contents.get(content_id) if _SHA256.fullmatch(str(content_id)) else None
        if data is not None:
            if hashlib.sha256(data).hexdigest() != content_id:
                yield content_id
        elif any(row["size"] is not None for row in of_it) or str(of_it[0]["path"]).startswith(OUTPUTS):
            yield content_id
