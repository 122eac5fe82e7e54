"""A program that knows nothing of Mnesis but an address, a key and one header: OpenAI's own package."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from tests.journeys.conftest import Caller
from tests.journeys.models.test_models_that_fail import options_of
from tests.support.providers.openai.openai_server import OpenAIServer
from tests.support.sites.site import wait_until

SESSION = "X-Mnesis-Session"
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
ASK_WEATHER = '!tool weather {"place": "Kiel"}'


@pytest.fixture
def client(caller: Caller) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{caller.site.url}/v1", api_key=caller.key) as client:
        yield client


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def said(text: str) -> Any:
    return {"role": "assistant", "content": text}


def ask(client: OpenAI, session: str, *messages: Any, **options: Any) -> tuple[str, ChatCompletion]:
    """One request in a session; returns the session's id and the answer."""
    headers = {SESSION: session} if session else {}
    options = {"model": "demo", "extra_headers": headers} | options
    raw = client.chat.completions.with_raw_response.create(messages=[*messages], **options)
    return raw.headers[SESSION], raw.parse()


def text_of(answer: ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


def test_the_models_are_listed(client: OpenAI):
    assert "demo" in [model.id for model in client.models.list()]
    assert client.models.retrieve("demo").owned_by == "mnesis"
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("none")
    assert missing.value.code == "MODEL_NOT_FOUND"


def test_an_assistant_is_a_model(caller: Caller, stranger: Caller, client: OpenAI):
    tools = {"turn": {"tools": ["calculator"]}}
    made = {"name": "Pilot", "model": "demo", "instructions": "Speak of boats.", "config": tools}
    assistant = caller.call("POST", "/api/assistants", made)
    name = f"assistant/{assistant['id']}"
    assert name in [model.id for model in client.models.list()]
    assert client.models.retrieve(name).owned_by == "mnesis"
    session, _ = ask(client, "new", user("Remember: the harbour code is Tern-4471."), model=name)
    _, two = ask(client, session, user("What is the code?"), model=name)
    assert "Tern-4471" in text_of(two)
    kept = caller.call("GET", f"/api/sessions/{session}")
    assert (kept["assistant_version_id"], kept["model"]) == (assistant["version_id"], "demo")
    alone, _ = ask(client, "", user("Go"), model=name)
    kept = caller.call("GET", f"/api/sessions/{alone}")
    assert (kept["assistant_version_id"], kept["config"]["turn"]) == (assistant["version_id"], tools["turn"])
    answered = client.responses.with_raw_response.create(model=name, input="Go")
    again = client.responses.create(model=name, input="Go on", previous_response_id=answered.parse().id)
    assert again.output_text
    with pytest.raises(openai.UnprocessableEntityError, match="through the gateway"):
        ask(client, "", user("Go"), model=name, extra_headers={"X-Mnesis-Mode": "gateway"})
    said_by_anthropic = {"model": name, "max_tokens": 500, "messages": [user("Go")]}
    assert caller.call("POST", "/v1/messages", said_by_anthropic)["content"]
    assert caller.call("POST", "/v1/messages/count_tokens", said_by_anthropic)["input_tokens"]
    with pytest.raises(openai.UnprocessableEntityError, match="did not begin with this assistant"):
        ask(client, caller.new_session(model="demo"), user("Go"), model=name)
    for path in ("/v1/messages", "/v1/chat/completions"):
        assert stranger.call("POST", path, said_by_anthropic, status=404)["error"]
    assert stranger.call("GET", f"/v1/models/{name}", status=404)["error"]["code"] == "ASSISTANT_NOT_FOUND"
    assert name not in [model["id"] for model in stranger.call("GET", "/v1/models")["data"]]
    caller.call("DELETE", f"/api/assistants/{assistant['id']}")
    with pytest.raises(openai.NotFoundError) as gone:
        ask(client, "", user("Go"), model=name)
    assert gone.value.code == "ASSISTANT_NOT_FOUND"


def test_one_header_and_the_server_holds_the_history(caller: Caller, client: OpenAI):
    first, second, third = user("Remember: the harbour code is Tern-4471."), user("Thanks"), user("What is the code?")
    session, one = ask(client, "new", {"role": "system", "content": "Be brief."}, first)
    assert caller.call("GET", f"/api/sessions/{session}")["system_prompt"] == "Be brief."
    same, two = ask(client, session, first, said(text_of(one)), second)
    assert same == session
    _, three = ask(client, session, third)
    assert "Tern-4471" in text_of(three)
    answers = [text_of(answer) for answer in (one, two, three)]
    asked = [message["content"] for message in (first, second, third)]
    expected = [
        pair for text, answer in zip(asked, answers, strict=True) for pair in (("user", text), ("assistant", answer))
    ]
    assert caller.spoken(session) == expected
    assert (three.choices[0].finish_reason, three.model, three.object) == ("stop", "demo", "chat.completion")
    assert three.usage is not None
    assert three.usage.total_tokens == three.usage.prompt_tokens + three.usage.completion_tokens > 0


def test_a_stream_comes_word_by_word_and_says_what_the_record_says(caller: Caller, client: OpenAI):
    raw = client.chat.completions.with_raw_response.create(
        model="demo",
        messages=[user("!slow 15 !long 60")],
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={SESSION: "new"},
    )
    begun = time.monotonic()
    chunks, times = [], []
    for chunk in raw.parse():
        chunks.append(chunk)
        times.append(time.monotonic() - begun)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == caller.spoken(raw.headers[SESSION])[1][1]
    assert len(chunks) > 5
    assert times[0] < times[-1] / 2
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


@pytest.mark.parametrize("session", ["new", ""], ids=["in a session", "without one"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_callers_tools_run_at_the_caller(caller: Caller, client: OpenAI, session: str, stream: bool):
    history: list[Any] = [user(ASK_WEATHER)]
    where, asked = ask(client, session, *history, tools=[WEATHER]) if not stream else streamed(client, session, history)
    [choice] = asked.choices
    assert (choice.finish_reason, choice.message.content or None) == ("tool_calls", None)
    [call] = choice.message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"place": "Kiel"})
    with pytest.raises(openai.ConflictError) as busy:
        ask(client.with_options(max_retries=0), where, user("Never mind"))
    assert busy.value.code == "SESSION_BUSY"
    history += [choice.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "Rain in Kiel"}]
    again, told = ask(client, where if session else "", *history, tools=[WEATHER])
    assert (again, told.choices[0].finish_reason) == (where, "stop")
    assert "Rain in Kiel" in text_of(told)
    _, repeated = ask(client, where, *history, tools=[WEATHER])
    assert text_of(repeated) == text_of(told)
    [turn] = caller.call("GET", f"/api/sessions/{where}/turns")["items"]
    assert turn["state"] == "completed"
    [_, called, _] = caller.messages(where)
    assert (called["parts"][0]["output"], called["parts"][0]["id"]) == ("Rain in Kiel", call.id)


