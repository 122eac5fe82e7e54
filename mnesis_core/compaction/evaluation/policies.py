"""What a prompt shows of a conversation by policies that are usual elsewhere, to compare ours with.

``truncation``: the newest messages that fit. ``rolling``: a summary that a model writes anew with each span, and the
newest messages. ``full``: everything, whether it fits or not. All texts and sizes are those of our own prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from mnesis_core.compaction.requests import JOINT, SHIPPED, SMALLEST_TARGET, payload_of
from mnesis_core.compaction.transcript import text_pieces, transcript_pieces
from mnesis_core.context.assembly import PRIMING
from mnesis_core.context.entries import ContextMessage, MessageEntry, Prompt
from mnesis_core.context.fitting import Budget, whole
from mnesis_core.context.wording import read_message
from mnesis_core.llm.tokens import MESSAGE_FRAMING, characters_within, estimate_text
from mnesis_core.messages import StoredMessage

SUMMARY_SHARE = 4
"""A rolling summary takes at most one part in this many of the usable tokens."""
Ask = Callable[[dict[str, Any], int], str | None]
"""Return what a model answers to a payload in at most so many tokens; None where it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A prompt and its tokens by our estimate."""

    prompt: Prompt
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolling:
    summary: str = ""
    recent: tuple[StoredMessage, ...] = ()

    @property
    def tokens(self) -> int:
        return size_of_summary(self.summary) + sum(map(size_of, self.recent))


def size_of(message: StoredMessage) -> int:
    return whole(MessageEntry(position=message.seq, message=message)).tokens


def size_of_summary(summary: str) -> int:
    return MESSAGE_FRAMING + estimate_text(summary) if summary else 0


def newest_within(messages: Sequence[StoredMessage], room: int) -> list[StoredMessage]:
    """Return the newest messages that together take at most ``room`` tokens, none of them cut."""
    sums = accumulate(size_of(message) for message in reversed(messages))
    count = sum(1 for total in sums if total <= room)
    return list(messages[len(messages) - count :])


def send_full(messages: Sequence[StoredMessage], question: StoredMessage) -> Sent:
    return _sent("", [*messages, question])


def send_truncated(messages: Sequence[StoredMessage], question: StoredMessage, usable: int) -> Sent:
    return _sent("", [*newest_within(messages, usable - PRIMING - size_of(question)), question])


def send_rolling(rolling: Rolling, question: StoredMessage, usable: int) -> Sent:
    room = usable - PRIMING - size_of(question) - size_of_summary(rolling.summary)
    return _sent(rolling.summary, [*newest_within(rolling.recent, room), question])


def _sent(summary: str, messages: Sequence[StoredMessage]) -> Sent:
    said = [ContextMessage(role="user", text=summary)] if summary else []
    for message in messages:
        said += read_message(message, whole(MessageEntry(position=message.seq, message=message)).row)
    tokens = PRIMING + size_of_summary(summary) + sum(map(size_of, messages))
    return Sent(prompt=Prompt(messages=tuple(said), tools=()), tokens=tokens)


def roll(messages: Iterable[StoredMessage], budget: Budget, piece_tokens: int, longest: int, ask: Ask) -> Rolling:
    """Let a conversation go by and return what is left of it: whenever it is full, the older half joins the summary.

    :param piece_tokens: what the model reads of the conversation at once
    :param longest: tokens that a summary may take, where its share of the window is not less
    """
    rolling = Rolling()
    target = max(SMALLEST_TARGET, min(longest, budget.usable // SUMMARY_SHARE))
    for message in messages:
        rolling = Rolling(summary=rolling.summary, recent=(*rolling.recent, message))
        if rolling.tokens + PRIMING > budget.usable:
            kept = newest_within(rolling.recent, budget.usable // 2 - size_of_summary(rolling.summary))
            older = rolling.recent[: len(rolling.recent) - len(kept)]
            rolling = Rolling(
                summary=_summarised(rolling.summary, older, piece_tokens, target, ask), recent=tuple(kept)
            )
    return rolling


def _summarised(summary: str, older: Sequence[StoredMessage], piece_tokens: int, target: int, ask: Ask) -> str:
    """Return the summary with older messages in it; what a model that fails was to read is lost, as by truncation."""
    room = max(SMALLEST_TARGET, piece_tokens - size_of_summary(summary))
    for piece in transcript_pieces(older, room):
        before = text_pieces(summary, piece_tokens) if summary else []
        reply = ask(payload_of(SHIPPED.level1, JOINT.join([*before, piece]), target), target)
        if reply:
            summary = reply[: characters_within(reply, target)]
    return summary
