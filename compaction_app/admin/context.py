"""The active context of a session, now or as of any event, as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Sum
from django.db.models.functions import Left
from django.urls import reverse

from compaction_app.admin.outline import span_name
from compaction_app.context import load_frame
from compaction_app.models import SummaryNode
from mnesis_core.calibration import words_of
from mnesis_core.errors import SessionNotFoundError
from mnesis_core.record import ContextItemRecord
from mnesis_core.text import decode_text
from mnesis_core.visible import excerpt
from sessions_app import inspect_queries
from sessions_app.admin.facts import record_url
from sessions_app.admin.pages import Page, page_of, parse_seq
from sessions_app.inspect_queries import PREVIEW_CHARACTERS, EventHeading, SessionHeading

ITEMS_PER_PAGE = 200
CHANGES_SHOWN = 50
PREVIEW = 160
BATCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownItem:
    """One item of the context as a line."""

    record: ContextItemRecord
    kind: str
    """Who spoke, or what kind of summary."""
    span: str
    tokens: int
    text: str
    url: str
    level: int | None = None
    """Of a summary."""
    is_new: bool = False
    """The event that the page is about added it."""

    @property
    def tokens_text(self) -> str:
        """``1,203``."""
        return f"{self.tokens:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What one event added to the context, or removed from it."""

    total: int
    items: list[ShownItem]
    """The first of them."""

    @property
    def left(self) -> int:
        """How many more there are."""
        return self.total - len(self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextView:
    """A context as of one event."""

    at: int
    is_now: bool
    event: EventHeading | None
    event_url: str
    missing: str
    """What was asked for, if it is no event of this session."""
    page: Page
    items: list[ShownItem]
    tokens: int
    measured: str
    """What the session's next call is measured by; empty when there will be none."""
    added: Changes
    removed: Changes
    steps: list[tuple[str, int | None]]
    """Where to go from here: (label, seq)."""

    @property
    def tokens_text(self) -> str:
        """``1,203``."""
        return f"{self.tokens:,}"


def view_context(about: SessionHeading, *, at: str, page: str) -> ContextView:
    """The context as of event ``at``: a number from an address, or nothing for now."""
    wanted = parse_seq(at)
    seq = about.event_seq if wanted is None else min(wanted, about.event_seq)
    event = inspect_queries.load_event_heading(about.id, seq)
    stretch = page_of(page, total=inspect_queries.count_context(about.id, at=seq), size=ITEMS_PER_PAGE)
    records = inspect_queries.load_context_page(about.id, at=seq, offset=stretch.first, limit=stretch.size)
    return ContextView(
        at=seq,
        is_now=seq == about.event_seq,
        event=event,
        event_url="" if event is None else reverse("admin:sessions_app_event_change", args=[event.id]),
        missing=at if at and wanted != seq else "",
        page=stretch,
        items=_show(records, at=seq),
        tokens=inspect_queries.sum_message_tokens(about.id, at=seq) + _summary_tokens(about.id, at=seq),
        measured=_measured(about.id),
        added=_changes(inspect_queries.load_context_added(about.id, at=seq, limit=CHANGES_SHOWN), at=seq),
        removed=_changes(inspect_queries.load_context_removed(about.id, at=seq, limit=CHANGES_SHOWN), at=seq),
        steps=_steps(about, seq),
    )


def _measured(session_id: str) -> str:
    try:
        frame = load_frame(session_id)
    except SessionNotFoundError:  # it was deleted
        return ""
    spec = frame.spec
    return (
        f"Window {spec.context_window:,} ({spec.context_window_source}), "
        f"answer up to {spec.max_output_tokens:,} ({spec.max_output_source}), usable {frame.budget.usable:,}. "
        f"{words_of(**frame.calibration.as_dict())}"
    )


def _steps(about: SessionHeading, seq: int) -> list[tuple[str, int | None]]:
    change_before, change_after = inspect_queries.context_changes_beside(about.id, at=seq)
    return [
        ("Previous change", change_before),
        ("Previous event", seq - 1 if seq > 0 else None),
        ("Next event", seq + 1 if seq < about.event_seq else None),
        ("Next change", change_after),
    ]


def _changes(found: tuple[int, list[ContextItemRecord]], *, at: int) -> Changes:
    total, records = found
    # A removed item is shown as it was right before.
    return Changes(total=total, items=_show(records, at=at))


def _summary_tokens(session_id: str, *, at: int) -> int:
    ids = inspect_queries.load_context_summaries(session_id, at=at)
    batches = (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
    return sum(
        SummaryNode.objects.filter(id__in=batch).aggregate(total=Sum("token_count"))["total"] or 0 for batch in batches
    )


def _show(records: Sequence[ContextItemRecord], *, at: int) -> list[ShownItem]:
    messages = [record.item_id for record in records if record.item_type == "message"]
    summaries = [record.item_id for record in records if record.item_type == "summary"]
    previews = inspect_queries.preview_messages(messages, at=at) if messages else {}
    nodes = _nodes(summaries) if summaries else {}
    return [
        _summary_item(record, nodes[record.item_id], at)
        if record.item_id in nodes
        else _message_item(record, previews.get(record.item_id), at)
        for record in records
    ]


def _nodes(ids: list[str]) -> dict[str, SummaryNode]:
    rows = SummaryNode.objects.filter(id__in=ids).defer("text").annotate(text_start=Left("text", PREVIEW_CHARACTERS))
    return {row.id: row for row in rows}


def _summary_item(record: ContextItemRecord, row: Any, at: int) -> ShownItem:
    return ShownItem(
        record=record,
        kind=f"{row.kind} summary",
        span=span_name((row.first_seq, row.last_seq)),
        tokens=row.token_count,
        text=excerpt(decode_text(row.text_start), PREVIEW),
        url=record_url(SummaryNode, row.id),
        level=row.level,
        is_new=record.added_seq == at,
    )


def _message_item(record: ContextItemRecord, preview: inspect_queries.MessagePreview | None, at: int) -> ShownItem:
    return ShownItem(
        record=record,
        kind=preview.role if preview else "missing",
        span=span_name((preview.seq, preview.seq)) if preview else "",
        tokens=preview.tokens if preview else 0,
        text=excerpt(preview.text, PREVIEW) if preview else "There is no such message.",
        url=reverse("admin:sessions_app_message_change", args=[record.item_id]),
        is_new=record.added_seq == at,
    )
