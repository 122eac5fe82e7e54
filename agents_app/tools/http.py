"""The HTTP client for a tool server: what it sends of ours, whom it reaches, and how much it reads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import cast

import httpx2
from django.utils.translation import gettext_noop

from mnesis_core.errors import NotListed, ToolServerUnreachable
from mnesis_core.network.hosts import pin
from mnesis_core.turns.mcp_servers import ServerAddress
from sessions_app.conf import host_lists

MOST_BYTES = 24_000_000  # of one answer: the 20 million characters that are kept of an output, and what is around them
CONNECT_SECONDS = 15.0


def read_secrets(address: ServerAddress) -> dict[str, str]:
    """Return the values that a server is given, by the names of its variables or headers.

    :raises ToolServerUnreachable: a variable is not set here, or no command on the host entered the server and the host's
        lists do not hold it: they may be shorter now than they were then.
    """
    try:
        if not address.entered_on_host:
            host_lists().check_server(address.argv, address.url, address.secrets)
    except NotListed as error:
        raise ToolServerUnreachable(
            gettext_noop("%(server)s: %(reason)s"), {"server": address.name, "reason": error.message}
        ) from None
    secrets = {}
    for name, variable in address.secrets.items():
        if not (value := os.environ.get(variable, "")):
            raise ToolServerUnreachable(
                gettext_noop("%(server)s needs the environment variable %(variable)s, which is not set here"),
                {"server": address.name, "variable": variable},
            )
        secrets[name] = value
    return secrets


def open_client(address: ServerAddress, secrets: dict[str, str]) -> httpx2.AsyncClient:
    async def pin_address(request: httpx2.Request) -> None:
        try:
            await asyncio.to_thread(pin, request, host_lists().addresses)
        except NotListed as error:
            raise httpx2.ConnectError(error.message, request=request) from error
        except OSError as error:
            raise httpx2.ConnectError(str(error), request=request) from error

    headers = {
        # A token by itself is a bearer's.
        name: f"Bearer {value}" if name.lower() == "authorization" and " " not in value else value
        for name, value in secrets.items()
    }
    return httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=address.timeout_seconds),
        transport=_BoundedTransport(),
        # A redirect would have to be checked by itself.
        follow_redirects=False,
        event_hooks={} if address.entered_on_host else {"request": [pin_address]},
    )


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        response.stream = _BoundedStream(cast(httpx2.AsyncByteStream, response.stream))
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for chunk in self._inner:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"the answer is longer than {MOST_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