def streamed(client: OpenAI, session: str, messages: list[Any]) -> tuple[str, ChatCompletion]:
    """Ask for a stream, and let the package put it together; returns the session's id and the answer."""
    headers = {SESSION: session} if session else {}
    with client.chat.completions.stream(
        model="demo", messages=messages, tools=[WEATHER], extra_headers=headers
    ) as stream:
        stream.until_done()
        return stream._response.headers[SESSION], stream.get_final_completion()


def test_without_a_session_a_call_is_a_record_of_its_own(caller: Caller, client: OpenAI):
    history = [user("Remember: the tide is high."), said("I do."), user("What is high?")]
    session, answer = ask(client, "", {"role": "system", "content": "Be brief."}, *history)
    assert "tide" in text_of(answer)
    assert caller.spoken(session) == [
        *((one["role"], one["content"]) for one in history),
        ("assistant", text_of(answer)),
    ]
    other, _ = ask(client, "", *history)
    assert other != session
    [_, call] = [None, *caller.call("GET", f"/api/sessions/{session}/calls")["items"]]
    payload = caller.call("GET", f"/api/calls/{call['id']}/payload")["payload"]
    assert payload == {"messages": [{"role": "system", "content": "Be brief."}, *history]}


def test_a_client_that_goes_away_does_not_end_the_turn(caller: Caller, client: OpenAI):
    with client.chat.completions.create(
        model="demo", messages=[user("!slow 10 !long 80")], stream=True, extra_headers={SESSION: "new"}
    ) as stream:
        session = stream.response.headers[SESSION]
        next(iter(stream))
    wait_until(lambda: caller.call("GET", f"/api/sessions/{session}")["state"] != "running")
    assert caller.call("GET", f"/api/sessions/{session}/turns")["items"][0]["state"] == "completed"
    assert len(caller.spoken(session)[1][1].split()) > 60


@pytest.mark.parametrize("where", ["new", ""], ids=["in a session", "without one"])
def test_a_key_makes_a_request_safe_to_repeat(caller: Caller, client: OpenAI, where: str):
    headers = {"Idempotency-Key": f"once-{where}", **({SESSION: where} if where else {})}
    history = [user("Hello"), said("Hi"), user("What is 6 * 7?")]
    session, one = ask(client, "", *history, extra_headers=headers)
    again, two = ask(client, "", *history, extra_headers=headers)
    assert (again, two.id, text_of(two)) == (session, one.id, text_of(one))
    stream: Any = client.chat.completions.create(model="demo", messages=history, stream=True, extra_headers=headers)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == text_of(one)
    with pytest.raises(openai.ConflictError) as different:
        ask(client.with_options(max_retries=0), "", user("And 6 * 8?"), extra_headers=headers)
    assert different.value.code == "IDEMPOTENCY_MISMATCH"
    turns = caller.call("GET", f"/api/sessions/{session}/turns")["items"]
    assert [turn["seq"] for turn in turns] == [2, 1]  # what had been said elsewhere, and the question


