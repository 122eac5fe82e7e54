"""Waiting for what happens elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(is_so: Callable[[], bool], *, seconds: float = 10) -> None:
    """Wait until something is so, and fail if it takes too long."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110 - nothing of ours tells of it
            await asyncio.sleep(0.01)
