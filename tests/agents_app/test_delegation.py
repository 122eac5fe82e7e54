"""Delegation: sub-agents are sessions with turns of their own, which end with the turn that launched them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import pytest
from django.db import OperationalError

from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle, transactions
from agents_app.turns.claim import recover_turns
from agents_app.turns.overview import SessionRead
from agents_app.turns.runner import runner
from audit_app.proof.verify import verify_session
from mnesis_core.config import override
from mnesis_core.llm.interface import Request, ToolCall
from mnesis_core.messages import StoredMessage, ToolPart, ToolState
from mnesis_core.providers.scripted import Script, Step
from mnesis_core.records import SessionRecord, TurnRecord, TurnState
from sessions_app.conf import site_config
from sessions_app.database.threads import db
from sessions_app.record.context_queries import load_events
from sessions_app.record.session_queries import list_sessions, load_session
from sessions_app.record.turn_queries import list_turns
from sessions_app.search.search import Scope, search
from tests.support.people.story import begin, ended, frames_until, history, say, spoken

written: list[str] = []
CAREFUL = {"turn": {"tools": ["task", "write_carefully"]}}


@tool()
def write_note(context: ToolContext, text: str) -> str:
    """Write something down."""
    written.append(text)
    return "written"


@tool(needs_approval=True)
def write_carefully(context: ToolContext, text: str) -> str:
    """Write something down, after a person was asked."""
    written.append(text)
    return "written"


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=f"call_{name}_{len(json.dumps(arguments))}", name=name, arguments=json.dumps(arguments))


def asked(request: Request) -> tuple[str, str]:
    """(what the turn was asked, the result of its last tool call) of a request."""
    messages = request.payload["messages"]
    question = next(message["content"] for message in reversed(messages) if message["role"] == "user")
    last = messages[-1]
    return question, last["content"] if last["role"] == "tool" else ""


def told(request: Request) -> str:
    return str(request.payload["messages"][0]["content"])


def offered(request: Request) -> set[str]:
    return {entry["function"]["name"] for entry in request.payload.get("tools", ())}


def answers(by_question: dict[str, Script | Callable[[str], Script]]) -> Callable[[Request], Script]:
    """A model that knows what to say to each question's beginning; given a function, it says what comes of a result."""

    def reply(request: Request) -> Script:
        question, result = asked(request)
        script = next(said for beginning, said in by_question.items() if question.startswith(beginning))
        return script(result) if callable(script) else script

    return reply


def once(first: Script, then: str = "Done: ") -> Callable[[str], Script]:
    """First a call, then an answer that repeats its result."""
    return lambda result: f"{then}{result}" if result else first


