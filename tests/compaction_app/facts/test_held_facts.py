"""Facts that are held for a person or an organisation: whose prompts they reach, for how long, and what stays provable."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.utils import timezone

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions
from compaction_app.compact import compact_now
from compaction_app.context.state import load_frame, load_state, read_state, rebuild_payload
from compaction_app.facts import store
from compaction_app.facts.copies import copy_held_facts
from compaction_app.facts.queries import every_fact, list_facts, list_held_facts
from compaction_app.facts.remember import FactDraft, add_fact, forbid_fact, hold_fact, let_go, withdraw_fact
from mnesis_core.errors import (
    FactIsCopy,
    FactNotFoundError,
    FactNotLive,
    HoldingNotPermitted,
    InvalidRequest,
    SessionNotFoundError,
)
from mnesis_core.facts import FactKind, FactRecord, FactState, HeldFor
from mnesis_core.records import SUB_AGENT
from sessions_app.database.threads import db
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls
from tests.support.people.cast import make_user
from tests.support.people.organisations import put_into
from tests.support.people.story import say
from tests.support.record.talks import exchange, new_session

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
TEA = FactDraft(statement="Prefers tea.", kind=FactKind.PREFERENCE, subject="drinks")
COFFEE = replace(TEA, statement="Prefers coffee.")


def held(
    owner: User, draft: FactDraft = TEA, held_for: HeldFor = HeldFor.PERSON, *, session_id: str = ""
) -> FactRecord:
    """A fact that is held, of a session of its own."""
    session_id = session_id or new_session(owner, title="Where it was said")
    fact = add_fact(session_id, draft, owner_id=owner.pk)
    return hold_fact(session_id, fact.id, held_for, owner_id=owner.pk)


def take(session_id: str) -> None:
    """What a first call or the end of a compaction does."""
    frame = load_frame(session_id)
    with change(session_id) as record:
        copy_held_facts(record, frame.session, frame.config)
    assert verify_session(session_id).problems == []


def taken(owner: User) -> str:
    """A new session that has taken what reaches it."""
    session_id = new_session(owner)
    take(session_id)
    return session_id


def facts_in(session_id: str) -> list[str]:
    """The statements of the facts in the next prompt."""
    facts = load_state(session_id).facts
    return [fact.statement for fact in facts.records] if facts else []


def permit(user: User) -> None:
    user.user_permissions.add(Permission.objects.get(codename="hold_for_organisation"))


@pytest.fixture
def carla() -> User:
    return make_user("carla")


@pytest.fixture
def dario() -> User:
    return make_user("dario")


def test_a_fact_that_is_held_for_the_person_reaches_their_other_sessions_and_nobody_else_s(carla: User, dario: User):
    fact = held(carla)
    there = taken(carla)
    assert facts_in(there) == ["Prefers tea."]
    [copy] = every_fact(there)
    assert (copy.of_fact_id, copy.of_session_id, copy.said_seq) == (fact.id, fact.session_id, fact.said_seq)
    assert (copy.said_at, copy.method, copy.quotes) == (fact.said_at, fact.method, ())
    assert "- another session, " in str(load_state(there).build().payload)
    assert facts_in(taken(dario)) == []
    assert facts_in(fact.session_id) == ["Prefers tea."]
    take(there)
    take(fact.session_id)
    assert [len(every_fact(id)) for id in (there, fact.session_id)] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["let go", "withdraw", "forbid", "supersede", "correct", "delete", "run out"])
def test_a_copy_is_in_no_prompt_once_its_fact_reaches_its_session_no_longer(carla: User, end: str):
    fact = held(carla, replace(TEA, valid_to=timezone.now() + timedelta(seconds=2)) if end == "run out" else TEA)
    there = taken(carla)
    own = {"owner_id": carla.pk}
    if end == "let go":
        hold_fact(fact.session_id, fact.id, HeldFor.SESSION, **own)
    elif end == "withdraw":
        withdraw_fact(fact.session_id, fact.id, **own)
    elif end == "forbid":
        forbid_fact(fact.session_id, fact.id, **own)
    elif end in ("supersede", "correct"):
        add_fact(fact.session_id, COFFEE, corrects=fact.id if end == "correct" else None, **own)
    elif end == "delete":
        lifecycle.delete_session(fact.session_id, **own)
    else:
        while timezone.now() <= (fact.valid_to or timezone.now()):
            pass
    assert facts_in(there) == []
    assert list_facts(there, state=FactState.LIVE) == []
    [copy] = every_fact(there)
    assert (copy.state, copy.still_held) == (FactState.LIVE, False)
    # A person's correction is held like what it corrects; what is only said later is not.
    take(there)
    assert facts_in(there) == (["Prefers coffee."] if end == "correct" else [])


def test_a_fact_that_is_held_again_reaches_the_sessions_that_copied_it(carla: User):
    fact = held(carla)
    there = taken(carla)
    hold_fact(fact.session_id, fact.id, HeldFor.SESSION, owner_id=carla.pk)
    hold_fact(fact.session_id, fact.id, HeldFor.PERSON, owner_id=carla.pk)
    assert facts_in(there) == ["Prefers tea."]
    assert verify_session(fact.session_id).problems == []


def test_an_organisation_s_facts_are_held_by_right_and_reach_its_sessions_only(carla: User, dario: User):
    stranger = make_user("eve")
    put_into("elsewhere", stranger.pk)
    with pytest.raises(HoldingNotPermitted):
        held(carla, held_for=HeldFor.ORGANISATION)
    permit(carla)
    fact = held(carla, held_for=HeldFor.ORGANISATION)
    there = taken(dario)
    assert facts_in(there) == facts_in(taken(carla)) == ["Prefers tea."]
    assert facts_in(taken(stranger)) == []
    [seen] = list_held_facts(dario.pk)
    assert (seen.id, seen.is_own, seen.session_id, seen.session_title, seen.said_seq) == (
        fact.id,
        False,
        None,
        None,
        None,
    )
    assert list_held_facts(stranger.pk) == []
    # Its owner is moved: it stays the organisation's.
    put_into("elsewhere", carla.pk)
    assert (facts_in(there), list_held_facts(carla.pk)) == (["Prefers tea."], [])
    for user, error in ((stranger, FactNotFoundError), (carla, FactNotFoundError), (dario, HoldingNotPermitted)):
        with pytest.raises(error):
            let_go(fact.id, owner_id=user.pk)
    permit(dario)
    let_go(fact.id, owner_id=dario.pk)
    assert facts_in(there) == []
    assert verify_session(fact.session_id).problems == []


def test_a_person_s_facts_stay_in_the_organisation_where_they_were_said(carla: User):
    held(carla)
    put_into("elsewhere", carla.pk)
    assert facts_in(taken(carla)) == []
    assert list_held_facts(carla.pk) == []


def test_only_a_live_fact_of_one_s_own_session_can_be_held(carla: User, dario: User):
    fact = held(carla)
    there = taken(carla)
    [copy] = every_fact(there)
    with pytest.raises(SessionNotFoundError):
        hold_fact(fact.session_id, fact.id, HeldFor.SESSION, owner_id=dario.pk)
    with pytest.raises(FactNotFoundError):
        hold_fact(there, fact.id, HeldFor.PERSON, owner_id=carla.pk)
    with pytest.raises(FactIsCopy):
        hold_fact(there, copy.id, HeldFor.PERSON, owner_id=carla.pk)
    withdraw_fact(fact.session_id, fact.id, owner_id=carla.pk)
    hold_fact(fact.session_id, fact.id, HeldFor.SESSION, owner_id=carla.pk)
    with pytest.raises(FactNotLive):
        hold_fact(fact.session_id, fact.id, HeldFor.PERSON, owner_id=carla.pk)
    with pytest.raises(FactNotFoundError):
        let_go(fact.id, owner_id=carla.pk)
    with pytest.raises(InvalidRequest):
        list_held_facts(carla.pk, before="no \x00 id")


@pytest.mark.slow
def test_what_the_session_says_later_takes_the_place_of_a_copy_and_what_it_said_before_does_not(carla: User):
    early = new_session(carla)
    add_fact(early, COFFEE, owner_id=carla.pk)
    held(carla)
    take(early)
    # Said before: it is live here again once the other one is let go.
    assert facts_in(early) == ["Prefers tea."]
    there = taken(carla)
    water = add_fact(there, replace(TEA, statement="Prefers water."), owner_id=carla.pk)
    assert facts_in(there) == ["Prefers water."]
    [copy, _] = every_fact(there)
    assert (copy.state, copy.superseded_by_id) == (FactState.SUPERSEDED, water.id)
    [seen] = list_held_facts(carla.pk)
    let_go(seen.id, owner_id=carla.pk)
    assert facts_in(early) == ["Prefers coffee."]


def test_what_the_session_has_said_forbidden_or_withdrawn_is_not_copied_again(carla: User):
    there = new_session(carla)
    own = add_fact(there, TEA, owner_id=carla.pk)
    withdraw_fact(there, own.id, owner_id=carla.pk)
    fish = add_fact(there, FactDraft(statement="Eats FISH", kind=FactKind.ENTITY), owner_id=carla.pk)
    forbid_fact(there, fish.id, owner_id=carla.pk)
    held(carla)
    held(carla, FactDraft(statement="Carla eats fish.", kind=FactKind.PREFERENCE))
    take(there)
    assert facts_in(there) == []
    copied = taken(carla)
    [first, second] = every_fact(copied)
    withdraw_fact(copied, first.id, owner_id=carla.pk)
    forbid_fact(copied, second.id, owner_id=carla.pk)
    take(copied)
    assert facts_in(copied) == []


@pytest.mark.slow
def test_a_configuration_bounds_the_facts_of_other_sessions_or_does_without(carla: User):
    for number in range(4):
        held(carla, FactDraft(statement=f"Fact {number}.", kind=FactKind.ENTITY, salience=10 + number))
    two = new_session(carla, config={"retrieval": {"max_held_facts": 2}})
    none = new_session(carla, config={"retrieval": {"max_held_facts": 0}})
    take(two)
    take(none)
    assert (facts_in(two), facts_in(none)) == (["Fact 2.", "Fact 3."], [])
    there = taken(carla)
    frame = load_frame(there)
    config = replace(frame.config, retrieval=replace(frame.config.retrieval, max_held_facts=1))
    facts = read_state(replace(frame, config=config)).facts
    assert facts is not None
    assert [fact.statement for fact in facts.records] == ["Fact 3."]
    config = replace(frame.config, retrieval=replace(frame.config.retrieval, max_held_facts=0))
    assert read_state(replace(frame, config=config)).facts is None


def test_a_sub_agent_takes_none(carla: User):
    held(carla)
    child = session_store.create_session(
        owner=carla, model="demo", parent_id=new_session(carla), origin=SUB_AGENT, title="Task"
    )
    take(child)
    assert facts_in(child) == []


def test_a_fork_keeps_what_the_original_copied_and_holds_nothing_itself(carla: User):
    fact = held(carla)
    there = taken(carla)
    exchange(there, "I read books.", "Noted.")
    mine = held(carla, FactDraft(statement="Reads books.", kind=FactKind.ENTITY), session_id=there)
    fork = lifecycle.fork_session(there, owner=carla, at_message_id=load_messages(there)[-1].id).id
    [copy, own] = every_fact(fork)
    assert (copy.of_fact_id, own.of_fact_id, own.held_for) == (fact.id, "", HeldFor.SESSION)
    take(fork)
    assert facts_in(fork) == ["Prefers tea.", "Reads books."]
    let_go(fact.id, owner_id=carla.pk)
    let_go(mine.id, owner_id=carla.pk)
    assert facts_in(fork) == ["Reads books."]


def exported(*session_ids: str) -> list[bytes]:
    return [line for id in session_ids for line in export_session(id)]


@pytest.fixture
def lines(carla: User) -> tuple[list[bytes], str, str]:
    """The lines of a session with a held fact and of one that has copied it, neither of which is here any more."""
    with transaction.atomic():
        permit(carla)
        fact = held(carla, held_for=HeldFor.ORGANISATION)
        there = taken(carla)
        found = exported(fact.session_id, there)
        transaction.set_rollback(True)
    return found, fact.session_id, there


@pytest.mark.slow
def test_an_imported_session_holds_nothing_until_somebody_holds_it_here(lines: Any, carla: User, dario: User):
    found, origin, there = lines
    import_sessions(lambda: found, owner_id=dario.pk)
    assert [verify_session(id).problems for id in (origin, there)] == [[], []]
    assert exported(origin, there) == found
    assert not any(session.imported for session in import_sessions(lambda: found, owner_id=dario.pk))
    [fact] = every_fact(origin)
    assert (fact.held_for, list_held_facts(dario.pk), facts_in(there)) == (HeldFor.SESSION, [], [])
    assert facts_in(taken(carla)) == facts_in(taken(dario)) == []
    hold_fact(origin, fact.id, HeldFor.PERSON, owner_id=dario.pk)
    assert facts_in(there) == facts_in(taken(dario)) == ["Prefers tea."]
    assert facts_in(taken(carla)) == []


@pytest.mark.slow
def test_a_copy_may_be_imported_where_what_it_is_a_copy_of_belongs_to_somebody_else(
    lines: Any, carla: User, dario: User
):
    found, _, there = lines
    end = next(place for place, line in enumerate(found) if there.encode() in line and b'"format"' in line)
    import_sessions(lambda: found[:end], owner_id=carla.pk)
    import_sessions(lambda: found[end:], owner_id=dario.pk)
    assert (facts_in(there), verify_session(there).problems) == ([], [])


@pytest.mark.slow
async def test_a_first_prompt_has_what_is_held_and_a_past_one_is_rebuilt_though_it_was_let_go(session, alice, script):
    model = script(lambda request: "Noted.")
    fact = await db(held, alice)
    await say(session, "Hello.")
    first = model.requests[-1].payload["messages"]
    assert [message["content"][:7] for message in first if message["role"] == "user"] == ["<facts>", "Hello."]
    await db(held, alice, FactDraft(statement="Reads books.", kind=FactKind.ENTITY))
    await say(session, "And now?")
    # What is held meanwhile waits for a compaction, so that the beginning of the prompt stays.
    assert model.requests[-1].payload["messages"][: len(first)] == first
    await db(withdraw_fact, fact.session_id, fact.id, owner_id=alice.pk)
    await say(session, "And now?")
    assert "<facts>" not in str(model.requests[-1].payload)
    await db(compact_now, session.id)
    await say(session, "And now?")
    assert "Reads books." in str(model.requests[-1].payload)
    for call in await db(list_calls, session.id):
        rebuilt = await db(rebuild_payload, call)
        assert (rebuilt.problems, rebuilt.digest_matches) == ((), True)
    assert (await db(verify_session, session.id)).problems == []


def test_a_forged_word_for_whom_a_fact_is_held_is_seen(carla: User):
    fact = held(carla)
    with change(fact.session_id) as record:
        record.update(store._FACTS, {"held_for": "organisation", "held_seq": 1}, id=fact.id)
    assert [problem.kind for problem in verify_session(fact.session_id).problems] == ["replay"]
