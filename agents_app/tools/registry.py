"""Tools: what one is, one call of it, those that MCP servers bring, and the registry.

A tool is a Python function with type hints, registered by one decorator. It runs in the event loop or in a thread, and no
longer than it may take. The modules that use the SDK of MCP are loaded when a server is asked.
"""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TextIO, TypeVar, cast, get_type_hints

from django.apps import AppConfig
from django.core.checks import Error
from django.db import close_old_connections
from django.utils.translation import gettext, gettext_noop
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from agents_app import store
from agents_app.queries import list_servers
from mnesis_core.config import TurnConfig
from mnesis_core.errors import (
    AtCapacity,
    InvalidRequest,
    MnesisError,
    PermissionDenied,
    ToolNotFoundError,
    ToolServerUnreachable,
)
from mnesis_core.files.pictures import Shown
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.turns.mcp_servers import SEPARATOR, AttachedServer, AttachedTool, ListedTool, ServerAddress
from mnesis_core.turns.questions import ASK_USER
from sessions_app.conf import site_config
from sessions_app.database.threads import db, load

SHIPPED = "built in"
EVERY = "*"  # server__*: every tool of a server
_CONNECTIONS = "agents_app.tools.mcp.connections"  # importing the SDK takes more than a second
_OPENAPI = "agents_app.tools.openapi"  # and the HTTP client a tenth of one
Result = TypeVar("Result")
Output = str | Shown  # of a tool


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
    run: Callable[..., Output | Awaitable[Output]]
    arguments: type[BaseModel] | None  # None: the server that runs the tool checks its arguments
    timeout_seconds: float | None  # None: the tool bounds its own waiting, and nothing else does
    read_only: bool = False  # it changes nothing, here or elsewhere
    needs_approval: bool = False
    scope: ToolScope = ToolScope.SESSION
    source: str = SHIPPED  # or the MCP server that brings it
    unreachable_since: datetime | None = None  # when its server was found not to answer

    @property
    def summary(self) -> str:
        """The first line of the description, of a built-in tool in the page's language. Models read the English one."""
        line = self.spec.description.partition("\n")[0]
        return gettext(line) if line and self.source == SHIPPED else line

    def is_for(self, depth: int) -> bool:
        return self.scope is ToolScope.SESSION or (self.scope is ToolScope.SUB_AGENT) == (depth > 0)

    def call(self, context: ToolContext, arguments: str) -> Output | Awaitable[Output]:
        """Check the arguments (JSON) and run the tool, or make the coroutine that does.

        :raises InvalidRequest: they are no JSON, or do not fit the schema; the message says where.
        """
        try:
            values = (self.arguments or _AnyObject).model_validate_json(arguments or "{}")
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            raise InvalidRequest(gettext_noop("the arguments do not fit: %(reason)s"), {"reason": problems}) from None
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
        self._most_running, self._most_given_up = running, given_up
        self._lock = threading.Condition()
        self._waiting: deque[Job[object]] = deque()
        self._threads = self._idle = self._given_up = 0

    def submit(self, call: Callable[[], Result]) -> Job[Result]:
        """:raises AtCapacity: too many earlier calls have not returned though their time was over."""
        job = Job(call)
        with self._lock:
            if self._given_up >= self._most_given_up:
                raise AtCapacity(
                    gettext_noop(
                        "%(count)s tool calls have not returned though their time was over; the server must be restarted to run more"
                    ),
                    {"count": self._given_up},
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
) -> Output:
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
            if inspect.iscoroutinefunction(tool.run):
                return await cast(Awaitable[Output], tool.call(context, arguments))
            return await _call_in_thread(tool, context, arguments, late)
    except TimeoutError:
        if seconds is None:
            raise
        raise TimeoutError(f"The tool did not answer within {seconds:g} seconds.") from None


