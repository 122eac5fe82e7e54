"""What to summarise next, when a compaction ends, and what it may spend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, ClassVar

from mnesis_core.compaction.requests import messages_row
from mnesis_core.compaction.transcript import (
    Quotable,
    message_quotables,
    reading_tokens,
    summary_pieces,
    summary_quotables,
    transcript_pieces,
)
from mnesis_core.config import CompactionConfig, Config
from mnesis_core.context.entries import (
    ContextEntry,
    MessageEntry,
    SummaryEntry,
    SummaryKind,
    message_runs,
    runs_of_kind,
    whole_turns,
)
from mnesis_core.context.fitting import SUMMARY_FRAME, Budget, Pressure, pressure, whole
from mnesis_core.context.wording import summary_row
from mnesis_core.files.references import ManifestName, Named, file_ids_of, files_in_footer, find_file_ids
from mnesis_core.messages import StoredMessage
from mnesis_core.spending import Allowance, Spent, TurnLimits, passed_by, tightest

# Tokens: a smaller text would hardly shrink by being summarised, the summary's frame included.
SMALLEST_SOURCE = SUMMARY_FRAME + 64
FEWEST = 2  # summaries that may become one when the context is too full for the configured number
# The scopes of compaction's own limits, with the reasons that a refused attempt gives for them.
SESSION, DAY, RUN = "spend_limit_session", "spend_limit_day", "run_timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    entries: Sequence[ContextEntry]
    config: Config
    budget: Budget
    used: int  # tokens of the whole context, as the model counts
    reads: int  # tokens of text that one call to the summarising model may read (``piece_limit``)
    calibration: float = 1.0
    running_turn_id: str | None = None
    everything: bool = False  # Summarise all that may be, whatever is used, because a person asked for it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    kind: ClassVar[SummaryKind] = "leaf"
    depth: ClassVar[int] = 0
    messages: tuple[StoredMessage, ...]
    tokens: int  # What they take in the context now, by our own estimate: a summary in its frame must be smaller.

    @property
    def first_seq(self) -> int:
        return self.messages[0].seq

    @property
    def last_seq(self) -> int:
        return self.messages[-1].seq

    @property
    def message_count(self) -> int:
        return len(self.messages)

    @property
    def source_ids(self) -> tuple[str, ...]:
        return tuple(message.id for message in self.messages)

    @property
    def named(self) -> Named:
        return Named(files=file_ids_of(self.messages))


def choose_span(situation: Situation) -> Span | None:
    """Return the oldest whole turns to summarise, or ``None`` when none may be or none is worth it.

    These are as many neighbouring turns as bring ``used`` down to the budget's target, and no more than fill
    ``leaf_chunk_tokens``, or what the summarising model reads in one call if that is less; a single turn that is larger
    is a span of its own. The last ``protect_turns`` user turns and what came after them, the running turn, and anything
    that a summary already stands for are never chosen (decision 18).
    """
    runs, count = message_runs(situation.entries), situation.config.compaction.protect_turns
    turns = [group for run in runs for group in whole_turns(run)]
    users = [index for index, group in enumerate(turns) if any(message.role == "user" for message in group)]
    start = max(0, min([len(turns) - count, *users[-count:]]))
    protected = {message.id for group in turns[start:] for message in group}
    for run in runs:
        span = _take(run, protected, situation)
        if span is not None:
            return span
    return None


def _take(run: Sequence[StoredMessage], protected: set[str], situation: Situation) -> Span | None:
    config, running = situation.config.compaction, situation.running_turn_id
    # Tokens that have to leave by our own estimate, the summary's own room included.
    excess = (situation.used - situation.budget.target) / situation.calibration
    wanted = float("inf") if situation.everything else excess + config.summary_target_tokens
    chunk = min(config.leaf_chunk_tokens or situation.reads, situation.reads)
    messages: list[StoredMessage] = []
    tokens = reading = 0
    for group in whole_turns(run):
        is_running = running is not None and any(message.turn_id == running for message in group)
        if is_running or any(message.id in protected for message in group):
            break
        reading += reading_tokens(group, situation.reads)
        if tokens >= SMALLEST_SOURCE and (tokens >= wanted or reading > chunk):
            break
        messages.extend(group)
        tokens += sum(whole(MessageEntry(position=0, message=message)).tokens for message in group)
    return Span(messages=tuple(messages), tokens=tokens) if tokens >= SMALLEST_SOURCE else None


# Which summaries to merge next: the oldest neighbours of one depth, so that the DAG grows like a tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Condensation:
    kind: ClassVar[SummaryKind] = "condensed"
    summaries: tuple[SummaryEntry, ...]
    tokens: int

    @property
    def first_seq(self) -> int:
        return self.summaries[0].first_seq

    @property
    def last_seq(self) -> int:
        return self.summaries[-1].last_seq

    @property
    def message_count(self) -> int:
        return sum(summary.message_count for summary in self.summaries)

    @property
    def depth(self) -> int:
        return 1 + max(summary.depth for summary in self.summaries)

    @property
    def source_ids(self) -> tuple[str, ...]:
        return tuple(summary.id for summary in self.summaries)

    @property
    def named(self) -> Named:
        """Return the summaries themselves and every file that is named in them or in their manifests."""
        files: dict[str, None] = {}
        manifests: dict[str, ManifestName] = {}
        for summary in self.summaries:
            footer = files_in_footer(summary.text)
            files.update(dict.fromkeys((*summary.file_ids, *footer.files, *find_file_ids(summary.text))))
            manifests.update({each.id: each for each in footer.manifests})
        return Named(
            summaries=self.source_ids,
            files=tuple(name for name in files if name not in manifests),
            manifests=tuple(manifests.values()),
        )


def choose_condensation(situation: Situation) -> Condensation | None:
    """Return the summaries to merge next, or ``None`` when they are not what keeps the context too large.

    They are when summaries alone are above the target, or the context is at the hard threshold. The oldest neighbours
    of the lowest depth come first: at least ``condense_min_fan_in``, from the soft threshold on two, at most
    ``condense_fan_in``, and never the newest summary, so that not all become one. Only at the hard threshold may that
    one be merged and depths be mixed: then nothing else helps.
    """
    summaries = [entry for entry in situation.entries if isinstance(entry, SummaryEntry)]
    level = pressure(situation.used, situation.budget)
    is_too_much = _tokens(summaries) * situation.calibration > situation.budget.target
    if not is_too_much and level is not Pressure.HARD:
        return None
    config, runs = situation.config.compaction, runs_of_kind(situation.entries, SummaryEntry)
    if level is Pressure.HARD:
        candidates = [*_of_one_depth(runs), *runs]
    else:
        candidates = _of_one_depth([*runs[:-1], runs[-1][:-1]] if runs else [])
    fewest = config.condense_min_fan_in if level is Pressure.NONE else FEWEST
    chosen = next((run[: config.condense_fan_in] for run in candidates if len(run) >= fewest), None)
    return Condensation(summaries=tuple(chosen), tokens=_tokens(chosen)) if chosen else None


def _of_one_depth(runs: list[list[SummaryEntry]]) -> list[list[SummaryEntry]]:
    same = [list(group) for run in runs for _, group in groupby(run, key=lambda summary: summary.depth)]
    return sorted(same, key=lambda run: run[0].depth)


def _tokens(summaries: Sequence[SummaryEntry]) -> int:
    return sum(whole(summary).tokens for summary in summaries)


# One round after another until the context is small enough, and how such a run ends


class Outcome(StrEnum):
    """Why a compaction ended. Each but ``ROUNDS_EXHAUSTED`` holds until something is added to the context."""

    TARGET_MET = "target_met"  # The context is at or below its target, the low mark.
    FITS = "fits"  # It is above the low mark but below the hard threshold, and nothing more may be summarised.
    NOTHING_TO_SUMMARISE = "nothing_to_summarise"  # Nothing may be summarised or pruned, or it is too small to shrink.
    # All that may be summarised is; the rest alone is above the hard threshold, and assembly shortens it.
    STILL_TOO_LARGE = "still_too_large"
    # There is more to do than one compaction may; another one goes on, at once while that is due.
    ROUNDS_EXHAUSTED = "rounds_exhausted"


def next_round(situation: Situation) -> Span | Condensation | None:
    span = None
    if situation.everything or situation.used > situation.budget.target:
        span = choose_span(situation)
    return span or choose_condensation(situation)


def reading_of(chosen: Span | Condensation, limit_tokens: int) -> tuple[list[str], tuple[Quotable, ...]]:
    if isinstance(chosen, Span):
        return transcript_pieces(chosen.messages, limit_tokens), message_quotables(chosen.messages)
    return summary_pieces(chosen.summaries, limit_tokens), summary_quotables(chosen.summaries)


def source_rows(chosen: Span | Condensation) -> list[dict[str, Any]]:
    if isinstance(chosen, Span):
        return [messages_row(chosen.messages)]
    return [summary_row(entry) for entry in chosen.summaries]


def must_go_on(situation: Situation) -> bool:
    """Return whether the rest calls for another compaction at once: below the high mark it waits for the next turn."""
    return situation.everything or situation.used >= situation.budget.soft


def outcome(used: int, budget: Budget, *, changed: bool, more: bool) -> Outcome:
    """Return how a run ended that left ``used`` tokens.

    :param changed: it pruned or summarised something
    :param more: another round is due, which the bound on rounds forbids
    """
    if more:
        return Outcome.ROUNDS_EXHAUSTED
    if used <= budget.target:
        return Outcome.TARGET_MET
    if not changed:
        return Outcome.NOTHING_TO_SUMMARISE
    return Outcome.FITS if used < budget.hard else Outcome.STILL_TOO_LARGE


# Whether one more question to a summarising model may be asked: compaction's own limits, beside those of all spending


def own_allowances(
    site: CompactionConfig, session: CompactionConfig, *, session_micros: int, day_micros: int, seconds: float
) -> list[Allowance]:
    """Return what compaction alone may take; a session's configuration may tighten the site's, never loosen it.

    :param session_micros: what the session's summaries have cost since it began
    :param day_micros: what those of all sessions of its owner have cost since midnight UTC
    :param seconds: what this run has taken
    """
    both = (site, session)
    in_session = tightest(*(TurnLimits(cost_micros=each.spend_limit_session_micros or None) for each in both))
    today = tightest(*(TurnLimits(cost_micros=each.spend_limit_day_micros or None) for each in both))
    time = TurnLimits(seconds=min(each.run_timeout_seconds for each in both))
    return [
        Allowance(scope=SESSION, limits=in_session, spent=Spent(cost_micros=session_micros)),
        Allowance(scope=DAY, limits=today, spent=Spent(cost_micros=day_micros)),
        Allowance(scope=RUN, limits=time, spent=Spent(seconds=seconds)),
    ]


def refusal(allowances: Sequence[Allowance], highest: Spent) -> str | None:
    """Return why a question that may take ``highest`` may not be asked, or ``None`` when it may.

    ``spend_limit_session``, ``spend_limit_day`` and ``run_timeout`` are limits of compaction alone; ``budget_turn``,
    ``budget_session``, ``budget_user`` and ``budget_day`` are limits of all spending.
    """
    line = passed_by(highest, allowances)
    return None if line is None else line.scope
