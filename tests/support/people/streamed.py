"""An answer that comes in pieces, for tests that are no coroutines."""

from __future__ import annotations

import asyncio
from typing import Any


def streamed(answer: Any) -> bytes:

    async def joined() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return asyncio.run(joined())
