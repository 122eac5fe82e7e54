"""The live stream of a session: the feed that its followers in a process share, and the check of their rights.

The check is repeated, because a stream is open for hours, and rights end in between. A feed reads at once after a pause
and for the first word of a text, otherwise every ``stream.coalesce_seconds``. A follower that is further behind than the
feed remembers reads the ledger itself. Frames are ``{"seq", "type", "data", "created_at"}`` for events, ``{"type":
"caught_up", "seq"}`` once, and ``{"type": "delta", "message_id", "part_index", "part_type", "offset", "text"}`` for text.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.contrib.auth import get_user_model
from django.http import HttpRequest

from mnesis_core.errors import NotSignedIn, SessionNotFoundError
from mnesis_core.events import EventType, LedgerEvent
from mnesis_core.messages import ReasoningPart, RefusalPart, TextPart
from mnesis_core.records import LiveText
from mnesis_core.text import printable_piece, write_time
from sessions_app.callers import Caller, owner_id, user_of
from sessions_app.conf import site_config
from sessions_app.database.outages import log_failure, log_outage
from sessions_app.database.threads import AWAY, db
from sessions_app.llm.model_store import find_key
from sessions_app.record.context_queries import load_events
from sessions_app.record.hub import Follower, hub
from sessions_app.record.message_queries import load_live_texts, load_part_text
from sessions_app.record.session_queries import load_session

PAGE = 500
REMEMBERED = 2 * PAGE
POLL_SECONDS = 5.0  # in case every notification of news gets lost
RETRY_SECONDS = 1.0

STREAMED = (TextPart.type, ReasoningPart.type, RefusalPart.type)
logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[], Awaitable[object]]  # raises once the viewer may no longer follow


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """A person who follows a session, and the credential with which they do."""

    owner_id: int
    key_prefix: str = ""
    cookie: str = ""  # the key of a sign-in; empty for an API key


def viewer_of(request: HttpRequest) -> Viewer:
    """:raises NotSignedIn: the request has no signed-in user."""
    person, prefix = owner_id(request), getattr(request, "key_prefix", "")
    return Viewer(owner_id=person, key_prefix=prefix, cookie="" if prefix else request.session.session_key or "")


def viewer_of_socket(scope: dict[str, Any]) -> Viewer:
    cookie = scope.get("session")
    return Viewer(
        owner_id=scope["user"].pk,
        key_prefix=scope.get("key_prefix", ""),
        cookie="" if cookie is None else cookie.session_key or "",
    )


def check_viewer(viewer: Viewer, session_id: str) -> None:
    """:raises SessionNotFoundError: their account was closed, their key ended, they signed out or changed their password, or
    the session is gone or belongs to another person.
    """
    if not _is_known(viewer):
        raise SessionNotFoundError(session_id=session_id)
    load_session(session_id, owner_id=viewer.owner_id)


def check_caller(caller: Caller) -> Caller:
    """:raises NotSignedIn: the account of the caller of a lasting connection was closed."""
    if not _is_open(caller.owner_id):
        raise NotSignedIn(f"The account of {caller.user.get_username()} was closed.")
    return caller


def make_check(viewer: Viewer, session_id: str) -> Check:
    return partial(db, check_viewer, viewer, session_id)


def _is_known(viewer: Viewer) -> bool:
    if viewer.key_prefix:
        key = find_key(viewer.key_prefix)
        if key is None or key.revoked_at is not None or not key.is_at_home:
            return False
        return key.owner_id == viewer.owner_id
    if not viewer.cookie:
        return _is_open(viewer.owner_id)
    user = user_of(import_module(settings.SESSION_ENGINE).SessionStore(viewer.cookie))  # empty if the sign-in has ended
    return user.pk == viewer.owner_id and user.is_active


def _is_open(owner_id: int) -> bool:
    return get_user_model().objects.filter(pk=owner_id, is_active=True).exists()


class Frame(dict[str, Any]):
    """A frame for clients, shared by many of them, so it must not be changed."""

    __slots__ = ("_json",)
    _json: str

    def as_json(self) -> str:
        if not hasattr(self, "_json"):
            self._json = json.dumps(self)
        return self._json


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    event: LedgerEvent
    frame: Frame
    whole: LiveText | None  # the whole text of a streamed part, for followers that were not sent all of it


class SessionFeed:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.loop = asyncio.get_running_loop()
        self.seq = -1  # the last event that was read; below 0 until the first member has caught up
        self.texts: list[LiveText] = []
        self._news: deque[News] = deque(maxlen=REMEMBERED)
        self._deltas: dict[tuple[str, int, int], Frame] = {}
        self._members: set[asyncio.Event] = set()
        self._follower: Follower | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self, seq: int) -> None:
        """Start after a member has caught up to ``seq``, or read again for it."""
        if self.seq < 0:
            self.seq = seq
            self._task = self.loop.create_task(self._run(), name="feed", context=contextvars.Context())
        elif self._follower is not None:
            self._follower.wake()

    def since(self, seq: int) -> list[News] | None:
        """Return the events after ``seq``, or ``None`` if the feed does not remember that far back."""
        if seq >= self.seq:
            return []
        first = self._news[0].event.seq if self._news else self.seq + 1
        if seq < first - 1:
            return None
        return [self._news[index] for index in range(seq + 1 - first, len(self._news))]

    def delta(self, live: LiveText, offset: int) -> Frame:
        """Return the text of a part from ``offset`` on, as one frame for all who were sent as much."""
        key = (live.message_id, live.part_index, offset)
        if key not in self._deltas:
            self._deltas[key] = delta_frame(live, offset)
        return self._deltas[key]

    async def _run(self) -> None:
        with hub.follow(self.session_id) as self._follower:
            while True:
                began = self.loop.time()
                try:
                    await self._read()
                except Exception as error:
                    # During an outage of the database nothing is lost, it is only read later.
                    log_failure(logger, "What is new in a session could not be read", error)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                await self._follower.news(seconds=POLL_SECONDS)
                pause = site_config().stream.coalesce_seconds - (self.loop.time() - began)
                await self._follower.pause(seconds=pause)

    async def _read(self) -> None:
        def read_news() -> list[News]:
            events = load_events(self.session_id, after=self.seq, limit=PAGE)
            return [News(event=event, frame=event_frame(event), whole=load_streamed_text(event)) for event in events]

        texts = hub.texts(self.session_id)
        if texts is None:
            texts = await db(load_live_texts, self.session_id)
        self.texts, self._deltas = texts, {}
        while events := await db(read_news):
            self._news.extend(events)
            self.seq = events[-1].event.seq
            self._notify()
        self._notify()

    def _notify(self) -> None:
        for member in self._members:
            member.set()

    @contextmanager
    def member(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set after each read."""
        event = asyncio.Event()
        self._members.add(event)
        try:
            yield event
        finally:
            self._members.discard(event)
            if not self._members and self._task is not None:
                self._task.cancel()
            if not self._members and _feeds.get(self.session_id) is self:
                del _feeds[self.session_id]


