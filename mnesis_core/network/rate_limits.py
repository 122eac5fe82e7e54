"""How often something may be tried: so many times at once, then once in so many seconds.

Tries of passwords and requests are counted in buckets, each of which empties by itself at a steady pace (the generic cell
rate algorithm). All that is kept of a bucket is the time at which it is empty again, so a bucket without a time, or with
one that is past, is empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from math import ceil

from mnesis_core.config import RequestConfig, SignInConfig
from mnesis_core.network.hosts import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """What one try draws on."""

    name: tuple[str, ...]
    """What is counted: ``("account", "ada")``."""
    tries: int
    """How many fit in at once."""
    seconds: float
    """After which one more fits in."""
    is_own: bool = False
    """Whether only the account's owner is likely to fill it: the right password empties it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a try is allowed."""

    wait_seconds: int = 0
    """Until the next one is; 0: this one is allowed."""
    empty_at: Mapping[tuple[str, ...], datetime] = field(default_factory=dict)
    """When each bucket of an allowed try will be empty, by name."""


def decide(buckets: Sequence[Bucket], empty_at: Mapping[tuple[str, ...], datetime], now: datetime) -> Decision:
    """Whether a try may be made that draws on all of these; ``empty_at`` is what is kept of them."""
    after, wait = {}, 0
    for bucket in buckets:
        # In whole microseconds on both sides: else rounding takes the last try of a burst away.
        step = timedelta(seconds=bucket.seconds)
        after[bucket.name] = max(empty_at.get(bucket.name, now), now) + step
        wait = max(wait, ceil((after[bucket.name] - now - bucket.tries * step) / timedelta(seconds=1)))
    return Decision(wait_seconds=wait) if wait else Decision(empty_at=after)


def request_bucket(config: RequestConfig, name: tuple[str, ...]) -> Bucket:
    """What a request draws on."""
    return Bucket(name=name, tries=config.burst, seconds=1 / config.per_second)


def sign_in_buckets(config: SignInConfig, *, account: str, network: str, device: str) -> list[Bucket]:
    """What a try to sign in draws on.

    A device that has signed in to this account before has a bucket of its own, so nobody else can keep its owner out.

    :param network: where the try comes from (``addresses.network_of``)
    :param device: the device's own name if it has signed in to this account before, else empty
    """
    if device:
        name = ("device", account, device)
        return [Bucket(name=name, tries=config.device_tries, seconds=config.device_seconds, is_own=True)]
    pair = ("account and address", account, network)
    return [
        Bucket(name=pair, tries=config.pair_tries, seconds=config.pair_seconds, is_own=True),
        Bucket(name=("address", network), tries=config.address_tries, seconds=config.address_seconds),
        Bucket(name=("account", account), tries=config.account_tries, seconds=config.account_seconds),
    ]


def password_change_buckets(config: SignInConfig, *, account: str) -> list[Bucket]:
    """What a change of the password draws on: somebody is signed in and says the old one."""
    return [Bucket(name=("change", account), tries=config.device_tries, seconds=config.device_seconds, is_own=True)]


# Which address a request came from, and which addresses are one customer's.

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
