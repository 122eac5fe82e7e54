"""Rates of sign-ins and requests, the addresses by which clients are counted, and API keys.

A rate is a burst of attempts, then one per interval. Attempts fill buckets, which drain at a constant rate (the generic
cell rate algorithm). Of a bucket only the time is kept at which it is empty again; one without a time, or with one in the
past, is empty.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from math import ceil

from mnesis_core.config import RequestConfig, SignInConfig
from mnesis_core.network.hosts import Network

SUBSCRIBER_PREFIX = 64  # Bits of an IPv6 address assigned to a subscriber, who chooses the rest (RFC 6177).
MODES = ("", "gateway", "server")  # of requests at ``/v1``; empty: as the model's entry says.
SCOPES = ("all", "read")  # ``all`` allows what the owner may do; ``read`` allows reading only.
_KEY = re.compile(r"mns_([0-9a-f]{12})_([0-9A-Za-z_-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    name: tuple[str, ...]  # What is counted: ``("account", "ada")``.
    attempts: int
    seconds: float  # The time after which one more attempt fits.
    is_own: bool = False  # Whether only the account's owner is likely to fill it: the right password empties it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    wait_seconds: int = 0
    # When each bucket of an allowed attempt will be empty, by name.
    empty_at: Mapping[tuple[str, ...], datetime] = field(default_factory=dict)


def decide(buckets: Sequence[Bucket], empty_at: Mapping[tuple[str, ...], datetime], now: datetime) -> Decision:
    after, wait = {}, 0
    for bucket in buckets:
        # In whole microseconds on both sides: otherwise rounding would refuse the last attempt of a burst.
        step = timedelta(seconds=bucket.seconds)
        after[bucket.name] = max(empty_at.get(bucket.name, now), now) + step
        wait = max(wait, ceil((after[bucket.name] - now - bucket.attempts * step) / timedelta(seconds=1)))
    return Decision(wait_seconds=wait) if wait else Decision(empty_at=after)


def request_bucket(config: RequestConfig, name: tuple[str, ...]) -> Bucket:
    return Bucket(name=name, attempts=config.burst, seconds=1 / config.per_second)


def sign_in_buckets(config: SignInConfig, *, account: str, network: str, device: str) -> list[Bucket]:
    """A device that has signed in to this account before has a bucket of its own, so that no one else can lock its owner out.

    :param network: the client's (``network_of``)
    :param device: the device's own name if it has signed in to this account before, else empty
    """
    if device:
        name = ("device", account, device)
        return [Bucket(name=name, attempts=config.device_tries, seconds=config.device_seconds, is_own=True)]
    pair = ("account and address", account, network)
    return [
        Bucket(name=pair, attempts=config.pair_tries, seconds=config.pair_seconds, is_own=True),
        Bucket(name=("address", network), attempts=config.address_tries, seconds=config.address_seconds),
        Bucket(name=("account", account), attempts=config.account_tries, seconds=config.account_seconds),
    ]


def password_change_buckets(config: SignInConfig, *, account: str) -> list[Bucket]:
    # The user is signed in and gives the old password.
    return [Bucket(name=("change", account), attempts=config.device_tries, seconds=config.device_seconds, is_own=True)]


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """Each proxy appends the peer that it saw to ``X-Forwarded-For``, and a client may begin it with anything. So it is read
    from its end, and only as long as a trusted proxy added the entry.

    :param peer: the other end of the connection
    """
    address = peer
    for text in reversed(forwarded_for.split(",")):
        if not is_among(address, trusted) or _parsed(text) is None:
            break
        address = text.strip()
    return address


def is_among(address: str, networks: Sequence[Network]) -> bool:
    parsed = _parsed(address)
    return parsed is not None and any(parsed in network for network in networks)


def network_of(address: str) -> str:
    """Return what is counted as one: an IPv4 address, an IPv6 network of 64 bits; otherwise the text itself."""
    parsed = _parsed(address)
    if not isinstance(parsed, IPv6Address):
        return str(parsed or address)
    return str(ip_network((parsed, SUBSCRIBER_PREFIX), strict=False))


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    # An IPv4 address written as IPv6 is the same address.
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyText:
    """An API key as text, ``mns_<prefix>_<secret>``. The prefix finds the key, the secret proves it."""

    prefix: str
    secret: str

    def __str__(self) -> str:
        return f"mns_{self.prefix}_{self.secret}"

    @property
    def secret_hash(self) -> str:
        # The secret is 256 random bits, so one fast hash is as good as a slow one.
        return hashlib.sha256(self.secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    prefix: str
    owner_id: int
    owner_name: str
    scope: str
    secret_hash: str
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None
    is_at_home: bool  # whether its owner is still in the organisation for which it was made
    mode: str = ""  # one of ``MODES``
    name: str = ""

    @property
    def may_write(self) -> bool:
        return self.scope == "all"

    def is_proven_by(self, key: KeyText) -> bool:
        return hmac.compare_digest(self.secret_hash, key.secret_hash) and self.revoked_at is None


def new_key() -> KeyText:
    return KeyText(prefix=secrets.token_hex(6), secret=secrets.token_urlsafe(32))


def parse_key(text: str) -> KeyText | None:
    match = _KEY.fullmatch(text)
    return KeyText(prefix=match[1], secret=match[2]) if match else None
