"""A map run as its page shows it: how far it is, and what a person may do."""

from __future__ import annotations

import json
from dataclasses import dataclass

from agents_app.templatetags.runs import lay_out
from mnesis_core.maps.values import Counts, ItemState, OperatorKind, OperatorSpec, RunRecord, RunState, StopReason
from mnesis_core.records import FileReference
from sessions_app.pages.markdown import format_count, format_duration, format_money, show_invisible

BAR_WIDTH = 1_000
KINDS = {OperatorKind.LLM: "LLM map", OperatorKind.AGENTIC: "agentic map"}
# A person's own decision needs no words.
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
ACTIONS = {
    RunState.PENDING: ("cancel",),
    RunState.RUNNING: ("pause", "cancel"),
    RunState.PAUSED: ("resume", "cancel"),
    RunState.COMPLETED: (),
    RunState.CANCELLED: ("resume",),
    RunState.FAILED: (),
}
LABELS = {"pause": "Pause", "resume": "Resume", "cancel": "Cancel"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of the bar, which is ``BAR_WIDTH`` units wide."""

    state: ItemState
    x: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run for lists and its page: ``running`` items are with workers, ``seconds_left`` is ``None`` if not known."""

    record: RunRecord
    file: FileReference | None = None
    running: int = 0
    seconds_left: float | None = None

    @property
    def name(self) -> str:
        path = show_invisible(self.file.path) if self.file else ""
        return path.rstrip("/").rpartition("/")[2] or path or self.record.input_file_id

    @property
    def kind(self) -> str:
        return KINDS[self.record.kind]

    @property
    def items(self) -> str:
        return "?" if self.record.counts.items is None else f"{self.record.counts.items:,}"

    @property
    def done(self) -> int:
        return self.record.counts.completed + self.record.counts.failed

    @property
    def percent(self) -> int:
        items = self.record.counts.items
        return 100 * self.done // items if items else 0 if items is None else 100

    @property
    def segments(self) -> list[Segment]:
        return _segments(self.record.counts, self.running)

    @property
    def left(self) -> str:
        is_known = self.record.state is RunState.RUNNING and self.record.counts.left
        return _format_left(self.seconds_left) if is_known and self.seconds_left is not None else ""

    @property
    def reason(self) -> str:
        reason = self.record.reason
        return REASONS.get((self.record.state, StopReason(reason)), "") if reason else ""

    @property
    def meter_words(self) -> str:
        counts = self.record.counts
        parts = [f"{counts.completed:,} completed", f"{counts.failed:,} failed", f"{counts.cancelled:,} cancelled"]
        return f"{', '.join(parts)}, {self.running:,} with workers, of {self.items} items"

    @property
    def actions(self) -> list[tuple[str, str]]:
        """The names in the API of what a person may do, with labels."""
        actions = [(name, LABELS[name]) for name in ACTIONS[self.record.state]]
        if self.record.counts.failed and self.record.state in (RunState.COMPLETED, RunState.PAUSED):
            actions.append(("retry", f"Retry {self.record.counts.failed:,} failed"))
        return actions

    @property
    def states(self) -> list[tuple[str, str, str]]:
        """The name, label and number of items of each state, after those of all items."""
        counts = self.record.counts
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
        """The label, value and note of each number that is known."""
        run, counts = self.record, self.record.counts
        done = counts.completed + counts.failed
        per_item = f"{counts.tries / done:.2f} an item" if done else ""
        price = f"{format_money(round(counts.cost_micros / done))} an item" if done and counts.cost_micros else ""
        took = (
            format_duration((run.ended_at - run.started_at).total_seconds()) if run.started_at and run.ended_at else ""
        )
        numbers = [
            ("Completed", f"{counts.completed:,}", ""),
            ("Failed", f"{counts.failed:,}", ""),
            ("Cancelled", f"{counts.cancelled:,}" if counts.cancelled else "", ""),
            ("With workers", f"{self.running:,}" if run.state.is_live or self.running else "", "asked, or next"),
            ("Tries", f"{counts.tries:,}", per_item),
            ("Tokens in", format_count(counts.tokens_input) if counts.tokens_input else "", ""),
            ("Tokens out", format_count(counts.tokens_output) if counts.tokens_output else "", ""),
            ("Cost", format_money(counts.cost_micros or None), price),
            ("Took", took, ""),
        ]
        return [(label, value, note) for label, value, note in numbers if value]


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


def _format_left(seconds: float) -> str:
    # As precise as a guess deserves.
    if seconds < 60:
        return "a minute" if seconds > 45 else "a few seconds" if seconds < 10 else f"{round(seconds / 10) * 10} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(seconds / 3_600)} h"


def texts_of(spec: OperatorSpec) -> list[tuple[str, str]]:
    schema = "" if spec.schema is None else lay_out(json.dumps(spec.schema, ensure_ascii=False))
    texts = (("Prompt template", spec.template), ("System prompt", spec.system_prompt), ("Schema of results", schema))
    return [(label, text) for label, text in texts if text]


def facts_of(spec: OperatorSpec, kind: OperatorKind) -> list[tuple[str, str]]:
    facts = [
        ("At a time", str(spec.concurrency)),
        ("Tries", f"{spec.max_retries + 1} at the most"),
        ("Timeout", f"{format_duration(spec.timeout_seconds)} a try"),
        ("Temperature", "" if spec.temperature is None else f"{spec.temperature:g}"),
        *(_agentic_facts(spec) if kind is OperatorKind.AGENTIC else []),
        ("Tokens", "" if spec.limits.tokens is None else f"{spec.limits.tokens:,} at the most"),
        ("Cost", "" if spec.limits.cost_micros is None else f"{format_money(spec.limits.cost_micros)} at the most"),
    ]
    return [(label, value) for label, value in facts if value]


def _agentic_facts(spec: OperatorSpec) -> list[tuple[str, str]]:
    tools = "those of the session" if spec.tools is None else show_invisible(", ".join(spec.tools)) or "none"
    return [
        ("Tools", tools),
        ("Read-only", "yes" if spec.read_only else "no"),
        ("Model calls", f"{spec.max_turns} a turn at the most"),
    ]
