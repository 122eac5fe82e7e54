"""What entries cost, and how the messages of one turn are made to fit a smaller room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any

from mnesis_core.context.entries import EMPTY_MESSAGE, ContextEntry, MessageEntry, SummaryEntry
from mnesis_core.context.wording import (
    ends_within,
    fields_of,
    is_object,
    is_tombstoned,
    message_row,
    read_field,
    read_summary,
    summary_row,
    valid_arguments,
)
from mnesis_core.llm.tokens import MESSAGE_FRAMING, TOOL_FRAMING, estimate_text
from mnesis_core.messages import FileRefPart, StoredMessage, StoredPart, TextPart, ToolPart
from mnesis_core.values import dataclass

SHORTEST_FIELD = 128  # Tokens: a shortened text gets no less, so that some of it remains beside its note.
SUMMARY_FRAME = 104  # the most tokens of the frame around a summary
RESULT_FRAME = 12  # Tokens of "Error: " before a result, or of the sentence that stands for a missing one.
_BELIEVABLE = 8  # A stored estimate below one token for this many characters is counted anew.


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of the context with its cost, whole or shortened."""

    entry: ContextEntry
    row: dict[str, Any]
    cost: dict[str, int]  # Tokens by the names of ``Breakdown``; empty when there is nothing that a model is sent.
    tokens: int


def _item(entry: ContextEntry, row: dict[str, Any], cost: dict[str, int]) -> Item:
    return Item(entry=entry, row=row, cost=cost, tokens=sum(cost.values()))


def whole(entry: ContextEntry) -> Item:
    if isinstance(entry, SummaryEntry):
        if "<" in entry.text:  # Quoting may lengthen it.
            tokens = MESSAGE_FRAMING + estimate_text(read_summary(entry).text)
        else:
            tokens = SUMMARY_FRAME + _trusted_estimate(entry.token_count, len(entry.text), entry.text)
        return _item(entry, summary_row(entry), {"summaries": tokens})
    cost = _sum_by_category([_part_cost(stored) for stored in entry.message.parts])
    if not cost and entry.message.role == "user":
        cost["messages"] = MESSAGE_FRAMING + estimate_text(EMPTY_MESSAGE)
    return _item(entry, message_row(entry.message), cost)


def _sum_by_category(costs: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for category, tokens in costs:
        if tokens:
            total[category] = total.get(category, 0) + tokens
    return total


def _part_cost(stored: StoredPart) -> tuple[str, int]:
    part = stored.part
    if isinstance(part, TextPart):
        tokens = (
            MESSAGE_FRAMING + _trusted_estimate(stored.token_estimate, len(part.text), part.text) if part.text else 0
        )
        return "messages", tokens
    if isinstance(part, ToolPart) and part.compacted_at is None and is_object(part.input):
        length = len(part.tool_name) + len(part.input) + len(part.output or "") + len(part.error or "")
        if stored.token_estimate * _BELIEVABLE >= length:
            return "tool_outputs", MESSAGE_FRAMING + RESULT_FRAME + stored.token_estimate
    fields = fields_of(part, tombstoned=is_tombstoned(part), naming=stored.id)
    return _category(stored), frame_of(stored) + sum(_sizes(fields)) if fields else 0


def _trusted_estimate(estimate: int, length: int, text: str) -> int:
    # Measuring a long context anew for every call would cost more than reading it.
    return estimate if estimate * _BELIEVABLE >= length else estimate_text(text)


def frame_of(stored: StoredPart) -> int:
    """Return the tokens around a part's texts. Every part counts as a message of its own, the most it can become."""
    if not isinstance(stored.part, ToolPart):
        return MESSAGE_FRAMING
    return MESSAGE_FRAMING + TOOL_FRAMING + RESULT_FRAME + estimate_text(stored.part.tool_name)


def _sizes(fields: Mapping[str, str]) -> tuple[int, ...]:
    return tuple(estimate_text(valid_arguments(text) if name == "input" else text) for name, text in fields.items())


def _category(stored: StoredPart) -> str:
    if isinstance(stored.part, ToolPart):
        return "tool_outputs"
    return "files" if isinstance(stored.part, FileRefPart) else "messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One part of a message, its texts measured one by one."""

    message: StoredMessage
    stored: StoredPart
    fields: dict[str, str]
    sizes: tuple[int, ...]
    frame: int

    @property
    def smallest(self) -> int:
        """Return the tokens with every long field at its shortest."""
        return self.frame + sum(min(size, SHORTEST_FIELD) for size in self.sizes)

    def within(self, cap: int) -> int:
        return self.frame + sum(min(size, cap) for size in self.sizes)

    def cuts(self, cap: int) -> list[dict[str, Any]]:
        """Return the manifest's record of the fields longer than ``cap``: what remains of each, in characters."""
        cuts = []
        for (name, text), size in zip(self.fields.items(), self.sizes, strict=True):
            if size > cap:
                head, tail = ends_within(text, cap, partial(read_field, self.message, self.stored, name, text))
                cuts.append({"part": self.stored.id, "field": name, "head": head, "tail": tail})
        return cuts


def squeeze(entries: Sequence[MessageEntry], room: int, *, keep_one: bool = False) -> list[Item]:
    """Fit messages of one turn into ``room`` tokens: the newest parts stay, and no text is longer than a common cap.

    The cap is the largest that fits, so that one huge output gives way before ten small ones do. Messages of which
    nothing stays are absent. With ``keep_one`` the newest part stays however small the room is.
    """
    parts = [_pieces(entry.message) for entry in entries]
    pieces = list(chain.from_iterable(parts))
    totals = accumulate(piece.smallest for piece in reversed(pieces))
    count = sum(1 for total in totals if total <= room)
    kept = pieces[len(pieces) - count :] or (pieces[-1:] if keep_one else [])
    cap = common_cap([size for piece in kept for size in piece.sizes], room - sum(piece.frame for piece in kept))
    stays = {piece.stored.id for piece in kept}
    items = [_shortened_item(entry, own, stays, cap) for entry, own in zip(entries, parts, strict=True)]
    return [item for item in items if item.cost]


def _pieces(message: StoredMessage) -> list[_Piece]:
    pieces = []
    for stored in message.parts:
        fields = fields_of(stored.part, tombstoned=is_tombstoned(stored.part), naming=stored.id)
        if fields:
            sizes = _sizes(fields)
            pieces.append(_Piece(message=message, stored=stored, fields=fields, sizes=sizes, frame=frame_of(stored)))
    return pieces


def common_cap(sizes: Sequence[int], room: int) -> int:
    """Return the largest cap with ``sum(min(size, cap)) <= room``."""
    for index, size in enumerate(sorted(sizes)):
        share = max(0, room) // (len(sizes) - index)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)


def _shortened_item(entry: MessageEntry, pieces: Sequence[_Piece], stays: Collection[str], cap: int) -> Item:
    kept = [piece for piece in pieces if piece.stored.id in stays]
    cost = _sum_by_category((_category(piece.stored), piece.within(cap)) for piece in kept)
    row = message_row(
        entry.message,
        shortened=[cut for piece in kept for cut in piece.cuts(cap)],
        omitted=[piece.stored.id for piece in pieces if piece.stored.id not in stays],
    )
    return _item(entry, row, cost)
