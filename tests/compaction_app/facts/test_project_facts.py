"""Facts that are held for a project: whose prompts they reach, until when, and who may let them go."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from compaction_app.facts.queries import list_held_facts, load_fact
from compaction_app.facts.remember import add_fact, hold_fact, let_go
from mnesis_core.errors import (
    FactNotFoundError,
    HoldingNotPermitted,
    InvalidRequest,
    ProjectNotFoundError,
    ProjectNotYours,
)
from mnesis_core.facts import FactRecord, HeldFor
from mnesis_core.records import ProjectRecord
from sessions_app.record import project_store
from tests.compaction_app.facts.test_held_facts import COFFEE, TEA, facts_in, permit, take
from tests.support.people.cast import make_user
from tests.support.people.organisations import put_into
from tests.support.people.story import alice, bob

__all__ = ["alice", "bob"]

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def project(alice: User, bob: User) -> ProjectRecord:
    """A project of Alice's, with Bob as a member."""
    made = project_store.create_project(owner_id=alice.pk, name="Tides <b>")
    return project_store.add_member(made.id, owner_id=alice.pk, name="bob")


@pytest.fixture
def fact(project: ProjectRecord, bob: User) -> FactRecord:
    """What Bob holds for the project."""
    return held(bob, project)


def held(owner: User, project: ProjectRecord) -> FactRecord:
    said = add_fact(begin(owner, project.id), TEA, owner_id=owner.pk)
    return hold_fact(said.session_id, said.id, HeldFor.PROJECT, owner_id=owner.pk)


def begin(owner: User, project_id: str = "") -> str:
    return lifecycle.create_session(owner=owner, project_id=project_id).id


def taken(owner: User, project_id: str = "") -> str:
    """A new session that has taken what reaches it."""
    session_id = begin(owner, project_id)
    take(session_id)
    return session_id


def test_it_reaches_the_sessions_of_all_members_in_the_project_and_no_others(
    fact: FactRecord, project: ProjectRecord, alice: User, bob: User
) -> None:
    assert facts_in(taken(alice, project.id)) == facts_in(taken(bob, project.id)) == ["Prefers tea."]
    assert facts_in(taken(alice)) == facts_in(taken(bob)) == []
    other = project_store.create_project(owner_id=alice.pk, name="Boats")
    assert facts_in(taken(alice, other.id)) == []
    [seen] = list_held_facts(alice.pk)
    assert (seen.held_for, seen.project_id, seen.is_own, seen.session_id) == ("project", project.id, False, None)
    assert list_held_facts(alice.pk, project_id=other.id) == []
    assert list_held_facts(alice.pk, project_id=project.id) == [seen]
    assert list_held_facts(make_user("eve").pk) == []
    assert verify_session(fact.session_id).problems == []


@pytest.mark.parametrize(
    "end", ["moved away", "member gone", "reader gone", "deleted", "elsewhere", "copy moved away", "let go"]
)
def test_a_copy_is_in_no_prompt_once_one_of_the_two_is_in_the_project_no_longer(
    fact: FactRecord, project: ProjectRecord, alice: User, bob: User, end: str
) -> None:
    there = taken(alice, project.id) if end != "reader gone" else taken(bob, project.id)
    assert facts_in(there) == ["Prefers tea."]
    if end == "moved away":
        lifecycle.update_session(fact.session_id, owner_id=bob.pk, project_id="")
    elif end == "copy moved away":
        lifecycle.update_session(there, owner_id=alice.pk, project_id="")
    elif end in ("member gone", "reader gone"):
        project_store.leave_project(project.id, user_id=bob.pk)
    elif end == "deleted":
        project_store.delete_project(project.id, owner_id=alice.pk)
    elif end == "elsewhere":
        put_into("elsewhere", bob.pk)
    else:
        hold_fact(fact.session_id, fact.id, HeldFor.SESSION, owner_id=bob.pk)
    assert facts_in(there) == []
    assert [seen.id for seen in list_held_facts(alice.pk)] == ([fact.id] if end == "copy moved away" else [])
    assert verify_session(there).problems == []


def test_it_can_only_be_held_where_there_is_a_project(alice: User, bob: User, project: ProjectRecord) -> None:
    said = add_fact(begin(alice), TEA, owner_id=alice.pk)
    with pytest.raises(InvalidRequest, match="in no project"):
        hold_fact(said.session_id, said.id, HeldFor.PROJECT, owner_id=alice.pk)
    # A member who has left holds nothing more for it.
    said = add_fact(begin(bob, project.id), TEA, owner_id=bob.pk)
    project_store.leave_project(project.id, user_id=bob.pk)
    with pytest.raises(InvalidRequest, match="in no project"):
        hold_fact(said.session_id, said.id, HeldFor.PROJECT, owner_id=bob.pk)


