"""Pictures over the endpoints of this process, to a model that takes them and to one that does not."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agents_app.turns import lifecycle
from compaction_app.context.state import rebuild_payload
from mnesis_core.files.pictures import read_data_url
from mnesis_core.records import CallRecord
from sessions_app.database.threads import db
from sessions_app.models import LanguageModel
from sessions_app.record.turn_queries import list_calls
from tests.support.drawings import data_url, drawing, sent_pictures

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


def page_of(user: Any, call: CallRecord) -> str:
    client = Client()
    client.force_login(user)
    return client.get(f"/sessions/{call.session_id}/").content.decode()


async def test_a_call_with_pictures_is_rebuilt(alice: Any, asked: Any):
    call = await asked(takes_pictures=True)
    rebuilt = await db(rebuild_payload, call)
    assert rebuilt.digest_matches, rebuilt.problems
    assert len(sent_pictures(rebuilt.payload or {})) == 1
    page = await db(page_of, alice, call)
    assert page.count('class="picture"') == 1
    assert DESCRIBED not in page


async def test_the_page_says_that_a_model_was_sent_words_alone(alice: Any, asked: Any):
    call = await asked(takes_pictures=False)
    page = await db(page_of, alice, call)
    assert page.count('class="picture"') == 1
    assert DESCRIBED in page
