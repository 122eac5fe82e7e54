"""Temporary chats: in no list and no memory of their owner, deleted for them on time, and kept in the site's record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from agents_app.queries import list_runs
from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import leaving, lifecycle
from agents_app.turns.leaving import end_temporary_chats
from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions
from compaction_app.context.state import load_frame
from compaction_app.facts.copies import takes_held_facts
from compaction_app.facts.queries import facts_reaching
from compaction_app.facts.remember import FactDraft, add_fact, hold_fact
from files_app.intake import keep_file
from files_app.queries import list_files
from mnesis_core.config import Config
from mnesis_core.errors import SessionNotFoundError, SessionTemporary
from mnesis_core.facts import FactKind, HeldFor
from mnesis_core.messages import Message, TextPart
from mnesis_core.network.sharing import Audience
from mnesis_core.providers.scripted import Step
from mnesis_core.records import TurnState
from mnesis_core.transcripts.session_file import RowLine, read_sessions
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.models import DirectoryEntry, Event, Session, Turn
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.session_queries import find_session, last_model, list_sessions, load_launched, load_session
from sessions_app.record.shares.sharing import share_session
from sessions_app.search.search import Scope, search
from tests.support.people.story import begin, tool_call
from tests.support.proof.second_opinion import all_problems
from tests.support.proof.second_verifier import problems_of_session, read_export
from tests.support.record.operators import add_run
from tests.support.record.talks import exchange, new_session

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(hours=24)


@pytest.fixture
def configure(settings: Any, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    def write(text: str) -> None:
        file = tmp_path / "config.toml"
        file.write_text(text)
        settings.MNESIS = {**settings.MNESIS, "CONFIG_FILE": str(file)}
        site_config.cache_clear()

    yield write
    site_config.cache_clear()


@pytest.fixture(autouse=True)
def permit(configure: Callable[[str], None]) -> None:
    configure('[temporary]\nchats = "kept"\n')


@pytest.fixture
def web(alice: User, client: Client) -> Client:
    client.force_login(alice)
    return client


@pytest.fixture
def secret(alice: User) -> str:
    session_id = lifecycle.create_session(owner=alice, title="Secret plans", temporary=True).id
    exchange(session_id, "Where is the lighthouse?", "On the pier.")
    return session_id


def later(hours: float = 24.1) -> datetime:
    return timezone.now() + timedelta(hours=hours)


def is_there(session_id: str) -> bool:
    return Session.objects.filter(id=session_id, deleted_at=None).exists()


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def post(web: Client, path: str, **body: Any) -> Any:
    return web.post(path, body, content_type="application/json")


def test_a_program_begins_one_where_the_site_permits_it(web: Client, configure: Callable[[str], None]) -> None:
    made = post(web, "/api/sessions", temporary=True)
    assert (made.status_code, made.json()["temporary"]) == (201, True)
    assert web.get(f"/api/sessions/{made.json()['id']}").json()["temporary"] is True
    assert post(web, "/api/sessions").json()["temporary"] is False
    assert post(web, "/api/sessions", temporary="yes").status_code == 422
    configure("")
    assert code_of(post(web, "/api/sessions", temporary=True)) == (403, "TEMPORARY_NOT_PERMITTED")
    assert code_of(post(web, "/api/sessions", temporary=True, message="Hello")) == (403, "TEMPORARY_NOT_PERMITTED")


def test_its_owner_finds_it_nowhere_but_at_its_address(web: Client, alice: User, secret: str) -> None:
    other = new_session(alice, title="Harbour works")
    keep_file(secret, owner_id=alice.pk, path="secret.txt", chunks=[b"plans"])
    for query in ("", "?archived=true", "?trashed=true", "?q=Secret", "?sub_agents=false"):
        assert "Secret plans" not in web.get(f"/api/sessions{query}").content.decode(), query
    for path in (
        "/",
        "/sessions/",
        "/sessions/palette/",
        "/sessions/palette/?q=Secret",
        "/sessions/sidebar/",
        "/usage/",
    ):
        page = web.get(path)
        assert page.status_code == 200, path
        assert "Secret plans" not in page.content.decode(), path
        assert secret not in page.content.decode(), path
    assert list(search(Scope(owner_id=alice.pk), "lighthouse").hits) == []
    assert web.get("/api/search?q=where is the lighthouse").json()["items"] == []
    assert len(web.get(f"/api/sessions/{secret}/search?q=where is the lighthouse").json()["items"]) > 0
    assert search(Scope(owner_id=alice.pk), "lighthouse").messages_total == 0
    assert len(search(Scope(owner_id=alice.pk, session_id=secret), "lighthouse").hits) == 1
    assert find_session("last", owner_id=alice.pk).id == other
    assert list_files(owner_id=alice.pk) == []
    assert [file.path for file in list_files(owner_id=alice.pk, session_id=secret)] == ["secret.txt"]
    run_id = add_run(secret)
    assert list_runs(owner_id=alice.pk) == []
    assert [run.id for run in list_runs(owner_id=alice.pk, session_id=secret)] == [run_id]
    lifecycle.see_session(secret, owner_id=alice.pk)
    assert last_model(owner_id=alice.pk) == ""

    page = web.get(f"/sessions/{secret}/").content.decode()
    assert "Deleted for you 24 hours after the last message." in page
    assert 'id="keep"' in page
    assert 'id="pin"' not in page
    usage = web.get("/api/usage").json()["items"]
    assert [item["title"] for item in usage if item["session_id"] == secret] in ([], [""])


def test_another_person_does_not_find_it(client: Client, bob: User, secret: str) -> None:
    client.force_login(bob)
    for answer in (client.get(f"/api/sessions/{secret}"), client.post(f"/api/sessions/{secret}/keep")):
        assert code_of(answer) == (404, "SESSION_NOT_FOUND")


def test_it_stays_apart(web: Client, alice: User, secret: str) -> None:
    project = post(web, "/api/projects", name="Harbour").json()["id"]
    for change_of_it in ({"pinned": True}, {"project_id": project}, {"host_mode": True, "peer_name": "spy"}):
        answer = web.patch(f"/api/sessions/{secret}", change_of_it, content_type="application/json")
        assert code_of(answer) == (409, "SESSION_TEMPORARY"), change_of_it
    assert code_of(web.post(f"/api/sessions/{secret}/trash")) == (409, "SESSION_TEMPORARY")
    assert code_of(post(web, f"/api/sessions/{secret}/shares")) == (409, "SESSION_TEMPORARY")
    for begun in ({"project_id": project}, {"host_mode": True, "peer_name": "spy"}, {"parent_id": new_session(alice)}):
        assert code_of(post(web, "/api/sessions", temporary=True, **begun)) == (409, "SESSION_TEMPORARY"), begun
    assert web.patch(f"/api/sessions/{secret}", {"title": "Plans"}, content_type="application/json").status_code == 200
    assert web.delete(f"/api/sessions/{secret}").status_code == 200


def test_facts_neither_come_nor_go(alice: User, secret: str) -> None:
    tea = FactDraft(statement="Prefers tea.", kind=FactKind.PREFERENCE, subject="drinks")
    fact = add_fact(secret, tea, owner_id=alice.pk)
    with pytest.raises(SessionTemporary):
        hold_fact(secret, fact.id, HeldFor.PERSON, owner_id=alice.pk)
    known = new_session(alice)
    hold_fact(known, add_fact(known, tea, owner_id=alice.pk).id, HeldFor.PERSON, owner_id=alice.pk)
    assert takes_held_facts(load_frame(known).session, Config())
    assert not takes_held_facts(load_frame(secret).session, Config())
    lifecycle.keep_session(secret, owner_id=alice.pk)
    assert hold_fact(secret, fact.id, HeldFor.PERSON, owner_id=alice.pk).held_for == HeldFor.PERSON
    organisation = Session.objects.get(id=secret).organisation_id
    assert len(facts_reaching(known, owner_id=alice.pk, organisation=organisation)) == 1


def test_what_begins_from_it_is_temporary_too(web: Client, alice: User, secret: str) -> None:
    child = new_session(alice, parent_id=secret, origin="task", title="Secret task")
    [question, _] = [item["id"] for item in web.get(f"/api/sessions/{secret}/messages").json()["items"]]
    fork = post(web, f"/api/sessions/{secret}/fork", at_message_id=question).json()
    below = post(web, "/api/sessions", parent_id=secret).json()
    assert load_session(child).is_temporary
    assert (fork["temporary"], below["temporary"]) == (True, True)
    assert list_sessions(owner_id=alice.pk) == []
    listed = web.get(f"/api/sessions?parent_id={secret}").json()["items"]
    assert {item["id"] for item in listed} == {child, fork["id"], below["id"]}
    assert load_launched(secret) == [child]
    page = f"/sessions/{secret}/"
    assert fork["id"] in web.get(page).content.decode()
    lifecycle.keep_session(secret, owner_id=alice.pk)
    assert (load_session(child).is_temporary, load_session(fork["id"]).is_temporary) == (False, True)
    assert fork["id"] not in web.get(page).content.decode()
    assert [item["id"] for item in web.get(f"/api/sessions?parent_id={secret}").json()["items"]] == [child]


def test_a_fork_needs_the_permission_too(web: Client, secret: str, configure: Callable[[str], None]) -> None:
    question = web.get(f"/api/sessions/{secret}/messages").json()["items"][0]["id"]
    configure("")
    assert code_of(post(web, f"/api/sessions/{secret}/fork", at_message_id=question)) == (
        403,
        "TEMPORARY_NOT_PERMITTED",
    )


def test_it_leaves_its_owner_on_time_with_its_sub_agents(alice: User, secret: str) -> None:
    child = new_session(alice, parent_id=secret, origin="task")
    empty = lifecycle.create_session(owner=alice, temporary=True).id
    other = new_session(alice)
    end_temporary_chats(now=later(23.9))
    assert all(map(is_there, (secret, child, empty)))
    for _ in range(2):
        end_temporary_chats(now=later())
        assert not any(map(is_there, (secret, child, empty)))
        assert is_there(other)
    with pytest.raises(SessionNotFoundError):
        load_session(secret, owner_id=alice.pk)
    for id in (secret, child, empty):
        assert verify_session(id).ok
        told = DirectoryEntry.objects.filter(session_id=id).order_by("seq").values_list("type", flat=True)
        assert list(told) == ["session.created", "session.deleted"]
        assert (
            Event.objects.filter(session_id=id).order_by("-seq").values_list("type", flat=True)[0] == "session.closed"
        )
    assert list(all_problems()) == []
    assert Session.objects.filter(id=secret).exists()


def test_the_last_message_counts_and_no_other_change(web: Client, alice: User, secret: str) -> None:
    lifecycle.update_session(secret, owner_id=alice.pk, title="Renamed")
    with change(secret, now=later(12)) as record:
        turn_store.start_turn(record, model="demo")
    turn_id = load_session(secret).running_turn_id
    assert turn_id
    with change(secret, now=later(12)) as record:
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
    lifecycle.archive_session(secret, owner_id=alice.pk)
    end_temporary_chats(now=later())
    assert not is_there(secret)


def test_a_site_says_how_long(secret: str, configure: Callable[[str], None], web: Client) -> None:
    # Also once it permits no new ones.
    configure('[temporary]\nchats = "off"\nhours = 1\n')
    assert "Deleted for you 1 hour after" in web.get(f"/sessions/{secret}/").content.decode()
    end_temporary_chats(now=later(0.9))
    assert is_there(secret)
    end_temporary_chats(now=later(1.1))
    assert not is_there(secret)


def test_a_running_turn_is_waited_for(alice: User, secret: str) -> None:
    child = new_session(alice, parent_id=secret, origin="task")
    with change(child) as record:
        turn_store.claim_turn(record, model="demo")
    end_temporary_chats(now=later())
    assert is_there(secret)
    with change(secret) as record:
        turn_store.claim_turn(record, model="demo")
    end_temporary_chats(now=later())
    assert is_there(secret)
    assert load_session(secret).state == "running"


@pytest.mark.parametrize("goes_on", ["keeps", "runs"])
def test_one_that_goes_on_meanwhile_stays(
    alice: User, secret: str, monkeypatch: pytest.MonkeyPatch, goes_on: str
) -> None:
    found = leaving.silent_temporary_chats

    def find_and_go_on(before: datetime, *, limit: int) -> list[str]:
        ids = found(before, limit=limit)
        if goes_on == "keeps":
            lifecycle.keep_session(secret, owner_id=alice.pk)
        else:
            with change(secret) as record:
                turn_store.claim_turn(record, model="demo")
        return ids

    monkeypatch.setattr(leaving, "silent_temporary_chats", find_and_go_on)
    end_temporary_chats(now=later())
    assert is_there(secret)
    assert not Turn.objects.filter(interrupt_requested_at__isnull=False).exists()


def test_a_silent_sub_agent_stays_with_a_chat_that_goes_on(alice: User, secret: str) -> None:
    child = new_session(alice, parent_id=secret, origin="task", created_at=later(-48))
    end_temporary_chats()
    assert is_there(child)


@tool(needs_approval=True)
def sink(context: ToolContext, what: str) -> str:
    """Sink something."""
    return f"sank {what}"


async def test_a_turn_that_nobody_answers_is_cancelled(alice: User, script: Any) -> None:
    script(Step(tool_calls=(tool_call("sink", what="a"),)))
    config = {"turn": {"tools": ["sink"]}}
    session = await db(lifecycle.create_session, owner=alice, config=config, temporary=True)
    turn = await begin(session, "Sink it.")
    turn = await lifecycle.wait_turn(session.id, turn.id, owner_id=alice.pk)
    assert turn.state == TurnState.SUSPENDED
    await db(end_temporary_chats, now=later(23))
    assert (await db(load_session, session.id)).state == "suspended"
    await db(end_temporary_chats, now=later())
    assert not await db(is_there, session.id)
    assert (await db(verify_session, session.id)).ok


def test_one_sweep_takes_a_part_and_the_next_the_rest(alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "MOST_AT_ONCE", 2)
    ids = [lifecycle.create_session(owner=alice, temporary=True).id for _ in range(3)]
    end_temporary_chats(now=later())
    assert [is_there(id) for id in ids] == [False, False, True]
    end_temporary_chats(now=later())
    assert not is_there(ids[2])


def test_its_owner_keeps_it(web: Client, alice: User, secret: str) -> None:
    child = new_session(alice, parent_id=secret, origin="task")
    for _ in range(2):
        assert web.post(f"/api/sessions/{secret}/keep").json()["temporary"] is False
    assert not load_session(child).is_temporary
    fields = [event["fields"] for event in events_of(secret, "session.updated")]
    assert fields == [["kept_at"]]
    assert [item["title"] for item in web.get("/api/sessions?sub_agents=false").json()["items"]] == ["Secret plans"]
    assert len(search(Scope(owner_id=alice.pk), "lighthouse").hits) == 1
    end_temporary_chats(now=later())
    assert is_there(secret)
    assert verify_session(secret).ok
    ordinary = new_session(alice)
    assert web.post(f"/api/sessions/{ordinary}/keep").json()["temporary"] is False
    assert events_of(ordinary, "session.updated") == []


def events_of(session_id: str, type: str) -> list[dict[str, Any]]:
    rows = Event.objects.filter(session_id=session_id, type=type).order_by("seq")
    return [json.loads(row.body) for row in rows]


@pytest.mark.both_databases
@pytest.mark.owner
def test_what_it_began_as_is_never_rewritten_and_a_change_is_found(alice: User, secret: str) -> None:
    lifecycle.keep_session(secret, owner_id=alice.pk)
    for statement in (
        "UPDATE sessions SET began_temporary = FALSE",
        "UPDATE sessions SET kept_at = NULL",
    ):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    assert verify_session(secret).ok


@pytest.mark.parametrize("act", ["keep", "delete", "none"])
def test_an_export_says_it_and_what_was_imported_leaves_a_day_later(alice: User, act: str) -> None:
    """The session is taken back before its export comes in, as on another site."""
    with suppress(Undone), transaction.atomic():
        session_id = said_long_ago(alice)
        if act == "keep":
            lifecycle.keep_session(session_id, owner_id=alice.pk)
        if act == "delete":
            lifecycle.delete_session(session_id, owner_id=alice.pk)
        lines = list(export_session(session_id))
        raise Undone
    assert problems_of_session(read_export(lines)[0]) == []
    [row] = [item.values for item in read_sessions(lines) if isinstance(item, RowLine) and item.table == "sessions"]
    assert (row["began_temporary"], row["kept_at"] is not None) == (True, act == "keep")
    import_sessions(lambda: lines, owner_id=alice.pk)
    assert list(export_session(session_id)) == lines
    assert verify_session(session_id).ok
    end_temporary_chats(now=later(12))
    assert is_there(session_id) == (act != "delete")
    end_temporary_chats(now=later())
    assert is_there(session_id) == (act == "keep")


def said_long_ago(owner: User) -> str:
    """A temporary chat that would leave if it had not been imported since."""
    ago = timezone.now() - timedelta(days=30)
    session_id = new_session(owner, temporary=True, created_at=ago)
    with change(session_id, now=ago) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        said = Message(role="user", parts=(TextPart(text="Where is the lighthouse?"),))
        message_store.append_message(record, turn_id=turn_id, message=said)
        turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)
    return session_id


class Undone(Exception):
    """Takes back what was written."""


def test_staff_see_that_it_is_temporary(admin_client: Client, secret: str) -> None:
    found = admin_client.get("/observe/?q=is:temporary").content.decode()
    assert secret in found
    assert ">temporary<" in found
    assert ">temporary<" in admin_client.get(f"/sessions/{secret}/inspect/").content.decode()


def test_the_page_offers_one_only_where_the_site_permits_it(web: Client, configure: Callable[[str], None]) -> None:
    page = web.get("/").content.decode()
    assert 'name="temporary"' in page
    assert "Deleted for you 24 hours after the last message." in page
    assert "New temporary chat" in web.get("/sessions/palette/").content.decode()
    configure("")
    assert 'name="temporary"' not in web.get("/").content.decode()
    assert "New temporary chat" not in web.get("/sessions/palette/").content.decode()


def test_a_share_of_it_is_refused_in_the_domain_too(alice: User, secret: str) -> None:
    with pytest.raises(SessionTemporary):
        share_session(secret, owner_id=alice.pk, audience=Audience.SITE)
