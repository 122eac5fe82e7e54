"""Passwords are hashed by a few threads of low priority, and only so many wait for them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.models import User
from django.db import transaction

from mnesis_core.errors import PasswordsBusy
from mnesis_site import settings as shipped
from mnesis_site import sign_in
from mnesis_site.sign_in import KNOWN, NICENESS, STRANGERS, THREADS, Lane, place
from sessions_app.conf import site_config
from tests.support.sites.hashers import CountingHasher

PLACES = THREADS + site_config().sign_in.waiting


@pytest.fixture(autouse=True)
def fast(settings: object) -> None:
    settings.PASSWORD_HASHERS = ["tests.support.sites.hashers.CountingHasher"]  # type: ignore[attr-defined]


@contextmanager
def full(lane: Lane) -> Iterator[None]:
    """All places are taken for the length of the block."""
    for _ in range(PLACES):
        lane.enter()
    try:
        yield
    finally:
        for _ in range(PLACES):
            lane.leave()


def test_the_site_hashes_in_lanes_and_nowhere_else() -> None:
    assert shipped.PASSWORD_HASHERS == ["mnesis_site.sign_in.LanedPBKDF2PasswordHasher"]
    assert shipped.AUTHENTICATION_BACKENDS == ["mnesis_site.sign_in.LimitedBackend"]
    assert settings.AUTHENTICATION_BACKENDS == shipped.AUTHENTICATION_BACKENDS


def test_a_password_hashed_by_django_alone_is_still_right() -> None:
    by_django = "pbkdf2_sha256$1$salt$" + make_password("correct horse", "salt").split("$")[3]
    assert check_password("correct horse", by_django)
    assert not check_password("wrong", by_django)


def test_half_of_the_processors_hash_and_threads_give_way_to_others() -> None:
    assert max(1, (os.cpu_count() or 1) // 2) == THREADS
    if sys.platform == "linux":
        own = threading.get_native_id()
        there = STRANGERS.threads.submit(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())).result()
        assert (os.getpriority(os.PRIO_PROCESS, own), there) == (os.getpriority(os.PRIO_PROCESS, 0), NICENESS)


def test_more_than_may_wait_are_refused_at_once_and_nothing_is_hashed() -> None:
    CountingHasher.count = 0
    with full(STRANGERS):
        with pytest.raises(PasswordsBusy) as refused, place(STRANGERS):
            make_password("correct horse")
        assert refused.value.details == {"retry_after": 2}
        assert CountingHasher.count == 0
    with place(STRANGERS):
        make_password("correct horse")
    assert not STRANGERS.is_full


def test_strangers_take_no_places_of_those_who_are_known() -> None:
    with full(STRANGERS):
        make_password("correct horse")  # without a place of its own: a person who is signed in
        with place(KNOWN):
            make_password("correct horse")
    with full(KNOWN), pytest.raises(PasswordsBusy):
        make_password("correct horse")


def test_a_place_is_given_back_whatever_happens() -> None:
    for _ in range(2 * PLACES):
        with pytest.raises(ZeroDivisionError), place(STRANGERS):
            raise ZeroDivisionError
    assert not STRANGERS.is_full


def test_no_more_hash_at_a_time_than_there_are_threads() -> None:
    going, most, lock = 0, 0, threading.Lock()

    def job() -> None:
        nonlocal going, most
        with lock:
            going += 1
            most = max(most, going)
        threading.Event().wait(0.01)
        with lock:
            going -= 1

    with ThreadPoolExecutor(20) as people:
        for _ in range(20):
            people.submit(lambda: STRANGERS.threads.submit(job).result())
    assert most <= THREADS


def test_a_thread_gives_its_connection_back_before_its_password_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(sign_in, "give_back", lambda: given_back.append(threading.current_thread().name))
    make_password("correct horse")
    assert given_back == [threading.current_thread().name]


def test_a_password_that_is_hashed_within_a_transaction_leaves_it_open(transactional_db: None) -> None:
    with transaction.atomic():  # as the administration does
        User.objects.create_user("ada", password="correct horse")
        User.objects.create_user("ben", password="correct horse")
    assert User.objects.count() == 2


@pytest.mark.slow
def test_a_mark_at_the_end_of_a_hash_is_no_part_of_what_it_proves() -> None:
    hasher = sign_in.LanedPBKDF2PasswordHasher()
    plain = hasher.encode("high-tide-at-ten", "salt" * 5 + "xx")
    marked = sign_in.marked_anew(plain)
    again = sign_in.marked_anew(marked)
    assert len({plain, marked, again}) == 3
    assert len(again) == len(marked) <= 128
    for stored in (plain, marked, again):
        assert hasher.verify("high-tide-at-ten", stored)
        assert not hasher.verify("low-tide-at-ten", stored)
        assert not hasher.must_update(stored)
