"""Tools from an OpenAPI document: the document is fetched when an administrator asks, each call of a tool is one request."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import httpx2
from django.utils.translation import gettext_noop

from agents_app.tools.http import MOST_BYTES, open_client, read_secrets
from mnesis_core.errors import InvalidRequest, ToolFailed, ToolServerUnreachable
from mnesis_core.files.pictures import Shown, picture_of
from mnesis_core.text import read_json
from mnesis_core.turns.mcp_servers import MOST_LISTED, AttachedServer, AttachedTool, ListedTool, ServerAddress
from mnesis_core.turns.openapi import read_operations, request_of

LIST_SECONDS = 30.0
LONGEST_REASON = 2_000  # characters of an answer that says why a call failed
_CHARSETS = ("iso-8859-1", "windows-1252", "utf-16")  # Python knows others that take for ever, or are none
_READABLE = ("json", "xml", "yaml", "javascript", "x-www-form-urlencoded", "csv")


async def list_tools(address: ServerAddress) -> list[ListedTool]:
    """Return the operations of a document, also those that cannot be tools.

    :raises ToolServerUnreachable: the document cannot be fetched in time.
    :raises ToolFailed: there is another answer, or no OpenAPI document.
    """
    try:
        async with asyncio.timeout(LIST_SECONDS):
            response, data = await _ask(address, "GET", address.url, {"Accept": "application/json"}, None)
    except TimeoutError:
        raise ToolServerUnreachable(
            gettext_noop("%(server)s did not list its tools within %(seconds)s seconds"),
            {"server": address.name, "seconds": f"{LIST_SECONDS:g}"},
        ) from None
    if response.status_code != 200:
        raise ToolFailed(
            gettext_noop("%(server)s answers: %(reason)s"),
            {"server": address.name, "reason": f"{response.status_code} {response.reason_phrase}"},
        )
    return await asyncio.to_thread(_read, data, address)  # a document may be large


def _read(data: bytes, address: ServerAddress) -> list[ListedTool]:
    try:
        document = read_json(data)
    except InvalidRequest as error:
        raise ToolFailed(
            gettext_noop("%(server)s answers: %(reason)s"), {"server": address.name, "reason": error.message}
        ) from None
    return list(islice(read_operations(document, address), MOST_LISTED))


async def call_tool(server: AttachedServer, tool: AttachedTool, arguments: dict[str, Any]) -> str | Shown:
    """Send the request of an operation, and return its answer: a text, or a picture.

    :raises InvalidRequest: the arguments make no request.
    :raises ToolFailed: the answer's status is not one of success.
    :raises ToolServerUnreachable: there is no answer.
    """
    assert tool.operation is not None  # noqa: S101 - each tool of a document has one
    asked = request_of(tool.operation, arguments)
    assert urlsplit(asked.url)[:2] == urlsplit(server.address.url)[:2]  # noqa: S101 - credentials go nowhere else
    response, data = await _ask(server.address, asked.method, asked.url, asked.headers, asked.content)
    if not response.is_success:
        said = _text_of(response, data)[:LONGEST_REASON]
        raise ToolFailed(f"{response.status_code} {response.reason_phrase}\n{said}".strip())
    if picture := picture_of(data):
        return Shown(text=f"[{picture.name}]", pictures=(picture,))
    return _text_of(response, data) or f"{response.status_code} {response.reason_phrase}"


async def _ask(
    address: ServerAddress, method: str, url: str, headers: Any, content: bytes | None
) -> tuple[httpx2.Response, bytes]:
    """Return the head of an answer, and its body.

    :raises ToolFailed: it is too long.
    :raises ToolServerUnreachable: there is none.
    """
    data = bytearray()
    try:
        async with (
            open_client(address, read_secrets(address)) as client,
            client.stream(method, url, headers=headers, content=content) as response,
        ):
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > MOST_BYTES:  # what was sent may have been compressed
                    raise ToolFailed(
                        gettext_noop("%(server)s answers: %(reason)s"),
                        {"server": address.name, "reason": f"more than {MOST_BYTES:,} bytes"},
                    )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ToolServerUnreachable(
            gettext_noop("%(server)s: %(reason)s"),
            {"server": address.name, "reason": str(error)[:LONGEST_REASON] or type(error).__name__},
        ) from None
    return response, bytes(data)


def _text_of(response: httpx2.Response, data: bytes) -> str:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and not kind.startswith("text/") and not kind.endswith(_READABLE):
        return f"[{kind[:100]}, {len(data):,} bytes: not shown]" if data else ""
    charset = (response.charset_encoding or "").lower()
    return data.decode(charset if charset in _CHARSETS else "utf-8", errors="replace")
