"""Which network addresses may be reached on behalf of somebody who does not own the host.

Anything public may. What lies inside (loopback, private, link-local, shared and reserved ranges) may only where the
host's owner has listed it, and what hands out the machine's own credentials never.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from socket import inet_aton

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NAMED = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
}
"""Words for networks in a list."""

_METADATA = tuple(
    ip_network(text)
    for text in (
        "169.254.169.254",  # most clouds
        "169.254.170.2",  # credentials of a container at AWS
        "169.254.170.23",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",  # Google over IPv6
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure: a public address by its number
        "192.0.0.192",  # Oracle
    )
)
_NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ip_network("::/96")
"""Long deprecated: an IPv4 address in the last four bytes."""


def read_networks(text: str) -> tuple[Network, ...]:
    """Networks, comma-separated: addresses, ranges such as ``10.1.0.0/16``, or the words of ``NAMED``.

    :raises ValueError: one of them is neither; the message names it.
    """
    found: list[Network] = []
    for item in filter(None, map(str.strip, text.split(","))):
        try:
            found += [ip_network(network) for network in NAMED.get(item.lower(), (item,))]
        except ValueError:
            raise ValueError(f"{item!r} is no address, no range and none of {', '.join(NAMED)}") from None
    return tuple(found)


def may_reach(text: str, listed: Sequence[Network]) -> bool:
    """Whether an IP address is public, or lies in a network that is listed. What is no IP address is not reached."""
    try:
        faces = _faces(ip_address(text))
    except ValueError:
        return False
    if any(face in network for face in faces for network in _METADATA):
        return False
    return all(_is_public(face) or any(face in network for network in listed) for face in faces)


def gives_credentials(text: str) -> bool:
    """Whether an IP address hands out the machine's own credentials: nobody lists it."""
    return any(face in network for face in _faces(ip_address(text)) for network in _METADATA)


def literal_address(host: str) -> str | None:
    """The IP address that a host names by number, in any form that a resolver takes (``127.1``, ``0x7f000001``).

    ``None``: it is a name, which is looked up when it is connected to. ``localhost`` is always loopback.
    """
    bare = host.strip("[]").rstrip(".").lower()
    if bare == "localhost" or bare.endswith(".localhost"):
        return "127.0.0.1"
    try:
        return str(ip_address(bare))
    except ValueError:
        pass
    try:
        return str(IPv4Address(inet_aton(bare)))
    except (OSError, ValueError):
        return None


def _faces(address: Address) -> tuple[Address, ...]:
    """An address, or the IPv4 addresses that a packet to an IPv6 address may end up at."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _NAT64):
        return (last,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    is_compatible = address in _COMPATIBLE and int(address) > 1
    return (last,) if is_compatible else (address,)


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address.is_site_local:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
