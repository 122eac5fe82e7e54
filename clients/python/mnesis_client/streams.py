"""Following a session over server-sent events: lines into frames, and what another connection need not repeat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import cast

import httpx

from mnesis_client.errors import INTERNAL_ERROR, error_in
from mnesis_client.values import Frame, Message

TURN_STOPS = {
    "turn.completed", "turn.cancelled", "turn.interrupted", "turn.failed", "turn.incomplete", "turn.suspended",
}  # fmt: skip
READ_SECONDS = 60.0
"""A connection that is silent for this long may be dead, so another one is opened. Nothing is lost by that."""
ATTEMPTS = 3
PAUSE_SECONDS = 0.2


class Follower:
    """What one follower has read over all its connections, so that no event and no word of a text comes twice."""

    def __init__(self, after: int, *, wants_whole_texts: bool = False) -> None:
        self.seq = after
        self._silent_connections = 0
        self._wants_whole_texts = wants_whole_texts
        self._is_live = False
        self._text_ends: dict[tuple[str, int], int] = {}
        self._message_seqs: dict[str, int] = {}

    def read(self, line: str) -> Frame | None:
        """Return the frame of a line if it holds anything new.

        :raises MnesisError: the caller may not follow any longer
        :raises httpx.ReadError: the connection is of no more use
        """
        if not line.startswith("data: "):
            return None
        frame = cast(Frame, json.loads(line.removeprefix("data: ")))
        self._silent_connections = 0
        if frame["type"] == "error":
            error = error_in(frame)
            raise httpx.ReadError(error.message) if error.code == INTERNAL_ERROR else error
        if frame["type"] == "delta":
            return self._new_text(frame)
        if "data" not in frame:
            self._is_live = self._is_live or frame["type"] == "caught_up"
            return frame
        if frame["seq"] <= self.seq:
            return None
        self.seq = frame["seq"]
        if frame["type"] == "message.created":
            self._message_seqs[frame["data"]["message_id"]] = frame["data"]["message_seq"]
        return frame

    def lost(self) -> bool:
        """Note that the connection broke off, and return whether another one is worth trying."""
        self._silent_connections += 1
        # No more deltas come of a part that ends before the next connection, so its text must be read whole.
        self._wants_whole_texts, self._is_live = True, False
        return self._silent_connections <= ATTEMPTS

    def missed(self, frame: Frame) -> int | None:
        """Return the seq of the message that must be read because its text was completed without all deltas."""
        is_text = frame["type"] == "part.created" and frame["data"]["part_type"] == "text"
        if not is_text or self._is_live or not self._wants_whole_texts:
            return None
        return self._message_seqs.get(frame["data"]["message_id"])

    def missed_texts(self, message: Message) -> Iterator[Frame]:
        """Yield as deltas what the texts of a message hold beyond those that came."""
        for part in message["parts"]:
            if part["type"] == "text":
                place: Frame = {"type": "delta", "message_id": message["id"], "part_index": part["index"]}
                whole = self._new_text({**place, "part_type": "text", "offset": 0, "text": part.get("text") or ""})
                yield from [whole] if whole else []

    def _new_text(self, frame: Frame) -> Frame | None:
        place = (frame["message_id"], frame["part_index"])
        known, end = self._text_ends.get(place, 0), frame["offset"] + len(frame["text"])
        if end <= known:
            return None
        self._text_ends[place] = end
        return {**frame, "offset": known, "text": frame["text"][known - frame["offset"] :]}


def text_of(messages: Sequence[Message]) -> str:
    """Return the texts of the assistant's messages, divided by empty lines."""
    parts = [part for message in messages if message["role"] == "assistant" for part in message["parts"]]
    return "\n\n".join(part.get("text") or "" for part in parts if part["type"] == "text" and part.get("text"))


def stops(frame: Frame, turn_id: str) -> bool:
    """Return whether the turn does nothing after this frame until a caller or a person acts."""
    return frame["type"] in TURN_STOPS and frame["data"]["turn_id"] == turn_id
