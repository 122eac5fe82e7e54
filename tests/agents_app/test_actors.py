"""Who acts in a turn and in what comes of it: the person who asked, or for whom a worker, an agent or nobody acts."""

from __future__ import annotations

import asyncio
import io
import json
import math
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.utils import timezone
from django_q.models import OrmQ

from agents_app.endpoints.jsonrpc import serve
from agents_app.models import OperatorRun
from agents_app.tasks import fork, work
from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from agents_app.turns.claim import claim_turn, recover_turns
from agents_app.turns.runner import runner
from mnesis_core.actor import Actor, ActorKind
from mnesis_core.errors import NotSignedIn
from mnesis_core.providers.scripted import Step
from mnesis_core.records import SessionRecord, TurnState
from mnesis_site.asgi import application
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key, revoke_key
from sessions_app.models import Event, Turn
from sessions_app.record.actor import acting_as
from sessions_app.record.organisation_store import ref_of
from tests.mnesis_site.endpoints.test_sockets import open_socket
from tests.support.people.cast import caller_of
from tests.support.people.story import begin, ended, say, tool_call
from tests.support.record.hosts import Make, _hosts, call, host, send, turns_ended
from tests.support.record.maps import start
from tests.support.record.talks import exchange

__all__ = ["_hosts", "host"]

ASKED = "req_asked-for-it"


@tool(needs_approval=True)
def sign(context: ToolContext, what: str) -> str:
    """Sign something."""
    return f"signed {what}"


def actors(session_id: str, *types: str) -> list[dict[str, str]]:
    """Return who acts by the entries of a session, or by those of these types, each once, in order."""
    entries = Event.objects.filter(session_id=session_id).order_by("seq")
    found = [json.loads(entry.body)["actor"] for entry in entries if not types or entry.type in types]
    return list({json.dumps(actor): actor for actor in found}.values())


def by(user: User, **more: str) -> dict[str, str]:
    return {"kind": "user", "ref": ref_of(user.pk)} | more


def for_(user: User, kind: str, **more: str) -> dict[str, str]:
    return {"kind": kind, "for": ref_of(user.pk)} | more


@pytest.fixture
def ada_acts(alice: User) -> Any:
    """Let Alice act as she does through an endpoint."""
    return acting_as(Actor(kind=ActorKind.USER, ref=ref_of(alice.pk), via="api", request=ASKED))


async def test_a_turn_keeps_its_person_and_what_its_tools_do_is_theirs(alice: User, ada_acts: Any, script: Any) -> None:
    with ada_acts:
        config = {"turn": {"tools": ["task"]}}
        session = await db(lifecycle.create_session, owner=alice, config=config)
        script(Step(tool_calls=(tool_call("task", prompt="Count the boats."),)), "Four.", "There are four.")
        turn = await say(session, "How many boats are there?")
    assert turn.state == TurnState.COMPLETED
    mine = await db(by, alice, via="api", request=ASKED)
    assert await db(actors, session.id) == [mine]
    assert json.loads(turn.actor) == mine
    [child] = [id for id in await db(lambda: {*Turn.objects.values_list("session_id", flat=True)}) if id != session.id]
    assert await db(actors, child) == [mine]


async def test_a_turn_that_goes_on_later_says_for_whom(alice: User, ada_acts: Any, script: Any) -> None:
    script(Step(tool_calls=(tool_call("sign", what="it"),)), "Done.")
    with ada_acts:
        session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": ["sign"]}})
        suspended = await ended(await begin(session, "Sign it."))
    assert suspended.state == TurnState.SUSPENDED
    [waiting] = suspended.waits_for
    decider = Actor(kind=ActorKind.KEY, ref="0123ab", for_ref="ada", via="socket", request="req_decided-it")
    with acting_as(decider):
        turn = await lifecycle.decide_approval(session.id, waiting.part_id, owner_id=alice.pk, approved=True)
        assert (await ended(turn)).state == TurnState.COMPLETED
    decided = await db(actors, session.id, "approval.decided", "turn.resumed")
    assert decided == [json.loads(decider.text)]
    later = await db(for_, alice, "worker", ref="turn", via="worker", request=ASKED)
    assert await db(actors, session.id, "turn.completed", "message.finalized") == [
        *await db(actors, session.id, "turn.started"),
        later,
    ]


def test_a_recovered_turn_is_nobodys_wish(session: SessionRecord, ada_acts: Any, alice: User) -> None:
    with ada_acts:
        turn = claim_turn(session.id, owner_id=session.owner_id, message="Go", lease_owner="dead").turn
    Turn.objects.filter(id=turn.id).update(lease_expires_at=timezone.now() - timedelta(days=1))
    with acting_as(Actor(kind=ActorKind.KEY, ref="0123ab", for_ref="bob")):
        assert recover_turns(lease_owner="me") == 1
    assert actors(session.id, "turn.interrupted") == [for_(alice, "system", request=ASKED)]


async def test_the_heartbeat_acts_for_the_system(session: SessionRecord, script: Any) -> None:
    turn = await db(claim_turn, session.id, owner_id=session.owner_id, message="Go", lease_owner="dead")
    past = timezone.now() - timedelta(days=1)
    await db(lambda: Turn.objects.filter(id=turn.turn.id).update(lease_expires_at=past))
    runner._swept_at = -math.inf  # in this file sweeps come rarely, and the clock may have begun a moment ago
    runner.start_heartbeat()
    async with asyncio.timeout(30):
        while not await db(actors, session.id, "turn.interrupted"):  # noqa: ASYNC110 - the heartbeat has no event for it
            await asyncio.sleep(0.05)
    assert await db(actors, session.id, "turn.interrupted") == [{"kind": "system"}]


