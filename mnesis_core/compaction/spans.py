"""What to summarise next: the oldest whole turns, as many as the summarising model reads whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mnesis_core.assembly.fitting import SUMMARY_FRAME, whole
from mnesis_core.budget import Budget
from mnesis_core.compaction.transcript import reading_tokens
from mnesis_core.config import Config
from mnesis_core.dag import ContextEntry, MessageEntry, message_runs, whole_turns
from mnesis_core.file_ids import file_ids_of
from mnesis_core.footers import Named
from mnesis_core.messages import StoredMessage

SMALLEST_SOURCE = SUMMARY_FRAME + 64
"""Tokens: anything smaller would hardly become smaller by being summarised, the summary's frame included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a round of compaction decides on."""

    entries: Sequence[ContextEntry]
    config: Config
    budget: Budget
    used: int
    """Tokens of the whole context, as the model counts."""
    reads: int
    """Tokens of text that one call to the summarising model may read (``piece_limit``)."""
    calibration: float = 1.0
    """What the model's counts are to our estimates."""
    running_turn_id: str | None = None
    everything: bool = False
    """Summarise all that may be, whatever is used: somebody asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Whole turns that one leaf is to stand for."""

    messages: tuple[StoredMessage, ...]
    """Neighbours in the context, oldest first."""
    tokens: int
    """What they take in the context now, by our own estimate: a summary in its frame must be smaller."""

    @property
    def depth(self) -> int:
        """Of the summary that is to be made."""
        return 0

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
    def named(self) -> Named:
        """Every file named in them."""
        return Named(files=file_ids_of(self.messages))


def choose_span(situation: Situation) -> Span | None:
    """The oldest whole turns to summarise, or ``None`` when there is nothing that may be, or nothing worth it.

    As many neighbouring turns as it takes to bring ``used`` down to the budget's target, and no more than fill
    ``leaf_chunk_tokens``, or what the summarising model reads in one call if that is less; a single turn that
    is larger is a span of its own. Never the last ``protect_turns`` user turns and what came after them,
    nor the running turn, nor anything that a summary stands for already (decision 18).
    """
    protected = _protected(situation.entries, situation.config.compaction.protect_turns)
    for run in message_runs(situation.entries):
        span = _take(_free_groups(run, protected, situation.running_turn_id), situation)
        if span is not None:
            return span
    return None


def _protected(entries: Sequence[ContextEntry], count: int) -> set[str]:
    """The messages of the last turns that a user began and of all that came after them, at least of so many turns."""
    turns = [group for run in message_runs(entries) for group in whole_turns(run)]
    users = [index for index, group in enumerate(turns) if any(message.role == "user" for message in group)]
    start = min([len(turns) - count, *users[-count:]])
    return {message.id for group in turns[max(start, 0) :] for message in group}


def _free_groups(
    run: Sequence[StoredMessage], protected: set[str], running_turn_id: str | None
) -> Iterator[list[StoredMessage]]:
    for group in whole_turns(run):
        is_running = running_turn_id is not None and any(message.turn_id == running_turn_id for message in group)
        if is_running or any(message.id in protected for message in group):
            return
        yield group


def _take(groups: Iterable[list[StoredMessage]], situation: Situation) -> Span | None:
    wanted, chunk = _wanted(situation), _chunk(situation)
    messages: list[StoredMessage] = []
    tokens = reading = 0
    for group in groups:
        reading += reading_tokens(group, situation.reads)
        if tokens >= SMALLEST_SOURCE and (tokens >= wanted or reading > chunk):
            break
        messages.extend(group)
        tokens += sum(whole(MessageEntry(position=0, message=message)).tokens for message in group)
    return Span(messages=tuple(messages), tokens=tokens) if tokens >= SMALLEST_SOURCE else None


def _wanted(situation: Situation) -> float:
    """Tokens that have to leave, by our own estimate, the summary's own room included."""
    if situation.everything:
        return float("inf")
    excess = (situation.used - situation.budget.target) / situation.calibration
    return excess + situation.config.compaction.summary_target_tokens


def _chunk(situation: Situation) -> int:
    return min(situation.config.compaction.leaf_chunk_tokens or situation.reads, situation.reads)
