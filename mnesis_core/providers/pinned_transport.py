"""Requests that go only to checked addresses, for what no command on the host has entered.

A name is looked up once. Every address that it has is checked, and the request goes to one of these, so that a name
server that answers otherwise a moment later leads nowhere. Redirects must not be followed: they would need a check of
their own.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Protocol

from mnesis_core.network.hosts import Network, address_not_listed, may_reach


class Request(Protocol):
    """What both generations of httpx have."""

    url: Any
    extensions: Any


def look_up(host: str, port: int) -> list[str]:
    """Return all addresses of a name. It blocks.

    :raises OSError: the name is unknown.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def pin(request: Request, listed: Sequence[Network]) -> None:
    """Lead a request to an address that may be reached, the certificate still being the name's.

    :raises NotListed: one of the name's addresses may not be reached.
    :raises OSError: the name is unknown.
    """
    host = str(request.url.host)
    addresses = look_up(host, request.url.port or (443 if request.url.scheme == "https" else 80))
    for address in addresses:
        if not may_reach(address, listed):
            raise address_not_listed(address)
    if not addresses:
        raise OSError(f"{host} has no address")
    try:
        ip_address(host)
    except ValueError:  # It is a name, which the certificate is for.
        request.extensions = {**request.extensions, "sni_hostname": host}
    request.url = request.url.copy_with(host=addresses[0])
