"""The page Memory of a session: none, one and many facts, another person's, and texts that mean harm."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from compaction_app.facts import store
from compaction_app.facts.copies import copy_held_facts
from compaction_app.facts.remember import hold_fact
from compaction_app.facts.views import PAGE
from mnesis_core.config import Config
from mnesis_core.facts import FactMethod, HeldFor
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from sessions_app.record.session_store import archive_session
from tests.support.people.cast import make_user
from tests.support.record.facts import add_facts, new_fact, place_of
from tests.support.record.talks import HOSTILE, exchange, new_session


@pytest.fixture
def talk(owner: User) -> str:
    session_id = new_session(owner)
    exchange(session_id, "I prefer tea to coffee.", "Noted.")
    return session_id


def page(client: Client, session_id: str, query: str = "") -> str:
    answer = client.get(f"/sessions/{session_id}/inspect/memory/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_session_without_facts_says_where_they_will_come_from(owner_client: Client, talk: str) -> None:
    text = page(owner_client, talk)
    assert "No facts yet." in text
    assert "Add a fact" in text


def test_a_fact_is_shown_with_its_words_and_the_way_to_them(owner_client: Client, talk: str) -> None:
    message = load_messages(talk)[0]
    with change(talk) as record:
        store.record_fact(record, new_fact("Prefers tea.", places=(place_of(message, "prefer tea"),)))
    text = page(owner_client, talk)
    assert "Prefers tea." in text
    assert "<bdi>prefer tea</bdi>" in text
    assert f'href="/sessions/{talk}/?at=1#{message.parts[0].id}"' in text
    assert "Withdraw this fact" in text


def test_what_holds_no_longer_is_shown_when_asked_for(owner_client: Client, talk: str) -> None:
    add_facts(talk, load_messages(talk)[0].id, "coffee")
    assert page(owner_client, talk).count('class="fact fact-') == 1
    assert 'class="fact fact-superseded"' in page(owner_client, talk, "?state=superseded")
    everything = page(owner_client, talk, "?state=all")
    assert everything.count('class="fact fact-') == 3
    assert "Superseded by a newer fact" in everything
    assert "No matching facts." in page(owner_client, talk, "?q=nothing&kind=decision&state=no%00such")


def test_a_forbidden_fact_is_shown_when_asked_for_and_can_be_allowed_again(owner_client: Client, talk: str) -> None:
    with change(talk) as record:
        id = store.record_fact(record, new_fact("Prefers tea."))
        assert "Forbid this fact" in page(owner_client, talk)
        store.forbid_fact(record, id)
    assert "Prefers tea." not in page(owner_client, talk)
    text = page(owner_client, talk, "?state=forbidden")
    assert 'class="fact fact-forbidden"' in text
    assert "Allow this fact" in text
    assert "Forbid this fact" not in text
    assert "Prefers tea." not in page(owner_client, talk, "?state=withdrawn")


def test_a_fact_says_who_found_it(owner_client: Client, talk: str) -> None:
    found = {"method": FactMethod.MODEL, "subject": ""}
    with change(talk) as record:
        store.record_fact(record, new_fact("One.", subject=""))
        store.record_fact(record, new_fact("Two.", model="demo", **found))
        store.record_fact(record, new_fact("Three.", **found))
    text = page(owner_client, talk)
    for source in ("written by a person", "found by <bdi>demo</bdi>", "imported with the conversation"):
        assert text.count(source) == 1


def test_hostile_texts_are_shown_as_texts(owner_client: Client, talk: str) -> None:
    with change(talk) as record:
        store.record_fact(record, new_fact(HOSTILE, subject=HOSTILE[:90]))
    text = page(owner_client, talk)
    assert "<script>alert" not in text
    assert "\x00" not in text


@pytest.mark.slow
def test_facts_come_a_page_at_a_time_and_in_as_many_queries(owner_client: Client, talk: str) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(owner_client, talk)
        return len(captured)

    place = place_of(load_messages(talk)[0], "tea")
    with change(talk) as record:
        store.record_fact(record, new_fact("One.", subject="", places=(place,)))
    few = queries()
    with change(talk) as record:
        for number in range(PAGE + 9):
            store.record_fact(record, new_fact(f"Fact {number}.", subject="", places=(place,)))
    assert queries() == few
    text = page(owner_client, talk)
    assert text.count('class="fact fact-') == PAGE
    more = text.split("/memory/rows/?")[1].split('"')[0].replace("&amp;", "&")
    rest = owner_client.get(f"/sessions/{talk}/inspect/memory/rows/?{more}").content.decode()
    assert rest.count('class="fact fact-') == 10
    assert "Older facts" not in rest


def test_an_archived_session_offers_no_changes(owner_client: Client, talk: str) -> None:
    add_facts(talk, load_messages(talk)[0].id, "coffee")
    with change(talk) as record:
        archive_session(record)
    text = page(owner_client, talk)
    assert "Withdraw this fact" not in text
    assert "Forbid this fact" not in text
    assert "Add a fact" not in text


def test_a_fact_can_be_held_and_a_copy_says_where_it_came_from(owner_client: Client, owner: User, talk: str) -> None:
    with change(talk) as record:
        id = store.record_fact(record, new_fact(HOSTILE))
    text = page(owner_client, talk)
    assert "For all my sessions" in text
    assert "For everyone in the organisation" not in text
    hold_fact(talk, id, HeldFor.PERSON, owner_id=owner.pk)
    text = page(owner_client, talk)
    assert "held for you" in text
    assert "Let this fact go" in text
    there = new_session(owner)
    with change(there) as record:
        copy_held_facts(record, load_session(there), Config())
    text = page(owner_client, there)
    assert f'href="/sessions/{talk}/inspect/memory/?state=all#{id}"' in text
    assert "from another session" in text
    assert "For all my sessions" not in text
    hold_fact(talk, id, HeldFor.SESSION, owner_id=owner.pk)
    assert "from another session" not in page(owner_client, there)
    assert "no longer held" in page(owner_client, there, "?state=all")


@pytest.mark.slow
def test_the_memory_of_a_person_shows_what_reaches_it_and_who_may_let_it_go(
    owner_client: Client, client: Client, owner: User, talk: str
) -> None:
    def memory(asking: Client, query: str = "") -> str:
        answer = asking.get(f"/memory/{query}")
        assert answer.status_code == 200
        return answer.content.decode()

    assert "No held facts yet." in memory(owner_client)
    owner.user_permissions.add(Permission.objects.get(codename="hold_for_organisation"))
    with change(talk) as record:
        ids = [store.record_fact(record, new_fact(f"{number} {HOSTILE}", subject="")) for number in range(PAGE + 1)]
    for id in ids:
        hold_fact(talk, id, HeldFor.PERSON, owner_id=owner.pk)
    hold_fact(talk, ids[-1], HeldFor.ORGANISATION, owner_id=owner.pk)
    text = memory(owner_client)
    assert text.count('<li class="fact"') == PAGE
    assert text.count("Let this fact go") == PAGE
    assert "<script>alert" not in text
    last = sorted(ids)[1]
    assert f"?before={last}" in text
    assert memory(owner_client, f"rows/?before={last}").count('<li class="fact"') == 1
    client.force_login(make_user("bob"))
    text = memory(client)
    assert text.count('<li class="fact"') == 1
    assert "said in another person" in text
    assert talk not in text
    assert "Let this fact go" not in text
    assert client.get("/memory/?before=no%00id").status_code == 422


def test_the_memory_of_another_persons_session_is_not_found(talk: str, client: Client) -> None:
    client.force_login(make_user("mallory"))
    assert client.get(f"/sessions/{talk}/inspect/memory/").status_code == 404
    assert client.get(f"/sessions/{talk}/inspect/memory/rows/").status_code == 404


def test_staff_see_the_facts_and_change_nothing(inspector: Client) -> None:
    talk = new_session(make_user("zoe"))
    exchange(talk, "I prefer tea to coffee.", "Noted.")
    add_facts(talk, load_messages(talk)[0].id, "coffee")
    text = page(inspector, talk)
    assert "coffee" in text
    assert "Withdraw this fact" not in text
