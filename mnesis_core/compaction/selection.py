"""The choice of what to summarise next, the end of a compaction, and the limits of its spending."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby, takewhile
from math import inf
from typing import Any, ClassVar

from mnesis_core.compaction.fidelity import SourceItem, items_of, spoken_texts, summary_texts
from mnesis_core.compaction.requests import longest_summary, messages_row
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
    in_order,
    message_runs,
    runs_of_kind,
)
from mnesis_core.context.fitting import SUMMARY_FRAME, Budget, Pressure, PruneChoice, pressure, select_prunable, whole
from mnesis_core.context.wording import is_unanswered, summary_row
from mnesis_core.errors import (
    TurnNotEnded,
    TurnNotOnBranch,
    TurnProtected,
    TurnsNotAdjacent,
    TurnsTooSmall,
    TurnSummarised,
)
from mnesis_core.files.references import ManifestName, Named, file_ids_of, files_in_footer, find_file_ids
from mnesis_core.messages import StoredMessage, ToolPart
from mnesis_core.spending import Allowance, Spent, TurnLimits, passed_by, tightest

# The tokens below which a text would hardly shrink by being summarised, the summary's frame included.
SMALLEST_SOURCE = SUMMARY_FRAME + 64
NEARLY_FULL = 4  # one part in four of the room between the soft and the hard threshold
# Below the hard threshold a summary has to save one part in so many of usable: each costs a call, and the prompt's prefix.
WORTH = 40
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
    turn_ids: Collection[str] = ()  # Summarise these turns and nothing else; empty for no such restriction.


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    kind: ClassVar[SummaryKind] = "leaf"
    depth: ClassVar[int] = 0
    messages: tuple[StoredMessage, ...]
    tokens: int  # our estimate of what leaves the context with them; a summary in its frame must be smaller

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
    """Return the oldest steps to summarise, or ``None`` when none may be or none is worth it.

    A step is a message: an answer's calls and their results are one, so no cut tears them apart. These are as many
    neighbouring steps as bring the context below its soft threshold, and not below its target where that can be
    avoided; no more than fill ``leaf_chunk_tokens``, or what the summarising model reads in one call if that is less. A
    single step that is larger is a span of its own. A span ends with a turn where that does as well.

    The protected tail, and anything that a summary already stands for, are never chosen.
    """
    protected = protected_tail(situation)
    for run in message_runs(situation.entries):
        span = _take(list(takewhile(lambda message: message.id not in protected, _named(run, situation))), situation)
        if span is not None:
            return span
    return None


def _named(run: Sequence[StoredMessage], situation: Situation) -> Sequence[StoredMessage]:
    """Return the messages from the first to the last of the named turns, or all where none are named."""
    if not situation.turn_ids:
        return run
    places = [place for place, message in enumerate(run) if message.turn_id in situation.turn_ids]
    return run[places[0] : places[-1] + 1] if places else ()


def check_turns(situation: Situation, turns: Mapping[str, Collection[int]]) -> list[str]:
    """Return the ids of named turns in order, of which exactly the messages may be summarised now.

    :param turns: the numbers of the messages that each turn has on the branch
    :raises TurnNotOnBranch: one has no message there.
    :raises TurnNotEnded: one of them is still going on.
    :raises TurnSummarised: a summary stands for messages of one.
    :raises TurnsNotAdjacent: something else lies between them.
    :raises TurnProtected: one reaches into the protected tail.
    :raises TurnsTooSmall: they are too little to shrink by being summarised.
    """
    standing = {message.seq: message for run in message_runs(situation.entries) for message in run}
    for turn_id, seqs in turns.items():
        if not seqs:
            raise TurnNotOnBranch(turn_id=turn_id)
        if turn_id == situation.running_turn_id:
            raise TurnNotEnded(turn_id=turn_id)
        if not standing.keys() >= set(seqs):
            raise TurnSummarised(turn_id=turn_id)
    ids = sorted(turns, key=lambda turn_id: min(turns[turn_id]))
    named = replace(situation, everything=True, turn_ids=ids)
    covered = [found for run in message_runs(situation.entries) if (found := _named(run, named))]
    between = {message.turn_id for run in covered for message in run} - {None, *ids}
    if len(covered) > 1 or between:
        raise TurnsNotAdjacent(turn_ids=ids)
    protected = protected_tail(situation)
    for message in covered[0]:
        if message.id in protected:
            raise TurnProtected(turn_id=message.turn_id or ids[-1])
    if choose_span(named) is None:
        raise TurnsTooSmall(turn_ids=ids)
    return ids


def choose_prunable(situation: Situation) -> PruneChoice:
    """Return the outputs to tombstone, no more of them than bring the context down to its target."""
    if situation.turn_ids:
        return PruneChoice(part_ids=(), tokens=0, scanned=0)
    excess = inf if situation.everything else (situation.used - situation.budget.target) / situation.calibration
    return select_prunable(situation.entries, situation.config, situation.budget, at_most=max(0, excess))


def protected_tail(situation: Situation) -> set[str]:
    """Return the ids of the newest messages, which stay verbatim whatever the pressure.

    These are the newest steps of the last ``protect_turns`` user turns that fit into ``protect_fraction`` of usable. The
    last step with anything in it is always among them, and so is everything from the first call without a result on,
    which is still being worked on.
    """
    config = situation.config.compaction
    messages = [entry.message for entry in in_order(situation.entries) if isinstance(entry, MessageEntry)]
    newest_turn = next((message.turn_id for message in reversed(messages) if message.turn_id), None)
    open_turns = {turn for turn in (newest_turn, situation.running_turn_id) if turn}
    first_open = next(
        (
            message.seq
            for message in messages
            if message.turn_id in open_turns
            for stored in message.parts
            if isinstance(stored.part, ToolPart) and is_unanswered(stored.part)
        ),
        None,
    )
    room = situation.budget.usable * config.protect_fraction / situation.calibration
    protected: set[str] = set()
    turns, has_step = 0, False
    for message in reversed(messages):
        room -= _tokens_of(message)
        must_stay = not has_step or (first_open is not None and message.seq >= first_open)
        if not must_stay and (room < 0 or turns >= config.protect_turns):
            break
        protected.add(message.id)
        has_step = has_step or bool(message.parts)
        turns += message.role == "user"
    return protected


def choose_pinned(questions: Sequence[StoredMessage], config: Config, budget: Budget) -> list[StoredMessage]:
    """Return which of the last messages of the user, oldest first, a prompt shows also where summaries stand for them.

    The newest is one of them however large it is, since the turn is about it; earlier ones are while all together take no
    more than half of what is protected.
    """
    room = budget.usable * config.compaction.protect_fraction / 2
    pinned: list[StoredMessage] = []
    for message in reversed(questions[-config.compaction.protect_turns :]):
        room -= _tokens_of(message)
        if room < 0 and pinned:
            break
        pinned.append(message)
    return pinned[::-1]


def _tokens_of(message: StoredMessage) -> int:
    return whole(MessageEntry(position=0, message=message)).tokens


def _take(free: Sequence[StoredMessage], situation: Situation) -> Span | None:
    """Return the first of some neighbouring steps, as many as are worth it, or ``None``."""
    budget, sums = situation.budget, _gains(free, situation)
    if not sums or sums[-1] < SMALLEST_SOURCE:
        return None
    count = _end_of_turn(free, sums, situation)
    if not situation.everything and _without(sums[count - 1], situation) < budget.target:
        # One step makes the difference between too much and too little: better a little less room than half a window.
        nearly_full = _nearly_full(situation)
        fewer = [tokens for tokens in sums[:count] if _without(tokens, situation) >= budget.target]
        if fewer and fewer[-1] >= SMALLEST_SOURCE and _left(fewer[-1], situation) < nearly_full:
            count = len(fewer)
        elif situation.used < nearly_full:
            return None
    if not _is_worth_it(sums[count - 1], situation):
        return None
    return Span(messages=tuple(free[:count]), tokens=sums[count - 1])


def _gains(free: Sequence[StoredMessage], situation: Situation) -> list[int]:
    """Return the tokens that leave with the first step, with the first two, and so on, as far as one span goes.

    Messages that will be pinned do not leave.
    """
    budget, config, most = situation.budget, situation.config.compaction, situation.reads
    chunk = min(config.leaf_chunk_tokens or most, most)
    messages = [entry.message for entry in situation.entries if isinstance(entry, MessageEntry)]
    questions = [message for message in messages if message.role == "user"]
    pinned = choose_pinned(questions, situation.config, budget)
    gains = [0 if message in pinned else _tokens_of(message) for message in free]
    sums: list[int] = []
    tokens = reading = 0
    for message, gain in zip(free, gains, strict=True):
        more = tokens + gain
        reading += reading_tokens([message], most)
        is_down = _left(tokens, situation) < budget.soft and _without(more, situation) < budget.target
        is_full = reading > chunk and _is_worth_it(tokens, situation)
        if is_full and situation.turn_ids:
            # Of named turns nothing stays that is too little for a summary of its own.
            is_full = sum(gains[len(sums) :]) >= SMALLEST_SOURCE
        if tokens >= SMALLEST_SOURCE and (is_full or (is_down and not situation.everything)):
            break
        tokens = more
        sums.append(tokens)
    return sums


def _end_of_turn(free: Sequence[StoredMessage], sums: Sequence[int], situation: Situation) -> int:
    """Return how many steps to take so that they end with a turn; all where at least half of them do not do as well."""
    is_down = _left(sums[-1], situation) < situation.budget.soft
    for count in range(len(sums), 0, -1):
        tokens = sums[count - 1]
        if (
            2 * tokens < sums[-1]
            or tokens < SMALLEST_SOURCE
            or not _is_worth_it(tokens, situation)
            or (is_down and _left(tokens, situation) >= situation.budget.soft)
        ):
            break
        if count == len(free) or free[count].role == "user":
            return count
    return len(sums)


def _is_worth_it(tokens: int, situation: Situation) -> bool:
    budget = situation.budget
    is_due = situation.everything or situation.used >= budget.hard
    return is_due or situation.used - _left(tokens, situation) >= budget.usable // WORTH


def _nearly_full(situation: Situation) -> int:
    return situation.budget.hard - (situation.budget.hard - situation.budget.soft) // NEARLY_FULL


def _without(tokens: int, situation: Situation) -> float:
    """Return the size of the context with a summary in the place of so many of our tokens, of which only its frame is sure."""
    return situation.used - (tokens - SUMMARY_FRAME) * situation.calibration


def _left(tokens: int, situation: Situation) -> float:
    """Return the size of the context with the longest summary in the place of so many of our tokens."""
    summary = longest_summary(tokens, situation.config, situation.budget)
    return _without(tokens - summary, situation)


# The merging of summaries: the oldest neighbours of one depth come first, so that the DAG grows like a tree.


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

    They are when they take more than half of the target, or the context is at the hard threshold. The oldest neighbours
    of the lowest depth come first: at least ``condense_min_fan_in``, from the soft threshold on two, at most
    ``condense_fan_in`` and no more than bring the context to its target, and never the newest summary, so that not all
    become one. Only at the hard threshold may that one be merged and depths be mixed: then nothing else helps.
    """
    level = pressure(situation.used, situation.budget)
    if not has_too_many_summaries(situation) and level is not Pressure.HARD:
        return None
    config, runs = situation.config.compaction, runs_of_kind(situation.entries, SummaryEntry)
    if level is Pressure.HARD:
        candidates = [*_of_one_depth(runs), *runs]
    else:
        candidates = _of_one_depth([*runs[:-1], runs[-1][:-1]] if runs else [])
    fewest = config.condense_min_fan_in if level is Pressure.NONE else FEWEST
    chosen = next((run[: config.condense_fan_in] for run in candidates if len(run) >= fewest), None)
    if chosen is None:
        return None
    if not situation.everything:
        while len(chosen) > fewest and _without(_tokens(chosen), situation) < situation.budget.target:
            chosen = chosen[:-1]
        is_too_much = _without(_tokens(chosen), situation) < situation.budget.target
        if is_too_much and situation.used < _nearly_full(situation):
            return None
    if not _is_worth_it(_tokens(chosen), situation):
        return None
    return Condensation(summaries=tuple(chosen), tokens=_tokens(chosen))


