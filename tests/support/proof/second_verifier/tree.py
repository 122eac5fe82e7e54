"""Section 9.1: the tree of messages, and the rows that follow from it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.proof.second_verifier.values import Session


def tree_problems(session: Session) -> Iterator[str]:
    """Yield the subject of each row that does not fit the tree."""
    branches = sorted(session.rows("branches"), key=lambda row: str(row["number"]).zfill(20))
    on = {row["seq"]: row.get("branch", 0) for row in session.rows("messages")}
    for place, row in enumerate(branches, start=1):
        if row["number"] != place:
            yield f"branches.number {row['id']}"
        number, parent, after = row["number"], row["parent"], row["after_seq"]
        expected = on.get(after, -1) if after else 0
        if parent >= number or parent != expected:
            yield f"branches.parent {row['id']}"
        if any(branch == number and seq <= after for seq, branch in on.items()):
            yield f"branches.after_seq {row['id']}"
    if session.row.get("branch_seq", 0) != len(branches):
        yield "branch_seq"
    there = {0, *(row["number"] for row in branches)}
    yield from (f"messages.branch {row['id']}" for row in session.rows("messages") if row.get("branch", 0) not in there)

    nodes = {row["id"]: row for row in session.rows("summary_nodes")}
    for item in session.rows("context_items"):
        node = nodes.get(item["item_id"])
        end = node["last_seq"] if node else None
        until = item.get("until")
        is_told = until == end or (until is None and not branches)
        if not is_told or item.get("branch", 0) != on.get(item["position"] if end is None else end, 0):
            yield f"context_items.branch {item['item_id']}"
    for edge in session.rows("summary_edges"):
        if edge["node_id"] in nodes and edge.get("branch", 0) != nodes[edge["node_id"]].get("branch", 0):
            yield f"summary_edges.branch {edge['node_id']}"
