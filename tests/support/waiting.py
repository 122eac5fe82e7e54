"""Waiting for what happens elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE_SECONDS = 180.0
"""For what takes a moment on an idle machine: only what never comes waits so long, and a busy machine is no failure."""


async def until(is_so: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something is so, and fail if it takes too long."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 - nothing of ours tells of it
            await asyncio.sleep(0.01)
