"""Refills: the newest summarised messages that prompts show again where an automatic compaction has left much room.

When a step leaves that is larger than half of the window, nothing of that size takes its place. So the compaction decides,
once, which messages stand beside their summaries from then on. They give way by large steps as the context grows, so that
what is before and among them stays the same from call to call, for a provider's cache of the prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from mnesis_core.context.entries import ContextEntry, MessageEntry, SummaryEntry
from mnesis_core.context.fitting import Budget, Item, squeeze, whole
from mnesis_core.messages import StoredMessage

# A refill reaches above the target by a third of what lies between that and the soft threshold; in a small window by more,
# since of its oldest message, the one that is shortened, nothing may be shown in fewer tokens than these.
ABOVE, SMALLEST, AT_MOST = 1 / 3, 192, 3 / 4
# Of so many messages in a row nothing may go into the room before older ones are no longer tried: trying costs a squeeze.
MOST_PASSED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Refill:
    """A compaction's decision, in tokens of our own estimates, so that it stays whatever is learnt of a model's counts."""

    first_seq: int
    last_seq: int  # of the messages; the newest that a summary stands for
    tokens: int  # of the context then
    room: int  # for the messages then, and for what is pinned
    step: int  # by which the room shrinks

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

    def room_in(self, entries: Sequence[ContextEntry], pinned: Sequence[StoredMessage] = ()) -> int:
        """Return the tokens that the messages may take beside a context; 0 where more is summarised by now.

        What a long pinned question takes comes back when a newer one takes its place.
        """
        if self.last_seq != newest_summarised(entries):
            return 0
        grown = max(0, size_of(entries) - self.tokens)
        return max(0, self.room - grown // self.step * self.step - size_of_messages(pinned))


def read_refill(stored: object) -> Refill | None:
    """Return what an event says; ``None`` if it says nothing of the kind: through an import it may come from anyone."""
    names = ("first_seq", "last_seq", "tokens", "room", "step")
    if not isinstance(stored, Mapping) or {*stored} != {*names}:
        return None
    if not all(type(stored[name]) is int and stored[name] >= 0 for name in names) or not stored["step"]:
        return None
    return Refill(**stored)


def newest_summarised(entries: Sequence[ContextEntry]) -> int:
    return max((entry.last_seq for entry in entries if isinstance(entry, SummaryEntry)), default=0)


def size_of_messages(messages: Sequence[StoredMessage]) -> int:
    return size_of([MessageEntry(position=0, message=message) for message in messages])


def size_of(entries: Sequence[ContextEntry]) -> int:
    return sum(whole(entry).tokens for entry in entries)


def room_for_refill(used: int, budget: Budget, *, calibration: float) -> int:
    """Return the tokens that a compaction which leaves ``used`` of the model's tokens has free for a refill."""
    if used >= budget.target:
        return 0
    between = budget.soft - budget.target
    above = max(between * ABOVE, min(SMALLEST * calibration, between * AT_MOST))
    return int((budget.target + above - used) / calibration)


def plan_refill(
    messages: Sequence[StoredMessage],
    entries: Sequence[ContextEntry],
    *,
    used: int,
    budget: Budget,
    calibration: float,
) -> Refill | None:
    """Return the refill of a context of ``used`` tokens, without what is pinned, with the newest of some summarised messages.

    There is none without any messages.

    It shrinks where the two together would come to the soft threshold.
    """
    room = room_for_refill(used, budget, calibration=calibration)
    items = take_refill(messages, room)
    if not items:
        return None
    return Refill(
        first_seq=items[0].row["seq"],
        last_seq=newest_summarised(entries),
        tokens=size_of(entries),
        room=room,
        step=max(1, int((budget.soft - used) / calibration) - room),
    )


def take_refill(
    messages: Sequence[StoredMessage], room: int, *, provider: str = "", without: Collection[str] = ()
) -> list[Item]:
    """Return the newest messages that go into ``room`` tokens; the oldest of them shortened, and nothing before it.

    A step of many calls may have nothing to show in so few tokens. Where that is the newest, an older message is tried.
    """
    items, passed = list[Item](), 0
    for message in reversed(messages):
        entry = MessageEntry(position=0, message=message)
        item = whole(entry, provider)
        if not item.cost or message.id in without:
            continue
        if item.tokens <= room:
            items.append(item)
            room -= item.tokens
            continue
        squeezed, passed = squeeze([entry], room, provider=provider), passed + 1
        if squeezed or items or passed > MOST_PASSED:
            return [*squeezed, *reversed(items)]
    return items[::-1]
