"""Who compacts: a worker for the person at whose turn it became due or who asked, that person, or nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django_q.models import OrmQ

from agents_app.turns import lifecycle
from compaction_app.compact import compact_now, request_manual
from compaction_app.tasks import align, compact, reflect
from mnesis_core.actor import Actor, ActorKind
from mnesis_core.records import SessionRecord
from sessions_app.database.threads import db
from sessions_app.models import Event
from sessions_app.record.actor import acting_as
from sessions_app.record.organisation_store import ref_of
from tests.compaction_app.test_compaction import WORDS, add_turns, model_of
from tests.support.people.story import say

ASKED = "req_asked-for-it"


@pytest.fixture
def acts(alice: User) -> Any:
    return acting_as(Actor(kind=ActorKind.USER, ref=ref_of(alice.pk), via="page", request=ASKED))


def actors(session_id: str, start: str) -> list[dict[str, str]]:
    """Return who acts by the entries whose types begin so, each once, in order."""
    entries = Event.objects.filter(session_id=session_id, type__startswith=start).order_by("seq")
    found = [json.loads(entry.body)["actor"] for entry in entries]
    return [actor for place, actor in enumerate(found) if actor not in found[:place]]


def run_queued() -> None:
    [task] = [task for task in OrmQ.objects.all() if task.func() == "compaction_app.tasks.compact"]
    compact(*task.args(), **task.task["kwargs"])


def test_a_worker_compacts_for_who_asked(session: SessionRecord, alice: User, acts: Any, script: Any) -> None:
    script(model_of("## Goal\n- Move the ledgers."))
    add_turns(session, 8)
    with acts:
        request_manual(session.id)
    run_queued()
    mine = {"kind": "user", "ref": ref_of(alice.pk), "via": "page", "request": ASKED}
    later = {"kind": "worker", "ref": "compaction", "for": ref_of(alice.pk), "via": "worker", "request": ASKED}
    assert actors(session.id, "compaction.requested") == actors(session.id, "compaction.triggered") == [mine]
    for start in ("compaction.started", "compaction.completed", "summary.", "context."):
        assert actors(session.id, start) == [later], start


def test_a_worker_reflects_for_who_asked(session: SessionRecord, alice: User, acts: Any, script: Any) -> None:
    script(
        lambda request: '{"facts": []}' if "MNESIS-FACTS" in str(request.payload) else "## Goal\n- Move the ledgers."
    )
    add_turns(session, 8)
    with acts:
        request_manual(session.id)
    run_queued()
    [task] = [task for task in OrmQ.objects.all() if task.func() == "compaction_app.tasks.reflect"]
    reflect(**task.kwargs())
    later = {"kind": "worker", "ref": "reflection", "for": ref_of(alice.pk), "via": "worker", "request": ASKED}
    assert actors(session.id, "reflection.completed") == [later]


def test_a_worker_aligns_for_who_asked(session: SessionRecord, alice: User, acts: Any, script: Any) -> None:
    script(model_of("## Goal\n- Move the ledgers."))
    add_turns(session, 8)
    with acts:
        request_manual(session.id)
    run_queued()
    [task] = [task for task in OrmQ.objects.all() if task.func() == "compaction_app.tasks.align"]
    align(**task.kwargs())
    later = {"kind": "worker", "ref": "alignment", "for": ref_of(alice.pk), "via": "worker", "request": ASKED}
    assert actors(session.id, "claims.aligned") == [later]


def test_who_waits_for_it_compacts(session: SessionRecord, alice: User, acts: Any, script: Any) -> None:
    script(model_of("## Goal\n- Move the ledgers."))
    add_turns(session, 8)
    with acts:
        compact_now(session.id)
    mine = {"kind": "user", "ref": ref_of(alice.pk), "via": "page", "request": ASKED}
    assert actors(session.id, "compaction.") == actors(session.id, "summary.") == [mine]


async def test_what_becomes_due_at_a_turn_is_nobodys_wish(alice: User, acts: Any, script: Any) -> None:
    script(model_of("## Goal\n- Move the ledgers."))
    with acts:
        session = await db(lifecycle.create_session, owner=alice)
        await db(add_turns, session, 60)
        await say(session, WORDS)
    ref = await db(ref_of, alice.pk)
    nobody = {"kind": "system", "for": ref, "request": ASKED}
    assert await db(actors, session.id, "compaction.") == [nobody]
    assert await db(actors, session.id, "summary.") == [nobody]
    assert await db(actors, session.id, "turn.") == [{"kind": "user", "ref": ref, "via": "page", "request": ASKED}]