async def _call_in_thread(tool: Tool, context: ToolContext, arguments: str, late: Callable[[str], None]) -> Output:
    def pass_on(future: Future[Output]) -> None:
        if not future.cancelled() and future.exception() is None:
            output = future.result()
            late(output if isinstance(output, str) else output.text)

    job = _THREADS.submit(lambda: cast(Output, tool.call(context, arguments)))
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


def attached_tools(server_names: Iterable[str] | None = None, *, user_id: int | None) -> dict[str, Tool]:
    """Return the tools of the attached servers (of these names), by name. Reads the database, asks no server.

    :param user_id: the owner of the sessions they are for; ``None``: the site itself asks
    """
    return {
        tool.spec.name: Tool(
            spec=tool.spec,
            run=partial(_call, server, tool),
            arguments=None,
            timeout_seconds=server.address.timeout_seconds,
            read_only=server.is_read_only(tool),
            needs_approval=server.address.needs_approval,
            source=f"{'OpenAPI' if server.address.is_openapi else 'MCP server'} {server.address.name}",
            unreachable_since=server.unreachable_since,
        )
        for server in list_servers(server_names, user_id=user_id)
        for tool in server.listing.tools
    }


async def _call(
    server: AttachedServer, tool: AttachedTool, context: ToolContext, *, arguments: dict[str, Any]
) -> Output:
    try:
        if tool.operation is not None:
            output: Output = await (await load(_OPENAPI)).call_tool(server, tool, arguments)
        else:
            output = await (await load(_CONNECTIONS)).call_tool(server, tool.remote_name, arguments)
    except ToolServerUnreachable as error:
        await db(store.note_problem, server.id, error.message)
        raise
    if server.unreachable_since is not None:
        await db(store.note_answer, server.id)
    return output


async def ask_for_tools(address: ServerAddress, *, errors: TextIO | int = subprocess.DEVNULL) -> list[ListedTool]:
    """Return the tools that a server lists now. ``errors`` gets what a program says on standard error.

    :raises ToolServerUnreachable: it cannot be connected to, or does not answer in time.
    :raises ToolFailed: it answers with an error, or with what is no list.
    """
    if address.is_openapi:
        listed: list[ListedTool] = await (await load(_OPENAPI)).list_tools(address)
    else:
        listed = await (await load(_CONNECTIONS)).list_tools(address, errors=errors)
    return listed


async def close_connections() -> None:
    """End every connection of this event loop and every program started for one, when the process ends."""
    if _CONNECTIONS in sys.modules:
        await sys.modules[_CONNECTIONS].connections.close()


Function = TypeVar("Function", bound=Callable[..., Output | Awaitable[Output]])

_TOOLS: dict[str, Tool] = {}


def tool(
    *,
    timeout_seconds: float | None = 60.0,
    read_only: bool = False,
    needs_approval: bool = False,
    scope: ToolScope | str = ToolScope.SESSION,
) -> Callable[[Function], Function]:
    """Register a function whose first parameter is the ``ToolContext``; its docstring tells the model what it does."""

    def register(function: Function) -> Function:
        hints = get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {
            parameter.name: (hints[parameter.name], ... if parameter.default is parameter.empty else parameter.default)
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        }
        arguments = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
        schema = arguments.model_json_schema()
        schema.pop("title", None)
        parameters = _resolve(schema, schema.pop("$defs", {}))
        _TOOLS[function.__name__] = Tool(
            spec=ToolSpec(name=function.__name__, description=inspect.getdoc(function) or "", parameters=parameters),
            run=function,
            arguments=arguments,
            timeout_seconds=timeout_seconds,
            read_only=read_only,
            needs_approval=needs_approval,
            scope=ToolScope(scope),
        )
        return function

    return register


