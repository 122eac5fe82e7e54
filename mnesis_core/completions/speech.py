"""What a turn says while it runs, as one text that only grows, from the frames of its session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from mnesis_core.events import EventType
from mnesis_core.messages import TextPart

Place = tuple[str, int]
"""A message's id and the index of a part of it."""


class Speech:
    """The text of the answers of one turn; parts are divided by empty lines.

    Deltas tell how far a running part is, so they may run ahead of the events that end the part before: what comes
    of a message that the ledger has not told of yet is kept until it has.
    """

    def __init__(self) -> None:
        self._sent: dict[Place, int] = {}
        self._known: set[str] = set()
        self._waiting: dict[str, list[Mapping[str, Any]]] = defaultdict(list)

    def take(self, frame: Mapping[str, Any]) -> str:
        """What a frame adds to the text; mostly nothing."""
        if frame["type"] == EventType.MESSAGE_CREATED:
            message_id = frame["data"]["message_id"]
            self._known.add(message_id)
            return "".join(self._add(delta) for delta in self._waiting.pop(message_id, []))
        if frame["type"] != "delta" or frame["part_type"] != TextPart.type:
            return ""
        if frame["message_id"] not in self._known:
            self._waiting[frame["message_id"]].append(frame)
            return ""
        return self._add(frame)

    def _add(self, delta: Mapping[str, Any]) -> str:
        place = (delta["message_id"], delta["part_index"])
        new: str = delta["text"][self._sent.get(place, 0) - delta["offset"] :]
        if not new:
            return ""
        divider = "\n\n" if self._sent and place not in self._sent else ""
        self._sent[place] = delta["offset"] + len(delta["text"])
        return divider + new