@pytest.fixture
def one_permit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs one turn at a time, and one sub-agent of each depth."""
    config = override(site_config(), {"turn": {"capacity": 1}})
    for module in ("turns.runner", "subagents"):
        monkeypatch.setattr(f"agents_app.{module}.site_config", lambda: config)


async def children(session: SessionRecord) -> list[SessionRecord]:
    found = await db(list_sessions, owner_id=session.owner_id, parent_id=session.id)
    return sorted(found, key=lambda child: child.title)


def tool_parts(messages: list[StoredMessage]) -> list[ToolPart]:
    return [stored.part for message in messages for stored in message.parts if isinstance(stored.part, ToolPart)]


async def test_a_task_runs_in_a_session_of_its_own_and_only_its_answer_returns(session, script):
    look = call("task", prompt="Look for the gauge", title="The gauge")
    model = script(answers({"Find it": once(look), "Look for": Step(text="It reads 41.", reasoning="hm")}))
    turn = await say(session, "Find it")
    assert turn.state == TurnState.COMPLETED
    [child] = await children(session)
    assert (child.title, child.origin, child.agent, child.parent_id) == ("The gauge", "task", "general", session.id)
    assert [spoken(message) for message in await history(child)] == ["Look for the gauge", "It reads 41."]
    [part] = tool_parts(await history(session))
    assert part.output is not None
    assert part.output.startswith("It reads 41.\n[sub-agent sess_")
    request = next(request for request in model.requests if asked(request)[0] == "Look for the gauge")
    assert "You are a sub-agent" in told(request)
    assert "lcm_expand" in offered(request)
    assert "lcm_expand" not in offered(model.requests[0])
    assert "Find it" not in json.dumps(request.payload)
    types = [event.type for event in await db(load_events, session.id)]
    assert types.count("delegation.started") == types.count("delegation.ended") == 1
    for one in (session, child):
        assert (await db(verify_session, one.id)).as_dict()["problems"] == []
    bill = (await db(SessionRead.model_validate, session)).dict()["billing"]
    child_bill = (await db(SessionRead.model_validate, child)).dict()["billing"]
    assert bill["sub_agents"]["input_tokens"] == child_bill["input_tokens"] > 0
    assert bill["input_tokens"] == bill["turns"]["input_tokens"] + child_bill["input_tokens"]
    hits = await db(search, Scope(owner_id=session.owner_id), "gauge reads")
    assert hits.messages_searched > 2


async def test_several_tasks_run_at_the_same_time_and_answer_in_order(session, script):
    gates = {name: asyncio.Event() for name in ("north", "south")}
    both = call("tasks", tasks=[{"prompt": "north"}, {"prompt": "south", "agent": "explore"}])
    steps = {name: Step(text=(f"{name} ", "done"), gate=gate) for name, gate in gates.items()}
    model = script(answers({"All": once(both), **steps}))
    turn = await begin(session, "All")
    async with asyncio.timeout(60):
        while len(model.requests) < 3:  # noqa: ASYNC110 - a model has no event for it
            await asyncio.sleep(0.01)
    found = await children(session)
    assert [child.state for child in found] == ["running", "running"]
    assert [child.id for child in sorted(found, key=attrgetter("created_at"))] == [child.id for child in found]
    gates["south"].set()
    gates["north"].set()
    assert (await ended(turn)).state == TurnState.COMPLETED
    [part] = tool_parts(await history(session))
    assert part.output is not None
    assert part.output.index("north done") < part.output.index("south done")
    assert part.output.startswith("## Task 1\n")


async def test_a_sub_agent_cannot_hand_everything_on_and_no_chain_passes_the_depth(session, script):
    whole = call("task", prompt="Do it all")
    part = call("task", prompt="Do it all", delegated_scope="a part", kept_work="the rest")
    model = script(answers({"Begin": once(whole), "Do it all": lambda result: result or part}))
    await say(session, "Begin")
    [child] = await children(session)
    [refused] = tool_parts(await history(child))
    assert "DELEGATION_REFUSED: This is your whole task" in str(refused.error)
    assert await children(child) == []

    deeper = {
        f"Level {n}": once(call("task", prompt=f"Level {n + 1}", delegated_scope=f"part {n}", kept_work="y"))
        for n in range(9)
    }
    model = script(answers(deeper))
    await say(session, "Level 0")
    assert {asked(request)[0].split("\n")[0] for request in model.requests} == {f"Level {n}" for n in range(4)}
    said = spoken((await history(session))[-1])
    assert "DELEGATION_REFUSED: Sub-agents stand at most 3 deep" in said


async def test_an_explorer_is_offered_what_only_reads_and_can_call_nothing_else(alice, script):
    written.clear()
    tools = ["lcm_grep", "write_note", "task", "tasks"]
    session = await db(lifecycle.create_session, owner=alice, config={"turn": {"tools": tools}})
    look = call("task", prompt="Look around", agent="explore")
    model = script(answers({"Find": once(look), "Look": once(call("write_note", text="no"))}))
    await say(session, "Find")
    [explorer] = await children(session)
    assert explorer.agent == "explore"
    request = next(request for request in model.requests if asked(request)[0] == "Look around")
    assert offered(request) == {"lcm_grep"}
    assert "TOOL_NOT_FOUND" in str(tool_parts(await history(explorer))[0].error)
    assert written == []


async def test_a_turn_launches_no_more_than_it_may_also_by_calls_side_by_side(alice, script):
    session = await db(lifecycle.create_session, owner=alice, config={"delegation": {"max_children": 2}})
    calls = tuple(call("task", prompt=f"Look {'x' * n}") for n in range(4))
    script(answers({"Find": once(Step(tool_calls=calls)), "Look": "Seen."}))
    await say(session, "Find")
    assert len(await children(session)) == 2
    states = sorted(part.state for part in tool_parts(await history(session)))
    assert states == [ToolState.COMPLETED, ToolState.COMPLETED, ToolState.ERROR, ToolState.ERROR]


async def test_an_interrupt_of_the_parent_interrupts_the_children_and_theirs(session, script):
    gate = asyncio.Event()
    first = call("task", prompt="Look", delegated_scope="x", kept_work="y")
    second = call("task", prompt="Deeper", delegated_scope="z", kept_work="y")
    model = script(answers({"Find": first, "Look": second, "Deeper": Step(text=("I see ", "all"), gate=gate)}))
    turn = await begin(session, "Find", until=model)
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    assert (await ended(turn)).state == TurnState.CANCELLED
    [child] = await children(session)
    [grandchild] = await children(child)
    assert (child.state, grandchild.state) == ("cancelled", "cancelled")
    assert spoken((await history(grandchild))[-1]) == "I see "


async def test_an_interrupt_that_cannot_be_written_for_a_child_ends_both_all_the_same(session, script, monkeypatch):
    model = script(
        answers({"Find": call("task", prompt="Look"), "Look": Step(text=("I ", "see"), gate=asyncio.Event())})
    )
    turn = await begin(session, "Find", until=model)

    def away(*_: object, **__: object) -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr(lifecycle, "interrupt", away)
    runner.interrupt(turn.id)
    assert (await ended(turn)).state == TurnState.CANCELLED
    assert [child.state for child in await children(session)] == ["cancelled"]


async def test_a_child_whose_end_cannot_be_waited_for_is_interrupted(session, script, monkeypatch):
    waited = lifecycle.wait_turn

    async def away(session_id: str, *ids: str, **whose: int) -> object:
        if session_id == session.id:
            return await waited(session_id, *ids, **whose)
        await model.at_gate.wait()
        raise OperationalError("the database is away")

    model = script(
        answers({"Find": once(call("task", prompt="Look")), "Look": Step(text=("I ", "see"), gate=asyncio.Event())})
    )
    monkeypatch.setattr(lifecycle, "wait_turn", away)
    assert (await say(session, "Find")).state == TurnState.COMPLETED
    assert [child.state for child in await children(session)] == ["cancelled"]


async def test_a_call_whose_result_cannot_be_written_ends_the_calls_beside_it(session, script, monkeypatch):
    write = transactions.finish_tool

    def away(turn: TurnRecord, part_id: str, **result: Any) -> int:
        if result["text"] != "4":
            return write(turn, part_id, **result)
        while not model.at_gate.is_set():
            time.sleep(0.01)
        raise OperationalError("the database is away")

    both = Step(tool_calls=(call("task", prompt="Look"), call("calculator", expression="2 + 2")))
    model = script(answers({"Find": both, "Look": Step(text=("I ", "see"), gate=asyncio.Event())}))
    monkeypatch.setattr(transactions, "finish_tool", away)
    assert (await say(session, "Find")).state == TurnState.FAILED
    assert [child.state for child in await children(session)] == ["cancelled"]


async def test_a_child_that_fails_or_is_interrupted_alone_is_an_error_of_its_call_and_the_parent_goes_on(
    session, script
):
    gate = asyncio.Event()
    look = call("task", prompt="Look")
    model = script(answers({"Find": once(look, "It failed: "), "Look": Step(text=("I ", "see"), gate=gate)}))
    turn = await begin(session, "Find", until=model)
    [child] = await children(session)
    await db(lifecycle.interrupt, child.id, owner_id=session.owner_id)
    assert (await ended(turn)).state == TurnState.COMPLETED
    said = spoken((await history(session))[-1])
    assert said.startswith("It failed: Error: DELEGATION_FAILED: I ")
    assert child.id in said


async def test_a_delegation_that_takes_too_long_is_given_up_and_its_sub_agent_interrupted(alice, script):
    session = await db(lifecycle.create_session, owner=alice, config={"delegation": {"timeout_seconds": 0.3}})
    script(answers({"Find": once(call("task", prompt="Look")), "Look": Step(text=("a ", "b"), gate=asyncio.Event())}))
    turn = await say(session, "Find")
    assert turn.state == TurnState.COMPLETED
    assert "no answer within 0.3 seconds" in spoken((await history(session))[-1])
    [child] = await children(session)
    assert child.state == "cancelled"


@pytest.mark.slow
@pytest.mark.both_databases
async def test_waiting_parents_hold_no_permit_that_their_children_need(session, script, one_permit):
    names = ["a", "b", "c"]
    many = call("tasks", tasks=[{"prompt": f"Part {name}"} for name in names])
    deeper = call("task", prompt="Small", delegated_scope="x", kept_work="y")
    script(answers({"All": once(many), "Part": once(deeper), "Small": "ok"}))
    assert (await asyncio.wait_for(say(session, "All"), 60)).state == TurnState.COMPLETED
    found = await children(session)
    assert [child.state for child in found] == ["idle"] * 3
    assert [len(await children(child)) for child in found] == [1, 1, 1]


async def test_a_child_that_waits_for_an_approval_says_so_at_the_parent_and_goes_on_after_it(alice, script, one_permit):
    written.clear()
    session = await db(lifecycle.create_session, owner=alice, config=CAREFUL)
    careful = once(call("write_carefully", text="a line"))
    script(answers({"Find": once(call("task", prompt="Note it")), "Note": careful}))
    turn = await begin(session, "Find")
    await frames_until(session, "delegation.suspended")
    [child] = await children(session)
    assert child.state == "suspended"
    assert (await db(load_session, session.id)).state == "running"
    [waiting] = (await db(list_turns, child.id))[0].waits_for
    told = next(event for event in await db(load_events, session.id) if event.type == "delegation.suspended")
    assert told.data["child_part_ids"] == [waiting.part_id]
    await lifecycle.decide_approval(child.id, waiting.part_id, owner_id=session.owner_id, approved=True)
    assert (await ended(turn)).state == TurnState.COMPLETED
    assert written == ["a line"]
    types = [event.type for event in await db(load_events, session.id)]
    assert "delegation.resumed" in types
    assert "Done: written" in spoken((await history(session))[-1])


async def test_an_interrupt_ends_a_child_that_waits_for_an_approval(alice, script):
    session = await db(lifecycle.create_session, owner=alice, config=CAREFUL)
    script(answers({"Find": once(call("task", prompt="Note it")), "Note": call("write_carefully", text="a line")}))
    turn = await begin(session, "Find")
    await frames_until(session, "delegation.suspended")
    await db(lifecycle.interrupt, session.id, owner_id=session.owner_id)
    assert (await ended(turn)).state == TurnState.CANCELLED
    [child] = await children(session)
    assert child.state == "cancelled"


@pytest.mark.both_databases
async def test_after_a_crash_parent_and_children_end_interrupted(session, script, monkeypatch):
    gate = asyncio.Event()
    model = script(answers({"Find": once(call("task", prompt="Look")), "Look": Step(text=("I ", "see"), gate=gate)}))
    await begin(session, "Find", until=model)
    [child] = await children(session)
    await crash(monkeypatch)
    while await db(recover_turns, lease_owner="another process"):
        pass
    for one in (session, child):
        [turn] = await db(list_turns, one.id)
        assert (turn.state, turn.error_code) == ("interrupted", "TURN_INTERRUPTED")
    assert [part.state for part in tool_parts(await history(session))] == [ToolState.ERROR]


async def test_after_a_crash_a_child_that_waited_for_an_approval_ends_interrupted_too(alice, script, monkeypatch):
    session = await db(lifecycle.create_session, owner=alice, config=CAREFUL)
    script(answers({"Find": once(call("task", prompt="Note it")), "Note": call("write_carefully", text="a line")}))
    await begin(session, "Find")
    await frames_until(session, "delegation.suspended")
    [child] = await children(session)
    monkeypatch.setattr("agents_app.subagents.end_turn", nothing)
    await crash(monkeypatch)
    assert (await db(load_session, child.id)).state == "suspended"
    await db(recover_turns, lease_owner="another process")
    assert (await db(load_session, session.id)).state == "interrupted"
    assert (await db(load_session, child.id)).state == "interrupted"
    assert [part.state for part in tool_parts(await history(child))] == [ToolState.ERROR]


async def nothing(*_: object, **__: object) -> None:
    """What is done by a process that died."""


async def crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """End every task of this process without a line being written, and let the leases run out."""
    from django.utils import timezone

    from sessions_app.models import Turn

    monkeypatch.setattr("agents_app.turns.loop._finish", nothing)
    await runner.shutdown()
    await db(lambda: Turn.objects.filter(state="running").update(lease_owner="dead", lease_expires_at=timezone.now()))


async def test_children_are_archived_and_deleted_with_their_parent(session, script):
    script(answers({"Find": once(call("task", prompt="Look")), "Look": "Seen."}))
    await say(session, "Find")
    [child] = await children(session)
    await db(lifecycle.archive_session, session.id, owner_id=session.owner_id)
    assert (await db(load_session, child.id)).archived_at is not None
    await db(lifecycle.delete_session, session.id, owner_id=session.owner_id)
    assert await db(list_sessions, owner_id=session.owner_id, archived=None) == []
