"""Running one tool call: its time is bounded, whatever the tool does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import cast

from agents_app.tools.definition import Tool, ToolContext
from agents_app.tools.threads import ToolThreads

_THREADS = ToolThreads(running=16, given_up=64)


async def call_tool(
    tool: Tool,
    context: ToolContext,
    arguments: str,
    *,
    longest_seconds: float,
    late: Callable[[str], None] = lambda output: None,
) -> str:
    """Run a tool and wait for its output, no longer than the tool's own timeout and ``longest_seconds``.

    A tool without a timeout bounds its own waiting.

    A synchronous tool whose time is over, or whose turn was interrupted, goes on in its thread.

    :param late: takes what such a tool answers in the end, in that thread
    :raises TimeoutError: its time is over; the message says how much it had.
    :raises InvalidRequest: the arguments do not fit.
    """
    seconds = None if tool.timeout_seconds is None else min(tool.timeout_seconds, longest_seconds)
    try:
        async with asyncio.timeout(seconds):
            if tool.is_async:
                return await cast(Awaitable[str], tool.call(context, arguments))
            return await _in_thread(tool, context, arguments, late)
    except TimeoutError:
        if seconds is None:
            raise
        raise TimeoutError(f"The tool did not answer within {seconds:g} seconds.") from None


async def _in_thread(tool: Tool, context: ToolContext, arguments: str, late: Callable[[str], None]) -> str:
    job = _THREADS.submit(lambda: cast(str, tool.call(context, arguments)))
    try:
        return await asyncio.wrap_future(job.future)
    except asyncio.CancelledError:
        job.future.add_done_callback(lambda future: _hand_on(future, late))
        raise
    finally:
        _THREADS.give_up(job)


def _hand_on(future: Future[str], late: Callable[[str], None]) -> None:
    if not future.cancelled() and future.exception() is None:
        late(future.result())
