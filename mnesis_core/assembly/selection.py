"""Which entries go into a prompt that has no room for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from mnesis_core.assembly.fitting import Item, squeeze
from mnesis_core.dag import MessageEntry, SummaryEntry, whole_turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The messages of a context by turns."""

    older: list[list[Item]]
    """Whole turns before the newest, oldest first."""
    newest: list[Item]
    """The turn of the newest user message and whatever came after it."""
    user: Item | None
    """The newest user message."""


def turns_of(items: Sequence[Item]) -> Turns:
    """The turns of the messages among ``items``."""
    by_id = {item.row["id"]: item for item in items}
    messages = [item.entry.message for item in items if isinstance(item.entry, MessageEntry)]
    groups = whole_turns(messages)
    user = next((message for message in reversed(messages) if message.role == "user"), None)
    holds_user = (index for index, group in enumerate(groups) if any(message is user for message in group))
    start = next(holds_user, max(0, len(groups) - 1))
    return Turns(
        older=[[by_id[message.id] for message in group] for group in groups[:start]],
        newest=[by_id[message.id] for group in groups[start:] for message in group],
        user=by_id[user.id] if user else None,
    )


def select(items: Sequence[Item], turns: Turns, room: int) -> dict[str, Item]:
    """The items that go into ``room`` tokens, by id, some of them shortened."""
    selection = _Selection(room=room)
    summaries = [item for item in items if isinstance(item.entry, SummaryEntry)]
    if selection.take(turns.newest):
        selection.take_newest([[item] for item in summaries], selection.room)
        selection.take_newest(turns.older, selection.room)
        return selection.chosen
    # Not even this turn fits. Some of what came before it is worth more than the last bytes of an output.
    selection.take_newest([[item] for item in summaries], room // 4)
    _squeeze_turn(selection, turns)
    return selection.chosen


def _squeeze_turn(selection: _Selection, turns: Turns) -> None:
    rest = [item for item in turns.newest if item is not turns.user]
    if turns.user is not None:
        # A user message that fits alone still leaves room for the results that came after it, else the
        # model would ask for them for ever.
        room = selection.room - min(sum(item.tokens for item in rest), selection.room // 4)
        if turns.user.tokens > room:
            selection.put(squeeze([_message_entry(turns.user)], room, keep_one=True))
        else:
            selection.put([turns.user])
    selection.put(squeeze([_message_entry(item) for item in rest], selection.room))


def _message_entry(item: Item) -> MessageEntry:
    if not isinstance(item.entry, MessageEntry):
        raise TypeError("only messages belong to a turn")
    return item.entry


@dataclass(slots=True, kw_only=True)
class _Selection:
    room: int
    """Tokens that are left."""
    chosen: dict[str, Item] = field(default_factory=dict)

    def put(self, items: Iterable[Item]) -> None:
        for item in items:
            self.chosen[item.row["id"]] = item
            self.room -= item.tokens

    def take(self, items: Sequence[Item]) -> bool:
        """Put all of them if all fit."""
        if sum(item.tokens for item in items) > self.room:
            return False
        self.put(items)
        return True

    def take_newest(self, groups: Sequence[Sequence[Item]], room: int) -> None:
        """Put whole groups from the newest back, up to the first that does not fit: no holes."""
        floor = self.room - room
        for group in reversed(groups):
            if self.room - sum(item.tokens for item in group) < floor or not self.take(group):
                return