_feeds: dict[str, SessionFeed] = {}


def feed_of(session_id: str) -> SessionFeed:
    feed = _feeds.get(session_id)
    if feed is None or feed.loop is not asyncio.get_running_loop():
        feed = _feeds[session_id] = SessionFeed(session_id)
    return feed


def load_streamed_text(event: LedgerEvent) -> LiveText | None:
    """Return the whole text of the part that an event tells of, or ``None`` if it is no part that is streamed."""
    is_streamed = event.type == EventType.PART_CREATED and event.data["part_type"] in STREAMED
    return load_part_text(event.data["part_id"]) if is_streamed else None


def delta_frame(live: LiveText, offset: int) -> Frame:
    return Frame(
        type="delta",
        message_id=live.message_id,
        part_index=live.part_index,
        part_type=live.part_type,
        offset=offset,
        text=printable_piece(live.text[offset:]),
    )


def event_frame(event: LedgerEvent) -> Frame:
    return Frame(seq=event.seq, type=event.type, data=event.data, created_at=write_time(event.created_at))


class Progress:
    def __init__(self, session_id: str, after: int, *, is_live: bool) -> None:
        self.session_id = session_id
        self.seq = after
        self.is_live = is_live
        self.sent: dict[tuple[str, int], int] = {}
        self.final: set[str] = set()

    async def read(self) -> AsyncIterator[Frame]:
        while events := await _when_back(load_events, self.session_id, after=self.seq, limit=PAGE):
            for event in events:
                is_new_part = self.is_live and event.type == EventType.PART_CREATED
                whole = await _when_back(load_streamed_text, event) if is_new_part else None
                for frame in self.frames(News(event=event, frame=event_frame(event), whole=whole)):
                    yield frame
            if len(events) < PAGE:
                return

    def deltas(self, feed: SessionFeed) -> Iterator[Frame]:
        """Yield what the running answer says beyond what was sent."""
        for live in feed.texts:
            offset = self._offset(live)
            if live.message_id not in self.final and len(live.text) > offset:
                self.sent[live.message_id, live.part_index] = len(live.text)
                yield feed.delta(live, offset)

    def frames(self, news: News) -> Iterator[Frame]:
        self.seq = news.event.seq
        # The unsent end of a finished part comes before its event: it may have been written between two reads.
        if news.event.type == EventType.PART_CREATED:
            self.final.add(news.event.data["message_id"])
        if self.is_live and news.whole is not None and len(news.whole.text) > self._offset(news.whole):
            yield delta_frame(news.whole, self._offset(news.whole))
        yield news.frame

    def _offset(self, live: LiveText) -> int:
        return self.sent.get((live.message_id, live.part_index), 0)


