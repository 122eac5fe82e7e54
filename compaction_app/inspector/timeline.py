"""The turns of a session as lines of its timeline, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.utils import timezone

from compaction_app.queries import RunTally, compacted_after, list_runs_after, load_run, tally_runs, usage_of_compaction
from mnesis_core.errors import CompactionNotFoundError, TurnNotFoundError
from mnesis_core.records import RunRecord, UsageRecord, total_usage
from mnesis_core.text import excerpt
from sessions_app.pages.lookup import LAUNCHING_TOOLS, Relative, list_launched
from sessions_app.pages.markdown import (
    format_count,
    format_counted,
    format_duration,
    format_money,
    format_number,
    show_invisible,
)
from sessions_app.pages.permissions import Inspected
from sessions_app.pages.transcript import first_words
from sessions_app.record.timeline_queries import (
    Tally,
    TurnFilter,
    TurnLine,
    list_timeline,
    load_turn_line,
    place_of_message,
    tally_session,
    tools_of_session,
    turns_beside,
)
from sessions_app.record.turn_queries import CallStep, MessageStep, ToolStep, load_steps

PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which turns a reader asked for, as the address says it."""

    state: str = ""
    errors: bool = False
    compactions: bool = False
    tool: str = ""
    q: str = ""
    turn: int | None = None
    """The newest that is shown."""

    @property
    def query(self) -> str:
        """As the query of an address, without what was not asked for."""
        return urlencode({name: "1" if value is True else value for name, value in asdict(self).items() if value})


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnView:
    """One turn as a line."""

    line: TurnLine
    seconds: float
    """One that goes on has lasted until now."""
    errors: int
    """Of its calls and its tools, or its own."""
    compactions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A page of turns."""

    turns: list[TurnView]
    before: int | None
    """Of the next page, if there is one."""
    newest: int
    """The newest turn that there was."""


def load_timeline(about: Inspected, wanted: Wanted, *, before: int | None = None, start: int | None = None) -> Timeline:
    """A page of a session's turns, the newest first."""
    if before is None and wanted.turn is not None:
        before = wanted.turn + 1
    lines = list_timeline(about.id, _filter(about, wanted), before=before, start=start, limit=PAGE + 1)
    shown = lines[:PAGE]
    runs = _runs(about, shown)
    now = timezone.now()
    return Timeline(
        turns=[view_turn(line, [run for run in runs if is_in_turn(run, line, about)], now) for line in shown],
        before=shown[-1].seq if len(lines) > PAGE else None,
        newest=about.turn_seq,
    )


def load_totals(about: Inspected) -> list[tuple[str, str, str]]:
    """What a session comes to; five queries, however long it is."""
    return totals_of(tally_session(about.id), tally_runs(about.id), usage_of_compaction(about.id))


def load_tool_names(about: Inspected) -> list[str]:
    """The tools that a session called, ready to be shown, the most used first."""
    return [show_invisible(name) for name in tools_of_session(about.id)]


def is_in_turn(run: RunRecord, line: TurnLine, about: Inspected) -> bool:
    """Whether a compaction ended while a turn's messages were the newest; one that goes on is the newest turn's."""
    if run.after_message_seq is None:
        return line.seq == about.turn_seq
    return line.first_message <= run.after_message_seq <= line.last_message


def view_turn(line: TurnLine, runs: Sequence[RunRecord], now: datetime) -> TurnView:
    """Return a turn with what went wrong in it and how often its context was compacted."""
    return TurnView(
        line=line,
        seconds=((line.ended_at or now) - line.created_at).total_seconds(),
        # A turn fails of its call: that is one error.
        errors=max(bool(line.error_code), line.failed_calls) + line.failed_tools,
        compactions=len(runs),
    )


