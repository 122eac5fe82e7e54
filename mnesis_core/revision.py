"""A summary said again: what a preview holds, in which order a subtree is made again, how two texts differ."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff

from mnesis_core.errors import Conflict
from mnesis_core.graph import Graph, Node

MOST_COMPARED_LINES = 2_000
"""Of two texts together: the comparison takes quadratic time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRecord:
    """What a summary would say in a revision; nothing in the DAG or the context knows of it."""

    id: str
    """That of the revision, when it is applied."""
    session_id: str
    summary_id: str
    """Whose place it would take."""
    batch_id: str
    """The preview at the top of its subtree, or itself. They are applied together."""
    depth: int
    level: int
    text: str
    token_count: int
    source_tokens: int
    model: str
    prompt_version: str
    tokens_input: int
    tokens_output: int
    cost_micros: int
    duration_ms: int
    source_ids: tuple[str, ...]
    """The messages or summaries that were read for it, previews of the same batch among them, in order."""
    created_at: datetime


def order_of_work(graph: Graph, summary_id: str, *, subtree: bool, only_stale: bool) -> list[Node]:
    """Which summaries to make again, each after those that it is made from.

    One alone, or with all under it; with ``only_stale`` those of them that are stale.

    :raises SummaryNotFoundError: there is no such summary.
    :raises Conflict: none of them is stale.
    """
    chosen = [node for steps, node in graph.below(summary_id) if subtree or steps == 0]
    if only_stale:
        stale = graph.stale()
        chosen = [node for node in chosen if node.id in stale]
    if not chosen:
        raise Conflict("nothing here is stale: every summary was made from what stands under it now")
    return sorted(chosen, key=lambda node: node.depth)


def difference(before: str, after: str) -> list[str]:
    """How a text became another one: the lines of a unified difference without its head; none when nothing changed.

    Long texts are not compared line by line: all of the one goes, all of the other comes.
    """
    old, new = before.split("\n"), after.split("\n")
    if before == after:
        return []
    if len(old) + len(new) > MOST_COMPARED_LINES:
        return [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    return list(unified_diff(old, new, lineterm=""))[2:]
