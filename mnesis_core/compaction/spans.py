"""What to summarise next: the oldest whole turns, or the oldest summaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mnesis_core.assembly.fitting import SUMMARY_FRAME, whole
from mnesis_core.budget import Budget
from mnesis_core.config import Config
from mnesis_core.dag import ContextEntry, MessageEntry, SummaryEntry, message_runs, summary_runs, whole_turns
from mnesis_core.file_ids import file_ids_of, find_file_ids
from mnesis_core.messages import StoredMessage

SMALLEST_SOURCE = SUMMARY_FRAME + 64
"""Tokens: anything smaller would hardly become smaller by being summarised, the summary's frame included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Whole turns that one leaf is to stand for."""

    messages: tuple[StoredMessage, ...]
    """Neighbours in the context, oldest first."""
    tokens: int
    """What they take in the context now, by our own estimate: a summary in its frame must be smaller."""

    @property
    def first_seq(self) -> int:
        """Of the oldest message."""
        return self.messages[0].seq

    @property
    def last_seq(self) -> int:
        """Of the newest message."""
        return self.messages[-1].seq

    @property
    def message_count(self) -> int:
        """How many messages."""
        return len(self.messages)

    @property
    def source_ids(self) -> tuple[str, ...]:
        """The messages' ids."""
        return tuple(message.id for message in self.messages)

    @property
    def file_ids(self) -> tuple[str, ...]:
        """Every file named in them."""
        return file_ids_of(self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condensation:
    """Neighbouring summaries that one condensed summary is to stand for."""

    summaries: tuple[SummaryEntry, ...]
    tokens: int
    """What they take in the context now, by our own estimate."""

    @property
    def first_seq(self) -> int:
        """Of the oldest message they stand for."""
        return self.summaries[0].first_seq

    @property
    def last_seq(self) -> int:
        """Of the newest message they stand for."""
        return self.summaries[-1].last_seq

    @property
    def message_count(self) -> int:
        """How many messages they stand for."""
        return sum(summary.message_count for summary in self.summaries)

    @property
    def depth(self) -> int:
        """Of the summary that is to be made."""
        return 1 + max(summary.depth for summary in self.summaries)

    @property
    def source_ids(self) -> tuple[str, ...]:
        """The summaries' ids."""
        return tuple(summary.id for summary in self.summaries)

    @property
    def file_ids(self) -> tuple[str, ...]:
        """Every file named in them."""
        named = (name for summary in self.summaries for name in (*summary.file_ids, *find_file_ids(summary.text)))
        return tuple(dict.fromkeys(named))


def choose_span(
    entries: Sequence[ContextEntry],
    config: Config,
    budget: Budget,
    used: int,
    *,
    protect_turns: int,
    running_turn_id: str | None,
    everything: bool = False,
    calibration: float = 1.0,
) -> Span | None:
    """The oldest whole turns to summarise, or ``None`` when there is nothing that may be, or nothing worth it.

    As many neighbouring turns as it takes to bring ``used`` (tokens, as the model counts) down to the
    budget's target; with ``everything``, all there are up to the next summary. The newest turns, at least
    one, and the running one are never among them, and a summary is never read again (decision 18).
    """
    protected = _protected(entries, max(protect_turns, 1))
    for run in message_runs(entries):
        groups = _free_groups(run, protected, running_turn_id)
        span = _take(groups, 0 if everything else _wanted(config, budget, used, calibration), everything)
        if span is not None:
            return span
    return None


def _protected(entries: Sequence[ContextEntry], count: int) -> set[str]:
    turns = [group for run in message_runs(entries) for group in whole_turns(run)]
    return {message.id for group in turns[-count:] for message in group}


def _free_groups(
    run: Sequence[StoredMessage], protected: set[str], running_turn_id: str | None
) -> Iterator[list[StoredMessage]]:
    for group in whole_turns(run):
        is_running = running_turn_id is not None and any(message.turn_id == running_turn_id for message in group)
        if is_running or any(message.id in protected for message in group):
            return
        yield group


def _wanted(config: Config, budget: Budget, used: int, calibration: float) -> int:
    """Tokens that have to leave, by our own estimate, the summary's own room included."""
    return int((used - budget.target) / calibration) + config.compaction.summary_target_tokens


def _take(groups: Iterator[list[StoredMessage]], wanted: int, everything: bool) -> Span | None:
    messages: list[StoredMessage] = []
    tokens = 0
    for group in groups:
        messages.extend(group)
        tokens += sum(whole(MessageEntry(position=0, message=message)).tokens for message in group)
        if not everything and tokens >= max(wanted, SMALLEST_SOURCE):
            break
    return Span(messages=tuple(messages), tokens=tokens) if tokens >= SMALLEST_SOURCE else None


def choose_condensation(
    entries: Sequence[ContextEntry], config: Config, budget: Budget, used: int, *, calibration: float = 1.0
) -> Condensation | None:
    """The summaries to merge next, or ``None`` when they are not what keeps the context too large.

    That is so when summaries alone are above the target, or ``used`` is at the hard threshold. The oldest
    neighbours of the lowest depth come first, so that the DAG grows like a tree; only when no two
    neighbours have the same depth are depths mixed. Never more than ``condense_fan_in``.
    """
    summaries = [entry for entry in entries if isinstance(entry, SummaryEntry)]
    if _tokens(summaries) * calibration <= budget.target and used < budget.hard:
        return None
    for run in (*_same_depth_runs(entries), *summary_runs(entries)):
        chosen = run[: config.compaction.condense_fan_in]
        tokens = _tokens(chosen)
        if len(chosen) >= 2 and tokens >= SMALLEST_SOURCE:
            return Condensation(summaries=tuple(chosen), tokens=tokens)
    return None


def _same_depth_runs(entries: Sequence[ContextEntry]) -> list[list[SummaryEntry]]:
    runs = [
        list(group) for run in summary_runs(entries) for _, group in groupby(run, key=lambda summary: summary.depth)
    ]
    return sorted(runs, key=lambda run: run[0].depth)


def _tokens(summaries: Sequence[SummaryEntry]) -> int:
    return sum(whole(summary).tokens for summary in summaries)
