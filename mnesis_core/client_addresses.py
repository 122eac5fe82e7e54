"""Which address a request came from, and which addresses are one customer's."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from mnesis_core.addresses import Network

SUBSCRIBER_PREFIX = 64
"""Bits of an IPv6 address that one subscriber has no choice of (RFC 6177): the rest they choose as they like."""


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """The address of the client.

    Each proxy appends the peer that it saw to ``X-Forwarded-For``, and a client may begin it with anything. So it is read
    from its end, and only as long as a trusted proxy is who says it.

    :param peer: the other end of the connection
    """
    address = peer
    for text in reversed(forwarded_for.split(",")):
        if not _is_in(address, trusted) or _parsed(text) is None:
            break
        address = text.strip()
    return address


def network_of(address: str) -> str:
    """What is counted as one: an IPv4 address, an IPv6 network of 64 bits; of what is neither, the text itself."""
    parsed = _parsed(address)
    if not isinstance(parsed, IPv6Address):
        return str(parsed or address)
    return str(ip_network((parsed, SUBSCRIBER_PREFIX), strict=False))


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in networks)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """The address; an IPv4 one that is written as IPv6 is the same one."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
