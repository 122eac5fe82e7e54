"""Following a session over server-sent events: lines into frames, and going on after a lost connection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import httpx

from mnesis_client.endings import error_of
from mnesis_client.errors import MnesisError
from mnesis_client.values import Frame, Message

TURN_ENDS = {"turn.completed", "turn.cancelled", "turn.interrupted", "turn.failed", "turn.incomplete"}
TURN_STOPS = {*TURN_ENDS, "turn.suspended"}
READ_SECONDS = 60.0
"""A connection that is silent for so long may be dead; following goes on with a new one, and nothing is lost."""
ATTEMPTS = 3
PAUSE_SECONDS = 0.2


class Follower:
    """What one follower has had, over all its connections: no event comes twice, no word of a text either."""

    def __init__(self, after: int, *, wants_whole_texts: bool = False) -> None:
        self.seq = after
        self.silences = 0
        """Connections in a row that brought nothing."""
        self._wants_whole_texts = wants_whole_texts
        self._is_live = False
        self._sent: dict[tuple[str, int], int] = {}
        self._seqs: dict[str, int] = {}

    def read(self, line: str) -> Frame | None:
        """The frame of a line, if it holds one with something new.

        :raises MnesisError: it says that there is nothing more for this caller
        :raises httpx.ReadError: it says that the connection is of no use any more
        """
        if not line.startswith("data: "):
            return None
        frame = cast(Frame, json.loads(line.removeprefix("data: ")))
        self.silences = 0
        if frame["type"] == "error":
            raise _error_frame(frame)
        if frame["type"] == "delta":
            return self.new_text(frame)
        if "data" not in frame:
            self._is_live = self._is_live or frame["type"] == "caught_up"
            return frame
        return self._new_event(frame)

    def lost(self) -> bool:
        """The connection broke off: whether another one is worth trying."""
        self.silences += 1
        # Of a part that ends meanwhile no more deltas come.
        self._wants_whole_texts, self._is_live = True, False
        return self.silences <= ATTEMPTS

    def missed(self, frame: Frame) -> int | None:
        """The place of the message whose text must be read, since this frame says that a part of it is whole."""
        is_text = frame["type"] == "part.created" and frame["data"]["part_type"] == "text"
        return self._seqs.get(frame["data"]["message_id"]) if is_text and self._is_behind else None

    def new_text(self, frame: Frame) -> Frame | None:
        """What a delta adds to the text that was sent."""
        place = (frame["message_id"], frame["part_index"])
        known, end = self._sent.get(place, 0), frame["offset"] + len(frame["text"])
        if end <= known:
            return None
        self._sent[place] = end
        return {**frame, "offset": known, "text": frame["text"][known - frame["offset"] :]}

    def texts_of(self, message: Message) -> Iterator[Frame]:
        """What a message says beyond what was sent."""
        for part in message["parts"]:
            if part["type"] == "text":
                place: Frame = {"type": "delta", "message_id": message["id"], "part_index": part["index"]}
                whole = self.new_text({**place, "part_type": "text", "offset": 0, "text": part.get("text") or ""})
                yield from [whole] if whole else []

    @property
    def _is_behind(self) -> bool:
        return self._wants_whole_texts and not self._is_live

    def _new_event(self, frame: Frame) -> Frame | None:
        if frame["seq"] <= self.seq:
            return None
        self.seq = frame["seq"]
        if frame["type"] == "message.created":
            self._seqs[frame["data"]["message_id"]] = frame["data"]["message_seq"]
        return frame


def _error_frame(frame: Frame) -> Exception:
    """What ends a stream: a right that ended, or a fault of the server, after which another connection may help."""
    error = error_in(frame, 0)
    return httpx.ReadError(error.message) if error.said_code == MnesisError.code else error


def text_of(messages: Sequence[Message]) -> str:
    """What the assistant says in some messages, divided by empty lines."""
    parts = [part for message in messages if message["role"] == "assistant" for part in message["parts"]]
    return "\n\n".join(part.get("text") or "" for part in parts if part["type"] == "text" and part.get("text"))


def stops(frame: Frame, turn_id: str) -> bool:
    """Whether a turn does nothing after this frame until somebody acts."""
    return frame["type"] in TURN_STOPS and frame["data"]["turn_id"] == turn_id


def error_in(body: Any, status: int) -> MnesisError:
    """The error of an answer that is none of the good ones."""
    error = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return MnesisError(f"the server answered HTTP {status} without saying why", status=status)
    return error_of(
        str(error.get("code")), str(error.get("message")), status=status, details=dict(error.get("details") or {})
    )
