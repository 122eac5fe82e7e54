"""Pictures over the endpoints of this process, to a model that takes them and to one that does not."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from django.core.files.storage import storages
from django.core.management import call_command
from django.db import connection
from django.test import Client

from agents_app.turns import lifecycle
from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions
from compaction_app.context.state import rebuild_payload
from mnesis_core.files.pictures import read_data_url
from mnesis_core.records import CallRecord
from sessions_app.database.threads import db
from sessions_app.models import LanguageModel
from sessions_app.record.turn_queries import list_calls
from tests.support.material.drawings import data_url, drawing, sent_pictures
from tests.support.people.cast import make_user

pytestmark = pytest.mark.both_databases
DESCRIBED = "Only its description was sent to <bdi>eyes</bdi>"


@pytest.fixture
def asked(alice: Any, script: Any) -> Any:
    """Ask a model about a large picture; returns the call."""

    async def asked(*, takes_pictures: bool) -> CallRecord:
        limits = {"context_window": 16_000, "max_output_tokens": 500}
        await LanguageModel.objects.acreate(
            alias="eyes", litellm_model="openai/x", takes_pictures=takes_pictures, **limits
        )
        script("A gradient.", alias="eyes")
        session = await db(lifecycle.create_session, owner=alice, model="eyes")
        sent = read_data_url(data_url(drawing(3000, 2000)), place="x")
        started = await lifecycle.start_turn(session.id, owner_id=alice.pk, message="", pictures=[sent])
        turn = await lifecycle.wait_turn(session.id, started.turn.id, owner_id=alice.pk)
        assert turn.state == "completed", turn
        [call] = await db(list_calls, session.id)
        return call

    return asked


def shown_again(call: CallRecord) -> list[bytes]:
    """The pictures of a call as it is rebuilt; its session is verified."""
    rebuilt = rebuild_payload(call)
    assert rebuilt.digest_matches, rebuilt.problems
    report = verify_session(call.session_id)
    assert report.ok, report.problems
    return sent_pictures(rebuilt.payload or {})


def forget(role: str) -> None:
    """Delete every row and every content, as only the owner of the database can."""
    if role:
        connection.ensure_connection()  # the thread may have had none
        connection.connection.execute("RESET SESSION AUTHORIZATION")
    call_command("flush", interactive=False, verbosity=0)
    if role:
        connection.connection.execute(f'SET SESSION AUTHORIZATION "{role}"')
    shutil.rmtree(storages["files"].location)  # type: ignore[attr-defined]


def page_of(user: Any, call: CallRecord) -> str:
    client = Client()
    client.force_login(user)
    return client.get(f"/sessions/{call.session_id}/").content.decode()


@pytest.mark.slow
async def test_a_call_with_pictures_is_rebuilt(alice: Any, asked: Any):
    call = await asked(takes_pictures=True)
    assert len(await db(shown_again, call)) == 1
    page = await db(page_of, alice, call)
    assert page.count('class="picture"') == 1
    assert DESCRIBED not in page


@pytest.mark.slow
async def test_the_page_says_that_a_model_was_sent_words_alone(alice: Any, asked: Any):
    call = await asked(takes_pictures=False)
    page = await db(page_of, alice, call)
    assert page.count('class="picture"') == 1
    assert DESCRIBED in page


@pytest.mark.slow
async def test_an_export_has_the_pictures_as_they_were_sent(
    asked: Any, site_role_name: str, monkeypatch: pytest.MonkeyPatch
):
    call = await asked(takes_pictures=True)
    seen = await db(shown_again, call)
    lines = await db(lambda: list(export_session(call.session_id)))
    await db(forget, site_role_name)
    # Nothing is scaled again, which a later Pillow would do otherwise.
    monkeypatch.setattr("files_app.pictures.render_alone", None)
    monkeypatch.setattr("mnesis_core.files.pictures.PNG_LEVEL", 1)
    eve = await db(make_user, "eve")
    await db(lambda: import_sessions(lambda: lines, owner_id=eve.pk))
    [imported] = await db(list_calls, call.session_id)
    assert imported.id == call.id
    assert await db(shown_again, imported) == seen


@pytest.mark.slow
async def test_a_fork_shows_the_pictures_of_what_it_copied(alice: Any, asked: Any, script: Any):
    call = await asked(takes_pictures=True)
    seen = await db(shown_again, call)
    fork = await db(lambda: lifecycle.fork_session(call.session_id, owner=alice, at_message_id=call.message_id))
    script("Still a gradient.", alias="eyes")
    started = await lifecycle.start_turn(fork.id, owner_id=alice.pk, message="And now?")
    turn = await lifecycle.wait_turn(fork.id, started.turn.id, owner_id=alice.pk)
    assert turn.state == "completed", turn
    newest = (await db(list_calls, fork.id))[-1]
    assert await db(shown_again, newest) == seen