@pytest.mark.usefixtures("_hosts")
async def test_an_inbox_is_read_for_its_owner(alice: User, host: Make, ada_acts: Any, script: Any) -> None:
    script(
        lambda request: (
            "Read."
            if request.payload["messages"][-1]["role"] == "tool" or "from=" in str(request.payload)
            else call("send_message", to="bert", text="The tide is high.")
        )
    )
    ida, bert = await db(host, "ida"), await db(host, "bert")
    with ada_acts:
        await say(ida, "Tell bert that the tide is high.")
        await turns_ended(bert, 1)
        await send(ida, "Good morning.")
        await turns_ended(ida, 2)
    mine = await db(by, alice, via="api", request=ASKED)
    assert await db(actors, bert.id, "inbox.received") == [mine]
    begun = await db(actors, bert.id, "turn.started", "inbox.taken", "turn.completed")
    assert begun == [await db(for_, alice, "model", ref=ida.id)]
    assert await db(actors, ida.id, "turn.started") == [mine, await db(for_, alice, "system")]


def test_a_worker_forks_for_who_asked(
    alice: User, session: SessionRecord, ada_acts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = exchange(session.id, "How high is the tide?", "Four metres.")[-1]
    monkeypatch.setattr(lifecycle, "COPIED_AT_ONCE", 0)
    with ada_acts:
        begun = lifecycle.begin_fork(session.id, owner=alice, at_message_id=last)
    [task] = OrmQ.objects.all()
    fork(*task.args(), **task.task["kwargs"])
    mine, later = by(alice, via="api", request=ASKED), for_(alice, "worker", ref="fork", via="worker", request=ASKED)
    assert actors(begun.id, "session.created") == [mine]
    assert actors(begun.id, "message.created") == [later]
    assert actors(session.id, "session.forked") == [later]


def test_a_worker_runs_a_map_for_who_asked(alice: User, session: SessionRecord, ada_acts: Any, script: Any) -> None:
    script(lambda request: '{"n": 1}')
    with ada_acts:
        run_id = start(session, ["one", "two"])
    work()
    assert OperatorRun.objects.get(id=run_id).state == "completed"
    assert actors(session.id, "map.started") == [by(alice, via="api", request=ASKED)]
    types = ("map.items_claimed", "map.item_completed", "map.completed")
    assert actors(session.id, *types) == [for_(alice, "worker", ref="map", via="worker", request=ASKED)]


# Endpoints that no route lists.


async def test_each_frame_of_a_socket_is_a_request_of_its_own(alice: User, session: SessionRecord, script: Any) -> None:
    script("One.", "Two.")
    key = await db(create_key, owner_id=alice.pk)
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]
    socket = open_socket(application, f"/ws/sessions/{session.id}", headers)
    await socket.send_input({"type": "websocket.connect"})
    for _ in range(2):
        await socket.send_input({"type": "websocket.receive", "text": '{"type": "turn", "message": "Count."}'})
        async with asyncio.timeout(30):
            while json.loads((await socket.receive_output(30)).get("text", "{}")).get("type") != "turn.completed":
                pass
    await socket.send_input({"type": "websocket.disconnect", "code": 1000})
    await socket.wait()
    told = (await db(actors, session.id))[1:]  # without the session's creation
    requests = {actor.pop("request") for actor in told}
    assert len(requests) == 2
    who = {"kind": "key", "ref": key.prefix, "for": await db(ref_of, alice.pk), "via": "socket"}
    assert all(actor == who for actor in told)


async def test_each_line_of_standard_input_is_a_request_of_its_own(alice: User) -> None:
    lines = "".join(f'{{"jsonrpc": "2.0", "id": {id}, "method": "session/create"}}\n' for id in (1, 2))
    target = io.StringIO()
    await serve(caller_of(alice), io.BytesIO(lines.encode()), target)
    made = [json.loads(line)["result"]["id"] for line in target.getvalue().splitlines()]
    [first], [second] = [await db(actors, id) for id in made]
    assert first["request"] != second["request"]


def test_a_command_acts_for_its_user(alice: User, script: Any) -> None:
    script("High.")
    call_command("run", "How is the tide?", "--user", "alice", stdout=io.StringIO(), stderr=io.StringIO())
    [session_id] = Turn.objects.values_list("session_id", flat=True)
    [actor] = actors(session_id)
    assert actor.pop("request").startswith("req_")
    assert actor == for_(alice, "command", ref="run", via="command")


# Whose key or account has ended


def test_a_revoked_key_and_a_closed_account_write_nothing(alice: User, session: SessionRecord) -> None:
    key, before = create_key(owner_id=alice.pk), session.event_seq
    program = Client(headers={"Authorization": f"Bearer {key}"})
    path = f"/api/sessions/{session.id}"
    assert program.patch(path, {"title": "Tides"}, content_type="application/json").status_code == 200
    revoke_key(key.prefix)
    assert program.patch(path, {"title": "Ebb"}, content_type="application/json").status_code == 401
    other = Client(headers={"Authorization": f"Bearer {create_key(owner_id=alice.pk)}"})
    alice.is_active = False
    alice.save()
    assert other.patch(path, {"title": "Ebb"}, content_type="application/json").status_code == 401
    assert Event.objects.filter(session_id=session.id).count() == before + 1


async def test_a_closed_account_ends_a_pipe(alice: User) -> None:
    await db(lambda: User.objects.filter(pk=alice.pk).update(is_active=False))
    with pytest.raises(NotSignedIn):
        await serve(
            caller_of(alice), io.BytesIO(b'{"jsonrpc": "2.0", "id": 1, "method": "session/create"}\n'), io.StringIO()
        )
    assert not await db(lambda: Event.objects.exists())
