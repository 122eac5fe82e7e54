"""Who acts: what a body says of it, what is believed of what was kept or imported, and the ids that proxies give."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mnesis_core.actor import Actor, ActorKind, Via, actor_in, describe_actor, given_request_id, read_actor
from mnesis_core.events import canonical_body
from mnesis_core.records import is_id, new_request_id

ADA = Actor(kind=ActorKind.USER, ref="ada-s_pseudonym", via=Via.API, request="req_01")
KEY = Actor(kind=ActorKind.KEY, ref="0123ab", for_ref="ada-s_pseudonym", via=Via.V1, request="req_02")
SYSTEM = Actor(kind=ActorKind.SYSTEM)


def test_a_body_holds_the_members_that_say_something_in_order() -> None:
    assert ADA.text == '{"kind":"user","ref":"ada-s_pseudonym","request":"req_01","via":"api"}'
    assert SYSTEM.text == '{"kind":"system"}'
    body = canonical_body({"turn_id": "turn_1", "accepted": True}, actor=KEY.text, rows=[["turns", "turn_1", "5f"]])
    told = json.loads(body)
    assert body == json.dumps(told, sort_keys=True, separators=(",", ":"))
    assert told["actor"] == {
        **{"kind": "key", "ref": "0123ab", "for": "ada-s_pseudonym", "via": "v1", "request": "req_02"}
    }


@pytest.mark.parametrize("actor", [ADA, KEY, SYSTEM, Actor()])
def test_an_actor_is_read_as_it_was_written(actor: Actor) -> None:
    assert read_actor(actor.text) == read_actor(json.loads(actor.text)) == actor
    assert actor_in(canonical_body({"accepted": True}, actor=actor.text)[:300]) == actor


@pytest.mark.parametrize(
    "value",
    [
        *(None, 7, [], "", "{", "[" * 100_000, '"ada"', {"kind": 7}, {"kind": "User"}, {"kind": "user", "ref": None}),
        *({"kind": "user", "ref": ref} for ref in ("a b", "Ada\u202e", "a" * 65, "ada@example.org", "\x00", "<b>")),
        *({"kind": "user", "request": id} for id in ("7", "req_", "req_\n", "req_" + "a" * 65)),
        {"kind": "worker", "for": "Ada Lovelace"},
    ],
)
def test_what_is_no_actor_of_ours_is_nobody(value: Any) -> None:
    assert read_actor(value) == Actor()


def test_a_body_without_an_actor_names_nobody() -> None:
    assert actor_in('{"at":"2026","turn_id":"turn_1"}') == actor_in('{"actor":{"kind":') == Actor()


def test_what_is_done_later_says_for_whom() -> None:
    assert ADA.later("compaction") == Actor(
        kind=ActorKind.WORKER, ref="compaction", for_ref=ADA.ref, via=Via.WORKER, request="req_01"
    )
    assert KEY.later("fork").person == KEY.person == ADA.ref
    assert Actor().later("map") == Actor(kind=ActorKind.WORKER, ref="map", via=Via.WORKER)


def test_what_nobody_asked_for_is_the_systems_or_the_workers() -> None:
    assert ADA.unasked() == Actor(kind=ActorKind.SYSTEM, for_ref=ADA.ref, request="req_01")
    worker = ADA.later("compaction")
    assert worker.unasked() is worker
    assert SYSTEM.unasked() is SYSTEM


@pytest.mark.parametrize(
    ("actor", "words"),
    [
        (ADA, "you"),
        (KEY, "API key 0123ab for you"),
        (ADA.later("compaction"), "worker (compaction) for you"),
        (ADA.unasked(), "the system for you"),
        (SYSTEM, "the system"),
        (Actor(kind="command", ref="run", for_ref="unknown-pseudonym"), "manage.py run for unknown-pseudonym"),
        (Actor(kind="model", ref="sess_1", for_ref=ADA.ref), "another agent for you"),
        (Actor(kind="user", ref="unknown-pseudonym"), "unknown-pseudonym"),
        (Actor(kind="robot"), "robot"),
        (Actor(), ""),
    ],
)
def test_an_actor_in_words(actor: Actor, words: str) -> None:
    assert describe_actor(actor, {ADA.ref: "you"}) == words


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("request_id", "traceparent", "id"),
    [
        ("8c1d4f0e-2f7b-4a55-9b4f-0d3c5e6f7a8b", "", "req_8c1d4f0e-2f7b-4a55-9b4f-0d3c5e6f7a8b"),
        ("req_01J9ZQ4X5V7T8S9R0P1N2M3K4H", TRACE, "req_01J9ZQ4X5V7T8S9R0P1N2M3K4H"),
        ("", TRACE, "req_4bf92f3577b34da6a3ce929d0e0e4736"),
        ("a b", f"{TRACE}-later", "req_4bf92f3577b34da6a3ce929d0e0e4736"),
        *(
            (bad, "", "")
            for bad in ("", "short", "a" * 65, "a" * 100_000, "12345678\x00", "12345678\r\nSet-Cookie: a=b")
        ),
        *((bad, "", "") for bad in ("12345678\n", "\u202e12345678", "12345678é", "\uff11" * 8, "<script>1234")),
        *(("", bad, "") for bad in (TRACE.upper(), f"00-{'0' * 32}-00f067aa0ba902b7-01", TRACE[:-3], "00-ab-cd-01")),
    ],
)
def test_an_id_of_a_proxy_is_taken_if_it_can_be_one(request_id: str, traceparent: str, id: str) -> None:
    assert given_request_id(request_id, traceparent) == id
    assert not id or read_actor({"kind": "system", "request": id}).request == id


def test_the_id_of_a_request_is_no_id_of_a_row() -> None:
    first, second = new_request_id(), new_request_id()
    assert first != second
    assert read_actor({"request": first}).request == first
    assert not is_id(first)
