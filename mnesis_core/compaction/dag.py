"""The summary DAG: what stands for what, up and down, and whether a context stands for every message once.

Edges never change, so they name the revision that was read; a walk is led to the newest one. It also ends on a graph
that was tampered with: no node is visited twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from itertools import accumulate

from mnesis_core.errors import Conflict, SummaryNotFoundError, gettext_noop

MOST_COMPARED_LINES = 2_000  # Lines of two texts together: the comparison takes quadratic time.

Span = tuple[int, int]  # first and last ``seq`` of some neighbouring messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    id: str
    kind: str  # ``leaf`` over messages, ``condensed`` over summaries
    depth: int
    level: int
    first_seq: int
    last_seq: int
    message_count: int
    token_count: int
    source_tokens: int
    tokens_input: int
    tokens_output: int
    cost_micros: int
    branch: int = 0  # that it was made for
    sources: tuple[str, ...] = ()  # the summaries that were read for it, in order; none for a leaf
    revises_id: str | None = None
    restores_id: str | None = None
    superseded_seq: int | None = None
    freshness: str = "fresh"

    @property
    def text_of(self) -> str:
        """Return the id of the revision that this text was written for."""
        return self.restores_id or self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    summaries: int
    leaves: int
    messages: int
    token_count: int
    tokens_input: int
    tokens_output: int
    cost_micros: int


class Graph:
    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes: Mapping[str, Node] = {node.id: node for node in nodes}
        self._later = {node.revises_id: node.id for node in self.nodes.values() if node.revises_id is not None}
        self._parents: dict[str, list[Node]] = defaultdict(list)
        for node in self.current():
            for source in dict.fromkeys(self._chain(source)[-1] for source in node.sources):
                self._parents[source].append(node)

    def find(self, id: str) -> Node:
        """:raises SummaryNotFoundError: there is no such summary."""
        if id not in self.nodes:
            raise SummaryNotFoundError(summary_id=id)
        return self.nodes[id]

    def newest(self, id: str) -> Node:
        return self.revisions(id)[-1]

    def revisions(self, id: str) -> list[Node]:
        return [self.find(one) for one in self._chain(id)]

    def history(self, id: str) -> list[Node]:
        seen = {id}
        while (earlier := self.find(id).revises_id) is not None and earlier not in seen:
            id = earlier
            seen.add(id)
        return self.revisions(id)

    def sources(self, id: str) -> list[Node]:
        return [self.newest(source) for source in self.find(id).sources]

    def parents(self, id: str) -> list[Node]:
        return self._parents[self._chain(id)[-1]]

    def above(self, id: str) -> list[Node]:
        """Return every summary that stands for this one, the nearest first."""
        found: dict[str, Node] = {}
        waiting = self.parents(id)[:]
        for node in waiting:
            if node.id not in found and node.id != id:
                found[node.id] = node
                waiting += self.parents(node.id)
        return list(found.values())

    def below(self, id: str) -> Iterator[tuple[int, Node]]:
        """Yield a summary and every one under it, each once and in order, with how many steps down it is."""
        # A stack instead of recursion: a chain of summaries may be deeper than Python's limit.
        waiting, seen = [(0, self.find(id))], set[str]()
        while waiting:
            steps, node = waiting.pop()
            if node.id not in seen:
                seen.add(node.id)
                yield steps, node
                waiting += [(steps + 1, source) for source in reversed(self.sources(node.id))]

    def leaves(self, id: str) -> list[Node]:
        """Return the leaves under a summary, in order; a leaf alone gives itself."""
        return [node for _, node in self.below(id) if node.kind == "leaf"]

    def cost(self, id: str) -> Cost:
        nodes = [node for _, node in self.below(id)]
        leaves = [node for node in nodes if node.kind == "leaf"]
        return Cost(
            summaries=len(nodes),
            leaves=len(leaves),
            messages=sum(node.message_count for node in leaves),
            token_count=sum(node.token_count for node in nodes),
            tokens_input=sum(node.tokens_input for node in nodes),
            tokens_output=sum(node.tokens_output for node in nodes),
            cost_micros=sum(node.cost_micros for node in nodes),
        )

    def roots(self) -> list[Node]:
        roots = (node for node in self.current() if not self.parents(node.id))
        return sorted(roots, key=lambda node: (node.first_seq, -node.last_seq, node.id))

    def current(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.id not in self._later]

    def stale(self) -> set[str]:
        """Return the newest revisions made from a text that has since been replaced, and all above them.

        A revision that undoes others has the same text as an earlier one, so it takes their mark away again.
        """
        found: set[str] = set()
        for node in sorted(self.current(), key=lambda node: node.depth):
            steps = [(self.find(source), self.newest(source)) for source in node.sources]
            if any(read.text_of != now.text_of or now.id in found for read, now in steps):
                found.add(node.id)
        return found

    def _chain(self, id: str) -> list[str]:
        chain = {id: None}
        while (later := self._later.get(id)) is not None and later not in chain:
            id = later
            chain[id] = None
        return list(chain)


def slices_of(leaves: Sequence[Node], *, offset: int, limit: int) -> list[tuple[str, int, int]]:
    """Return the sources of one page of the messages behind some leaves: (leaf, first position, after the last)."""
    chosen, start = [], 0
    for leaf in leaves:
        first, end = max(0, offset - start), min(leaf.message_count, offset + limit - start)
        if first < end:
            chosen.append((leaf.id, first, end))
        start += leaf.message_count
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """Whether a context stands for every message of its session exactly once, in order."""

    messages: int
    verbatim: int
    summarised: int
    missing: tuple[Span, ...]
    twice: tuple[Span, ...]  # messages that more than one entry stands for
    out_of_order: tuple[Span, ...]
    miscounted: tuple[str, ...]  # summaries whose own numbers differ from their edges

    @property
    def ok(self) -> bool:
        return not (self.missing or self.twice or self.out_of_order or self.miscounted)


def check_cover(
    graph: Graph, standing: Sequence[int | str], messages_of: Mapping[str, Sequence[int]], *, messages: Collection[int]
) -> Cover:
    """Expand a context and check that it gives the messages with these numbers, each once, in order.

    ``standing`` is the context in order: a message's ``seq`` or a summary's id. ``messages_of`` has the messages of
    each leaf, in order.

    :raises SummaryNotFoundError: the context or an edge names a summary that does not exist.
    """
    verbatim = [item for item in standing if isinstance(item, int)]
    expanded: list[int] = []
    for item in standing:
        if isinstance(item, int):
            expanded.append(item)
        else:
            expanded += [seq for leaf in graph.leaves(item) for seq in messages_of.get(leaf.id, ())]
    late = {seq for seq, highest in zip(expanded, accumulate(expanded, max), strict=True) if seq < highest}
    times = Counter(expanded)
    twice = {seq for seq, count in times.items() if count > 1}
    return Cover(
        messages=len(messages),
        verbatim=len(verbatim),
        summarised=len(expanded) - len(verbatim),
        missing=runs_of(set(messages) - times.keys()),
        twice=runs_of(twice),
        out_of_order=runs_of(late - twice),
        miscounted=tuple(node.id for node in graph.nodes.values() if _is_miscounted(graph, node, messages_of)),
    )


def runs_of(seqs: Collection[int]) -> tuple[Span, ...]:
    """Return numbers as runs of neighbours: ``{1, 2, 3, 7}`` gives ``((1, 3), (7, 7))``."""
    runs: list[Span] = []
    for seq in sorted(seqs):
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return tuple(runs)


def _is_miscounted(graph: Graph, node: Node, messages_of: Mapping[str, Sequence[int]]) -> bool:
    if node.kind == "leaf":
        seqs = messages_of.get(node.id, ())
        found = (min(seqs, default=0), max(seqs, default=0), len(seqs))
    else:
        sources = graph.sources(node.id)
        found = (
            min((source.first_seq for source in sources), default=0),
            max((source.last_seq for source in sources), default=0),
            sum(source.message_count for source in sources),
        )
    return found != (node.first_seq, node.last_seq, node.message_count)


# Revisions: previews, the order in which a subtree is made again, and how two texts differ


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRecord:
    """A summary's text in a possible revision; nothing in the DAG or the context refers to it."""

    id: str  # becomes the id of the revision when it is applied
    session_id: str
    summary_id: str
    batch_id: str  # The preview at the top of its subtree. The previews of a batch are applied together.
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
    # The messages or summaries that were read for it, in order, previews of the same batch among them.
    source_ids: tuple[str, ...]
    created_at: datetime


def order_of_work(graph: Graph, summary_id: str, *, subtree: bool, only_stale: bool) -> list[Node]:
    """Return the summaries to make again, each after those that it is made from.

    This is one summary, with ``subtree`` all under it too, with ``only_stale`` the stale ones of them.

    :raises SummaryNotFoundError: there is no such summary.
    :raises Conflict: none of them is stale.
    """
    chosen = [node for steps, node in graph.below(summary_id) if subtree or steps == 0]
    if only_stale:
        stale = graph.stale()
        chosen = [node for node in chosen if node.id in stale]
    if not chosen:
        raise Conflict(gettext_noop("nothing here is stale: every summary was made from what stands under it now"))
    return sorted(chosen, key=lambda node: node.depth)


def difference(before: str, after: str) -> list[str]:
    """Return the lines of a unified difference without its head; none when the texts are equal.

    Long texts are not compared line by line: the whole old text goes, the whole new one comes.
    """
    old, new = before.split("\n"), after.split("\n")
    if before == after:
        return []
    if len(old) + len(new) > MOST_COMPARED_LINES:
        return [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
    return list(unified_diff(old, new, lineterm=""))[2:]
