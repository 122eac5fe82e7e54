"""Who explores a file: a worker, for the person who brought it."""

from __future__ import annotations

import json

from django.contrib.auth.models import User
from django_q.models import OrmQ

from files_app.intake import keep_file
from files_app.tasks import explore
from mnesis_core.actor import Actor, ActorKind
from sessions_app.models import Event
from sessions_app.record.actor import acting_as
from sessions_app.record.organisation_store import ref_of
from tests.support.record.talks import new_session


def test_a_worker_explores_for_who_asked(alice: User) -> None:
    session_id = new_session(alice)
    key = Actor(kind=ActorKind.KEY, ref="0123ab", for_ref=ref_of(alice.pk), via="api", request="req_asked-for-it")
    with acting_as(key):
        keep_file(session_id, owner_id=alice.pk, path="tides.csv", chunks=[b"port,height\nBrest,4\n"])
    [task] = OrmQ.objects.all()
    explore(*task.args(), **task.task["kwargs"])
    added, explored = (
        json.loads(Event.objects.get(session_id=session_id, type=type).body)["actor"]
        for type in ("file.added", "file.explored")
    )
    assert added == json.loads(key.text)
    worker = {"kind": "worker", "ref": "exploration", "via": "worker"}
    assert explored == worker | {"for": ref_of(alice.pk), "request": "req_asked-for-it"}


def test_a_task_that_an_earlier_version_queued_names_no_person(alice: User) -> None:
    session_id = new_session(alice)
    file = keep_file(session_id, owner_id=alice.pk, path="tides.csv", chunks=[b"port,height\nBrest,4\n"])
    explore(file.id, owner_id=alice.pk)
    entry = Event.objects.get(session_id=session_id, type="file.explored")
    assert json.loads(entry.body)["actor"] == {"kind": "worker", "ref": "exploration", "via": "worker"}
