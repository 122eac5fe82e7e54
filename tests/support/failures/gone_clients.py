"""A client that goes away in the middle of its request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.waiting import PATIENCE_SECONDS, until


class Paused:
    """A function that, its work done, waits in its thread until whoever asked for it is gone."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call, self._is_done, self._is_gone = call, threading.Event(), threading.Event()

    def __call__(self, *args: Any, **values: Any) -> Any:
        result = self._call(*args, **values)
        self._is_done.set()
        self._is_gone.wait(PATIENCE_SECONDS)
        return result

    async def leave(self, asking: Coroutine[Any, Any, Any]) -> None:
        """Cancel what asks for it meanwhile, as a request is whose client goes away."""
        task = asyncio.create_task(asking)
        await until(self._is_done.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        self._is_gone.set()
