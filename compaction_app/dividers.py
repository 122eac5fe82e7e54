"""Compactions as the transcript shows them: why, what came of it, and how far one is that runs now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compaction_app.context import load_frame
from compaction_app.inspect_queries import SummaryHead, Written, load_heads, written_by
from compaction_app.models import LIVE
from compaction_app.queries import list_runs_between
from mnesis_core.compaction import Outcome
from mnesis_core.lineage import RunRecord
from sessions_app.rendering import format_count, format_duration, format_money, show_invisible

ENDINGS: dict[str, str] = {
    Outcome.TARGET_MET: "It ended because the context had become small enough.",
    Outcome.FITS: "It ended because nothing more may be summarised; the context fits.",
    Outcome.NOTHING_TO_SUMMARISE: "It ended at once: there was nothing that may be summarised.",
    Outcome.STILL_TOO_LARGE: "It ended because nothing more may be summarised. What remains is still too large: "
    "the longest texts of it are shown to the model shortened.",
    Outcome.ROUNDS_EXHAUSTED: "It ended after as many summaries as one compaction may write; the next one goes on.",
}
MOMENTS = {"soft": "after a turn", "hard": "before a call", "manual": "asked for"}
TRIGGERS = {
    "soft": "after a turn, because the context had passed its soft threshold",
    "hard": "before a call, because the context had passed its hard mark",
    "manual": "because somebody asked for it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a compaction is that runs."""

    written: int
    """Summaries."""
    saved: int
    """Tokens that have left the context so far."""
    wanted: int | None
    """Tokens that have to leave it; ``None`` where it goes on as long as there is something to summarise."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """One compaction as the transcript shows it."""

    run: RunRecord
    tokens_before: str
    tokens_after: str
    pruned: str
    duration: str
    cost: str
    error: str
    moment: str
    """What triggered it, in two or three words."""
    why: str
    """The same as a clause."""
    ending: str
    """Why it ended, as a sentence; empty where the record does not say."""
    reasons: list[str]
    """Why each level that was tried was not enough."""
    models: str = ""
    """Who wrote its summaries."""
    summaries: Sequence[SummaryHead] = ()
    progress: Progress | None = None
    """Of one that runs."""

    @property
    def is_live(self) -> bool:
        """It is queued or running."""
        return self.run.state in LIVE

    @property
    def has_changed(self) -> bool:
        """The context is another one since."""
        return bool(self.run.summary_ids) or bool(self.run.pruned_parts)


def load_dividers(session_id: str, *, first: int, last: int | None) -> list[ShownRun]:
    """The compactions that ended among these messages, oldest first, and the one that runs now."""
    runs = list_runs_between(session_id, first=first, last=last)[::-1]
    ids = [id for run in runs for id in run.summary_ids]
    heads = load_heads(ids, session_id=session_id) if ids else {}
    return [
        replace(
            shown_run(run, [heads[id] for id in run.summary_ids if id in heads]),
            progress=_progress(run) if run.state == "running" else None,
        )
        for run in runs
    ]


def shown_run(run: RunRecord, summaries: Sequence[SummaryHead] = ()) -> ShownRun:
    """A compaction with its numbers as words."""
    seconds = (run.ended_at - run.started_at).total_seconds() if run.ended_at and run.started_at else None
    models = dict.fromkeys(show_invisible(head.model) or "no model" for head in summaries)
    return ShownRun(
        run=run,
        tokens_before=format_count(run.tokens_before),
        tokens_after=format_count(run.tokens_after),
        pruned=format_count(run.pruned_tokens),
        duration=format_duration(seconds),
        cost=format_money(run.cost_micros),
        error=show_invisible(run.error_message or ""),
        moment=MOMENTS.get(run.trigger, run.trigger),
        why=TRIGGERS.get(run.trigger, ""),
        ending=ENDINGS.get(run.outcome or "", ""),
        reasons=[
            show_invisible(f"level {attempt.level}: {attempt.reason}") for attempt in run.tries if not attempt.accepted
        ],
        models=", ".join(models),
        summaries=summaries,
    )


def _progress(run: RunRecord) -> Progress:
    written = written_by(run.id)
    saved = written.saved + (run.pruned_tokens or 0)
    # One that somebody asked for does not stop at the low mark.
    target = load_frame(run.session_id).budget.target if run.trigger != "manual" else None
    wanted = None if target is None or run.tokens_before is None else max(1, run.tokens_before - target)
    return Progress(
        written=written.summaries,
        saved=min(saved, wanted) if wanted else saved,
        wanted=wanted,
        words=_words(run, written, saved, wanted),
    )


def _words(run: RunRecord, written: Written, saved: int, wanted: int | None) -> str:
    summaries = f"{written.summaries} summar{'y' if written.summaries == 1 else 'ies'} so far"
    tokens = f"{format_count(saved)}{f' of {format_count(wanted)}' if wanted else ''} tokens saved"
    rejected = sum(not attempt.accepted for attempt in run.tries)
    return " · ".join(filter(None, (summaries, tokens, f"{rejected} rejected" if rejected else "")))
