"""A tool, and one call of it: in the event loop or in a thread, and no longer than it may take."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from django.db import close_old_connections
from pydantic import BaseModel, ConfigDict, ValidationError

from mnesis_core.errors import AtCapacity, InvalidRequest
from mnesis_core.llm.interface import ToolSpec

SHIPPED = "built in"
Result = TypeVar("Result")


class ToolScope(StrEnum):
    SESSION = "session"  # every session may be offered the tool
    SUB_AGENT = "sub_agent"  # only sessions that another session's turn has launched
    ROOT = "root"  # only sessions that no other session has launched


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The session on whose behalf a tool runs, and the call. A tool sees this session and nothing else."""

    session_id: str
    owner_id: int
    turn_id: str = ""
    part_id: str = ""  # the tool part that the result will be written to
    depth: int = 0  # launching sessions above this one: 0 for a person's own session, 1 for its sub-agents


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    spec: ToolSpec
    # Takes the context, then the arguments by name. A coroutine function runs in the event loop, any other in a thread.
    run: Callable[..., str | Awaitable[str]]
    arguments: type[BaseModel] | None  # None: the server that runs the tool checks its arguments
    timeout_seconds: float | None  # None: the tool bounds its own waiting, and nothing else does
    read_only: bool = False  # it changes nothing, here or elsewhere
    needs_approval: bool = False  # a person is asked before each call
    scope: ToolScope = ToolScope.SESSION
    source: str = SHIPPED  # or the MCP server that brings it
    unreachable_since: datetime | None = None  # when its server was found not to answer

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.run)

    def is_for(self, depth: int) -> bool:
        return self.scope is ToolScope.SESSION or (self.scope is ToolScope.SUB_AGENT) == (depth > 0)

    def call(self, context: ToolContext, arguments: str) -> str | Awaitable[str]:
        """Check the arguments (JSON) and run the tool, or make the coroutine that does.

        :raises InvalidRequest: they are no JSON, or do not fit the schema; the message says where.
        """
        try:
            values = (self.arguments or _AnyObject).model_validate_json(arguments or "{}")
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            raise InvalidRequest(f"the arguments do not fit: {problems}") from None
        if self.arguments is None:
            return self.run(context, arguments=values.model_extra)
        return self.run(context, **{name: getattr(values, name) for name in type(values).model_fields})


class _AnyObject(BaseModel):
    model_config = ConfigDict(extra="allow")


class Job(Generic[Result]):
    """One call in a thread, and the future that its result goes to."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self.call = call
        self.future: Future[Result] = Future()
        self.is_given_up = False

    def run(self) -> None:
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
    """Run synchronous tools in daemon threads; a call that was given up takes no other call's place.

    ``ThreadPoolExecutor`` will not do: at its end the interpreter waits for the executor's threads, and a tool may
    never return.
    """

    def __init__(self, *, running: int, given_up: int) -> None:
        """Bound the calls that a caller waits for, and those that go on after their caller gave them up."""
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
        """Stop waiting for a call. If it runs, its thread no longer counts."""
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
            threading.Thread(target=self._run_jobs, name="tool", daemon=True).start()

    def _run_jobs(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
                while not self._waiting:
                    self._lock.wait()
                self._idle -= 1
                job = self._waiting.popleft()
            job.run()
            with self._lock:
                # Another thread may have taken the place of one whose job was given up.
                if job.is_given_up:
                    self._given_up -= 1
                    self._threads -= 1
                    return
            # An idle thread must not keep the last job, its context and its output alive.
            del job


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

    A tool without a timeout bounds its own waiting. A synchronous tool whose time is over, or whose turn was
    interrupted, goes on in its thread.

    :param late: takes what such a tool answers in the end, in that thread
    :raises TimeoutError: its time is over; the message says how much it had.
    :raises InvalidRequest: the arguments do not fit.
    """
    seconds = None if tool.timeout_seconds is None else min(tool.timeout_seconds, longest_seconds)
    try:
        async with asyncio.timeout(seconds):
            if tool.is_async:
                return await cast(Awaitable[str], tool.call(context, arguments))
            return await _call_in_thread(tool, context, arguments, late)
    except TimeoutError:
        if seconds is None:
            raise
        raise TimeoutError(f"The tool did not answer within {seconds:g} seconds.") from None


async def _call_in_thread(tool: Tool, context: ToolContext, arguments: str, late: Callable[[str], None]) -> str:
    def pass_on(future: Future[str]) -> None:
        if not future.cancelled() and future.exception() is None:
            late(future.result())

    job = _THREADS.submit(lambda: cast(str, tool.call(context, arguments)))
    try:
        return await asyncio.wrap_future(job.future)
    except asyncio.CancelledError:
        job.future.add_done_callback(pass_on)
        raise
    finally:
        _THREADS.give_up(job)


async def side_by_side(calls: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return the results, in order. The first error, or a cancellation, ends all of them; none outlives this call."""
    # No task group: where a call that is cancelled fails, it would raise that failure in the place of the cancellation.
    running = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*running)
    except BaseException:
        for task in running:
            if not task.cancelling():  # a second cancellation would hit it while it writes what it has
                task.cancel()
        await asyncio.wait(running)
        raise
