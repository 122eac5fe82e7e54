"""Follow a session: its events in order from any point, then live, with the running answer's text.

One generator behind the websocket and the server-sent events. Frames are dictionaries (``design/api``
"Websocket"): ``{"seq", "type", "data"}`` for events, ``{"type": "caught_up", "seq"}`` once, and
``{"type": "delta", "message_id", "part_index", "part_type", "offset", "text"}`` for text.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from mnesis_core.events import EventType, LedgerEvent
from mnesis_core.messages import ReasoningPart, TextPart
from mnesis_core.record import LiveText
from mnesis_core.text import printable
from sessions_app.conf import site_config
from sessions_app.database import db
from sessions_app.live import hub
from sessions_app.queries import load_events, load_live_texts, load_part_text

PAGE = 500
LOOK_AGAIN_SECONDS = 5.0
"""A follower looks by itself after this, should every word about news get lost."""

STREAMED = (TextPart.type, ReasoningPart.type)

Frame = dict[str, Any]


class Progress:
    """What one follower has been sent."""

    def __init__(self, session_id: str, after: int) -> None:
        self.session_id = session_id
        self.seq = after
        self.is_live = False
        self.sent: dict[tuple[str, int], int] = {}
        self.final: set[str] = set()

    async def events(self) -> AsyncIterator[Frame]:
        """Every event that is new since last time, in order."""
        while events := await db(load_events, self.session_id, after=self.seq, limit=PAGE):
            for event in events:
                self.seq = event.seq
                if event.type == EventType.PART_CREATED and (last_words := await self._last_words(event.data)):
                    yield last_words
                yield event_frame(event)
            if len(events) < PAGE:
                return

    async def deltas(self) -> list[Frame]:
        """What the running answer says beyond what was sent."""
        frames = []
        for live in await db(load_live_texts, self.session_id):
            key = (live.message_id, live.part_index)
            offset = self.sent.get(key, 0)
            if live.message_id in self.final or len(live.text) <= offset:
                continue
            self.sent[key] = len(live.text)
            frames.append(delta_frame(live, offset))
        return frames

    async def _last_words(self, part: dict[str, Any]) -> Frame | None:
        """What of a finished part was not sent: it may have ended between two looks at the running text."""
        self.final.add(part["message_id"])
        if not self.is_live or part["part_type"] not in STREAMED:
            return None
        offset = self.sent.get((part["message_id"], part["part_index"]), 0)
        whole = await db(load_part_text, part["part_id"])
        return delta_frame(whole, offset) if len(whole.text) > offset else None


async def follow(session_id: str, *, after: int = 0) -> AsyncIterator[Frame]:
    """Frames of a session from event ``after + 1`` on, without end. The caller has checked who may see it."""
    progress = Progress(session_id, after)
    # Subscribed before the first read, so that nothing falls between the two.
    with hub.follow(session_id) as follower:
        async for frame in progress.events():
            yield frame
        yield {"type": "caught_up", "seq": progress.seq}
        progress.is_live = True
        while True:
            for frame in await progress.deltas():
                yield frame
            async for frame in progress.events():
                yield frame
            await follower.news(seconds=LOOK_AGAIN_SECONDS)
            await asyncio.sleep(site_config().stream.coalesce_seconds)


def delta_frame(live: LiveText, offset: int) -> Frame:
    """What a part says from ``offset`` on, as clients see it."""
    return {
        "type": "delta",
        "message_id": live.message_id,
        "part_index": live.part_index,
        "part_type": live.part_type,
        "offset": offset,
        "text": printable(live.text[offset:]),
    }


def event_frame(event: LedgerEvent) -> Frame:
    """An event as clients see it."""
    return {"seq": event.seq, "type": event.type, "data": event.data, "created_at": event.created_at.isoformat()}
