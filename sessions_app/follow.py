"""Follow a session: its events in order from any point, then live, with the running answer's text.

One generator behind the websocket and the server-sent events. Frames are dictionaries (``design/api``
"Websocket"): ``{"seq", "type", "data"}`` for events, ``{"type": "caught_up", "seq"}`` once, and
``{"type": "delta", "message_id", "part_index", "part_type", "offset", "text"}`` for text.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import ParamSpec, TypeVar

from mnesis_core.record import LiveText
from sessions_app.conf import site_config
from sessions_app.database import AWAY, db
from sessions_app.outages import log_outage
from sessions_app.queries import load_events
from sessions_app.rooms import (
    PAGE,
    TRY_AGAIN_SECONDS,
    Frame,
    News,
    Room,
    delta_frame,
    event_frame,
    is_part,
    room_of,
    whole_text,
)

__all__ = ["Check", "Frame", "follow"]

P = ParamSpec("P")
R = TypeVar("R")
logger = logging.getLogger(__name__)

Check = Callable[[], Awaitable[object]]
"""Raises when whoever follows may not any more."""


class Progress:
    """What one follower has been sent."""

    def __init__(self, session_id: str, after: int, *, is_live: bool) -> None:
        self.session_id = session_id
        self.seq = after
        self.is_live = is_live
        self.sent: dict[tuple[str, int], int] = {}
        self.final: set[str] = set()

    async def read(self) -> AsyncIterator[Frame]:
        """Every event that is new since last time, in order, from the ledger."""
        while events := await _when_back(load_events, self.session_id, after=self.seq, limit=PAGE):
            for event in events:
                whole = await _when_back(whole_text, event.data) if self.is_live and is_part(event) else None
                for frame in self._frames(News(event=event, frame=event_frame(event), whole=whole)):
                    yield frame
            if len(events) < PAGE:
                return

    def frames(self, news: list[News]) -> Iterator[Frame]:
        """Likewise, of events that the room has read."""
        for item in news:
            yield from self._frames(item)

    def deltas(self, room: Room) -> Iterator[Frame]:
        """What the running answer says beyond what was sent."""
        for live in room.texts:
            offset = self._offset(live)
            if live.message_id not in self.final and len(live.text) > offset:
                self.sent[live.message_id, live.part_index] = len(live.text)
                yield room.delta(live, offset)

    def _frames(self, news: News) -> Iterator[Frame]:
        """The event; before that of a finished part what of it was not sent: it may have ended between two looks."""
        self.seq = news.event.seq
        if is_part(news.event):
            self.final.add(news.event.data["message_id"])
        if self.is_live and news.whole is not None and len(news.whole.text) > self._offset(news.whole):
            yield delta_frame(news.whole, self._offset(news.whole))
        yield news.frame

    def _offset(self, live: LiveText) -> int:
        return self.sent.get((live.message_id, live.part_index), 0)


class Recheck:
    """Asks again, now and then, whether somebody may follow."""

    def __init__(self, check: Check | None) -> None:
        self.seconds = site_config().stream.recheck_seconds
        self._check = check
        self._asked_at = time.monotonic()

    async def wait(self, news: asyncio.Event) -> None:
        """Wait for news, and ask when it is due.

        :raises Exception: what the check raises
        """
        while not news.is_set():
            try:
                async with asyncio.timeout(self._seconds_left()):
                    await news.wait()
            except TimeoutError:
                await self.when_due()
        news.clear()

    async def when_due(self) -> None:
        """Ask, if it was not asked for so long."""
        if self._check is not None and self._seconds_left() == 0:
            self._asked_at = time.monotonic()
            with suppress(*AWAY):  # then there is no news either; it is asked again next time
                await self._check()

    def _seconds_left(self) -> float | None:
        return None if self._check is None else max(0.0, self._asked_at + self.seconds - time.monotonic())


async def _when_back(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Read from the database, waiting until it is back, so that followers miss nothing in an outage."""
    while True:
        try:
            return await db(call, *args, **kwargs)
        except AWAY as error:
            log_outage(logger, "Followers wait for the database", error)
            await asyncio.sleep(TRY_AGAIN_SECONDS)


async def follow(
    session_id: str, *, after: int = 0, whole_texts: bool = False, check: Check | None = None
) -> AsyncIterator[Frame]:
    """Frames of a session from event ``after + 1`` on, without end. The caller has checked who may see it.

    :param whole_texts: what was said since ``after``, and has ended before this look, comes as deltas too; else whoever
        follows reads it from the record, where it is by then
    :param check: asked every ``stream.recheck_seconds``; what it raises ends the stream
    """
    progress, recheck, room = Progress(session_id, after, is_live=whole_texts), Recheck(check), room_of(session_id)
    with room.member() as news:
        async for frame in progress.read():
            yield frame
        yield Frame(type="caught_up", seq=progress.seq)
        progress.is_live = True
        room.begin(progress.seq)
        while True:
            await recheck.when_due()
            for frame in progress.deltas(room):
                yield frame
            new = room.since(progress.seq)
            if new is None:
                async for frame in progress.read():
                    yield frame
            for frame in progress.frames(new or []):
                yield frame
            await recheck.wait(news)
