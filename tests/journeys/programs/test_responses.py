"""OpenAI's own package and its Responses API, with nothing but an address and a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.conversations import Conversation, ConversationItem
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.journeys.conftest import Caller
from tests.support.sites.site import wait_until

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather at a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    "strict": False,
}
NOTE: Any = {"type": "custom", "name": "note", "description": "Writes a note."}
ASK_WEATHER = '!tool weather {"place": "Kiel"}'
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ITEMS: TypeAdapter[Any] = TypeAdapter(ConversationItem)


@pytest.fixture
def client(caller: Caller) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{caller.site.url}/v1", api_key=caller.key, max_retries=0) as client:
        yield client


def valid(response: Response) -> Response:
    """A response that is what the package's own types say."""
    Response.model_validate(response.model_dump())
    return response


def ask(client: OpenAI, text: Any, **options: Any) -> Response:
    return valid(client.responses.create(**{"model": "demo", "input": text, **options}))


def calls_of(response: Response) -> list[Any]:
    return [item for item in response.output if item.type in ("function_call", "custom_tool_call")]


def session_of(response: Response) -> str:
    extra: Any = response.model_extra
    return str(extra["mnesis"]["session_id"])


def test_a_response_is_continued_by_its_id(caller: Caller, client: OpenAI):
    one = ask(client, "Remember: the harbour code is Tern-4471.", instructions="Be brief.")
    two = ask(client, "What is the code?", previous_response_id=one.id)
    assert (one.status, two.status, two.previous_response_id) == ("completed", "completed", one.id)
    assert "Tern-4471" in two.output_text
    assert session_of(one) == session_of(two)
    assert caller.texts(session_of(one)) == [
        *("Remember: the harbour code is Tern-4471.", one.output_text),
        *("What is the code?", two.output_text),
    ]
    assert one.instructions == "Be brief."
    assert two.usage is not None
    assert two.usage.total_tokens == two.usage.input_tokens + two.usage.output_tokens > 0
    other = ask(client, "Again: what is the code?", previous_response_id=one.id)
    assert "Tern-4471" in other.output_text
    assert len(caller.call("GET", f"/api/sessions/{session_of(one)}/branches")["items"]) == 2


def test_what_is_read_is_what_was_answered(client: OpenAI):
    answered = ask(client, "!think What is 6 * 7?", metadata={"ticket": "12"}, max_output_tokens=500)
    read = valid(client.responses.retrieve(answered.id))
    assert (read.output, read.usage, read.status) == (answered.output, answered.usage, "completed")
    assert [item.type for item in read.output] == ["reasoning", "message"]
    assert (answered.metadata, read.max_output_tokens) == ({"ticket": "12"}, 500)
    [item] = client.responses.input_items.list(answered.id).data
    assert (item.type, item.content[0].text) == ("message", "!think What is 6 * 7?")  # type: ignore[union-attr]


