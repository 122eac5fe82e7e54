"""What the pages make of runs and their items: numbers as words, shares as stretches of a bar, texts that cannot hide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from agents_app.operator_texts import tokens_of, words_of
from mnesis_core.operators.pace import Ending, Spell, seconds_left
from mnesis_core.operators.values import (
    Counts,
    ItemRecord,
    ItemState,
    OperatorKind,
    RunRecord,
    RunState,
    StopReason,
)
from mnesis_core.record import FileReference
from mnesis_core.visible import excerpt
from sessions_app.rendering import format_count, format_duration, format_money, show_invisible

BAR_WIDTH = 1_000
EXCERPT = 160
"""Characters of an input, an output or an error in a line of the list."""
KINDS = {OperatorKind.LLM: "LLM map", OperatorKind.AGENTIC: "agentic map"}
REASONS = {
    (
        RunState.PAUSED,
        StopReason.BUDGET,
    ): "What this run may spend is used up. What is done is kept; resume it when there is more to spend.",
    (RunState.PAUSED, StopReason.ERROR): "It was paused because it could not go on. What is done is kept.",
    (
        RunState.CANCELLED,
        StopReason.BUDGET,
    ): "It was stopped because what it may spend is used up. What is done is kept.",
    (RunState.CANCELLED, StopReason.ERROR): "It was stopped because it could not go on. What is done is kept.",
}
"""What to say beside the state; a person's own decision needs no words."""
ACTIONS = {
    RunState.PENDING: ("cancel",),
    RunState.RUNNING: ("pause", "cancel"),
    RunState.PAUSED: ("resume", "cancel"),
    RunState.COMPLETED: (),
    RunState.CANCELLED: ("resume",),
    RunState.FAILED: (),
}
"""What a person may do to a run in each state; what failed is tried again once there is nothing else to do."""
LABELS = {"pause": "Pause", "resume": "Resume", "cancel": "Cancel"}
LONGEST_ERROR = 4_000
"""Characters of an error on the page of its item; the tries have all of theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stretch of the bar, in its own units of ``BAR_WIDTH``."""

    state: ItemState
    x: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """A run as lists and its page show it."""

    run: RunRecord
    name: str
    """Of its input."""
    kind: str
    model: str
    items: str
    done: str
    """Items that were tried to the end, well or not."""
    failed: str
    percent: str
    segments: list[Segment]
    running: int
    cost: str
    left: str
    """How long it will take, in words; empty where that is not known."""

    @property
    def id(self) -> str:
        """Of the run."""
        return self.run.id

    @property
    def session_id(self) -> str:
        """Of the session that it belongs to."""
        return self.run.session_id

    @property
    def state(self) -> str:
        """How far it is."""
        return self.run.state.value

    @property
    def failed_count(self) -> int:
        """Items that came to nothing."""
        return self.run.counts.failed

    @property
    def reason(self) -> str:
        """Why it stands still, where nobody wished it."""
        reason = self.run.reason
        return REASONS.get((self.run.state, StopReason(reason)), "") if reason else ""

    @property
    def error(self) -> str:
        """Why its input could not be read."""
        return show_invisible(self.run.error_message or "")

    @property
    def meter_words(self) -> str:
        """The bar in words."""
        counts = self.run.counts
        parts = [f"{counts.completed:,} completed", f"{counts.failed:,} failed", f"{counts.cancelled:,} cancelled"]
        return f"{', '.join(parts)}, {self.running:,} with workers, of {self.items} items"

    @property
    def actions(self) -> list[tuple[str, str]]:
        """What a person may do, each by the name that the API has for it, with its label."""
        actions = [(name, LABELS[name]) for name in ACTIONS[self.run.state]]
        if self.failed_count and self.run.state in (RunState.COMPLETED, RunState.PAUSED):
            actions.append(("retry", f"Retry {self.failed} failed"))
        return actions

    @property
    def heading(self) -> str:
        """Its kind, at the beginning of a line."""
        return self.kind[:1].upper() + self.kind[1:]

    @property
    def states(self) -> list[tuple[str, str, str]]:
        """Name, label and number of items of each state that a list can be narrowed to; first of all."""
        counts = self.run.counts
        numbers = {
            ItemState.PENDING: max(0, counts.left - self.running),
            ItemState.RUNNING: self.running,
            ItemState.COMPLETED: counts.completed,
            ItemState.FAILED: counts.failed,
            ItemState.CANCELLED: counts.cancelled,
        }
        narrowed = [(state.value, state.value.capitalize(), f"{number:,}") for state, number in numbers.items()]
        return [("", "All", self.items if counts.items is not None else ""), *narrowed]

    @property
    def numbers(self) -> list[tuple[str, str, str]]:
        """Label, value and a remark for each number of the run that is known."""
        counts, run = self.run.counts, self.run
        per_item = f"{counts.tries / done:.2f} an item" if (done := counts.completed + counts.failed) else ""
        numbers = [
            ("Completed", f"{counts.completed:,}", ""),
            ("Failed", f"{counts.failed:,}", ""),
            ("Cancelled", f"{counts.cancelled:,}" if counts.cancelled else "", ""),
            ("With workers", f"{self.running:,}" if run.state.is_live or self.running else "", "asked, or next"),
            ("Tries", f"{counts.tries:,}", per_item),
            ("Tokens in", format_count(counts.tokens_input) if counts.tokens_input else "", ""),
            ("Tokens out", format_count(counts.tokens_output) if counts.tokens_output else "", ""),
            ("Cost", self.cost, _price_of_an_item(counts)),
            ("Took", _duration(run.started_at, run.ended_at), ""),
        ]
        return [(label, value, note) for label, value, note in numbers if value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownItem:
    """An item in a line of the list."""

    item: ItemRecord
    input: str
    """How it begins."""
    result: str
    """How its output begins."""
    error: str
    cost: str
    duration: str

    @property
    def number(self) -> int:
        """Its place in the input, from 1."""
        return self.item.number

    @property
    def shown_number(self) -> str:
        """The same with a comma between thousands."""
        return f"{self.item.number:,}"

    @property
    def state(self) -> str:
        """How far it is."""
        return self.item.state.value

    @property
    def error_kind(self) -> str:
        """Why it came to nothing, in two words at most."""
        return words_of(self.item.error_kind)

    @property
    def whole_error(self) -> str:
        """All of what is said about its failure."""
        return show_invisible(self.item.error[:LONGEST_ERROR])

    @property
    def tokens(self) -> str:
        """Of all tries together."""
        item = self.item
        return tokens_of(item.tokens_input, item.tokens_output) if item.tokens_input or item.tokens_output else ""


def shown_run(run: RunRecord, file: FileReference | None, *, running: int = 0, left: float | None = None) -> ShownRun:
    """A run with its numbers as words; ``left``: seconds that its open items will take."""
    counts = run.counts
    done = counts.completed + counts.failed
    path = show_invisible(file.path) if file else ""
    return ShownRun(
        run=run,
        name=path.rstrip("/").rpartition("/")[2] or path or run.input_file_id,
        kind=KINDS[run.kind],
        model=show_invisible(run.spec.model),
        items="?" if counts.items is None else f"{counts.items:,}",
        done=f"{done:,}",
        failed=f"{counts.failed:,}",
        percent=str(100 * done // counts.items) if counts.items else "0" if counts.items is None else "100",
        segments=_segments(counts, running),
        running=running,
        cost=format_money(counts.cost_micros) if counts.cost_micros else "",
        left=_left(left) if run.state is RunState.RUNNING and left is not None and counts.left else "",
    )


def shown_item(item: ItemRecord, *, input: str = "", output: str = "") -> ShownItem:
    """An item with the beginnings of its texts."""
    return ShownItem(
        item=item,
        input=excerpt(input, EXCERPT),
        result=excerpt(output, EXCERPT),
        error=excerpt(item.error, EXCERPT),
        cost=format_money(item.cost_micros) if item.cost_micros else "",
        duration=format_duration(item.duration_ms / 1000) if item.attempts and item.state.is_end else "",
    )


def spell_of(run: RunRecord, endings: Sequence[Ending], now: datetime) -> Spell:
    """What is known of a run's time as a whole; one that stands still has lasted until the last of these endings."""
    counts = run.counts
    stood_still = max((ending.at for ending in endings), default=now)
    return Spell(
        began=run.started_at or run.created_at,
        until=run.ended_at or (now if run.state.is_live else stood_still),
        ended=counts.completed + counts.failed,
        tokens=counts.tokens_input + counts.tokens_output,
        cost_micros=counts.cost_micros,
    )


def endings_of(items: Sequence[ItemRecord]) -> list[Ending]:
    """Those of some items that have ended, well or not."""
    return [
        Ending(
            at=item.ended_at,
            is_failed=item.state is ItemState.FAILED,
            tokens=item.tokens_input + item.tokens_output,
            cost_micros=item.cost_micros,
        )
        for item in items
        if item.ended_at is not None and item.state in (ItemState.COMPLETED, ItemState.FAILED)
    ]


def estimate(run: RunRecord, endings: Sequence[Ending], now: datetime) -> float | None:
    """Seconds that the open items of a run will take; ``None`` where nobody can say."""
    return seconds_left(endings, spell_of(run, endings, now), open_items=run.counts.left)


def _segments(counts: Counts, running: int) -> list[Segment]:
    parts = (
        (ItemState.COMPLETED, counts.completed),
        (ItemState.FAILED, counts.failed),
        (ItemState.CANCELLED, counts.cancelled),
        (ItemState.RUNNING, running),
    )
    segments, at, whole = [], 0, max(1, counts.items or 0)
    for state, count in parts:
        x, end = (min(BAR_WIDTH, round(BAR_WIDTH * number / whole)) for number in (at, at + count))
        if count:
            # A few among very many can be seen all the same.
            segments.append(Segment(state=state, x=min(x, BAR_WIDTH - 2), width=max(2, end - x)))
        at += count
    return segments


def _price_of_an_item(counts: Counts) -> str:
    done = counts.completed + counts.failed
    return f"{format_money(round(counts.cost_micros / done))} an item" if done and counts.cost_micros else ""


def _duration(began: datetime | None, ended: datetime | None) -> str:
    return format_duration((ended - began).total_seconds()) if began and ended else ""


def _left(seconds: float) -> str:
    """As precise as a guess deserves."""
    if seconds < 60:
        return "a minute" if seconds > 45 else "a few seconds" if seconds < 10 else f"{round(seconds / 10) * 10} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(seconds / 3_600)} h"
