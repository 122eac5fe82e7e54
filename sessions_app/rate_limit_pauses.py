"""The pause that a model's "too many requests" imposes on every caller in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Protocol

from django.utils import timezone

from mnesis_core.errors import ModelRateLimited
from mnesis_core.llm.interface import Reply
from mnesis_core.maps.concurrency import pause_of_model
from sessions_app.conf import site_config
from sessions_app.database.threads import db


class SharePause(Protocol):
    """Tell other processes that a model refused a call that was made at ``began``; return until when it is not asked."""

    def __call__(self, alias: str, /, *, seconds: float, began: datetime) -> datetime: ...


class RateLimitPause:
    """The pause of one model in one worker. What other workers learnt comes with the heartbeat."""

    def __init__(self, alias: str, *, share: SharePause) -> None:
        self._alias = alias
        self._share = share
        self._until: datetime | None = None

    def extend(self, until: datetime | None) -> None:
        """Ask the model no earlier than this."""
        if until is not None and (self._until is None or until > self._until):
            self._until = until

    async def wait(self) -> None:
        """Return when the model may be asked."""
        while self._until is not None and self._until > (now := timezone.now()):  # noqa: ASYNC110 - it may be extended
            await asyncio.sleep((self._until - now).total_seconds())

    async def ask(self, ask: Callable[[], Awaitable[Reply]], *, attempts: int) -> Reply:
        """Ask the model once when it may be asked, and tell all workers if it refuses.

        :param attempts: the number of times that this call has been made, this one included
        """
        await self.wait()
        began = timezone.now()
        reply = await ask()
        if isinstance(reply.error, ModelRateLimited):
            longest = site_config().operators.retry_longest_seconds
            seconds = pause_of_model(reply.error, in_a_row=attempts, longest_seconds=longest, now=timezone.now())
            self.extend(await db(self._share, self._alias, seconds=seconds, began=began))
        return reply


# By the models' aliases. Not in a context variable, because a turn begins in an empty context.
_PAUSES: dict[str, RateLimitPause] = {}


def keep_pause(alias: str, *, share: SharePause) -> RateLimitPause:
    """Return the pause of a model; the caller drops it when its runs ask the model no more."""
    return _PAUSES.setdefault(alias, RateLimitPause(alias, share=share))


def drop_pauses(aliases: Iterable[str]) -> None:
    for alias in aliases:
        _PAUSES.pop(alias, None)


def find_pause(alias: str) -> RateLimitPause | None:
    """Return the pause of a model that map runs of this process ask; ``None`` where none does."""
    return _PAUSES.get(alias)