def test_the_events_of_a_stream_come_to_the_response(client: OpenAI):
    with client.responses.stream(model="demo", input="!slow 15 !think !long 60") as stream:
        events = list(stream)
        final = stream.get_final_response()
    raw = [
        event.model_dump()
        for event in client.responses.create(model="demo", input="!slow 15 !think !long 60", stream=True)
    ]
    assert [event["sequence_number"] for event in raw] == [*range(len(raw))]
    for event in raw:
        EVENTS.validate_python(event)
    kinds = list(dict.fromkeys(event["type"] for event in raw))
    assert kinds == [
        *("response.created", "response.in_progress", "response.output_item.added"),
        *("response.reasoning_summary_part.added", "response.reasoning_summary_text.delta"),
        *("response.reasoning_summary_text.done", "response.reasoning_summary_part.done"),
        *("response.output_item.done", "response.content_part.added", "response.output_text.delta"),
        *("response.output_text.done", "response.content_part.done", "response.completed"),
    ]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == final.output_text == raw[-1]["response"]["output"][1]["content"][0]["text"]
    assert sum(event["type"] == "response.output_text.delta" for event in raw) > 5
    read = client.responses.retrieve(raw[0]["response"]["id"])
    assert [item.model_dump() for item in read.output] == raw[-1]["response"]["output"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("way", ["previous", "whole history", "not stored"])
def test_the_callers_tools_run_at_the_caller(caller: Caller, client: OpenAI, way: str, stream: bool):
    options: dict[str, Any] = {"tools": [WEATHER], "store": way != "not stored"}
    history: list[Any] = [{"role": "user", "content": ASK_WEATHER}]
    if stream:
        with client.responses.stream(model="demo", input=history, **options) as events:
            asked = valid(events.get_final_response())
    else:
        asked = ask(client, history, **options)
    [call] = calls_of(asked)
    assert (call.name, json.loads(call.arguments), asked.status) == ("weather", {"place": "Kiel"}, "completed")
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain in Kiel"}
    if way == "previous":
        told = ask(client, [result], previous_response_id=asked.id, **options)
    else:
        told = ask(client, [*history, *(item.model_dump() for item in asked.output), result], **options)
    assert "Rain in Kiel" in told.output_text
    assert (session_of(told), told.id != asked.id) == (session_of(asked), True)
    [turn] = caller.call("GET", f"/api/sessions/{session_of(told)}/turns")["items"]
    assert turn["state"] == "completed"
    assert [again.id for again in calls_of(client.responses.retrieve(asked.id))] == [call.id]
    assert client.responses.retrieve(told.id).output == told.output
    [item] = client.responses.input_items.list(told.id).data
    assert (item.type, item.output) == ("function_call_output", "Rain in Kiel")  # type: ignore[union-attr]


def test_a_custom_tool_takes_free_text(client: OpenAI):
    asked = ask(client, '!tool note {"input": "the tide\\nturns"}', tools=[NOTE])
    [call] = calls_of(asked)
    assert (call.type, call.name, call.input) == ("custom_tool_call", "note", "the tide\nturns")
    result: Any = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "written"}
    assert "written" in ask(client, [result], previous_response_id=asked.id, tools=[NOTE]).output_text
    assert calls_of(client.responses.retrieve(asked.id)) == [call]


class Sum(BaseModel):
    total: int


def test_structured_output_is_parsed(client: OpenAI):
    parsed = client.responses.parse(model="demo", input="What is 6 * 7? Answer with the total.", text_format=Sum)
    assert isinstance(parsed.output_parsed, Sum)
    assert parsed.text is not None
    assert parsed.text.format is not None
    assert parsed.text.format.type == "json_schema"


def test_a_response_that_runs_is_cancelled(caller: Caller, client: OpenAI):
    with client.responses.create(model="demo", input="!slow 200 !long 500", stream=True) as stream:
        id = next(iter(stream)).response.id  # type: ignore[union-attr]
        assert client.responses.retrieve(id).status == "in_progress"
        cancelled = valid(client.responses.cancel(id))
        last = list(stream)[-1]
    assert (cancelled.status, last.type, last.response.status) == ("cancelled", "response.incomplete", "cancelled")  # type: ignore[union-attr]
    assert client.responses.cancel(id).status == "cancelled"
    wait_until(lambda: caller.call("GET", f"/api/sessions/{session_of(cancelled)}")["state"] != "running")


