"""Defects 18 to 21 of the reference library, as its operators had them: nothing checked, nothing kept, anything run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents_app import store
from agents_app.maps.worker import work_for_a_slice
from agents_app.models import OperatorTry
from agents_app.queries import attempts_of_item, list_items, load_run
from files_app.queries import list_files
from mnesis_core.errors import InvalidTemplate, ModelUnavailable
from mnesis_core.llm.interface import Request
from mnesis_core.maps.template import compile_template
from mnesis_core.maps.values import ErrorKind, ItemState, OperatorKind, RunState
from mnesis_core.providers.scripted import ScriptedModel, Step
from mnesis_core.records import SessionRecord
from sessions_app.conf import site_config
from sessions_app.models import ModelCall
from sessions_app.record.change import change
from sessions_app.record.session_queries import list_sessions, load_depth
from tests.support.people.story import tool_call
from tests.support.record.maps import output_of, start, worked

NUMBER = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}

Script = Callable[..., ScriptedModel]


def test_a_model_is_told_the_schema_and_what_was_wrong(session: SessionRecord, script: Script) -> None:
    """Defect 19: it was told neither, and asked the same again."""
    model = script('{"count": "three"}', '{"count": 3}')
    run = worked(start(session, ["a heron"], schema=NUMBER))
    [first, second] = [str(request.payload["messages"]) for request in model.requests]
    assert '"required"' in first
    assert "integer" in second.replace(first[1:-1], "")
    assert [line["output"] for line in output_of(run)] == [{"count": 3}]


@pytest.mark.slow
def test_what_one_worker_began_another_one_ends_and_nothing_is_paid_twice(
    session: SessionRecord, script: Script
) -> None:
    """Defect 19: everything was in the memory of one process."""
    model = script(lambda request: Step(text='{"count": 1}', delay_seconds=0.2))
    run_id = start(session, 30, schema=NUMBER, concurrency=3)
    work_for_a_slice(must_stop=lambda: len(model.requests) > 3)
    assert 0 < load_run(run_id).counts.completed < 30
    with change(session.id) as record:  # a worker that dies with items in its hands
        assert len(store.claim_items(record, run_id, worker="dead", limit=3, lease_seconds=-1)) == 3
    run = worked(run_id)
    assert (run.state, run.counts.completed) == (RunState.COMPLETED, 30)
    assert OperatorTry.objects.filter(run_id=run_id, accepted=True).count() == 30
    assert ModelCall.objects.filter(session_id=session.id, purpose="map").count() == 30
    assert run.output_file_id in [file.id for file in list_files(owner_id=session.owner_id)]


def test_an_error_is_no_result(session: SessionRecord, script: Script) -> None:
    """Defect 18: a provider's error counted as a success, and its text as the output."""
    script(lambda request: ModelUnavailable())
    run = worked(start(session, 2, max_retries=0))
    assert (run.counts.completed, run.counts.failed) == (0, 2)
    assert [item.state for item in list_items(run.id)] == [ItemState.FAILED] * 2
    assert all("output" not in line and line["error"]["kind"] == "llm_error" for line in output_of(run))


@pytest.mark.parametrize(
    "template",
    [
        "{{ item.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__ }}{{ item }}",
        "{{ item | attr('__class__') }}",
        "{{ cycler.__init__.__globals__ }}{{ item }}",
        "{% include 'settings.py' %}{{ item }}",
        "{{ item * 10 ** 9 }}",
        "nothing of the item",
    ],
)
def test_a_template_reaches_nothing_but_its_item(template: str) -> None:
    """Defect 21: templates could walk to any class of the process."""

    def rendered() -> Any:
        return compile_template(template).render("x")

    with pytest.raises(InvalidTemplate):
        rendered()


@pytest.mark.slow
def test_a_sub_agent_has_tools_a_prompt_and_a_time_and_its_answer_is_checked(
    session: SessionRecord, script: Script
) -> None:
    """Defect 20: AgenticMap had no schema, no second try, no timeout, no tools, no system prompt."""
    asked: list[Request] = []

    def reply(request: Request) -> Any:
        asked.append(request)
        if "slow" in str(request.payload["messages"]):
            return Step(text="too late", delay_seconds=60)
        if "heron" in str(request.payload["messages"][-1]["content"]):
            return tool_call("calculator", expression="1 + 2")
        return "three" if len(asked) < 3 else '{"count": 3}'

    script(reply)
    values = {"schema": NUMBER, "system_prompt": "You count birds.", "max_retries": 1}
    run_id = start(session, ["a heron"], kind=OperatorKind.AGENTIC, tools=("calculator",), **values)
    run = worked(run_id)
    assert [line["output"] for line in output_of(run)] == [{"count": 3}]
    assert [one.error_kind for one in attempts_of_item(run_id, 1)] == [ErrorKind.VALIDATION, None]
    assert "You count birds." in str(asked[0].payload["messages"][0]["content"])
    assert [tool["function"]["name"] for tool in asked[0].payload["tools"]] == ["calculator"]
    slow = worked(start(session, ["slow"], kind=OperatorKind.AGENTIC, timeout_seconds=1, **values))
    assert [(item.state, item.error_kind) for item in list_items(slow.id)] == [(ItemState.FAILED, ErrorKind.TIMEOUT)]


@pytest.mark.slow
def test_a_map_within_maps_ends(session: SessionRecord, script: Script) -> None:
    """Defect 20: nothing kept a sub-agent from handing its whole work on."""

    def hand_on(request: Request) -> Any:
        tools = {tool["function"]["name"] for tool in request.payload.get("tools", ())}
        if "agentic_map" in tools and request.payload["messages"][-1]["role"] == "user":
            return tool_call("agentic_map", items=["again"], prompt_template="Go on: {{ item }}", read_only=False)
        return "done"

    script(hand_on)
    run = worked(start(session, ["x"], kind=OperatorKind.AGENTIC, read_only=False, tools=("agentic_map",)))
    depths = [load_depth(child) for child in list_sessions(owner_id=session.owner_id, limit=100)]
    assert run.state is RunState.COMPLETED
    assert max(depths) == site_config().delegation.max_depth
