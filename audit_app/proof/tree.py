"""The tree of a session's messages: what its branches, contexts and summaries say of it, by the rows that the ledger proves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mnesis_core.context.replay import Difference
from sessions_app.database.tables import fetch

_BRANCHES = (
    "SELECT b.id, b.number, b.parent, b.after_seq, m.branch, (SELECT MIN(o.seq) FROM messages o"
    " WHERE o.session_id = b.session_id AND o.branch = b.number) FROM branches b"
    " LEFT JOIN messages m ON m.session_id = b.session_id AND m.seq = b.after_seq"
    " WHERE b.session_id = %s ORDER BY b.number"
)
_STRAY = (
    "SELECT m.id, m.branch FROM messages m WHERE m.session_id = %s AND m.branch <> 0 AND NOT EXISTS"
    " (SELECT 1 FROM branches b WHERE b.session_id = m.session_id AND b.number = m.branch)"
)
_ITEMS = (
    "SELECT i.item_id, m.branch, n.last_seq, i.branch, i.until FROM context_items i"
    " LEFT JOIN summary_nodes n ON n.id = i.item_id AND n.session_id = i.session_id"
    " LEFT JOIN messages m ON m.session_id = i.session_id AND m.seq = COALESCE(n.last_seq, i.position)"
    " WHERE i.session_id = %s AND (COALESCE(i.until, -1) <> COALESCE(n.last_seq, -1) OR i.branch <> COALESCE(m.branch, 0))"
)
_EDGES = (
    "SELECT e.node_id, n.branch, e.branch FROM summary_edges e JOIN summary_nodes n ON n.id = e.node_id"
    " WHERE n.session_id = %s AND e.branch <> n.branch"
)


def tree_differences(session_id: str, *, using: str) -> Iterator[Difference]:
    """Yield what does not agree with the messages, the summaries and the branches of a session."""

    def rows(sql: str) -> list[tuple[Any, ...]]:
        return fetch(sql, [session_id], using=using)

    branches = rows(_BRANCHES)
    yield from _differences_of_branches(branches)
    expected = len(branches)
    [(made,)] = rows("SELECT branch_seq FROM sessions WHERE id = %s")
    if made != expected:
        yield Difference(what="branch_seq", id="", ledger=expected, rows=made)
    for id, branch in rows(_STRAY):
        yield Difference(what="messages.branch", id=id, ledger=None, rows=branch)
    for id, branch, last, has_branch, until in rows(_ITEMS):
        # Without branches nothing reads how far a summary reaches, and older rows do not say it.
        if made or until is not None or has_branch != (branch or 0):
            yield Difference(what="context_items.branch", id=id, ledger=(branch, last), rows=(has_branch, until))
    for id, branch, has in rows(_EDGES):
        yield Difference(what="summary_edges.branch", id=id, ledger=branch, rows=has)


def _differences_of_branches(branches: Sequence[tuple[Any, ...]]) -> Iterator[Difference]:
    for expected, (id, number, parent, after, on, first) in enumerate(branches, start=1):
        if number != expected:
            yield Difference(what="branches.number", id=id, ledger=expected, rows=number)
        if parent >= number or parent != (on if after else 0):
            yield Difference(what="branches.parent", id=id, ledger=on or 0, rows=parent)
        if first is not None and first <= after:
            yield Difference(what="branches.after_seq", id=id, ledger=f"before {first}", rows=after)
