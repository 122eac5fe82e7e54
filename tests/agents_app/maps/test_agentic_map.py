"""AgenticMap: each item is a sub-agent's session, its last message the result."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents_app import store
from agents_app.models import OperatorBrake
from agents_app.queries import attempts_of_item, list_items, load_item, load_run, usage_of_maps
from agents_app.tools.registry import ToolContext, tool
from agents_app.turns import lifecycle
from agents_app.turns.claim import claim_turn, recover_turns
from agents_app.turns.overview import SessionRead
from audit_app.proof.verify import verify_session
from audit_app.transfer.export import export_session, session_ids
from mnesis_core.errors import ModelAuthenticationFailed, ModelRateLimited
from mnesis_core.llm.interface import Request
from mnesis_core.maps.prompts import GO_ON
from mnesis_core.maps.values import ErrorKind, ItemState, OperatorKind, RunState, StopReason
from mnesis_core.messages import Message, TextPart
from mnesis_core.providers.scripted import Script as Said
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_core.records import SUB_AGENT, MessageEnd, SessionRecord, TurnState
from mnesis_core.spending import TurnLimits
from sessions_app.models import Turn
from sessions_app.record.change import change
from sessions_app.record.context_queries import load_events
from sessions_app.record.message_queries import load_message, load_messages
from sessions_app.record.message_store import append_message
from sessions_app.record.session_queries import list_sessions, load_session
from sessions_app.record.turn_queries import list_calls, list_turns
from sessions_app.record.turn_store import finish_turn
from sessions_app.search.search import Scope, search
from tests.agents_app.maps.test_runs_in_a_worker import NUMBER, until, working
from tests.support.people.story import alice, script, spoken, tool_call
from tests.support.record.maps import output_of, start, worked
from tests.support.record.operators import add_run
from tests.support.record.talks import exchange, new_session

__all__ = ["alice", "script"]

Script = Callable[..., ScriptedModel]
noted: list[str] = []


@tool()
def note_down(context: ToolContext, text: str) -> str:
    """Write something down."""
    noted.append(text)
    return "written"


@tool(read_only=True)
def look_up(context: ToolContext, text: str) -> str:
    """Look something up."""
    return f"{text} is 41"


@tool(read_only=True, needs_approval=True)
def look_with_care(context: ToolContext, text: str) -> str:
    """Look something up, after a person was asked."""
    return "seen"


TOOLS = {"turn": {"tools": ["note_down", "look_up", "look_with_care", "task"]}}


@pytest.fixture
def session(alice: Any) -> SessionRecord:
    return lifecycle.create_session(owner=alice, config=TOOLS)


def begin(session: SessionRecord, items: Any, turn_id: str = "", **spec: Any) -> str:
    return start(session, items, kind=OperatorKind.AGENTIC, turn_id=turn_id, **spec)


def offered(request: Request) -> set[str]:
    return {entry["function"]["name"] for entry in request.payload.get("tools", ())}


def last(request: Request) -> dict[str, Any]:
    return dict(request.payload["messages"][-1])


def children(session: SessionRecord) -> list[SessionRecord]:
    return sorted(list_sessions(owner_id=session.owner_id, parent_id=session.id), key=lambda child: child.title)


def talk(item: int, run_id: str) -> list[str]:
    return [spoken(message) for message in load_messages(load_item(run_id, item).child_session_id)]


def set_state(run_id: str, state: RunState) -> None:
    with change(load_run(run_id).session_id) as record:
        store.set_run_state(record, run_id, state, reason="person")


def test_each_item_has_a_session_with_tools_and_only_its_answer_is_the_result(session, script):
    def reply(request: Request) -> Said:
        message = last(request)
        return message["content"] if message["role"] == "tool" else tool_call("look_up", text=message["content"])

    model = script(reply)
    run = worked(begin(session, ["a", "b"], system_prompt="You look things up."))
    assert (run.state, run.counts.completed, run.counts.tries) == (RunState.COMPLETED, 2, 2)
    assert [line["output"] for line in output_of(run)] == ["Say a is 41", "Say b is 41"]
    found = children(session)
    assert [child.title for child in found] == ["Item 1: Say a", "Item 2: Say b"]
    assert {(child.origin, child.parent_id, child.agent) for child in found} == {("task", session.id, "map")}
    assert [item.child_session_id for item in list_items(run.id)] == [child.id for child in found]
    assert "You look things up." in str(model.requests[0].payload["messages"][0]["content"])
    [turn] = list_turns(found[0].id)
    [one] = attempts_of_item(run.id, 1)
    assert (one.child_turn_id, one.usage.tokens_input, one.accepted) == (turn.id, turn.usage.tokens_input, True)
    assert load_session(session.id).message_seq == 0, "nothing of it is in the parent's context"
    bill = SessionRead.model_validate(load_session(session.id)).dict()["billing"]
    assert bill["sub_agents"]["input_tokens"] == run.counts.tokens_input > 0
    assert usage_of_maps(session.id).tokens_input == 0
    for one in (session, *found):
        assert verify_session(one.id).problems == []


def test_its_sessions_are_searched_and_exported_like_any_other(session, script):
    script(lambda request: "The quay is closed.")
    worked(begin(session, 1))
    [child] = children(session)
    assert {hit.session_id for hit in search(Scope(owner_id=session.owner_id), "quay").hits} == {child.id}
    assert child.id in session_ids(owner_id=session.owner_id)
    assert b"The quay is closed." in b"".join(export_session(child.id))


@pytest.mark.slow
def test_a_sub_agent_has_its_own_context_compacted(session, script):
    counted = iter(range(100))

    def reply(request: Request) -> Said:
        if "MNESIS-SUMMARISE" in str(request.payload["messages"][0]["content"]):
            return "Much was looked up."
        number = next(counted)
        if number % 3 < 2:
            return tool_call("look_up", f"c{number}", text=f"{number} word " * 300)
        return "no" if number < 12 else '{"n": 41}'

    script(reply)
    run = worked(begin(session, 1, schema=NUMBER, max_retries=6))
    assert [line["output"] for line in output_of(run)] == [{"n": 41}]
    [child] = children(session)
    assert "compaction.completed" in {event.type for event in load_events(child.id, limit=1_000)}
    assert "compaction.completed" not in {event.type for event in load_events(session.id, limit=1_000)}


def test_a_sub_agent_that_may_only_read_has_only_tools_that_read_and_ask_nobody(session, script):
    model = script(lambda request: tool_call("note_down", text="x") if last(request)["role"] == "user" else "done")
    run = worked(begin(session, 1))
    assert run.counts.completed == 1
    assert offered(model.requests[0]) == {"look_up"}
    assert noted == []
    assert "no tool is called 'note_down'" in str(last(model.requests[1])["content"])


def test_one_that_may_write_still_asks_nobody_and_uses_the_tools_of_the_run(session, script):
    model = script(lambda request: "done")
    worked(begin(session, 1, read_only=False))
    worked(begin(session, 1, read_only=False, tools=("note_down", "look_with_care")))
    assert [offered(request) for request in model.requests] == [{"look_up", "note_down", "task"}, {"note_down"}]


@pytest.mark.slow
def test_a_run_that_a_model_asked_for_gives_no_tool_that_its_session_has_not(session, script):
    model = script(lambda request: "done")
    [asked] = exchange(session.id, "Map it.", "I do.")[1:]
    worked(begin(session, 1, read_only=False, tools=("note_down", "calculator")))
    turn_id = load_message(asked, session_id=session.id).turn_id
    worked(begin(session, 1, read_only=False, tools=("note_down", "calculator"), turn_id=turn_id))
    assert [offered(request) for request in model.requests] == [{"note_down", "calculator"}, {"note_down"}]


@pytest.mark.slow
def test_an_answer_that_does_not_fit_is_corrected_in_the_same_session(session, script):
    replies = iter(["no JSON", '{"n": "x"}', '{"n": 3}'])
    script(lambda request: next(replies))
    run = worked(begin(session, 1, schema=NUMBER))
    assert output_of(run)[0]["output"] == {"n": 3}
    asked = talk(1, run.id)[::2]
    assert "JSON Schema" in asked[0]
    assert "no JSON" in asked[1] or "not JSON" in asked[1]
    assert "does not fit the schema" in asked[2]
    tries = attempts_of_item(run.id, 1)
    assert [one.error_kind for one in tries] == [ErrorKind.VALIDATION, ErrorKind.SCHEMA_ERROR, None]
    assert len({one.child_turn_id for one in tries}) == 3
    assert verify_session(session.id).problems == []


@pytest.mark.slow
def test_an_item_fails_after_its_tries_and_is_tried_again_when_asked(session, script):
    good: list[str] = []
    script(lambda request: good[0] if good else "no")
    run = worked(begin(session, 2, schema=NUMBER, max_retries=1))
    assert (run.state, run.counts.failed, run.counts.tries) == (RunState.COMPLETED, 2, 4)
    good.append('{"n": 1}')
    with change(session.id) as record:
        store.retry_failed(record, run.id)
    run = worked(run.id)
    assert (run.counts.completed, run.counts.failed) == (2, 0)
    assert len(children(session)) == 2


def test_sub_agents_are_as_warm_as_their_run(session, script):
    model = script(lambda request: "done")
    run = worked(begin(session, 1, temperature=0.25))
    assert [request.payload["temperature"] for request in model.requests] == [0.25]
    [asked] = list_calls(load_item(run.id, 1).child_session_id)
    assert asked.parameters["sent"] == {"temperature": 0.25}


@pytest.mark.slow
def test_a_turn_that_takes_too_long_is_ended(session, script):
    def reply(request: Request) -> Said:
        return Step(text="late", delay_seconds=30.0)

    script(reply)
    run = worked(begin(session, 1, timeout_seconds=0.5, max_retries=0))
    [item] = list_items(run.id)
    assert (item.state, item.error_kind) == (ItemState.FAILED, ErrorKind.TIMEOUT)
    [turn] = list_turns(item.child_session_id)
    assert turn.state == "cancelled"


def test_a_sub_agent_has_so_many_model_calls(session, script):
    counted = iter(range(100))
    script(lambda request: tool_call("look_up", f"c{next(counted)}", text=f"{next(counted)}"))
    run = worked(begin(session, 1, max_turns=3, max_retries=0))
    [item] = list_items(run.id)
    assert (item.error_kind, "limit of model calls" in item.error) == (ErrorKind.TOOL_ERROR, True)


def test_an_item_whose_own_turn_s_limit_ends_it_fails_for_its_budget(session, script):
    counted = iter(range(100))
    script(lambda request: tool_call("look_up", f"c{next(counted)}", text=f"{next(counted)}"))
    run = worked(begin(session, 1, limits=TurnLimits(tool_calls=1)))
    [item] = list_items(run.id)
    assert (run.state, item.state, item.error_kind) == (RunState.COMPLETED, ItemState.FAILED, ErrorKind.BUDGET)
    assert (item.attempts, output_of(run)[0]["error"]["kind"]) == (1, "budget")


def test_a_model_that_fails_is_the_item_s_failure(session, script):
    script(lambda request: Step(error=ModelAuthenticationFailed("no key")))
    run = worked(begin(session, 1))
    [item] = list_items(run.id)
    assert (item.error_kind, item.attempts) == (ErrorKind.LLM_ERROR, 1)


@pytest.mark.slow
def test_a_rate_limit_answer_to_one_sub_agent_holds_up_all(session, script):
    asked: list[float] = []

    def reply(request: Request) -> Said:
        asked.append(time.monotonic())
        if len(asked) == 1:
            return ModelRateLimited(retry_after="1")
        look = Step(tool_calls=(tool_call("look_up", text="x"),), delay_seconds=0.2)
        return look if last(request)["role"] == "user" else "done"

    script(reply)
    run = worked(begin(session, 2, concurrency=2))
    assert (run.counts.completed, run.counts.tries) == (2, 2)
    assert len(asked) == 5
    assert asked[2] - asked[0] > 1, "the other one had its tool's result by then, and waited as well"
    assert OperatorBrake.objects.get(model="demo").ceiling == 1


@pytest.mark.slow
def test_cancel_ends_the_sub_agents_within_seconds(session, script):
    script(lambda request: Step(text=("half ", "done"), delay_seconds=30.0))
    run_id = begin(session, 3)
    with working():
        until(lambda: any(item.child_session_id for item in list_items(run_id)))
        until(lambda: all(list_turns(child.id) for child in children(session)) and children(session))
        set_state(run_id, RunState.CANCELLED)
    assert {item.state for item in list_items(run_id)} == {ItemState.CANCELLED}
    assert {turn.state for child in children(session) for turn in list_turns(child.id)} == {"cancelled"}
    assert verify_session(session.id).problems == []


def abandoned(session: SessionRecord, ask: Callable[[str, str], None]) -> str:
    """A run whose worker died over its item, in what ``ask`` did with the sub-agent's session; returns its id."""
    run_id = add_run(session.id, items=1, kind=OperatorKind.AGENTIC, schema=None)
    child = new_session(User.objects.get(pk=session.owner_id), parent_id=session.id, origin=SUB_AGENT)
    with change(session.id) as record:
        store.claim_items(record, run_id, worker="dead", limit=1, lease_seconds=-1)
        store.note_claimed(record, run_id, {1: child})
    ask(run_id, child)
    return run_id


