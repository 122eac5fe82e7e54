"""The summary DAG as columns of numbers: all that a browser needs to place and draw ten thousand summaries.

A summary's place is computed, not laid out: its depth is its row, its messages are its width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

from compaction_app.queries import load_graph
from mnesis_core.graph import Graph, Node, Span
from sessions_app.inspect_queries import load_context_spans, load_context_summaries

ACTIVE, STALE, SUPERSEDED, CONDENSED = 1, 2, 4, 8
"""What ``marks`` adds up: in the context now, made from what was revised since, replaced by a revision, over summaries."""


def load_drawing(session_id: str, *, at: int, last_seq: int) -> dict[str, Any]:
    """What the browser draws of a session, its context as of event ``at``; four queries, whatever the history."""
    active = set(load_context_summaries(session_id, at=at))
    verbatim = load_context_spans(session_id, at=at)
    return drawing_of(load_graph(session_id), active=active, verbatim=verbatim, last_seq=last_seq)


def drawing_of(graph: Graph, *, active: Collection[str], verbatim: Sequence[Span], last_seq: int) -> dict[str, Any]:
    """Columns with one value for each summary, by depth and then by first message.

    ``first`` has the difference to the value before, ``span`` how many more messages the last one is away. ``edges`` has
    for each summary over others its place, the number of its sources and their places; ``newest`` pairs of a superseded
    summary and its newest revision. ``verbatim``: messages that stand in the context themselves.
    """
    nodes = sorted(graph.nodes.values(), key=lambda node: (node.depth, node.first_seq, node.id))
    places = {node.id: place for place, node in enumerate(nodes)}
    firsts = [node.first_seq for node in nodes]
    return {
        "messages": last_seq,
        "verbatim": list(verbatim),
        "id": [node.id for node in nodes],
        "depth": _differences([node.depth for node in nodes]),
        "first": _differences(firsts),
        "span": [node.last_seq - node.first_seq for node in nodes],
        "count": [node.message_count for node in nodes],
        "level": [node.level for node in nodes],
        "tokens": [node.token_count for node in nodes],
        "source": [node.source_tokens for node in nodes],
        "marks": [_marks(node, active) for node in nodes],
        "edges": list(_edges(graph, nodes, places)),
        "newest": [
            place
            for node in nodes
            if node.superseded_seq is not None
            for place in (places[node.id], places[graph.newest(node.id).id])
        ],
    }


def _differences(values: Sequence[int]) -> list[int]:
    return [later - earlier for earlier, later in pairwise([0, *values])]


def _marks(node: Node, active: Collection[str]) -> int:
    is_superseded = node.superseded_seq is not None
    return (
        ACTIVE * (node.id in active)
        + STALE * (node.freshness == "stale" and not is_superseded)
        + SUPERSEDED * is_superseded
        + CONDENSED * (node.kind == "condensed")
    )


def _edges(graph: Graph, nodes: Sequence[Node], places: dict[str, int]) -> Iterator[int]:
    # Only the newest revisions: what was replaced stood for the same, and drawn twice it would hide the rest.
    for node in nodes:
        if node.superseded_seq is not None or not node.sources:
            continue
        # A graph that was tampered with is drawn as far as it goes.
        sources = [places[graph.newest(id).id] for id in node.sources if id in places]
        yield from (places[node.id], len(sources), *sources)
