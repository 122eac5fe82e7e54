"""Wrong passwords are limited, and nobody can use that to keep another person out."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from mnesis_core.config import SignInConfig
from mnesis_core.network.hosts import read_networks
from sessions_app.models import TryBucket
from tests.support.sites.hashers import CountingHasher

PASSWORD = "correct horse"
CONFIG = SignInConfig()
STRANGER = "198.51.100.1"


@pytest.fixture(autouse=True)
def hashes(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["tests.support.sites.hashers.CountingHasher"]
    CountingHasher.count = 0


@pytest.fixture
def ada(db: None, hashes: None) -> User:
    user = User.objects.create_user("ada", password=PASSWORD)
    CountingHasher.count = 0
    return user


def tries(client: Client, password: str, *, name: str = "ada", address: str = STRANGER, path: str = "/sign-in/") -> Any:
    return client.post(path, {"username": name, "password": password}, REMOTE_ADDR=address)


def flood(name: str, count: int, *, first: int = 0) -> list[int]:
    """Wrong passwords, each from another address; the statuses of the answers."""
    return [
        tries(Client(), "wrong", name=name, address=f"198.51.{number // 250}.{number % 250}").status_code
        for number in range(first, first + count)
    ]


@pytest.mark.parametrize("path", ["/sign-in/", "/admin/login/"])
@pytest.mark.parametrize("name", ["ada", "nobody"])
def test_after_so_many_wrong_passwords_none_is_looked_at(ada: User, path: str, name: str) -> None:
    client = Client()
    answers = [tries(client, "wrong", name=name, path=path) for _ in range(CONFIG.pair_tries + 5)]
    assert [answer.status_code for answer in answers] == [200] * CONFIG.pair_tries + [429] * 5
    assert CountingHasher.count == CONFIG.pair_tries
    refused = answers[-1]
    assert 0 < int(refused["Retry-After"]) <= CONFIG.pair_seconds
    assert f"Try again in {refused['Retry-After']} seconds." in refused.content.decode()
    assert "TOO_MANY_ATTEMPTS" in refused.content.decode()


def test_a_program_gets_the_refusal_as_an_error_of_the_registry(ada: User) -> None:
    client = Client(headers={"Accept": "application/json"})
    [*_, refused] = [tries(client, "wrong") for _ in range(CONFIG.pair_tries + 1)]
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (429, "TOO_MANY_ATTEMPTS")
    assert error["details"] == {"retry_after": int(refused["Retry-After"])}


def test_the_right_password_is_not_looked_at_either_until_the_wait_is_over(ada: User) -> None:
    for _ in range(CONFIG.pair_tries):
        tries(Client(), "wrong")
    assert tries(Client(), PASSWORD).status_code == 429
    TryBucket.objects.update(empty_at=timezone.now())  # as time does
    assert tries(Client(), PASSWORD).status_code == 302


def test_tries_with_the_right_password_do_not_count(ada: User) -> None:
    for _ in range(CONFIG.account_tries + 1):
        assert tries(Client(), PASSWORD).status_code == 302
    assert not TryBucket.objects.filter(empty_at__gt=timezone.now()).exists()


def test_who_mistypes_and_then_signs_in_begins_anew(ada: User) -> None:
    for _ in range(3):
        for _ in range(CONFIG.pair_tries - 1):
            tries(Client(), "wrong")
        assert tries(Client(), PASSWORD).status_code == 302


@pytest.mark.slow
def test_many_names_from_one_address_are_one_flood(ada: User) -> None:
    statuses = [tries(Client(), "wrong", name=f"name{number}").status_code for number in range(50)]
    assert statuses.count(200) == CONFIG.address_tries
    assert CountingHasher.count == CONFIG.address_tries
    assert tries(Client(), PASSWORD, address="203.0.113.9").status_code == 302  # a person elsewhere


def test_addresses_of_one_ipv6_network_are_one_address(ada: User) -> None:
    statuses = [tries(Client(), "wrong", address=f"2001:db8::{number:x}").status_code for number in range(10)]
    assert statuses.count(200) == CONFIG.pair_tries


def test_many_addresses_against_one_account_are_one_flood(ada: User) -> None:
    statuses = flood("ada", CONFIG.account_tries + 10)
    assert statuses == [200] * CONFIG.account_tries + [429] * 10


def test_a_flood_keeps_the_owner_out_of_no_device_that_has_signed_in_before(ada: User) -> None:
    owner = Client()
    tries(owner, PASSWORD, address="203.0.113.9")
    owner.post("/sign-out/")
    flood("ada", CONFIG.account_tries + 10)
    assert tries(Client(), PASSWORD, address="203.0.113.9").status_code == 429  # another browser
    assert tries(owner, "mistyped", address="198.51.0.1").status_code == 200
    assert tries(owner, PASSWORD, address="198.51.0.1").status_code == 302


def test_a_known_device_has_only_so_many_tries_and_only_for_its_account(ada: User) -> None:
    User.objects.create_user("ben", password=PASSWORD)
    thief = Client()
    tries(thief, PASSWORD)
    thief.post("/sign-out/")
    statuses = [tries(thief, "wrong").status_code for _ in range(CONFIG.device_tries + 2)]
    assert statuses == [200] * CONFIG.device_tries + [429] * 2
    flood("ben", CONFIG.account_tries)
    assert tries(thief, PASSWORD, name="ben", address="203.0.113.9").status_code == 429


def test_the_cookie_of_a_device_names_nobody(hashes: None, db: None) -> None:
    User.objects.create_user("lighthouse-keeper", password=PASSWORD)  # a short name may be in any hash
    answer = tries(Client(), PASSWORD, name="lighthouse-keeper")
    assert "keeper" not in answer.cookies["mnesis_device"].value


def test_the_cookie_of_a_device_is_signed(ada: User) -> None:
    answer = tries(Client(), PASSWORD)
    cookie = answer.cookies["mnesis_device"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
    forged = Client()
    forged.cookies["mnesis_device"] = cookie.value[:-1] + ("A" if cookie.value[-1] != "A" else "B")
    flood("ada", CONFIG.account_tries)
    assert tries(forged, PASSWORD, address="203.0.113.9").status_code == 429


def test_a_flood_that_is_refused_writes_nothing_and_reads_once(ada: User, django_assert_num_queries: Any) -> None:
    for _ in range(CONFIG.pair_tries):
        tries(Client(), "wrong")
    before = list(TryBucket.objects.values())
    with django_assert_num_queries(1):
        assert tries(Client(), "wrong").status_code == 429
    assert list(TryBucket.objects.values()) == before


def test_neither_names_nor_addresses_are_kept_and_rows_that_mean_nothing_go(ada: User) -> None:
    flood("ada", 3)
    assert TryBucket.objects.count() == 3 + 3 + 1
    assert all(re.fullmatch("[0-9a-f]{64}", row.key) for row in TryBucket.objects.all())
    TryBucket.objects.update(empty_at=timezone.now() - timedelta(seconds=1))
    flood("ben", 1)
    assert TryBucket.objects.count() == 3


@pytest.mark.slow
def test_the_old_password_cannot_be_tried_out_by_who_is_signed_in(ada: User, client: Client) -> None:
    client.force_login(ada)
    form = {"old_password": "wrong", "new_password1": "another horse", "new_password2": "another horse"}
    for path in ("/password/", "/admin/password_change/"):
        User.objects.update(is_staff=True)
        TryBucket.objects.all().delete()
        answers = [client.post(path, form) for _ in range(CONFIG.device_tries + 2)]
        assert [answer.status_code for answer in answers] == [200] * CONFIG.device_tries + [429] * 2
    TryBucket.objects.all().delete()
    assert client.post("/password/", form | {"old_password": PASSWORD}).status_code == 302


@pytest.mark.slow
def test_behind_a_trusted_proxy_each_client_is_counted_apart(ada: User, settings: Any) -> None:
    def try_through(proxy: str, client: str) -> int:
        values = {"REMOTE_ADDR": proxy, "HTTP_X_FORWARDED_FOR": client}
        answer = Client().post("/sign-in/", {"username": "ada", "password": "wrong"}, **values)
        return int(answer.status_code)

    assert [try_through("10.0.0.1", f"192.0.2.{number}") for number in range(7)].count(429) == 2
    TryBucket.objects.all().delete()
    settings.TRUSTED_PROXIES = read_networks("10.0.0.0/8")
    assert [try_through("10.0.0.1", f"192.0.2.{number}") for number in range(7)].count(429) == 0
    assert [try_through("10.0.0.1", "192.0.2.1") for _ in range(7)].count(429) == 3
    assert try_through("203.0.113.9", "192.0.2.1") == 200  # no proxy of ours: what it says counts for nothing