def test_what_ended_before_its_worker_died_is_judged_and_not_asked_again(session, script):
    model = script(lambda request: "asked again")

    def ask(run_id: str, child: str) -> None:
        turn = claimed(session, run_id, child)
        with change(child) as record:
            reply = Message(role="assistant", parts=(TextPart(text="41"),))
            append_message(record, turn_id=turn, message=reply, end=MessageEnd(outcome="complete"))
            finish_turn(record, turn, state=TurnState.COMPLETED)

    run = worked(abandoned(session, ask))
    assert [line["output"] for line in output_of(run)] == ["41"]
    assert (load_item(run.id, 1).attempts, model.requests) == (2, [])
    assert verify_session(session.id).problems == []


def test_a_turn_that_died_with_its_worker_is_gone_on_with(session, script):
    script(lambda request: "41" if last(request)["content"] == GO_ON else "what?")

    def ask(run_id: str, child: str) -> None:
        claimed(session, run_id, child)
        Turn.objects.update(lease_expires_at=timezone.now())
        recover_turns(lease_owner="another process")

    run = worked(abandoned(session, ask))
    assert [line["output"] for line in output_of(run)] == ["41"]
    assert talk(1, run.id) == ["Say 0000001", GO_ON, "41"]


def test_who_goes_on_hears_of_the_runs_that_its_dead_turn_asked_for(session, script):
    def reply(request: Request) -> Said:
        told = re.findall(r"llm_map (map_\w+): ", str(last(request)["content"]))
        return f"as {told} say" if told else "of an item"

    script(reply)
    begun: list[str] = []

    def ask(run_id: str, child: str) -> None:
        asked_by = claimed(session, run_id, child)
        begun.append(start(load_session(child), 1, turn_id=asked_by))
        start(load_session(child), 1, turn_id="another")
        Turn.objects.update(lease_expires_at=timezone.now())
        recover_turns(lease_owner="another process")

    run = worked(abandoned(session, ask))
    assert [line["output"] for line in output_of(run)] == [f"as {begun} say"]
    assert talk(1, run.id)[1].startswith(GO_ON)