def test_errors_are_the_packages_own_with_our_codes(caller: Caller, client: OpenAI):
    client = client.with_options(max_retries=0)
    stranger = OpenAI(base_url=client.base_url, api_key="mns_wrong", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError) as unknown:
        ask(stranger, "", user("Hello"))
    assert unknown.value.code == "NOT_SIGNED_IN"
    with pytest.raises(openai.NotFoundError) as missing:
        ask(client, "sess_none", user("Hello"))
    assert missing.value.code == "SESSION_NOT_FOUND"
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}
    given: list[tuple[str, dict[str, Any]]] = [
        *(("INVALID_REQUEST", options) for options in ({"n": 2}, {"stop": ""}, {"response_format": {"type": "xml"}})),
        ("INVALID_PICTURE", {"messages": [image]}),
    ]
    for code, options in given:
        with pytest.raises(openai.UnprocessableEntityError) as refused:
            client.chat.completions.create(**{"model": "demo", "messages": [user("Hello")], **options})  # type: ignore[call-overload]
        assert (refused.value.code, bool(refused.value.param)) == (code, True)
    session = caller.new_session(config={"turn": {"max_retries": 0}})
    caller.call("POST", f"/api/sessions/{session}/archive")
    with pytest.raises(openai.ConflictError) as archived:
        ask(client, session, user("Hello"))
    assert archived.value.code == "SESSION_ARCHIVED"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        ("429", openai.RateLimitError, "MODEL_RATE_LIMITED"),
        ("401", openai.InternalServerError, "MODEL_AUTHENTICATION_FAILED"),
        ("500", openai.InternalServerError, "MODEL_UNAVAILABLE"),
    ],
)
def test_a_model_that_fails_at_once_fails_with_a_status(caller: Caller, client: OpenAI, stream, failure, kind, code):
    session = caller.new_session(config={"turn": {"max_retries": 0}})
    with pytest.raises(kind) as failed:
        ask(client, session, user(f"!fail {failure}"), stream=stream)
    assert failed.value.code == code
    # The package was told not to ask again: the call is in the record, and was tried again here if that may help.
    assert len(caller.call("GET", f"/api/sessions/{session}/turns")["items"]) == 1


def test_what_changes_nothing_is_named(client: OpenAI):
    raw = client.chat.completions.with_raw_response.create(
        model="demo", messages=[user("Hello")], temperature=0, seed=1, extra_body={"X\r\nEvil": 1, "top_k": 3}
    )
    assert raw.headers["X-Mnesis-Unused"] == "temperature, top_k"  # the demo model has no temperature


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"model": 1}', b'{"model": "demo", "messages": 1}', b'{"model": "demo", "messages": []}'],
)
def test_no_body_is_a_server_error(caller: Caller, body: bytes):
    answer = caller.client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (422, "invalid_request_error")
    assert caller.client.get("/v1/chat/completions").json()["error"]["code"] == "INVALID_REQUEST"
    assert caller.client.get("/v1/none").json()["error"]["code"] == "NOT_FOUND"


