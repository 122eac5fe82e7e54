"""The summary DAG as an outline to read: pure functions over plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mnesis_core.graph import Span

SpanUrl = Callable[[Span], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A summary as the outline needs it."""

    id: str
    kind: str
    depth: int
    level: int
    first_seq: int
    last_seq: int
    token_count: int
    superseded_seq: int | None
    url: str
    freshness: str = "fresh"
    is_active: bool = False
    """It is in the active context now."""
    summary_ids: tuple[str, ...] = ()
    """The summaries it stands for in their newest revisions, in order; then the one whose place it took."""
    spans: tuple[Span, ...] = ()
    """The messages it stands for directly."""

    @property
    def name(self) -> str:
        """``Leaf`` and the range of its messages."""
        return f"{self.kind.capitalize()} {_range((self.first_seq, self.last_seq))}"

    @property
    def state(self) -> str:
        """What a reader must know about its place, in words."""
        if self.superseded_seq is not None:
            return f"superseded at event {self.superseded_seq}"
        marks = (("in the context now", self.is_active), ("stale", self.is_stale))
        return ", ".join(words for words, applies in marks if applies)

    @property
    def is_stale(self) -> bool:
        """Something under it was revised since, and nothing has taken its own place."""
        return self.superseded_seq is None and self.freshness == "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the nested list: a summary, or a run of messages."""

    node: Node | None
    span_name: str
    span_url: str
    is_repeated: bool
    """It stands further up already, with everything under it."""
    opens: bool
    """A list of its own follows."""
    closes: range
    """As long as there are lists that end after it."""


def outline_of(nodes: Sequence[Node], span_url: SpanUrl) -> list[Line]:
    """A nested list, flattened: first what no other summary stands for, under each its sources.

    A summary with two parents is written out under the first and named under the second.
    """
    by_id = {node.id: node for node in nodes}
    sources = {source for node in nodes for source in node.summary_ids}
    # A stack instead of recursion: a chain of summaries may be deeper than Python's.
    waiting: list[tuple[int, Node | Span]] = [(0, node) for node in reversed(nodes) if node.id not in sources]
    found: list[tuple[int, Node | Span, bool]] = []
    seen: set[str] = set()
    while waiting:
        depth, item = waiting.pop()
        found.append((depth, item, isinstance(item, Node) and item.id in seen))
        if isinstance(item, Node) and item.id not in seen:
            seen.add(item.id)
            waiting += [(depth + 1, source) for source in reversed(_sources(item, by_id))]
    depths = [depth for depth, _, _ in found]
    steps = zip(found, [*depths[1:], 0], strict=False)
    return [_line(item, repeated, after - depth, span_url) for (depth, item, repeated), after in steps]


def span_name(span: Span) -> str:
    """``messages`` with their range, or ``message`` with its number."""
    return f"{'message' if span[0] == span[1] else 'messages'} {_range(span)}"


def _range(span: Span) -> str:
    return str(span[0]) if span[0] == span[1] else f"{span[0]}–{span[1]}"


def _sources(node: Node, by_id: dict[str, Node]) -> list[Node | Span]:
    return [*(by_id[id] for id in node.summary_ids if id in by_id), *node.spans]


def _line(item: Node | Span, is_repeated: bool, step: int, span_url: SpanUrl) -> Line:
    is_node = isinstance(item, Node)
    return Line(
        node=item if isinstance(item, Node) else None,
        span_name="" if isinstance(item, Node) else span_name(item),
        span_url="" if isinstance(item, Node) else span_url(item),
        is_repeated=is_node and is_repeated,
        opens=step > 0,
        closes=range(-step),
    )
