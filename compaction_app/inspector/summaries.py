"""The summary DAG as columns of numbers: all that a browser needs to place and draw ten thousand summaries.

A summary's place is computed, not laid out: its depth is its row, its messages are its width.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.utils.safestring import SafeString

from compaction_app import lineage, queries
from compaction_app.queries import load_graph, load_run, load_sources, models_of_summaries
from mnesis_core.compaction.dag import Cost, Graph, Node, Span
from mnesis_core.errors import CompactionNotFoundError
from mnesis_core.records import AttemptRecord, ContextItemRecord, RunRecord, SummaryRecord
from mnesis_core.text import excerpt
from sessions_app.pages.markdown import MARKDOWN_LIMIT, render_markdown, show_invisible
from sessions_app.pages.permissions import Inspected
from sessions_app.record.context_queries import standing_items
from sessions_app.record.inspect_queries import (
    NOW,
    MessagePreview,
    load_context_spans,
    load_context_summaries,
    load_stay,
    preview_messages,
)

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


# Story: one summary with all that is known about it: how it was written, what it was made of, where it stands.

SOURCES = 50
"""Sources of one load."""
TRIES = 100
PREVIEW = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryText:
    """A text as a page shows it: as prose, or as it is where it is too long for that."""

    html: SafeString | None
    plain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a summary was made of: a message, or a summary."""

    id: str
    type: str
    """``message`` or ``summary``."""
    name: str
    """``Message 12, user``, or ``Leaf of messages 1–20``."""
    text: str
    """How it begins."""
    tokens: int
    seq: int | None = None
    """Of a message."""
    newest_id: str = ""
    """The revision that took the place of a summary since."""
    is_active: bool = False
    """It stands in the context itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Some sources, in order."""

    items: list[Source]
    offset: int
    total: int

    @property
    def next_offset(self) -> int | None:
        """Where the rest begins, if there is more."""
        end = self.offset + len(self.items)
        return end if self.items and end < self.total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryView:
    """A summary and what is known about it."""

    summary: SummaryRecord
    text: SummaryText
    model: str
    sources: Sources
    revisions: list[Node]
    """Every revision of it, the oldest first, itself among them."""
    above: list[Node]
    """The summaries that stand for it, the nearest first."""
    in_context: str | None
    """Its newest revision or the one above that stands in the context now."""
    stay: ContextItemRecord | None
    """When it came into the context and left it."""
    run: RunRecord | None
    tries: list[AttemptRecord]
    cost: Cost
    """Of all under it and itself."""

    @property
    def name(self) -> str:
        """``Leaf of messages 1–20``."""
        return name_of(self.summary.kind, self.summary.first_seq, self.summary.last_seq)

    @property
    def newest_id(self) -> str:
        """The revision that is in place now."""
        return self.revisions[-1].id

    @property
    def is_active(self) -> bool:
        """It is in the context now."""
        return self.stay is not None and self.stay.removed_seq is None

    @property
    def call_id(self) -> str | None:
        """The call whose answer it is, the last of them where it was written in pieces."""
        return next((attempt.call_id for attempt in reversed(self.tries) if attempt.accepted), None)

    @property
    def percent(self) -> int:
        """How large it is beside what was read for it."""
        return round(100 * self.summary.token_count / max(1, self.summary.source_tokens))


def load_view(summary: SummaryRecord) -> SummaryView:
    """A summary with its lineage, its first sources, and how it was written; a fixed number of queries."""
    description = lineage.describe(summary)
    return SummaryView(
        summary=summary,
        text=view_text(summary.text, level=summary.level),
        model=show_invisible(summary.model),
        sources=open_sources(summary, offset=0),
        revisions=description.revisions,
        above=description.above,
        in_context=description.in_context,
        stay=load_stay(summary.session_id, summary.id),
        run=_run(summary),
        # An undone revision has the text of an earlier one, and so its tries.
        tries=queries.load_tries(summary.restores or summary.id, session_id=summary.session_id, limit=TRIES),
        cost=description.cost,
    )


def open_sources(summary: SummaryRecord, *, offset: int) -> Sources:
    """Some of what a summary was made of."""
    chosen = summary.source_ids[offset : offset + SOURCES]
    ids = [id for _, id in chosen]
    find = _summaries if summary.kind == "condensed" else _messages
    return Sources(items=find(summary.session_id, ids), offset=offset, total=len(summary.source_ids))


def view_text(text: str, *, level: int) -> SummaryText:
    """The text of a summary, ready to be shown: what a model wrote is Markdown, an excerpt by rule is not."""
    if level == 3 or len(text) > MARKDOWN_LIMIT:
        return SummaryText(html=None, plain=show_invisible(text))
    return SummaryText(html=render_markdown(text), plain="")


def _messages(session_id: str, ids: list[str]) -> list[Source]:
    previews, active = preview_messages(ids, at=NOW), standing_items(session_id, ids)
    return [
        Source(
            id=id,
            type="message",
            name=f"Message {previews[id].seq:,}, {previews[id].role}",
            text=excerpt(previews[id].text, PREVIEW),
            tokens=previews[id].tokens,
            seq=previews[id].seq,
            is_active=id in active,
        )
        for id in ids
        if id in previews
    ]


def _summaries(session_id: str, ids: list[str]) -> list[Source]:
    heads = queries.load_heads(ids, session_id=session_id)
    later, active = queries.later_revisions(ids), standing_items(session_id, ids)
    return [
        Source(
            id=id,
            type="summary",
            name=name_of(heads[id].kind, heads[id].first_seq, heads[id].last_seq),
            text=excerpt(heads[id].text, PREVIEW),
            tokens=heads[id].token_count,
            newest_id=later.get(id, ""),
            is_active=id in active,
        )
        for id in ids
        if id in heads
    ]


def name_of(kind: str, first: int, last: int) -> str:
    """``Leaf of messages 1–20``."""
    return f"{kind.capitalize()} of {span_name(first, last)}"


def span_name(first: int, last: int) -> str:
    """``messages 1–20``, or ``message 3``."""
    return f"message {first:,}" if first == last else f"messages {first:,}–{last:,}"


def _run(summary: SummaryRecord) -> RunRecord | None:
    if summary.run_id is None:
        return None
    try:
        return load_run(summary.run_id, session_id=summary.session_id)
    except CompactionNotFoundError:
        return None


# The summary DAG as a tree of rows, read one level at a time: roots, what each was made of, down to messages.

PAGE = 100
"""Rows of one load."""
ROW_PREVIEW = 120


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
        return excerpt(self.preview.text, ROW_PREVIEW) if self.preview else ""

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
    return _row_messages(about, node, offset)


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


def _row_messages(about: Inspected, leaf: Node, offset: int) -> Rows:
    ids = load_sources(leaf.id, offset=offset, limit=PAGE)
    previews = preview_messages(ids, at=NOW)
    active = standing_items(about.id, ids)
    rows = [
        Row(span=(previews[id].seq, previews[id].seq), preview=previews[id], is_active=id in active)
        for id in ids
        if id in previews
    ]
    return Rows(rows=rows, offset=offset, total=leaf.message_count)