FORMAT: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "harbour",
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "code": {"type": "integer"}},
            "required": ["name", "code"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class Harbour(BaseModel):
    name: str
    code: int


@pytest.fixture(scope="module")
def echo(caller: Caller, openai_server: OpenAIServer) -> OpenAIServer:
    """The model ``echo`` of the loopback server, which repeats the last message, and what it received."""
    added = caller.site.manage("model", "add", "--alias", "echo", *options_of(openai_server, "echo"))
    assert added.returncode == 0, added.stderr
    return openai_server


@pytest.mark.parametrize("stream", [False, True])
def test_parameters_reach_the_provider_the_record_and_the_rebuilt_prompt(
    caller: Caller, client: OpenAI, echo: OpenAIServer, stream: bool
):
    asked: Any = {
        "temperature": 0.25,
        "top_p": 0.5,
        "seed": 11,
        "stop": ["END"],
        "reasoning_effort": "low",
        "max_completion_tokens": 77,
        "verbosity": "low",
    }
    raw = client.chat.completions.with_raw_response.create(
        model="echo", messages=[user("Hello")], stream=stream, **asked
    )
    raw.parse()
    if stream:
        raw.http_response.read()
    assert raw.headers["X-Mnesis-Unused"] == "verbosity"
    body = [request.body for request in echo.requests if request.model == "echo"][-1]
    sent = {name: asked[name] for name in ("temperature", "top_p", "seed", "stop", "reasoning_effort")}
    assert {name: body[name] for name in sent} == sent
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 77
    session = raw.headers[SESSION]
    [call] = caller.call("GET", f"/api/sessions/{session}/calls")["items"]
    assert call["parameters"]["sent"] == sent | {"max_tokens": 77}
    rebuilt = caller.call("GET", f"/api/calls/{call['id']}/payload")
    assert rebuilt["digest_matches"]
    assert {name: rebuilt["payload"][name] for name in sent} == sent


def test_a_turn_over_rest_has_parameters_of_its_own(caller: Caller, echo: OpenAIServer):
    session = caller.new_session(model="echo", config={"parameters": {"temperature": 0.5, "seed": 3}})
    caller.wait(caller.start(session, "Hello", parameters={"temperature": 0.75}))
    body = [request.body for request in echo.requests if request.model == "echo"][-1]
    assert (body["temperature"], body["seed"]) == (0.75, 3)
    refused = caller.call(
        "POST", f"/api/sessions/{session}/turns", {"message": "a", "parameters": {"temperature": 9}}, status=422
    )
    assert refused["error"]["details"]["field"] == "parameters.temperature"
    unknown = {"message": "a", "parameters": {"heat": 9}}
    assert "heat" in str(caller.call("POST", f"/api/sessions/{session}/turns", unknown, status=422)["error"])


def test_an_answer_is_parsed_into_the_callers_own_type(client: OpenAI):
    parsed = client.chat.completions.parse(
        model="demo", messages=[user("The harbour code is 417.")], response_format=Harbour
    )
    assert parsed.choices[0].message.parsed == Harbour(name="The harbour code is 417.", code=417)


def test_a_stream_in_a_format_is_whole_json(client: OpenAI):
    with client.chat.completions.stream(
        model="demo", messages=[user("The harbour code is 417.")], response_format=Harbour
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == Harbour(name="The harbour code is 417.", code=417)


def test_a_session_with_its_own_tools_answers_in_the_format(caller: Caller, client: OpenAI):
    session = caller.new_session()
    _, answer = ask(client, session, user('!tool calculator {"expression": "400+17"}'), response_format=FORMAT)
    assert json.loads(text_of(answer)).keys() == {"name", "code"}
    _, answer = ask(client, session, user("In words now."))
    assert not text_of(answer).startswith("{")


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_misses_the_format_twice_is_an_error(caller: Caller, client: OpenAI, echo: OpenAIServer, stream):
    count = len(echo.requests)
    with pytest.raises(openai.APIStatusError) as failed:
        client.chat.completions.create(
            model="echo", messages=[user("no JSON")], response_format={"type": "json_object"}, stream=stream
        )
    assert (failed.value.status_code, failed.value.code) == (502, "RESPONSE_FORMAT_NOT_MET")
    first, second = (request.body["messages"] for request in echo.requests[count:])
    assert "JSON Schema" in first[0]["content"]
    assert [message["role"] for message in second[-2:]] == ["assistant", "user"]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_tool_has_to_be_called(client: OpenAI, choice: Any):
    _, answer = ask(client, "", user("Just say hello."), tools=[WEATHER], tool_choice=choice)
    [call] = answer.choices[0].message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"place": "Just say hello."})
    _, done = ask(client, "", {"role": "tool", "tool_call_id": call.id, "content": "rain"})
    assert not done.choices[0].message.tool_calls
    assert done.choices[0].finish_reason == "stop"


def test_none_offers_no_tool_and_stop_cuts(client: OpenAI):
    _, answer = ask(client, "", user(ASK_WEATHER), tools=[WEATHER], tool_choice="none")
    assert "not offered" in text_of(answer)
    _, answer = ask(client, "", user(ASK_WEATHER), stop="offered")
    assert text_of(answer).endswith("not ")
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("parameter", "value", "named"),
    [
        ("temperature", 3, "temperature"),
        ("reasoning_effort", "utmost", "reasoning_effort"),
        ("max_tokens", 0, "max_tokens"),
        ("stop", ["a"] * 5, "stop"),
        ("tool_choice", {"type": "allowed_tools"}, "tool_choice"),
        ("response_format", {"type": "xml"}, "response_format"),
        ("logprobs", True, "logprobs"),
        ("n", 2, "n"),
    ],
)
def test_a_parameter_that_cannot_be_is_refused_with_its_name(client: OpenAI, parameter: str, value: Any, named: str):
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        ask(client, "", user("Hello"), extra_body={parameter: value})
    assert refused.value.param == named
