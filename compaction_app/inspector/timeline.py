"""The turns of a session as lines of its timeline, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.utils import timezone

from compaction_app.queries import usage_of_compaction
from compaction_app.run_queries import RunTally, compacted_after, list_runs_after, tally_runs
from mnesis_core.lineage import RunRecord
from mnesis_core.record import UsageRecord, total_usage
from mnesis_core.visible import excerpt
from sessions_app.inspecting import Inspected
from sessions_app.queries.timeline import Tally, TurnFilter, TurnLine, list_timeline, tally_session, tools_of_session
from sessions_app.rendering import format_counted, format_duration, format_money, format_number, show_invisible

PAGE = 50
OPENING = 120
"""Characters of what a turn began with."""
BEGUN_BY = {
    "chat": "person",
    "task": "parent session",
    "inbox": "peers",
    "import": "import",
    "fork": "copy of a fork",
    "record": "caller's record",
    "openai": "OpenAI client",
}
"""Who began a turn, by its origin."""


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
class ShownTurn:
    """One turn as a line, with its numbers as words."""

    line: TurnLine
    begun_by: str
    opening: str
    model: str
    duration: str
    tokens_in: str
    tokens_out: str
    tokens_cached: str
    cost: str
    error: str
    """What went wrong, as a sentence; empty where nothing did."""
    errors: int
    """Of its calls and its tools, or its own."""
    compactions: int

    @property
    def number(self) -> str:
        """``1,203``."""
        return f"{self.line.seq:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A page of turns."""

    turns: list[ShownTurn]
    before: int | None
    """Of the next page, if there is one."""
    newest: int
    """The newest turn that there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a session comes to, as (name, number, more about it)."""

    facts: list[tuple[str, str, str]]


def load_timeline(about: Inspected, wanted: Wanted, *, before: int | None = None, start: int | None = None) -> Timeline:
    """A page of a session's turns, the newest first."""
    if before is None and wanted.turn is not None:
        before = wanted.turn + 1
    lines = list_timeline(about.id, _filter(about, wanted), before=before, start=start, limit=PAGE + 1)
    shown = lines[:PAGE]
    runs = _runs(about, shown)
    now = timezone.now()
    return Timeline(
        turns=[shown_turn(line, [run for run in runs if is_in_turn(run, line, about)], now) for line in shown],
        before=shown[-1].seq if len(lines) > PAGE else None,
        newest=about.turn_seq,
    )


def load_totals(about: Inspected) -> Totals:
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


def shown_turn(line: TurnLine, runs: Sequence[RunRecord], now: datetime) -> ShownTurn:
    """A turn with its numbers as words; one that goes on has lasted until ``now``."""
    usage = line.usage
    return ShownTurn(
        line=line,
        begun_by=BEGUN_BY.get(line.origin, show_invisible(line.origin)),
        opening=excerpt(line.opening, OPENING),
        model=show_invisible(line.model),
        duration=format_duration(((line.ended_at or now) - line.created_at).total_seconds()),
        tokens_in=format_number(usage.tokens_input),
        tokens_out=format_number(usage.tokens_output),
        tokens_cached=format_number(usage.tokens_cache_read or None),
        cost=format_money(usage.cost_micros),
        error=show_invisible(line.error_message),
        # A turn fails of its call: that is one error.
        errors=max(bool(line.error_code), line.failed_calls) + line.failed_tools,
        compactions=len(runs),
    )


def totals_of(tally: Tally, runs: RunTally, compaction: UsageRecord) -> Totals:
    """The sums of a session in words; compaction is part of the tokens and the money."""
    usage = total_usage(tally.usage, compaction)
    errors = tally.failed_turns + tally.failed_calls + tally.failed_tools + runs.failed
    cached = f"{tally.usage.tokens_cache_read:,} from a cache" if tally.usage.tokens_cache_read else ""
    spent = f"{format_money(compaction.cost_micros)} for summaries" if compaction.cost_micros else ""
    live = f"{runs.live} not yet over" if runs.live else ""
    others = f"{tally.other_calls:,} more beside turns" if tally.other_calls else ""
    pruned = f"{tally.pruned_tools:,} pruned" if tally.pruned_tools else ""
    return Totals(
        facts=[
            ("Turns", f"{tally.turns:,}", ""),
            ("Calls", f"{tally.calls:,}", others),
            ("Tools", f"{tally.tools:,}", pruned),
            ("Tokens in", format_number(usage.tokens_input), cached),
            ("Tokens out", format_number(usage.tokens_output), ""),
            ("Cost", format_money(usage.cost_micros), spent),
            ("Compactions", f"{runs.total:,}", live),
            ("Errors", f"{errors:,}", _where(tally, runs)),
        ]
    )


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