def totals_of(tally: Tally, runs: RunTally, compaction: UsageRecord) -> list[tuple[str, str, str]]:
    """Return the sums of a session as (name, number, remark); compaction is part of the tokens and the money."""
    usage = total_usage(tally.usage, compaction)
    errors = tally.failed_turns + tally.failed_calls + tally.failed_tools + runs.failed
    cached = f"{tally.usage.tokens_cache_read:,} from a cache" if tally.usage.tokens_cache_read else ""
    spent = f"{format_money(compaction.cost_micros)} for summaries" if compaction.cost_micros else ""
    live = f"{runs.live} not yet over" if runs.live else ""
    others = f"{tally.other_calls:,} more beside turns" if tally.other_calls else ""
    pruned = f"{tally.pruned_tools:,} pruned" if tally.pruned_tools else ""
    return [
        ("Turns", f"{tally.turns:,}", ""),
        ("Calls", f"{tally.calls:,}", others),
        ("Tools", f"{tally.tools:,}", pruned),
        ("Tokens in", format_number(usage.tokens_input), cached),
        ("Tokens out", format_number(usage.tokens_output), ""),
        ("Cost", format_money(usage.cost_micros), spent),
        ("Compactions", f"{runs.total:,}", live),
        ("Errors", f"{errors:,}", _where(tally, runs)),
    ]


def _where(tally: Tally, runs: RunTally) -> str:
    counts = {
        "turn": tally.failed_turns,
        "call": tally.failed_calls,
        "tool": tally.failed_tools,
        "compaction": runs.failed,
    }
    return ", ".join(format_counted(count, name) for name, count in counts.items() if count)


def _filter(about: Inspected, wanted: Wanted) -> TurnFilter:
    return TurnFilter(
        state=wanted.state,
        has_errors=wanted.errors,
        tool=wanted.tool,
        text=wanted.q,
        message_seqs=compacted_after(about.id, newest=about.message_seq) if wanted.compactions else None,
    )


def _runs(about: Inspected, lines: Sequence[TurnLine]) -> list[RunRecord]:
    with_messages = [line for line in lines if line.last_message]
    if not lines:
        return []
    first = min((line.first_message for line in with_messages), default=0)
    last = max((line.last_message for line in with_messages), default=0)
    return list_runs_after(about.id, first, last, with_live=lines[0].seq == about.turn_seq)


# What one turn did, step by step, each on the turn's own time axis.

