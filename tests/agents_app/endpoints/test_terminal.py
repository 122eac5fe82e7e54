"""What a person at the terminal is told beside the answer."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from agents_app.endpoints.terminal import notes
from agents_app.turns import lifecycle
from sessions_app.database.threads import db
from sessions_app.record.turn_queries import list_turns
from tests.agents_app.test_delegation import CAREFUL, answers, call, children, once
from tests.support.people.story import begin, ended, frames_until


async def test_a_sub_agent_that_waits_is_told_with_how_to_answer(alice: User, script: Any) -> None:
    session = await db(lifecycle.create_session, owner=alice, config=CAREFUL)
    script(answers({"Find": once(call("task", prompt="Note it")), "Note": call("write_carefully", text="a line")}))
    turn = await begin(session, "Find")
    frames = await frames_until(session, "delegation.suspended")
    [child] = await children(session)
    [waiting] = (await db(list_turns, child.id))[0].waits_for
    told = [line for frame in frames for line in await db(notes, frame, session.id)]
    assert told[0].startswith("[task ")
    assert f"manage.py sessions approve|refuse|answer {child.id} {waiting.part_id}" in told[-1]
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    await ended(turn)
