"""Threads for synchronous tools: one that never returns holds up neither the others nor the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Generic, TypeVar, cast

from django.db import close_old_connections

from agents_app.tools.definition import Tool, ToolContext
from mnesis_core.errors import AtCapacity

Result = TypeVar("Result")


class Job(Generic[Result]):
    """One call and where its result goes."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self.call = call
        self.future: Future[Result] = Future()
        self.is_given_up = False

    def run(self) -> None:
        """Run in this thread, unless nobody waits any more."""
        if not self.future.set_running_or_notify_cancel():
            return
        close_old_connections()
        try:
            self.future.set_result(self.call())
        except BaseException as error:
            self.future.set_exception(error)
        finally:
            close_old_connections()


class ToolThreads:
    """A pool whose threads die with the process, and where a call that was given up takes nobody's place.

    Not a ``ThreadPoolExecutor``: the end of the interpreter waits for its threads, whatever they do.
    """

    def __init__(self, *, running: int, given_up: int) -> None:
        """At most ``running`` calls that somebody waits for, and ``given_up`` that go on without."""
        self._most_running, self._most_given_up = running, given_up
        self._lock = threading.Condition()
        self._waiting: deque[Job[object]] = deque()
        self._threads = self._idle = self._given_up = 0

    def submit(self, call: Callable[[], Result]) -> Job[Result]:
        """Run a call when a thread is free.

        :raises AtCapacity: too many earlier calls have not returned though their time was over.
        """
        job = Job(call)
        with self._lock:
            if self._given_up >= self._most_given_up:
                raise AtCapacity(
                    f"{self._given_up} tool calls have not returned though their time was over; "
                    "the server must be restarted to run more"
                )
            self._waiting.append(job)  # type: ignore[arg-type]
            self._serve()
        return job

    def give_up(self, job: Job[Result]) -> None:
        """Nobody waits for this call any more. If it runs, its thread no longer counts."""
        with self._lock:
            if job.future.cancel() or job.future.done() or job.is_given_up:
                return
            job.is_given_up = True
            self._given_up += 1
            self._serve()

    def _serve(self) -> None:
        if self._idle >= len(self._waiting):
            self._lock.notify()
        elif self._threads - self._given_up < self._most_running:
            self._threads += 1
            threading.Thread(target=self._work, name="tool", daemon=True).start()

    def _work(self) -> None:
        is_kept = True
        while is_kept:
            job = self._next()
            job.run()
            is_kept = self._ended(job)

    def _next(self) -> Job[object]:
        with self._lock:
            self._idle += 1
            while not self._waiting:
                self._lock.wait()
            self._idle -= 1
            return self._waiting.popleft()

    def _ended(self, job: Job[object]) -> bool:
        """Whether this thread is still needed: another one may have taken its place."""
        with self._lock:
            if not job.is_given_up:
                return True
            self._given_up -= 1
            self._threads -= 1
            return False


# Running one tool call: its time is bounded, whatever the tool does.

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