MESSAGES = 100
"""Of a turn, that are shown at once."""
TEXT = 140
"""Characters of what a step was about."""
AXIS = 1_000
"""Length of the time axis, in its own units."""
NARROWEST = 4
"""The shortest bar, so that it can be seen."""
MAP_TOOLS = {"llm_map", "agentic_map"}
"""Tools that begin runs of operators."""
SHOWN_SUMMARIES = 10
DAY = 86_400
"""Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of time on the axis."""

    x: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The time that a turn took."""

    began: datetime
    ended: datetime

    @property
    def seconds(self) -> float:
        """How long it is; never below zero."""
        return max(0.0, (self.ended - self.began).total_seconds())

    def bar(self, began: datetime | None, ended: datetime | None) -> Bar | None:
        """Where a stretch stands, as far as it is inside; one without an end reaches to the end of the axis."""
        if began is None or not self.seconds:
            return None
        first, last = self._place(began), self._place(ended or self.ended)
        if last < 0 or first > AXIS:
            return None
        x = min(max(0, first), AXIS - NARROWEST)
        return Bar(x=x, width=max(NARROWEST, min(last, AXIS) - x))

    def offset(self, moment: datetime | None) -> str:
        """When something began, counted from the turn's beginning."""
        if moment is None:
            return ""
        seconds, late = (moment - self.began).total_seconds(), (moment - self.ended).total_seconds()
        if seconds < 0:
            return "before the turn"
        if late > 0:
            return f"{format_duration(late)} after the turn" if late < DAY else "after the turn"
        return f"+{format_duration(seconds)}"

    def _place(self, moment: datetime) -> int:
        return round(AXIS * (moment - self.began).total_seconds() / self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One thing that a turn did."""

    kind: str
    """``message``, ``answer`` (written by no call of ours), ``call``, ``tool`` or ``compaction``."""
    id: str
    message_seq: int = 0
    """Of the message that it belongs to."""
    title: str
    text: str = ""
    state: str = ""
    """What is worth a word: ``running``, ``failed``, …; empty where all is well."""
    error: str = ""
    offset: str = ""
    duration: str = ""
    bar: Bar | None = None
    tokens: str = ""
    cost: str = ""
    is_pruned: bool = False
    """Of a tool: the model sees a mark in place of its output."""
    has_runs: bool = False
    """Of a tool: it may have begun runs of operators."""
    launched: tuple[Relative, ...] = ()
    """Sub-agents of a tool call."""
    summary_ids: tuple[str, ...] = ()
    """The first summaries that a compaction wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSteps:
    """A turn with some of its steps."""

    turn: TurnView
    steps: list[StepView]
    more_after: int | None
    """The message after which there are more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The turns before and after one: their ids, empty where there is none."""

    previous: str
    next: str


def load_turn_steps(about: Inspected, turn_id: str, *, after: int = 0) -> TurnSteps:
    """A turn of a session and its steps after the message ``after``; a bounded number of them and of queries.

    :raises TurnNotFoundError: the session has no such turn.
    """
    line = load_turn_line(about.id, turn_id)
    if line is None:
        raise TurnNotFoundError(turn_id=turn_id)
    found = load_steps(about.id, line.id, after=after, limit=MESSAGES + 1)
    messages, has_more = found[:MESSAGES], len(found) > MESSAGES
    is_newest = line.seq == about.turn_seq and not has_more
    all_runs = list_runs_after(about.id, line.first_message, line.last_message, with_live=is_newest)
    runs = [run for run in all_runs if is_in_turn(run, line, about)]
    now = timezone.now()
    return TurnSteps(
        turn=view_turn(line, runs, now),
        steps=list(steps_of(messages, runs, _launched(about, messages), axis_of(line, now))),
        more_after=messages[-1].seq if has_more else None,
    )


def find_neighbours(about: Inspected, turn: TurnView) -> Neighbours:
    """The turns before and after a turn."""
    seq = turn.line.seq
    beside = turns_beside(about.id, seq)
    return Neighbours(previous=beside.get(seq - 1, ""), next=beside.get(seq + 1, ""))


def find_compaction(about: Inspected, run_id: str) -> tuple[str, int]:
    """The turn after whose messages a compaction ended, and the message after which its steps are shown there.

    :raises CompactionNotFoundError: the session has no such compaction.
    """
    run = load_run(run_id, session_id=about.id)
    seq = about.message_seq if run.after_message_seq is None else run.after_message_seq
    found = place_of_message(about.id, seq)
    if found is None:
        raise CompactionNotFoundError(run_id=run_id)
    turn_id, place = found
    return turn_id, seq - 1 if place > MESSAGES else 0


def axis_of(line: TurnLine, now: datetime) -> Axis:
    """The axis of a turn; one that goes on reaches to ``now``."""
    return Axis(began=line.created_at, ended=line.ended_at or now)


def steps_of(
    messages: Sequence[MessageStep],
    runs: Sequence[RunRecord],
    launched: Mapping[str, tuple[Relative, ...]],
    axis: Axis,
) -> Iterator[StepView]:
    """What was done for each message, and after it the compactions that ended then; those that go on are the last."""
    for message in messages:
        yield from _of_message(message, launched, axis)
        yield from (_compaction(run, axis) for run in runs if run.after_message_seq == message.seq)
    yield from (_compaction(run, axis) for run in runs if run.after_message_seq is None)


def _of_message(message: MessageStep, launched: Mapping[str, tuple[Relative, ...]], axis: Axis) -> Iterator[StepView]:
    if message.role != "assistant" or not message.calls:
        yield _message(message, axis)
    for call in message.calls:
        yield _call(call, message, axis)
    for tool in message.tools:
        yield _tool(tool, message.seq, launched.get(tool.id, ()), axis)


def _message(message: MessageStep, axis: Axis) -> StepView:
    is_answer = message.role == "assistant"
    return StepView(
        kind="answer" if is_answer else "message",
        id=message.id,
        message_seq=message.seq,
        title=(show_invisible(message.model) or "unnamed model") if is_answer else message.role,
        text=excerpt(message.opening, TEXT),
        state="failed" if message.error_code else "",
        error=_error(message.error_code, message.error_message),
        offset=axis.offset(message.created_at),
        bar=axis.bar(message.created_at, message.created_at),
        tokens=_tokens(message.usage),
        cost=format_money(message.usage.cost_micros),
    )


def _call(call: CallStep, message: MessageStep, axis: Axis) -> StepView:
    ended = call.ended_at or (axis.ended if call.state == "running" else None)
    is_good = call.state == "completed" and call.outcome in ("", "complete")
    again = f"asked {call.attempts} times · " if call.attempts > 1 else ""
    return StepView(
        kind="call",
        id=call.id,
        message_seq=message.seq,
        title=show_invisible(call.model),
        text=again + (excerpt(message.opening, TEXT) if call.message_id else ""),
        state="" if is_good else (call.outcome or call.state),
        error=_error(call.error_code, call.error_message),
        offset=axis.offset(call.created_at),
        duration=_took(call.created_at, ended),
        bar=axis.bar(call.created_at, call.ended_at),
        tokens=_tokens(call.usage),
        cost=format_money(call.usage.cost_micros),
    )


def _tool(tool: ToolStep, message_seq: int, launched: tuple[Relative, ...], axis: Axis) -> StepView:
    states = {"completed": "", "error": "failed", "pending": "waiting"}
    return StepView(
        kind="tool",
        id=tool.id,
        message_seq=message_seq,
        title=show_invisible(tool.name) or "unnamed tool",
        text=excerpt(first_words(tool.input), TEXT),
        state=states.get(tool.state, tool.state),
        error=excerpt(tool.error, TEXT),
        offset=axis.offset(tool.started_at),
        duration=_took(tool.started_at, tool.completed_at),
        bar=axis.bar(tool.started_at, tool.completed_at),
        tokens=f"{format_count(tool.output_tokens)} of output" if tool.output_tokens else "",
        is_pruned=tool.compacted_at is not None,
        has_runs=tool.name in MAP_TOOLS,
        launched=launched,
    )


def _compaction(run: RunRecord, axis: Axis) -> StepView:
    began = run.started_at or run.created_at
    return StepView(
        kind="compaction",
        id=run.id,
        message_seq=run.after_message_seq or 0,
        title=f"{run.trigger} compaction",
        text=_what_it_did(run),
        state="" if run.state == "completed" else run.state,
        error=_error(run.error_code or "", run.error_message or ""),
        offset=axis.offset(began),
        duration=_took(began, run.ended_at),
        bar=axis.bar(began, run.ended_at),
        tokens=_tokens(UsageRecord(tokens_input=run.tokens_input, tokens_output=run.tokens_output)),
        cost=format_money(run.cost_micros),
        summary_ids=tuple(run.summary_ids[:SHOWN_SUMMARIES]),
    )


def _what_it_did(run: RunRecord) -> str:
    size = (
        f"{format_number(run.tokens_before)} → {format_number(run.tokens_after)} tokens"
        if run.tokens_after is not None
        else ""
    )
    level = f"level {run.level}" if run.level else ""
    count = len(run.summary_ids)
    summaries = f"{count} {'summary' if count == 1 else 'summaries'}" if count else ""
    pruned = f"{format_counted(run.pruned_parts, 'output')} pruned" if run.pruned_parts else ""
    return ", ".join(filter(None, (size, level, summaries, pruned)))


def _launched(about: Inspected, messages: Sequence[MessageStep]) -> dict[str, tuple[Relative, ...]]:
    tools = (tool for message in messages for tool in message.tools)
    parts = [tool.id for tool in tools if tool.name.lower() in LAUNCHING_TOOLS]
    return list_launched(about.id, parts) if parts else {}


def _error(code: str, message: str) -> str:
    return excerpt(message, TEXT) or code


def _took(began: datetime | None, ended: datetime | None) -> str:
    return format_duration((ended - began).total_seconds()) if began and ended else ""


def _tokens(usage: UsageRecord) -> str:
    if usage.tokens_input is None and usage.tokens_output is None:
        return ""
    cached = f", {format_number(usage.tokens_cache_read)} cached" if usage.tokens_cache_read else ""
    return f"{format_number(usage.tokens_input)} in, {format_number(usage.tokens_output)} out{cached}"
