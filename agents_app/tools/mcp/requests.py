"""What we ask a server of the Model Context Protocol, and its answers as text. Imported only when a server is asked."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterable
from typing import Any

from mcp.client.client import Client
from mcp_types import (
    AudioContent,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from agents_app.tools.mcp.connections import Connection, connections
from agents_app.tools.mcp.transport import Errors
from mnesis_core.errors import ToolFailed, ToolServerUnreachable
from mnesis_core.turns.mcp_servers import MOST_TOOLS, AttachedServer, ListedTool, ServerAddress

_HINTS = {"read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint"}
LIST_SECONDS = 30.0
MOST_PAGES = 20
"""Of a list of tools; a server may always name one more."""
MOST_LISTED = 4 * MOST_TOOLS
"""Tools that are read at all; of these the first ``MOST_TOOLS`` good ones are taken."""


async def list_tools(address: ServerAddress, *, errors: Errors = subprocess.DEVNULL) -> list[ListedTool]:
    """Connect to a server, ask for its tools and end the connection. Whoever asks wants to know how it is now.

    :raises ToolServerUnreachable: it cannot be connected to, or does not answer in time.
    :raises ToolFailed: it answers with an error, or with what is no list.
    """
    connection = Connection(address, errors=errors)
    try:
        async with asyncio.timeout(LIST_SECONDS):
            return await connection.ask(_all_pages)
    except TimeoutError:
        raise ToolServerUnreachable(f"{address.name} did not list its tools within {LIST_SECONDS:g} seconds") from None
    finally:
        await connection.close()


async def _all_pages(client: Client) -> list[ListedTool]:
    found: list[ListedTool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        # Not client.list_tools, which keeps every schema to check answers by (see below).
        request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
        page = await client.session.send_request(request, ListToolsResult)
        found += [
            ListedTool(
                name=tool.name,
                description=tool.description or "",
                schema=tool.input_schema,
                hints=tool.annotations.model_dump(by_alias=True, include=_HINTS, exclude_none=True)
                if tool.annotations
                else {},
            )
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if not cursor or len(found) > MOST_LISTED:
            break
    return found[:MOST_LISTED]


async def call_tool(server: AttachedServer, name: str, arguments: dict[str, Any]) -> str:
    """Call a tool by the server's own name for it; its output as text.

    :raises ToolFailed: the tool or the server says that it failed, or answers with what is no answer.
    :raises ToolServerUnreachable: the server cannot be connected to, or the connection ended.
    """
    # Not client.call_tool: it checks the answer by the server's own schema, whose patterns can take for ever.
    request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
    result = await connections.ask(server, lambda client: client.session.send_request(request, CallToolResult))
    text = _text_of(result)
    if result.is_error:
        raise ToolFailed(text or "The tool failed and does not say why.")
    return text


def _text_of(result: CallToolResult) -> str:
    texts = list(_texts_of(result.content))
    if not texts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(texts)


def _texts_of(content: Iterable[Any]) -> Iterable[str]:
    for block in content:
        if isinstance(block, TextContent):
            yield block.text
        elif isinstance(block, ImageContent | AudioContent):
            yield f"[{block.mime_type}, {len(block.data) * 3 // 4:,} bytes: not shown]"
        elif isinstance(block, ResourceLink):
            yield f"[resource {block.uri}: {block.name}]"
        elif isinstance(block, EmbeddedResource):
            yield _text_of_resource(block.resource)


def _text_of_resource(resource: Any) -> str:
    if isinstance(resource, TextResourceContents):
        return f"[resource {resource.uri}]\n{resource.text}"
    return f"[resource {resource.uri}, {len(resource.blob) * 3 // 4:,} bytes: not shown]"