def test_only_a_response_that_stands_alone_is_hidden(caller: Caller, client: OpenAI):
    alone, first = ask(client, "Hello", store=False), ask(client, "Hello")
    client.responses.delete(alone.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(alone.id)
    ask(client, "And?", previous_response_id=first.id)
    with pytest.raises(openai.ConflictError) as refused:
        client.responses.delete(first.id)
    assert refused.value.code == "IMMUTABLE_FIELD"


def test_responses_of_others_are_not_found(caller: Caller, stranger: Caller, client: OpenAI):
    answered = ask(client, "Hello")
    with OpenAI(base_url=client.base_url, api_key=stranger.key, max_retries=0) as other:
        for attempt in (
            lambda: other.responses.retrieve(answered.id),
            lambda: other.responses.delete(answered.id),
            lambda: other.responses.cancel(answered.id),
            lambda: other.responses.input_items.list(answered.id),
            lambda: ask(other, "And?", previous_response_id=answered.id),
        ):
            with pytest.raises(openai.NotFoundError) as missing:
                attempt()
            assert missing.value.code == "TURN_NOT_FOUND"


def test_a_conversation_is_a_session(caller: Caller, stranger: Caller, client: OpenAI):
    made = client.conversations.create(metadata={"harbour": "Kiel"})
    Conversation.model_validate(made.model_dump())
    one = ask(client, "Remember: the code is Tern-4471.", conversation=made.id)
    asked = ask(client, ASK_WEATHER, conversation={"id": made.id}, tools=[WEATHER])
    [call] = calls_of(asked)
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain"}
    told = ask(client, [result], conversation=made.id, tools=[WEATHER])
    assert one.conversation is not None
    assert (one.conversation.id, session_of(one)) == (made.id, session_of(told))
    listed = list(client.conversations.items.list(made.id, limit=1, order="asc"))
    for item in listed:
        ITEMS.validate_python(item.model_dump())
    assert [item.type for item in listed] == [
        *("message", "message", "message", "function_call", "function_call_output", "message"),
    ]
    newest = list(client.conversations.items.list(made.id, limit=2))
    assert [item.id for item in newest] == [item.id for item in listed][::-1]
    changed = client.conversations.update(made.id, metadata={"harbour": "Husum"})
    assert client.conversations.retrieve(made.id).metadata == changed.metadata == {"harbour": "Husum"}
    with OpenAI(base_url=client.base_url, api_key=stranger.key, max_retries=0) as other:
        for attempt in (
            lambda: other.conversations.retrieve(made.id),
            lambda: other.conversations.items.list(made.id),
            lambda: other.conversations.update(made.id, metadata={}),
            lambda: other.conversations.delete(made.id),
            lambda: ask(other, "And?", conversation=made.id),
        ):
            with pytest.raises(openai.NotFoundError) as missing:
                attempt()
            assert missing.value.code == "SESSION_NOT_FOUND"
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)


def test_items_are_put_into_a_conversation(caller: Caller, client: OpenAI):
    said: Any = {"type": "message", "role": "user", "content": "Remember: the harbour code is Tern-4471."}
    made = client.conversations.create(items=[said])
    called: list[Any] = [
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"place": "Kiel"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "Rain"},
        {"type": "message", "role": "assistant", "content": "It rains in Kiel."},
    ]
    added = client.conversations.items.create(made.id, items=called)
    listed = list(client.conversations.items.list(made.id, order="asc"))
    assert [item.id for item in listed[1:]] == [item.id for item in added.data]
    for item in listed:
        ITEMS.validate_python(item.model_dump())
        assert client.conversations.items.retrieve(item.id, conversation_id=made.id) == item
    assert "Tern-4471" in ask(client, "What is the code?", conversation=made.id).output_text
    with pytest.raises(openai.ConflictError) as refused:
        client.conversations.items.delete(listed[0].id, conversation_id=made.id)
    assert refused.value.code == "IMMUTABLE_FIELD"
    with pytest.raises(openai.NotFoundError) as missing:
        client.conversations.items.retrieve("msg_none", conversation_id=made.id)
    assert missing.value.code == "MESSAGE_NOT_FOUND"


def test_models_say_what_they_can_do(client: OpenAI):
    demo: Any = client.models.retrieve("demo").model_extra
    assert (demo["capabilities"]["tools"], demo["capabilities"]["vision"]) == (True, False)
    assert demo["context_window"] > demo["max_output_tokens"] > 0