def has_too_many_summaries(situation: Situation) -> bool:
    summaries = [entry for entry in situation.entries if isinstance(entry, SummaryEntry)]
    return 2 * _tokens(summaries) * situation.calibration > situation.budget.target


def _of_one_depth(runs: list[list[SummaryEntry]]) -> list[list[SummaryEntry]]:
    same = [list(group) for run in runs for _, group in groupby(run, key=lambda summary: summary.depth)]
    return sorted(same, key=lambda run: run[0].depth)


def _tokens(summaries: Sequence[SummaryEntry]) -> int:
    return sum(whole(summary).tokens for summary in summaries)


# The rounds of a run, which follow each other until the context is small enough, and its outcome.


class Outcome(StrEnum):
    """The reason why a compaction ended. Each but ``ROUNDS_EXHAUSTED`` holds until something is added to the context."""

    TARGET_MET = "target_met"  # The context is below its soft threshold.
    FITS = "fits"  # It is below the hard threshold, and nothing more may be summarised.
    NOTHING_TO_SUMMARISE = "nothing_to_summarise"  # Nothing may be summarised or pruned, or it is too small to shrink.
    # All that may be summarised is; the rest alone is above the hard threshold, and assembly shortens it.
    STILL_TOO_LARGE = "still_too_large"
    # There is more to do than one compaction may; another one goes on, at once while that is due.
    ROUNDS_EXHAUSTED = "rounds_exhausted"


