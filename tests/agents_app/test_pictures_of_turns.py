"""Pictures over the endpoints of this process, to a model that takes them and to one that does not."""

from __future__ import annotations

from typing import Any

from agents_app.turns import lifecycle
from compaction_app.context.state import rebuild_payload
from mnesis_core.files.pictures import read_data_url
from sessions_app.database.threads import db
from sessions_app.models import LanguageModel
from sessions_app.record.turn_queries import list_calls
from tests.support.drawings import data_url, drawing, sent_pictures


async def test_a_call_with_pictures_is_rebuilt(alice: Any, script: Any):
    await LanguageModel.objects.acreate(
        alias="seeing", litellm_model="openai/x", context_window=16_000, max_output_tokens=500, takes_pictures=True
    )
    script("A gradient.", alias="seeing")
    session = await db(lifecycle.create_session, owner=alice, model="seeing")
    sent = read_data_url(data_url(drawing(3000, 2000)), place="x")
    started = await lifecycle.start_turn(session.id, owner_id=alice.pk, message="", pictures=[sent])
    turn = await lifecycle.wait_turn(session.id, started.turn.id, owner_id=alice.pk)
    assert turn.state == "completed", turn
    [call] = await db(list_calls, session.id)
    rebuilt = await db(rebuild_payload, call)
    assert rebuilt.digest_matches, rebuilt.problems
    assert len(sent_pictures(rebuilt.payload or {})) == 1
