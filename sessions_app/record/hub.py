"""The followers of sessions in this process, and the running answers so far.

Notifications are level-triggered: a follower only learns *that* something is new, then reads the ledger and the text so
far and compares them with what it has sent. So nothing is lost in a queue or sent twice, and a slow follower costs no
memory.

Followers in this process are woken directly. Other processes are notified by Redis publish/subscribe if there is a
``REDIS_URL``, by PostgreSQL NOTIFY (in the writing transaction), or, with SQLite, by watching ``PRAGMA data_version``.
All of these may fail without harm: a follower also polls now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import psycopg
import redis
import redis.asyncio
from django.conf import settings
from django.db import connection
from django.db.backends.utils import CursorWrapper

from mnesis_core.records import LiveText
from sessions_app.database.outages import log_outage
from sessions_app.database.threads import connection_arguments

CHANNEL = "mnesis_live"
SQLITE_POLL_SECONDS = 0.05
RECONNECT_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Follower:
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._news = asyncio.Event()
        self._news.set()
        self._first_word = asyncio.Event()

    def wake(self, *, is_first_word: bool = False) -> None:
        """Notify the follower of news, from any thread."""
        self._tell(self._news)
        if is_first_word:
            self._tell(self._first_word)

    async def news(self, *, seconds: float) -> None:
        await _wait(self._news, seconds)

    async def pause(self, *, seconds: float) -> None:
        """Let news accumulate for so many seconds, or until a text begins, so that its first word is not delayed."""
        if seconds > 0:
            await _wait(self._first_word, seconds)

    def _tell(self, event: asyncio.Event) -> None:
        # The follower clears the event before it reads, so a set event still covers this news.
        if event.is_set():
            return
        if threading.get_ident() == self._thread_id:
            event.set()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(event.set)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    # Not wait_for: until Python 3.12 it loses a cancellation that coincides with the news.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    event.clear()


class Hub:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._followers: dict[str, set[Follower]] = defaultdict(set)
        self._texts: dict[str, dict[tuple[str, int], tuple[str, list[str]]]] = {}
        self._watcher: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def follow(self, session_id: str) -> Iterator[Follower]:
        follower = Follower(session_id)
        with self._lock:
            self._followers[session_id].add(follower)
        loop = asyncio.get_running_loop()
        if self._watcher is None or self._watcher.done() or self._watcher.get_loop() is not loop:
            self._watcher = loop.create_task(_watch_others(self), name="live watcher", context=contextvars.Context())
        try:
            yield follower
        finally:
            with self._lock:
                self._followers[session_id].discard(follower)
                if not self._followers[session_id]:
                    del self._followers[session_id]

    def wake(self, session_id: str | None, *, is_first_word: bool = False) -> None:
        with self._lock:
            groups = self._followers.values() if session_id is None else [self._followers.get(session_id, set())]
            chosen = [follower for group in groups for follower in group]
        for follower in chosen:
            follower.wake(is_first_word=is_first_word)

    def add_text(self, session_id: str, message_id: str, part_index: int, part_type: str, text: str) -> None:
        parts = self._texts.setdefault(session_id, {})
        _, pieces = parts.setdefault((message_id, part_index), (part_type, []))
        pieces.append(text)
        self.wake(session_id, is_first_word=len(pieces) == 1)

    def drop_text(self, session_id: str, message_id: str) -> None:
        parts = self._texts.get(session_id, {})
        for key in [key for key in parts if key[0] == message_id]:
            del parts[key]
        if not parts:
            self._texts.pop(session_id, None)

    def texts(self, session_id: str) -> list[LiveText] | None:
        """Return the running answer of a session so far, or ``None`` if none runs in this process."""
        parts = self._texts.get(session_id)
        if parts is None:
            return None
        return [
            LiveText(message_id=message_id, part_index=index, part_type=part_type, text="".join(pieces))
            # A copy, because pages read from other threads.
            for (message_id, index), (part_type, pieces) in list(parts.items())
        ]


hub = Hub()
_redis_client: redis.Redis | None = None
_redis_rests_until = 0.0  # each attempt at a Redis that hangs would cost the writer two seconds


def wake(session_id: str) -> None:
    """Notify all followers of the session, here and in other processes. Call it after the commit."""
    global _redis_client, _redis_rests_until
    hub.wake(session_id)
    if settings.REDIS_URL and time.monotonic() >= _redis_rests_until:
        try:
            if _redis_client is None:
                _redis_client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2, socket_connect_timeout=2)
            _redis_client.publish(CHANNEL, session_id)
        except redis.RedisError as error:
            _redis_rests_until = time.monotonic() + RECONNECT_SECONDS
            log_outage(logger, "Redis is unreachable: other processes learn of news late", error)


def announce(cursor: CursorWrapper, session_id: str) -> None:
    """Notify other processes inside the writing transaction, if the database can do that."""
    if cursor.db.vendor == "postgresql" and not settings.REDIS_URL:
        cursor.execute("SELECT pg_notify(%s, %s)", (CHANNEL, session_id))


async def _watch_others(target: Hub) -> None:
    while True:
        try:
            if settings.REDIS_URL:
                await _watch_redis(target)
            elif connection.vendor == "postgresql":
                await watch_postgresql(target)
            else:
                await _watch_sqlite(target)
        except (OSError, sqlite3.Error, psycopg.Error, redis.RedisError) as error:
            log_outage(logger, "The live watcher lost its connection and tries again", error)
        # News from the time without a connection is in the ledger.
        target.wake(None)
        await asyncio.sleep(RECONNECT_SECONDS)


async def _watch_redis(target: Hub) -> None:
    async with redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_timeout=None).pubsub() as pubsub:
        await pubsub.subscribe(CHANNEL)
        async for message in pubsub.listen():
            if message["type"] == "message":
                target.wake(message["data"].decode())


async def watch_postgresql(target: Hub) -> None:
    async with await psycopg.AsyncConnection.connect(**connection_arguments(), autocommit=True) as listener:
        await listener.execute(f"LISTEN {CHANNEL}")
        async for notification in listener.notifies():
            target.wake(notification.payload)


async def _watch_sqlite(target: Hub) -> None:
    # One private connection: data_version counts what *other* connections committed.
    with contextlib.closing(sqlite3.connect(connection.settings_dict["NAME"])) as watcher:
        seen = None
        while True:
            (version,) = watcher.execute("PRAGMA data_version").fetchone()
            if version != seen:
                seen = version
                target.wake(None)
            await asyncio.sleep(SQLITE_POLL_SECONDS)
