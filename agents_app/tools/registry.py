"""The tools that there are, registered by ``tool`` or brought by MCP servers, and which of them a session is offered."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_type_hints

from django.apps import AppConfig
from django.core.checks import Error
from pydantic import ConfigDict, create_model

from agents_app.tools.definition import Tool, ToolScope
from agents_app.tools.mcp.tools import attached_tools
from mnesis_core.config import TurnConfig
from mnesis_core.errors import InvalidRequest, MnesisError, PermissionDenied, ToolNotFoundError
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.turns.mcp_servers import SEPARATOR
from sessions_app.conf import site_config

Function = TypeVar("Function", bound=Callable[..., str | Awaitable[str]])
EVERY = "*"  # server__*: every tool of a server

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
        hints = get_type_hints(function)
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


def list_tools(*, user_id: int | None) -> list[Tool]:
    """Return every tool there is for a person's sessions, by name. Reads the database."""
    everything = _TOOLS | attached_tools(user_id=user_id)
    return [everything[name] for name in sorted(everything)]


def find_tool(name: str) -> Tool:
    """Return the tool of this name. Reads the database for one that an MCP server brings.

    :raises ToolNotFoundError: there is none.
    """
    found = _select([name], _attached_of([name], user_id=None)).get(name)
    if found is None:
        raise ToolNotFoundError(f"no tool is called {name!r}; there are: {', '.join(sorted(_TOOLS))}")
    return found


def offered_tools(names: Iterable[str], *, user_id: int | None, depth: int = 0) -> dict[str, Tool]:
    """Return the tools of these names that a session of this depth may be offered, in this order.

    ``server__*`` stands for all tools of a server. Unknown names are left out, so that a removed tool breaks no
    session, and so are tools that are not for the owner. Reads the database, as ``find_tool`` does.

    :param user_id: the session's owner; ``None``: the site itself asks
    """
    wanted = tuple(names)
    found = _select(wanted, _attached_of(wanted, user_id=user_id))
    return {name: tool for name, tool in found.items() if tool.is_for(depth)}


def permitted_tools(tools: Mapping[str, Tool], config: TurnConfig) -> dict[str, Tool]:
    """Return the tools that a session's configuration permits: only reading ones, only those that need no approval."""
    return {
        name: found
        for name, found in tools.items()
        if (found.read_only or not config.read_only)
        and not (config.unattended and (found.needs_approval or name in config.ask_before))
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
            f"turn.tools: no tool is called {', '.join(unknown)}; GET /api/tools lists the ones there are",
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
        return PermissionDenied(f"{name} is for sub-agents, who have a context of their own. Delegate with task.")
    return ToolNotFoundError(f"no tool is called {name!r}; there are: {', '.join(offered)}")


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
