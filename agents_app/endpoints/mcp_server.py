"""A server of the Model Context Protocol (https://modelcontextprotocol.io), made with the official package.

A tool's error is a result, because the model has to see it; an error of a resource is one of the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from agents_app.endpoints.jsonrpc import write
from agents_app.endpoints.mcp_tools import TOOLS, read_session
from agents_app.tools.memory import describing, reading
from agents_app.tools.memory.reach import find_own
from mnesis_core.errors import InvalidRequest, MnesisError, NotFound, ToolNotFoundError
from mnesis_core.text import printable
from sessions_app.api import session_page
from sessions_app.callers import Caller
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db
from sessions_app.live.access import check_caller
from sessions_app.operations import perform
from sessions_app.schemas import JSONEncoder

Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[Context], Awaitable[Caller]]

INSTRUCTIONS = (
    "Mnesis keeps every conversation whole. mnesis_run and mnesis_resume talk with a model; lcm_grep finds anything "
    "that was ever said; lcm_describe, lcm_expand and lcm_read open what it finds, summaries included."
)
# The first part of a path after ``mnesis://``, with the prefix of the ids that may follow it.
KINDS = {"sessions": "sess", "summaries": "sum", "files": "file"}
PAGE = 50
JSON, TEXT = "application/json", "text/plain"


def always(caller: Caller) -> CallerOf:
    """Let every request act for one person, as long as their account is open."""

    async def caller_of(context: Context) -> Caller:
        try:
            return await db(check_caller, caller)
        except MnesisError as error:
            raise protocol_error(error) from None

    return caller_of


def make_server(caller_of: CallerOf) -> Server[Any]:
    """Return a server. ``caller_of`` finds for whom a request acts, and raises an ``MCPError`` if the account was closed."""

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await run_tool(params.name, params.arguments or {}, await caller_of(context))

    async def list_resources(
        context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return await resources_of(await caller_of(context), params.cursor if params else None)

    async def read(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await read_resource(str(params.uri), await caller_of(context))

    return Server(
        "mnesis",
        version="1",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read,
    )


async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    tools = [
        types.Tool(
            name=name,
            description=known.description,
            input_schema=known.params.model_json_schema(),
            annotations=types.ToolAnnotations(read_only_hint=not known.writes, destructive_hint=False),
        )
        for name, known in TOOLS.items()
    ]
    return types.ListToolsResult(tools=tools)


async def run_tool(name: str, arguments: dict[str, Any], caller: Caller) -> types.CallToolResult:
    """Call a tool; return its result as text, and as structured content unless it is a text.

    :raises MCPError: there is no such tool.
    """
    known = TOOLS.get(name)
    if known is None:
        raise protocol_error(ToolNotFoundError())
    try:
        result = await perform(known, arguments, caller)
    except Exception as exception:
        error = to_error(exception, asked=f"MCP {name}")
        return _tool_result(f"{error.code}: {error.message}", _plain({"error": error.as_dict()}), is_error=True)
    if isinstance(result, str):
        return _tool_result(result)
    value = _plain(result)
    return _tool_result(json.dumps(value, ensure_ascii=False), value)


async def list_templates(
    context: Context, params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    templates = [
        types.ResourceTemplate(
            uri_template=f"mnesis://{kind}/{{id}}", name=kind, mime_type=JSON if kind == "sessions" else TEXT
        )
        for kind in KINDS
    ]
    return types.ListResourceTemplatesResult(resource_templates=templates)


async def resources_of(caller: Caller, cursor: str | None) -> types.ListResourcesResult:
    """:raises MCPError: the cursor is not valid."""
    try:
        page = await db(
            session_page,
            owner_id=caller.owner_id,
            archived=None,
            label=None,
            q="",
            parent_id=None,
            limit=PAGE,
            cursor=cursor,
        )
    except MnesisError as error:
        raise protocol_error(error) from None
    resources = [
        types.Resource(uri=f"mnesis://sessions/{item.id}", name=printable(item.title) or item.id, mime_type=JSON)
        for item in page["items"]
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=page["next_cursor"])


async def read_resource(uri: str, caller: Caller) -> types.ReadResourceResult:
    """Return a session with its newest messages, a summary, a file, or what is known of a file.

    :raises MCPError: there is no such resource, or it belongs to another person.
    """
    try:
        kind, id = _parse(uri)
        text = await db(_read, kind, id, caller.owner_id)
    except Exception as exception:
        raise protocol_error(to_error(exception, asked=f"MCP resource {uri[:100]}")) from None
    mime_type = JSON if kind == "sessions" else TEXT
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)])


def protocol_error(error: MnesisError) -> MCPError:
    """Return an error as one of the protocol: the registry's number and message, with the code and details as data."""
    return MCPError(error.rpc_code, printable(error.message), _plain({"code": error.code, "details": error.details}))


def _tool_result(text: str, value: Any = None, *, is_error: bool = False) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(text=printable(text))]
    return types.CallToolResult(content=content, structured_content=value, is_error=is_error)


def _parse(uri: str) -> tuple[str, str]:
    scheme, _, rest = uri.partition("://")
    kind, _, id = rest.partition("/")
    if scheme != "mnesis" or kind not in KINDS:
        raise NotFound(f"There is nothing here but mnesis://{', mnesis://'.join(KINDS)}.")
    if id.partition("_")[0] != KINDS[kind]:
        raise InvalidRequest(f"This is no id of {kind}.", field="uri")
    return kind, id


def _read(kind: str, id: str, owner_id: int) -> str:
    if kind == "sessions":
        return write(read_session(id, owner_id=owner_id))
    found = find_own(id, owner_id=owner_id)
    told = describing.describe(found) if kind == "summaries" else reading.read(found, offset=0, limit=40_000)
    return printable(told)


def _plain(value: Any) -> Any:
    """Return a value that the package can write: times as texts, and no lone surrogates."""
    return json.loads(printable(json.dumps(value, cls=JSONEncoder, ensure_ascii=False)))
