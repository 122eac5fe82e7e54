"""Which addresses may be reached for people who do not own the host."""

from __future__ import annotations

import pytest

from mnesis_core.network.hosts import literal_address, may_reach, read_networks

INSIDE = read_networks("loopback, private, link-local")


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]
)
def test_what_is_public_may_be_reached_without_a_list(address: str) -> None:
    assert may_reach(address, ())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "::1", "10.0.0.1", "172.16.3.4", "192.168.1.1", "fd00::1", "169.254.7.7", "fe80::1",
        "fe80::1%eth0", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1",
        "2002:7f00:1::", "2002:a00:1::1",
    ],
)  # fmt: skip
def test_what_lies_inside_may_only_where_it_is_listed(address: str) -> None:
    assert not may_reach(address, ())
    assert may_reach(address, INSIDE)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "169.254.170.2", "100.100.100.200",
        "168.63.129.16", "fd00:ec2::254", "192.0.0.192",
    ],
)  # fmt: skip
def test_what_hands_out_credentials_of_the_machine_is_never_reached(address: str) -> None:
    assert not may_reach(address, read_networks("0.0.0.0/0, ::/0"))


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0", "0.1.2.3", "::", "100.64.0.1", "198.18.0.1", "192.0.2.1", "224.0.0.1", "ff02::1", "240.0.0.1",
     "255.255.255.255", "fec0::1", "2001:db8::1", "2001:0:7f00:1::", "", "localhost", "127.1"],
)  # fmt: skip
def test_nothing_special_is_public_and_what_is_no_address_is_not_reached(address: str) -> None:
    assert not may_reach(address, INSIDE)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.1", "127.0.0.1"), ("2130706433", "127.0.0.1"), ("0x7f000001", "127.0.0.1"), ("0177.0.0.1", "127.0.0.1"),
        ("0", "0.0.0.0"), ("[::1]", "::1"), ("localhost", "127.0.0.1"), ("LOCALHOST.", "127.0.0.1"),
        ("a.localhost", "127.0.0.1"), ("169.254.169.254.", "169.254.169.254"), ("example.org", None),
    ],
)  # fmt: skip
def test_an_address_is_read_in_every_form_that_a_resolver_takes(host: str, address: str | None) -> None:
    assert literal_address(host) == address


def test_a_list_says_which_entry_is_none() -> None:
    with pytest.raises(ValueError, match="is no address, no range"):
        read_networks("10.0.0.0/8, example.org")
