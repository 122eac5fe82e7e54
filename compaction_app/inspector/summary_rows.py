"""The summary DAG as a tree of rows, read one level at a time: roots, what each was made of, down to messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction_app.inspect_queries import load_sources, models_of_summaries
from compaction_app.queries import load_graph
from mnesis_core.graph import Graph, Node, Span
from mnesis_core.visible import excerpt
from sessions_app.inspect_queries import NOW, MessagePreview, load_context_spans, preview_messages
from sessions_app.inspecting import Inspected
from sessions_app.queries import standing_items
from sessions_app.rendering import show_invisible

PAGE = 100
"""Rows of one load."""
PREVIEW = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A summary, a message, or a run of messages that stand in the context themselves."""

    span: Span
    node: Node | None = None
    preview: MessagePreview | None = None
    model: str = ""
    """Ready to be shown."""
    revisions: int = 1
    """Of a summary, this one among them."""
    is_active: bool = False
    """In the context now."""

    @property
    def messages(self) -> str:
        """``12``, or ``12–40``."""
        first, last = self.span
        return f"{first:,}" if first == last else f"{first:,}–{last:,}"

    @property
    def tokens(self) -> str:
        """``1,203``."""
        return f"{self.node.token_count if self.node else self.preview.tokens if self.preview else 0:,}"

    @property
    def source_tokens(self) -> str:
        """Of what was read for a summary."""
        return f"{self.node.source_tokens:,}" if self.node else ""

    @property
    def text(self) -> str:
        """How a message begins."""
        return excerpt(self.preview.text, PREVIEW) if self.preview else ""

    @property
    def percent(self) -> int | None:
        """How large a summary is beside what was read for it."""
        if self.node is None or not self.node.source_tokens:
            return None
        return round(100 * self.node.token_count / self.node.source_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of one level."""

    rows: list[Row]
    offset: int
    """Rows of the level before these."""
    total: int
    """Rows of the level."""

    @property
    def next_offset(self) -> int | None:
        """Where the rest begins, if there is more."""
        end = self.offset + len(self.rows)
        return end if self.rows and end < self.total else None


def load_roots(about: Inspected, *, offset: int) -> Rows:
    """What no other summary stands for, and the messages in the context between, by their place."""
    graph = load_graph(about.id)
    spans = load_context_spans(about.id, at=NOW)
    items: list[Node | Span] = sorted([*graph.roots(), *spans], key=_place)
    return _page(about, graph, items, offset)


def load_under(about: Inspected, summary_id: str, *, offset: int) -> Rows:
    """What a summary was made of: summaries in their newest revisions, or messages.

    :raises SummaryNotFoundError: the session has no such summary.
    """
    graph = load_graph(about.id)
    node = graph.find(summary_id)
    if node.kind == "condensed":
        return _page(about, graph, graph.sources(summary_id), offset)
    return _messages(about, node, offset)


def _place(item: Node | Span) -> tuple[int, int]:
    return item if isinstance(item, tuple) else (item.first_seq, item.last_seq)


def _page(about: Inspected, graph: Graph, items: Sequence[Node | Span], offset: int) -> Rows:
    chosen = items[offset : offset + PAGE]
    nodes = [item for item in chosen if isinstance(item, Node)]
    models = models_of_summaries([node.id for node in nodes])
    active = standing_items(about.id, [node.id for node in nodes])
    rows = [
        Row(span=item, is_active=True)
        if isinstance(item, tuple)
        else Row(
            span=(item.first_seq, item.last_seq),
            node=item,
            model=show_invisible(models.get(item.id, "")),
            revisions=len(graph.history(item.id)),
            is_active=item.id in active,
        )
        for item in chosen
    ]
    return Rows(rows=rows, offset=offset, total=len(items))


def _messages(about: Inspected, leaf: Node, offset: int) -> Rows:
    ids = load_sources(leaf.id, offset=offset, limit=PAGE)
    previews = preview_messages(ids, at=NOW)
    active = standing_items(about.id, ids)
    rows = [
        Row(span=(previews[id].seq, previews[id].seq), preview=previews[id], is_active=id in active)
        for id in ids
        if id in previews
    ]
    return Rows(rows=rows, offset=offset, total=leaf.message_count)