def _resolve(value: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema with its definitions in the place of references, which not every provider follows."""
    if isinstance(value, list):
        return [_resolve(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if name := str(value.get("$ref", "")).removeprefix("#/$defs/"):
        return _resolve(definitions[name], definitions)
    return {key: _resolve(item, definitions) for key, item in value.items()}


def built_in_tools() -> list[Tool]:
    return list(_TOOLS.values())


def list_tools(*, user_id: int | None) -> list[Tool]:
    """Return every tool there is for a person's sessions, by name. Reads the database."""
    everything = _TOOLS | attached_tools(user_id=user_id)
    return [everything[name] for name in sorted(everything)]


def offered_tools(names: Iterable[str], *, user_id: int | None, depth: int = 0) -> dict[str, Tool]:
    """Return the tools of these names that a session of this depth may be offered, in this order.

    ``server__*`` stands for all tools of a server. Unknown names are left out, so that a removed tool breaks no
    session, and so are tools that are not for the owner. Reads the database, for servers.

    :param user_id: the session's owner; ``None``: the site itself asks
    """
    wanted = tuple(names)
    found = _select(wanted, _attached_of(wanted, user_id=user_id))
    return {name: tool for name, tool in found.items() if tool.is_for(depth)}


def permitted_tools(tools: Mapping[str, Tool], config: TurnConfig) -> dict[str, Tool]:
    """Return the tools that a session's configuration permits: only reading ones, only those that wait for no person."""
    return {
        name: found
        for name, found in tools.items()
        if (found.read_only or not config.read_only)
        and not (config.unattended and (found.needs_approval or name in (*config.ask_before, ASK_USER)))
    }


def check_tools(names: Iterable[str], *, user_id: int | None) -> None:
    """Refuse names of tools that this person's sessions cannot be offered now. Reads the database.

    :raises InvalidRequest: there are such names; the message says which.
    """
    wanted = tuple(dict.fromkeys(names))
    attached = _attached_of(wanted, user_id=user_id)
    unknown = [name for name in wanted if not _select([name], attached)]
    if unknown:
        raise InvalidRequest(
            gettext_noop("turn.tools: no tool is called %(names)s; GET /api/tools lists the ones there are"),
            {"names": ", ".join(unknown)},
            field="turn.tools",
        )


def check_tool_names(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[Error]:
    """System check ``mnesis.E010``: ``turn.tools`` or ``turn.ask_before`` names a tool that does not exist."""
    turn = site_config().turn
    # Tools of MCP servers are not checked: a server that was removed must not keep the site from starting.
    wrong = [name for name in (*turn.tools, *turn.ask_before) if SEPARATOR not in name and name not in _TOOLS]
    return [
        Error(
            f"The configuration (MNESIS_CONFIG) names the tool {name!r}, and there is none.",
            hint=f"There are: {', '.join(sorted(_TOOLS))}, and those of MCP servers as server__tool.",
            id="mnesis.E010",
        )
        for name in dict.fromkeys(wrong)
    ]


def not_offered(name: str, offered: Iterable[str]) -> MnesisError:
    """Return the error with which a call to a tool is answered that the session is not offered."""
    known = _TOOLS.get(name)
    if known is not None and known.scope is ToolScope.SUB_AGENT:
        return PermissionDenied(
            gettext_noop("%(name)s is for sub-agents, who have a context of their own. Delegate with task."),
            {"name": name},
        )
    return ToolNotFoundError(
        gettext_noop("no tool is called %(name)s; there are: %(names)s"),
        {"name": repr(name), "names": ", ".join(offered)},
    )


def _attached_of(names: Iterable[str], *, user_id: int | None) -> dict[str, Tool]:
    """Return all tools of the servers that these names are about. The database is asked only if there are any."""
    servers = {name.partition(SEPARATOR)[0] for name in names if name not in _TOOLS and SEPARATOR in name}
    return attached_tools(servers, user_id=user_id) if servers else {}


def _select(names: Iterable[str], attached: Mapping[str, Tool]) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for name in names:
        if name in _TOOLS:
            found[name] = _TOOLS[name]
        elif name.endswith(SEPARATOR + EVERY):
            found |= {key: value for key, value in attached.items() if key.startswith(name[: -len(EVERY)])}
        elif name in attached:
            found[name] = attached[name]
    return found
