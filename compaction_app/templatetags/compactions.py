"""Filters that put compactions and summaries on a page."""

from __future__ import annotations

from collections.abc import Sequence

from django import template
from django.utils.safestring import SafeString

from compaction_app.models import LIVE
from compaction_app.queries import SummaryCount, SummaryHead
from compaction_app.templatetags.calls import span_name
from mnesis_core.compaction.dag import Node
from mnesis_core.compaction.selection import Outcome
from mnesis_core.records import RunRecord, SummaryRecord
from sessions_app.pages import transcript
from sessions_app.pages.markdown import MARKDOWN_LIMIT, render_markdown, show_invisible

ENDINGS: dict[str, str] = {
    Outcome.TARGET_MET: "It ended because the context had become small enough.",
    Outcome.FITS: "It ended because nothing more may be summarised; the context fits.",
    Outcome.NOTHING_TO_SUMMARISE: "It ended at once: there was nothing that may be summarised.",
    Outcome.STILL_TOO_LARGE: "It ended because nothing more may be summarised. What remains is still too large: "
    "the longest texts of it are shown to the model shortened.",
    Outcome.ROUNDS_EXHAUSTED: "It ended after as many summaries as one compaction may write; the next one goes on.",
}
MOMENTS = {"soft": "after a turn", "hard": "before a call", "manual": "asked for"}
CAUSES = {
    "soft": "after a turn, because the context had passed its soft threshold",
    "hard": "before a call, because the context had passed its hard mark",
    "manual": "because somebody asked for it",
}
PRUNE_CAUSES = {
    "soft": "the context was above its soft threshold",
    "hard": "the context did not fit any more",
    "manual": "somebody asked for a compaction",
}

register = template.Library()


@register.filter
def is_live(run: RunRecord | None) -> bool:
    return run is not None and run.state in LIVE


@register.filter
def has_changed(run: RunRecord) -> bool:
    """Return whether the compaction changed the context."""
    return bool(run.summary_ids) or bool(run.pruned_parts)


@register.filter
def moment_of(run: RunRecord) -> str:
    return MOMENTS.get(run.trigger, run.trigger)


@register.filter
def cause(run: RunRecord) -> str:
    return CAUSES.get(run.trigger, "")


@register.filter
def ending(run: RunRecord | None) -> str:
    """Return why it ended, as a sentence; nothing where the record does not say."""
    return ENDINGS.get(run.outcome or "", "") if run else ""


@register.filter
def rejections(run: RunRecord) -> list[str]:
    """Return why each level that was tried was not enough."""
    return [show_invisible(f"level {attempt.level}: {attempt.reason}") for attempt in run.tries if not attempt.accepted]


@register.filter
def models_of(summaries: Sequence[SummaryHead]) -> str:
    return ", ".join(dict.fromkeys(show_invisible(head.model) or "no model" for head in summaries))


@register.filter
def summary_name(summary: SummaryRecord | SummaryHead | Node) -> str:
    """Return ``Leaf of messages 1–20``."""
    return f"{summary.kind.capitalize()} of {span_name(summary.first_seq, summary.last_seq)}"


@register.filter
def span_numbers(span: tuple[int, int]) -> str:
    """Return ``12``, or ``12–40``."""
    first, last = span
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


@register.filter
def summary_html(summary: SummaryRecord) -> SafeString | None:
    """Return the text as HTML; ``None`` for an excerpt by rule, which is no Markdown, and for a text too long for it."""
    if summary.level == 3 or len(summary.text) > MARKDOWN_LIMIT:
        return None
    return render_markdown(summary.text)


@register.filter
def count_words(sorts: Sequence[SummaryCount]) -> list[str]:
    """Return ``31 in place``, ``24 leaves over messages`` and so on, without those that there are none of."""
    here = [sort for sort in sorts if not sort.is_superseded]
    leaves = sum(sort.number for sort in here if sort.kind == "leaf")
    counted = (
        (sum(sort.number for sort in here), "in place"),
        (leaves, "leaf over messages" if leaves == 1 else "leaves over messages"),
        (sum(sort.number for sort in here if sort.kind == "condensed"), "condensed"),
        (sum(sort.number for sort in here if sort.level == 3), "of level 3"),
        (sum(sort.number for sort in here if sort.freshness == "stale"), "stale"),
        (sum(sort.number for sort in sorts if sort.is_superseded), "superseded"),
    )
    return [f"{number:,} {words}" for number, words in counted if number]


@register.filter
def prune_cause(run: RunRecord) -> str:
    return PRUNE_CAUSES.get(run.trigger, "")


@register.filter
def first_words(text: str) -> str:
    """Return the first words of what a tool was asked."""
    return transcript.first_words(text)
