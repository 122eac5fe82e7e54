"""The hash chain of every session, read once through: does each entry follow from the one before it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.apps import apps
from django.db.models.query import QuerySet

from mnesis_core.ledger import GENESIS, entry_hash

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
