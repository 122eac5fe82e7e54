"""The deadline of a whole call, for everything that streams one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from mnesis_core.llm import ModelSpec, Request

T = TypeVar("T")


class DeadlinePassed(Exception):
    """The whole call has taken longer than it may."""


def seconds_of(spec: ModelSpec, request: Request) -> float:
    """How long a whole call may take: what the model's entry allows, and no longer than who asks has time."""
    if request.seconds is None:
        return spec.total_timeout_seconds
    return max(0.0, min(request.seconds, spec.total_timeout_seconds))


def deadline_of(spec: ModelSpec, request: Request) -> float:
    """When a call that begins now must have ended, by the clock of the running loop."""
    return asyncio.get_running_loop().time() + seconds_of(spec, request)


async def before(deadline: float, awaitable: Awaitable[T]) -> T:
    """What ``awaitable`` gives.

    :raises DeadlinePassed: it was not there in time.
    """
    # A timeout must not be held over a yield: it would cancel whoever consumes the stream.
    try:
        async with asyncio.timeout_at(deadline) as scope:
            return await awaitable
    except TimeoutError:
        if scope.expired():
            raise DeadlinePassed from None
        raise
