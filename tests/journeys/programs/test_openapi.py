"""What the REST endpoint says of itself is true, and nothing that is sent to it is a mistake of ours."""

from __future__ import annotations

import random

import pytest
from django.db import connection

from tests.journeys.conftest import Caller
from tests.support.documents.openapi import Ids, find_lies, make_things

SEEDS = (1, 2) if connection.vendor == "postgresql" else (1,)
"""Each seed makes one example of every kind of request. PostgreSQL gets two, since only it refuses values of its own accord."""


def with_files(caller: Caller, things: Ids) -> Ids:
    """Return these ids, and those of a file that is text and of one that is not."""
    given = {"a.log": b"low\nhigh tide\n" * 500, "b.bin": b"\x00\x01" * 500}
    answers = [
        caller.client.post("/api/files", data={"session_id": things["session_id"][0]}, files={"file": (name, content)})
        for name, content in given.items()
    ]
    return things | {"file_id": [answer.json()["id"] for answer in answers]}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_rest_endpoint_is_as_it_says(caller: Caller, seed: int) -> None:
    things = with_files(caller, make_things(caller.call))
    lies = find_lies(caller.site.url, caller.key, things, examples=1, seed=seed)
    assert not lies, "\n\n".join(map(str, lies))


@pytest.mark.soak
def test_the_rest_endpoint_is_as_it_says_for_long(caller: Caller) -> None:
    things, seed = with_files(caller, make_things(caller.call)), random.randrange(10**9)
    lies = find_lies(caller.site.url, caller.key, things, examples=200, seed=seed)
    assert not lies, f"seed {seed}\n\n" + "\n\n".join(map(str, lies))
