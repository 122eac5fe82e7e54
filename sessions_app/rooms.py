"""What is new in a session, read once for all who follow it in this process.

A room looks when there is news: at once after a pause and for the first word of a text, else every
``stream.coalesce_seconds``. It keeps the last events and the running answer as of its last look, and each frame is
written as JSON once. Followers stay level-triggered: each compares what is there with what it was sent, and reads the
ledger itself where it is further behind than the room remembers.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mnesis_core.events import EventType, LedgerEvent
from mnesis_core.messages import ReasoningPart, TextPart
from mnesis_core.record import LiveText
from mnesis_core.text import printable_piece, write_time
from sessions_app.conf import site_config
from sessions_app.database import db
from sessions_app.live import Follower, hub
from sessions_app.outages import log_failure
from sessions_app.queries import load_events, load_live_texts, load_part_text

PAGE = 500
REMEMBERED = 2 * PAGE
"""Events that a room keeps: who is further behind reads the ledger."""
LOOK_AGAIN_SECONDS = 5.0
"""A room looks by itself after this, should every word about news get lost."""
TRY_AGAIN_SECONDS = 1.0

STREAMED = (TextPart.type, ReasoningPart.type)
logger = logging.getLogger(__name__)


class Frame(dict[str, Any]):
    """What clients are sent. One frame goes to many, and must not be changed."""

    __slots__ = ("_json",)
    _json: str

    def as_json(self) -> str:
        """The frame as text, written when it is first asked for."""
        if not hasattr(self, "_json"):
            self._json = json.dumps(self)
        return self._json


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An event as all followers get it."""

    event: LedgerEvent
    frame: Frame
    whole: LiveText | None
    """Of a part that was streamed: its whole text, for whoever was not sent all of it."""


class Room:
    """Those who follow one session here."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.loop = asyncio.get_running_loop()
        self.seq = -1
        """The last event that the room has seen; below 0 until its first member has caught up."""
        self.texts: list[LiveText] = []
        self._news: deque[News] = deque(maxlen=REMEMBERED)
        self._deltas: dict[tuple[str, int, int], Frame] = {}
        self._members: set[asyncio.Event] = set()
        self._follower: Follower | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, seq: int) -> None:
        """A member has caught up to ``seq``: look from there on, and at what is said just now."""
        if self.seq < 0:
            self.seq = seq
            self._task = self.loop.create_task(self._run(), name="room", context=contextvars.Context())
        elif self._follower is not None:
            self._follower.wake()

    def since(self, seq: int) -> list[News] | None:
        """The events after ``seq`` that the room has seen; ``None``: it does not remember that far back."""
        if seq >= self.seq:
            return []
        first = self._news[0].event.seq if self._news else self.seq + 1
        if seq < first - 1:
            return None
        return [self._news[index] for index in range(seq + 1 - first, len(self._news))]

    def delta(self, live: LiveText, offset: int) -> Frame:
        """What a part says from ``offset`` on: one frame for all who were sent as much."""
        key = (live.message_id, live.part_index, offset)
        if key not in self._deltas:
            self._deltas[key] = delta_frame(live, offset)
        return self._deltas[key]

    async def _run(self) -> None:
        with hub.follow(self.session_id) as self._follower:
            while True:
                began = self.loop.time()
                try:
                    await self._look()
                except Exception as error:
                    # A database that is away for a moment: nothing is lost, it is only read later.
                    log_failure(logger, "What is new in a session could not be read", error)
                    await asyncio.sleep(TRY_AGAIN_SECONDS)
                    continue
                await self._follower.news(seconds=LOOK_AGAIN_SECONDS)
                pause = site_config().stream.coalesce_seconds - (self.loop.time() - began)
                await self._follower.pause(seconds=pause)

    async def _look(self) -> None:
        texts = hub.texts(self.session_id)
        if texts is None:
            texts = await db(load_live_texts, self.session_id)
        self.texts, self._deltas = texts, {}
        while events := await db(_read_news, self.session_id, self.seq):
            self._news.extend(events)
            self.seq = events[-1].event.seq
            self._tell()
        self._tell()

    def _tell(self) -> None:
        for member in self._members:
            member.set()

    @contextmanager
    def member(self) -> Iterator[asyncio.Event]:
        """Somebody who is told of each look, for the length of the block."""
        event = asyncio.Event()
        self._members.add(event)
        try:
            yield event
        finally:
            self._members.discard(event)
            if not self._members:
                self._close()

    def _close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if _rooms.get(self.session_id) is self:
            del _rooms[self.session_id]


_rooms: dict[str, Room] = {}


def room_of(session_id: str) -> Room:
    """The room of a session, made for the first who comes."""
    room = _rooms.get(session_id)
    if room is None or room.loop is not asyncio.get_running_loop():
        room = _rooms[session_id] = Room(session_id)
    return room


def _read_news(session_id: str, after: int) -> list[News]:
    return [
        News(event=event, frame=event_frame(event), whole=whole_text(event.data) if is_part(event) else None)
        for event in load_events(session_id, after=after, limit=PAGE)
    ]


def is_part(event: LedgerEvent) -> bool:
    """Whether an event tells of a finished part."""
    return event.type == EventType.PART_CREATED


def whole_text(part: dict[str, Any]) -> LiveText | None:
    """The text of a finished part, if it is of a kind that is streamed."""
    return load_part_text(part["part_id"]) if part["part_type"] in STREAMED else None


def delta_frame(live: LiveText, offset: int) -> Frame:
    """What a part says from ``offset`` on, as clients see it."""
    return Frame(
        type="delta",
        message_id=live.message_id,
        part_index=live.part_index,
        part_type=live.part_type,
        offset=offset,
        text=printable_piece(live.text[offset:]),
    )


def event_frame(event: LedgerEvent) -> Frame:
    """An event as clients see it."""
    return Frame(seq=event.seq, type=event.type, data=event.data, created_at=write_time(event.created_at))