def next_round(situation: Situation) -> Span | Condensation | None:
    """Return what to summarise next: nothing at the target, unless everything is to be.

    The soft threshold does not decide this, since a turn that asks for a compaction knows its provider's count.
    Summaries that take up much of the context are merged before anything more is summarised, so that the newest
    messages stay verbatim the longest.
    """
    if not situation.everything and situation.used <= situation.budget.target:
        return None
    if situation.turn_ids:
        return choose_span(situation)
    if has_too_many_summaries(situation):
        return choose_condensation(situation) or choose_span(situation)
    return choose_span(situation) or choose_condensation(situation)


def reading_of(chosen: Span | Condensation, limit_tokens: int) -> tuple[list[str], tuple[Quotable, ...]]:
    if isinstance(chosen, Span):
        return transcript_pieces(chosen.messages, limit_tokens), message_quotables(chosen.messages)
    return summary_pieces(chosen.summaries, limit_tokens), summary_quotables(chosen.summaries)


def salient_items(chosen: Span | Condensation) -> list[SourceItem]:
    """Return what a summary of these should not lose."""
    texts = spoken_texts(chosen.messages) if isinstance(chosen, Span) else summary_texts(chosen.summaries)
    return items_of(texts)


def source_rows(chosen: Span | Condensation) -> list[dict[str, Any]]:
    if isinstance(chosen, Span):
        return [messages_row(chosen.messages)]
    return [summary_row(entry) for entry in chosen.summaries]


def outcome(used: int, budget: Budget, *, changed: bool, more: bool) -> Outcome:
    """Return how a run ended that left ``used`` tokens.

    :param changed: it pruned or summarised something
    :param more: another round is due, which the bound on rounds forbids
    """
    if more:
        return Outcome.ROUNDS_EXHAUSTED
    if used < budget.soft:
        return Outcome.TARGET_MET
    if not changed:
        return Outcome.NOTHING_TO_SUMMARISE
    return Outcome.FITS if used < budget.hard else Outcome.STILL_TOO_LARGE


# Compaction's own limits on asking a summarising model, beside the limits of all spending.


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
