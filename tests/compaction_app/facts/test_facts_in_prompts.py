"""Facts in the prompts of calls: those that hold, on the branch that is chosen, and in a past prompt those of then."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from compaction_app.context.state import load_frame, load_meter, load_state, read_state, rebuild_payload
from compaction_app.facts.remember import FactDraft, Said, add_fact, forbid_fact, withdraw_fact
from mnesis_core.facts import FactKind, FactRecord
from mnesis_core.records import SessionRecord
from sessions_app.database.threads import db
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls
from tests.support.people.cast import make_user
from tests.support.people.story import say
from tests.support.record.inspected import add_turn
from tests.support.record.talks import new_session
from tests.support.record.trees import make_tree

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
LEA = FactDraft(statement="Lea lives in Bergen.", kind=FactKind.ENTITY, subject="Lea")


def facts_in(session_id: str, *, at: int | None = None) -> list[str]:
    facts = load_state(session_id, at=at).facts
    return [fact.statement for fact in facts.records] if facts else []


def test_facts_hold_from_when_they_are_written_until_they_are_superseded_or_withdrawn():
    owner = make_user("carla")
    session_id = new_session(owner)
    add_turn(session_id, "Lea lives in Bergen.")
    assert facts_in(session_id) == []
    first = add_fact(session_id, LEA, owner_id=owner.pk)
    moved = add_fact(session_id, replace(LEA, statement="Lea lives in Oslo."), owner_id=owner.pk)
    assert facts_in(session_id) == ["Lea lives in Oslo."]
    assert facts_in(session_id, at=first.created_seq) == ["Lea lives in Bergen."]
    withdraw_fact(session_id, moved.id, owner_id=owner.pk)
    assert facts_in(session_id) == []
    assert load_meter(session_id).breakdown["facts"] == 0


def test_a_fact_that_held_until_yesterday_holds_no_longer():
    owner = make_user("carla")
    session_id = new_session(owner)
    add_fact(session_id, replace(LEA, valid_to=timezone.now() - timedelta(days=1)), owner_id=owner.pk)
    assert facts_in(session_id) == []


def test_a_configuration_bounds_facts_or_does_without():
    owner = make_user("carla")
    session_id = new_session(owner)
    for number in range(4):
        add_fact(session_id, FactDraft(statement=f"Fact {number}.", kind=FactKind.ENTITY), owner_id=owner.pk)
    frame = load_frame(session_id)

    def chosen_with(**values: int) -> int:
        config = replace(frame.config, retrieval=replace(frame.config.retrieval, **values))
        facts = read_state(replace(frame, config=config)).facts
        return len(facts.records) if facts else 0

    assert [chosen_with(), chosen_with(max_facts=2)] == [4, 2]
    assert chosen_with(max_facts=0) == chosen_with(max_fact_tokens=0) == 0


def test_what_was_said_on_another_branch_is_no_fact_of_this_one():
    owner = make_user("carla")
    session_id = make_tree(owner)
    tulip = next(message for message in load_messages(session_id) if message.seq == 15)  # on branch 1
    draft = FactDraft(statement="The tulip is red.", kind=FactKind.ENTITY, said=Said(message_id=tulip.id, text="tulip"))
    add_fact(session_id, draft, owner_id=owner.pk)
    add_fact(session_id, LEA, owner_id=owner.pk)
    assert facts_in(session_id) == ["Lea lives in Bergen."]
    with change(session_id) as record:
        session_store.choose_branch(record, 1)
    assert facts_in(session_id) == ["The tulip is red.", "Lea lives in Bergen."]


@pytest.mark.slow
@pytest.mark.parametrize("take_back", [withdraw_fact, forbid_fact])
async def test_a_call_is_sent_the_facts_of_then_though_they_were_taken_back(
    session: SessionRecord, alice, script, take_back
):
    model = script(lambda request: "Noted.")
    fact: FactRecord = await db(add_fact, session.id, LEA, owner_id=alice.pk)
    await say(session, "Hello.")
    first = model.requests[-1].payload["messages"]
    assert [message["content"][:7] for message in first if message["role"] == "user"] == ["<facts>", "Hello."]
    await db(take_back, session.id, fact.id, owner_id=alice.pk)
    await say(session, "And now?")
    assert "<facts>" not in str(model.requests[-1].payload)
    for call in await db(list_calls, session.id):
        rebuilt = await db(rebuild_payload, call)
        assert (rebuilt.problems, rebuilt.digest_matches) == ((), True)