@pytest.mark.slow
def test_a_turn_of_a_dead_worker_is_closed_and_gone_on_with_when_its_lease_has_run_out(session, script):
    script(lambda request: "41" if last(request)["content"] == GO_ON else "what?")

    def ask(run_id: str, child: str) -> None:
        claimed(session, run_id, child)
        Turn.objects.update(lease_expires_at=timezone.now() + timedelta(seconds=1))

    run = worked(abandoned(session, ask))
    assert [line["output"] for line in output_of(run)] == ["41"]
    assert run.counts.tries == 1, "what died says nothing of the item"


def test_what_a_person_says_to_a_sub_agent_is_no_result(session, script):
    script(lambda request: "41")

    def ask(run_id: str, child: str) -> None:
        exchange(child, "Hello?", "I am a person's answer.")

    run = worked(abandoned(session, ask))
    assert [line["output"] for line in output_of(run)] == ["41"]


def claimed(session: SessionRecord, run_id: str, child: str) -> str:
    """The turn that a worker began for the item."""
    key = f"{run_id} 1 1"
    message = "Say 0000001"
    owner_id = session.owner_id
    return claim_turn(child, owner_id=owner_id, message=message, idempotency_key=key, lease_owner="dead").turn.id


@pytest.mark.slow
def test_a_run_s_own_limit_stops_it_in_order(session, script):
    script(lambda request: "x" * 4_000)
    run = worked(begin(session, 40, concurrency=4, limits=TurnLimits(tokens=12_000)))
    assert (run.state, run.reason) == (RunState.PAUSED, StopReason.BUDGET)
    assert run.counts.completed > 0
    assert run.counts.tokens_input + run.counts.tokens_output <= 12_000
    assert run.counts.failed == 0
    assert output_of(run)[0]["output"].startswith("xxx")


@pytest.mark.slow
def test_the_session_s_limit_stops_its_runs_too(alice, script):
    session = lifecycle.create_session(owner=alice, config={"limits": {"session": {"tokens": 12_000}}})
    script(lambda request: "x" * 4_000)
    run = worked(begin(session, 40))
    assert (run.state, run.reason) == (RunState.PAUSED, StopReason.BUDGET)
    assert run.counts.completed > 0
    assert run.counts.failed == 0