class Recheck:
    def __init__(self, check: Check | None) -> None:
        self.seconds = site_config().stream.recheck_seconds
        self._check = check
        self._asked_at = time.monotonic()

    async def wait(self, news: asyncio.Event) -> None:
        """Wait for news, and check when it is due, which raises once the viewer may no longer follow."""
        while not news.is_set():
            try:
                async with asyncio.timeout(self._seconds_left()):
                    await news.wait()
            except TimeoutError:
                await self.when_due()
        news.clear()

    async def when_due(self) -> None:
        if self._check is not None and self._seconds_left() == 0:
            self._asked_at = time.monotonic()
            with suppress(*AWAY):  # then there is no news either, and the check is repeated next time
                await self._check()

    def _seconds_left(self) -> float | None:
        return None if self._check is None else max(0.0, self._asked_at + self.seconds - time.monotonic())


async def _when_back(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    # Waits until the database is back, so that followers miss nothing in an outage.
    while True:
        try:
            return await db(call, *args, **kwargs)
        except AWAY as error:
            log_outage(logger, "Followers wait for the database", error)
            await asyncio.sleep(RETRY_SECONDS)


async def follow(
    session_id: str, *, after: int = 0, whole_texts: bool = False, check: Check | None = None
) -> AsyncIterator[Frame]:
    """Yield frames of a session from event ``after + 1`` on, without end. The caller has checked the right to see it.

    :param whole_texts: texts that were said since ``after`` and have ended come as deltas too; otherwise the follower
        reads them from the record
    :param check: called every ``stream.recheck_seconds``; what it raises ends the stream
    """
    progress, recheck, feed = Progress(session_id, after, is_live=whole_texts), Recheck(check), feed_of(session_id)
    with feed.member() as news:
        async for frame in progress.read():
            yield frame
        yield Frame(type="caught_up", seq=progress.seq)
        progress.is_live = True
        feed.begin(progress.seq)
        while True:
            await recheck.when_due()
            for frame in progress.deltas(feed):
                yield frame
            new = feed.since(progress.seq)
            if new is None:
                async for frame in progress.read():
                    yield frame
            for item in new or []:
                for frame in progress.frames(item):
                    yield frame
            await recheck.wait(news)
