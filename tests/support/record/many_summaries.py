"""Ten thousand summaries of one session, written as rows: what a session of a hundred thousand messages comes to."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils import timezone

from compaction_app.models import SummaryEdge, SummaryNode
from mnesis_core.records import new_id
from sessions_app.models import ContextItem, Session

LEAVES = 9_000
OF_EACH = 10
MESSAGES = 12
"""Of a leaf."""
TOTAL = 10_000
"""9,000 leaves, and 900, 90, 9 and 1 condensed over them."""


def add_many_summaries(session_id: str, *, leaves: int = LEAVES) -> list[str]:
    """Leaves over twelve messages each, and condensed over ten each up to one; returns the ids by depth, leaves first.

    The messages themselves are not there: nothing that shows thousands of summaries may read them.
    """
    levels = [[_node(session_id, index) for index in range(leaves)]]
    while len(levels[-1]) > 1:
        below = levels[-1]
        groups = [below[start : start + OF_EACH] for start in range(0, len(below), OF_EACH)]
        levels.append([_over(session_id, group, depth=len(levels)) for group in groups])
    nodes = [node for level in levels for node in level]
    SummaryNode.objects.bulk_create(nodes, batch_size=500)
    SummaryEdge.objects.bulk_create(
        [edge for above, below in zip(levels[1:], levels, strict=False) for edge in _edges(above, below)],
        batch_size=2_000,
    )
    [top] = levels[-1]
    ContextItem.objects.create(session_id=session_id, item_type="summary", item_id=top.id, position=0, added_seq=1)
    Session.objects.filter(id=session_id).update(message_seq=leaves * MESSAGES)
    return [node.id for node in nodes]


def _node(session_id: str, index: int) -> SummaryNode:
    return SummaryNode(
        id=new_id("sum"),
        session_id=session_id,
        kind="leaf",
        depth=0,
        level=3 if index % 97 == 0 else 2 if index % 11 == 0 else 1,
        text=f"They spoke of tide {index}.",
        token_count=300,
        source_tokens=2_600,
        first_seq=index * MESSAGES + 1,
        last_seq=(index + 1) * MESSAGES,
        message_count=MESSAGES,
        model="demo",
        created_at=timezone.now(),
        freshness="stale" if index % 401 == 7 else "fresh",
    )


def _over(session_id: str, group: Sequence[SummaryNode], *, depth: int) -> SummaryNode:
    return SummaryNode(
        id=new_id("sum"),
        session_id=session_id,
        kind="condensed",
        depth=depth,
        level=1,
        text=f"They spoke of {len(group)} things.",
        token_count=800,
        source_tokens=sum(node.token_count for node in group),
        first_seq=group[0].first_seq,
        last_seq=group[-1].last_seq,
        message_count=sum(node.message_count for node in group),
        model="demo",
        created_at=timezone.now(),
    )


def _edges(above: Sequence[SummaryNode], below: Sequence[SummaryNode]) -> list[SummaryEdge]:
    return [
        SummaryEdge(
            session_id=node.session_id,
            node_id=above[index // OF_EACH].id,
            position=index % OF_EACH,
            source_type="summary",
            source_id=node.id,
        )
        for index, node in enumerate(below)
    ]
