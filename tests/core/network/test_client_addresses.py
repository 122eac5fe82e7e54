"""Which address a request came from: as far as trusted proxies say it, and no further."""

from __future__ import annotations

import pytest

from mnesis_core.network.hosts import read_networks
from mnesis_core.network.rate_limits import client_address, network_of

PROXIES = read_networks("10.0.0.0/8, fd00::/8, 192.0.2.7")


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "address"),
    [
        ("198.51.100.1", "", "198.51.100.1"),
        ("198.51.100.1", "203.0.113.9", "198.51.100.1"),  # No setting trusts it.
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "127.0.0.1, 203.0.113.9", "203.0.113.9"),  # the client wrote the first
        ("10.0.0.1", "203.0.113.9, 10.0.0.2,192.0.2.7", "203.0.113.9"),
        ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("fd00::1", "2001:db8::5", "2001:db8::5"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9, nonsense, 10.0.0.2", "10.0.0.2"),
        ("10.0.0.1", "," * 100, "10.0.0.1"),
        ("", "203.0.113.9", ""),
    ],
)
def test_the_address_of_whoever_asks(peer: str, forwarded_for: str, address: str) -> None:
    assert client_address(peer, forwarded_for, PROXIES) == address


def test_without_trusted_proxies_it_is_the_peer() -> None:
    assert client_address("10.0.0.1", "203.0.113.9", []) == "10.0.0.1"


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("nonsense", "nonsense"),
    ],
)
def test_what_is_counted_as_one(address: str, network: str) -> None:
    assert network_of(address) == network
