"""What a model was sent for an item can be made again byte for byte, and what it took is on the session's bill."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents_app.queries import attempts_of_item, usage_of_maps
from agents_app.turns.overview import SessionRead
from compaction_app.context.state import rebuild_payload
from mnesis_core.maps.prompts import map_payload
from mnesis_core.maps.values import ItemRecord, ItemState, OperatorSpec
from mnesis_core.providers.rendering import digest
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_call
from tests.support.record.operators import SCHEMA, accept, add_run, claim, refuse, settle
from tests.support.record.talks import new_session

TEMPLATE = "Say {{ item }} \ud800 \x00 é"


@pytest.fixture
def alice(db: None) -> User:
    return User.objects.create_user("alice", password="x")


@pytest.fixture
def session_id(alice: User) -> str:
    return new_session(alice)


def sent(run_id: str, item: ItemRecord) -> str:
    """The digest of what is sent for an item of a run."""
    spec = OperatorSpec(template=TEMPLATE, schema=SCHEMA, model="demo", native_schema=True)
    return digest(map_payload(spec, f"{item.number:07}", attempts_of_item(run_id, item.number)))


def ask(session_id: str, run_id: str) -> list[ItemRecord]:
    return claim(session_id, run_id, digest_of=lambda item: sent(run_id, item))


def test_the_first_question_and_the_one_after_a_refused_answer(session_id):
    run_id = add_run(session_id, items=2, template=TEMPLATE, native_schema=True)
    first = ask(session_id, run_id)
    settle(session_id, run_id, [accept(first[0]), refuse(first[1], ItemState.PENDING)])
    [again] = ask(session_id, run_id)
    settle(session_id, run_id, [accept(again)])
    calls = [first[0].call_id, first[1].call_id, again.call_id]
    rebuilt = [rebuild_payload(load_call(call_id)) for call_id in calls]
    assert [one.problems for one in rebuilt] == [(), (), ()]
    assert all(one.digest_matches for one in rebuilt)
    assert rebuilt[0].payload["messages"][1] == {"role": "user", "content": "Say 0000001 \ud800 \x00 é"}
    assert rebuilt[0].payload["response_format"]["json_schema"]["schema"]
    assert [message["role"] for message in rebuilt[2].payload["messages"]] == ["system", "user", "assistant", "user"]
    assert "this is no JSON" in rebuilt[2].payload["messages"][-1]["content"]


def test_over_rest_its_owner_reads_it(client: Client, alice, session_id):
    run_id = add_run(session_id, items=1, template=TEMPLATE, native_schema=True)
    [item] = ask(session_id, run_id)
    client.force_login(alice)
    answer = client.get(f"/api/calls/{item.call_id}/payload").json()
    assert (answer["digest_matches"], answer["problems"]) == (True, [])
    client.force_login(User.objects.create_user("bob"))
    assert client.get(f"/api/calls/{item.call_id}/payload").status_code == 404


@pytest.mark.both_databases
@pytest.mark.parametrize(
    "manifest",
    [
        [],
        [{"kind": "map", "run_id": "map_none", "item": 1, "attempt": 1}],
        [{"kind": "map", "run_id": "\x00", "item": 1, "attempt": 1}],
        [{"kind": "map", "run_id": "RUN", "item": 9, "attempt": 1}],
        [{"kind": "map", "run_id": "RUN", "item": 2**53, "attempt": 2**53}],
        [{"kind": "map", "run_id": "RUN", "item": 1}],
        [{"kind": "map", "run_id": "RUN", "item": 1, "attempt": 1, "prompt": "map.0"}],
        [{"kind": "map", "run_id": "RUN", "item": 1, "attempt": 1, "prompt": 1}],
        [{"kind": "map", "run_id": "RUN", "item": 1, "attempt": 1}] * 2,
    ],
)
def test_a_manifest_of_anybody_s_making_is_answered_in_words(session_id, manifest):
    run_id = add_run(session_id, items=1)
    rows = [row | ({"run_id": run_id} if row["run_id"] == "RUN" else {}) for row in manifest]
    [item] = claim(session_id, run_id, manifest=rows)
    rebuilt = rebuild_payload(load_call(item.call_id))
    assert rebuilt.payload is None
    assert rebuilt.problems


def test_a_run_of_somebody_else_s_session_is_not_read(session_id):
    run_id = add_run(session_id, items=1)
    elsewhere = new_session(User.objects.create_user("bob"))
    own = add_run(elsewhere, items=1)
    [item] = claim(elsewhere, own, manifest=[{"kind": "map", "run_id": run_id, "item": 1, "attempt": 1}])
    assert rebuild_payload(load_call(item.call_id)).payload is None


def test_what_maps_took_is_on_the_session_s_bill(session_id):
    run_id = add_run(session_id, items=2)
    settle(session_id, run_id, [accept(item) for item in claim(session_id, run_id)])
    bill = SessionRead.model_validate(load_session(session_id)).dict()["billing"]
    assert (usage_of_maps(session_id).tokens_input, bill["cost_micros"]) == (60, 14)


@pytest.mark.both_databases
def test_calls_of_a_run_count_where_spending_is_limited(alice):
    session_id = new_session(alice, config={"limits": {"session": {"tokens": 1_000}}})
    run_id = add_run(session_id, items=2)
    items = claim(session_id, run_id, limit=1)
    spent = SessionRead.model_validate(load_session(session_id)).dict()["budget"][0]["spent"]
    assert spent == 100, "as long as it runs: the most that it can take"
    settle(session_id, run_id, [accept(items[0])])
    assert SessionRead.model_validate(load_session(session_id)).dict()["budget"][0]["spent"] == 42