def test_a_correction_is_held_as_long_as_there_is_a_project(
    fact: FactRecord, project: ProjectRecord, alice: User, bob: User
) -> None:
    corrected = add_fact(fact.session_id, COFFEE, owner_id=bob.pk, corrects=fact.id)
    assert corrected.held_for == HeldFor.PROJECT
    assert facts_in(taken(alice, project.id)) == ["Prefers coffee."]
    lifecycle.update_session(fact.session_id, owner_id=bob.pk, project_id="")
    again = add_fact(fact.session_id, TEA, owner_id=bob.pk, corrects=corrected.id)
    assert again.held_for == HeldFor.SESSION


def test_the_member_who_said_it_and_the_projects_owner_may_let_it_go(
    fact: FactRecord, project: ProjectRecord, alice: User, bob: User
) -> None:
    carla = make_user("carla")
    with pytest.raises(FactNotFoundError):
        let_go(fact.id, owner_id=carla.pk)
    project_store.add_member(project.id, owner_id=alice.pk, name="carla")
    permit(carla)  # the organisation's facts, not a project's
    with pytest.raises(ProjectNotYours):
        let_go(fact.id, owner_id=carla.pk)
    let_go(fact.id, owner_id=alice.pk)
    assert load_fact(fact.id, session_id=fact.session_id).held_for == HeldFor.SESSION
    hold_fact(fact.session_id, fact.id, HeldFor.PROJECT, owner_id=bob.pk)
    let_go(fact.id, owner_id=bob.pk)
    assert list_held_facts(bob.pk) == []
    with pytest.raises(HoldingNotPermitted):
        hold_fact(fact.session_id, fact.id, HeldFor.ORGANISATION, owner_id=bob.pk)


def test_the_pages_offer_it_and_say_for_which_project(
    fact: FactRecord, project: ProjectRecord, alice: User, bob: User
) -> None:
    theirs, owners, strangers = signed_in(bob), signed_in(alice), signed_in(make_user("eve"))
    add_fact(fact.session_id, COFFEE, owner_id=bob.pk)  # it supersedes the other
    text = read(theirs, f"/sessions/{fact.session_id}/inspect/memory/?state=all")
    assert 'data-held-for="project"' in text
    assert "For all sessions in the project <bdi>Tides &lt;b&gt;</bdi>" in text
    assert "held for the project</span>" in text
    assert 'data-held-for="project"' not in read(theirs, f"/sessions/{begin(bob)}/inspect/memory/")
    again = held(bob, project)
    for client in (theirs, owners):
        for query in ("", f"?project={project.id}"):
            text = read(client, f"/memory/{query}")
            assert "held for the project <bdi>Tides &lt;b&gt;</bdi>" in text
            assert again.id in text
            assert "Let this fact go" in text
    assert "said in another person" in text
    assert f'href="/memory/?project={project.id}"' in read(owners, f"/projects/{project.id}/")
    assert strangers.get(f"/memory/?project={project.id}").status_code == 404
    assert "No held facts yet." in read(strangers, "/memory/")
    with pytest.raises(ProjectNotFoundError):
        project_store.load_project(project.id, user_id=User.objects.get(username="eve").pk)


def test_a_program_holds_it_reads_it_and_lets_it_go(project: ProjectRecord, alice: User) -> None:
    web, session_id = signed_in(alice), begin(alice, project.id)
    said = add_fact(session_id, TEA, owner_id=alice.pk)

    def ask(path: str, **body: str) -> dict[str, object]:
        answer = web.post(f"/api/{path}", body, content_type="application/json")
        return dict(answer.json(), status=answer.status_code)

    assert ask(f"sessions/{session_id}/facts/{said.id}/hold", held_for="project")["held_for"] == "project"
    [item] = web.get(f"/api/memory?project_id={project.id}").json()["items"]
    assert (item["id"], item["project_id"], item["session_id"]) == (said.id, project.id, session_id)
    for other in ("%00nosuch", project_store.create_project(owner_id=make_user("eve").pk, name="Hers").id):
        assert web.get(f"/api/memory?project_id={other}").json()["error"]["code"] == "PROJECT_NOT_FOUND"
    assert ask(f"memory/{said.id}/let-go") == {"id": said.id, "held_for": "session", "status": 200}
    alone = add_fact(begin(alice), TEA, owner_id=alice.pk)
    refused = ask(f"sessions/{alone.session_id}/facts/{alone.id}/hold", held_for="project")
    assert (refused["status"], refused["error"]["code"]) == (422, "INVALID_REQUEST")  # type: ignore[index]


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def read(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()
