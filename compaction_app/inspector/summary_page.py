"""Story: one summary with all that is known about it: how it was written, what it was made of, where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.safestring import SafeString

from compaction_app import inspect_queries, lineage
from compaction_app.queries import load_run
from mnesis_core.errors import CompactionNotFoundError
from mnesis_core.graph import Cost, Node
from mnesis_core.lineage import RunRecord, SummaryRecord, TryRecord
from mnesis_core.record import ContextItemRecord
from mnesis_core.visible import excerpt
from sessions_app.inspect_queries import NOW, load_stay, preview_messages
from sessions_app.queries import standing_items
from sessions_app.rendering import MARKDOWN_LIMIT, render_markdown, show_invisible

SOURCES = 50
"""Sources of one load."""
TRIES = 100
PREVIEW = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
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
    text: ShownText
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
    tries: list[TryRecord]
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
        text=show_text(summary.text, level=summary.level),
        model=show_invisible(summary.model),
        sources=load_sources(summary, offset=0),
        revisions=description.revisions,
        above=description.above,
        in_context=description.in_context,
        stay=load_stay(summary.session_id, summary.id),
        run=_run(summary),
        # An undone revision has the text of an earlier one, and so its tries.
        tries=inspect_queries.load_tries(summary.restores or summary.id, session_id=summary.session_id, limit=TRIES),
        cost=description.cost,
    )


def load_sources(summary: SummaryRecord, *, offset: int) -> Sources:
    """Some of what a summary was made of."""
    chosen = summary.source_ids[offset : offset + SOURCES]
    ids = [id for _, id in chosen]
    find = _summaries if summary.kind == "condensed" else _messages
    return Sources(items=find(summary.session_id, ids), offset=offset, total=len(summary.source_ids))


def show_text(text: str, *, level: int) -> ShownText:
    """The text of a summary, ready to be shown: what a model wrote is Markdown, an excerpt by rule is not."""
    if level == 3 or len(text) > MARKDOWN_LIMIT:
        return ShownText(html=None, plain=show_invisible(text))
    return ShownText(html=render_markdown(text), plain="")


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
    heads = inspect_queries.load_heads(ids, session_id=session_id)
    later, active = inspect_queries.later_revisions(ids), standing_items(session_id, ids)
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
