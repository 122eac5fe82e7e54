"""Filters that put a compaction, and the summaries it wrote, on a page."""

from __future__ import annotations

from collections.abc import Sequence

from django import template

from compaction_app.models import LIVE
from compaction_app.queries import SummaryHead
from mnesis_core.compaction.selection import Outcome
from mnesis_core.records import RunRecord
from sessions_app.pages.markdown import show_invisible

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

register = template.Library()


@register.filter
def is_live(run: RunRecord | None) -> bool:
    return run is not None and run.state in LIVE


@register.filter
def has_changed(run: RunRecord) -> bool:
    """Return whether the context is another one since."""
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
