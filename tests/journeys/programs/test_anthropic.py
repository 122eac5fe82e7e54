"""A program that knows nothing of Mnesis but an address and a key: Anthropic's own package."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic
from anthropic.types import Message

from mnesis_core.files.pictures import OPENAI
from tests.journeys.conftest import Caller
from tests.journeys.models.test_models_that_fail import options_of
from tests.support.material.drawings import document, drawing
from tests.support.providers.caching_provider import CachingProvider
from tests.support.providers.openai.openai_server import OpenAIServer
from tests.support.servers.picture_server import PictureServer
from tests.support.sites.site import wait_until

SESSION = "X-Mnesis-Session"
WEATHER: Any = {
    "name": "weather",
    "description": "The weather at a place.",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}},
}
ASK_WEATHER = '!tool weather {"place": "Kiel"}'


@pytest.fixture
def client(caller: Caller) -> Iterator[Anthropic]:
    with Anthropic(base_url=caller.site.url, api_key=caller.key) as client:
        yield client


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def at(kind: str, url: str) -> Any:
    """A picture or a document at an address."""
    return {"type": kind, "source": {"type": "url", "url": url}}


def said(text: str) -> Any:
    return {"role": "assistant", "content": text}


def ask(client: Anthropic, session: str, *messages: Any, **options: Any) -> tuple[str, Message]:
    """One request in a session; returns the session's id and the answer."""
    headers = {SESSION: session} if session else {}
    options = {"model": "demo", "max_tokens": 1000, "extra_headers": headers} | options
    raw = client.messages.with_raw_response.create(messages=[*messages], **options)
    return raw.headers[SESSION], raw.parse()


def streamed(client: Anthropic, session: str, *messages: Any, **options: Any) -> tuple[str, Message]:
    """The same as a stream, which the package puts together."""
    headers = {SESSION: session} if session else {}
    options = {"model": "demo", "max_tokens": 1000, "extra_headers": headers} | options
    with client.messages.stream(messages=[*messages], **options) as stream:
        return stream.response.headers[SESSION], stream.get_final_message()


BOTH = pytest.mark.parametrize("way", [ask, streamed], ids=["whole", "streamed"])


def raw_stream(client: Anthropic, text: str) -> Any:
    """The events of an answer in a new session, as the package reads them."""
    return client.messages.create(
        model="demo", max_tokens=1000, messages=[user(text)], stream=True, extra_headers={SESSION: "new"}
    )


def text_of(answer: Message) -> str:
    return "\n\n".join(block.text for block in answer.content if block.type == "text")


def texts_in(answer: Message) -> list[str]:
    return [block.thinking if block.type == "thinking" else block.text for block in answer.content]  # type: ignore[union-attr]


def test_the_models_are_listed(client: Anthropic):
    [demo] = [model for model in client.models.list() if model.id == "demo"]
    assert (demo.type, demo.display_name) == ("model", "demo")
    assert client.models.retrieve("demo").max_input_tokens == demo.max_input_tokens


@BOTH
def test_one_header_and_the_server_holds_the_history(caller: Caller, client: Anthropic, way: Any):
    first, second, third = user("Remember: the harbour code is Tern-4471."), user("Thanks"), user("What is the code?")
    session, one = way(client, "new", first, system=[{"type": "text", "text": "Be brief."}])
    assert caller.call("GET", f"/api/sessions/{session}")["system_prompt"] == "Be brief."
    same, two = way(client, session, first, {"role": one.role, "content": one.content}, second)
    assert same == session
    _, three = way(client, session, third)
    assert "Tern-4471" in text_of(three)
    asked = [message["content"] for message in (first, second, third)]
    expected = [
        pair
        for text, answer in zip(asked, (one, two, three), strict=True)
        for pair in (("user", text), ("assistant", text_of(answer)))
    ]
    assert caller.spoken(session) == expected
    assert (three.stop_reason, three.model, three.type) == ("end_turn", "demo", "message")
    assert three.usage.input_tokens > 0 < three.usage.output_tokens
    assert way is streamed or three._request_id


def test_a_stream_comes_word_by_word_in_events_of_the_package(caller: Caller, client: Anthropic):
    begun, times, kinds = time.monotonic(), [], []
    with raw_stream(client, "!slow 15 !long 60") as stream:
        session = stream.response.headers[SESSION]
        text = ""
        for event in stream:
            times.append(time.monotonic() - begun)
            kinds.append(event.type)
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                text += event.delta.text
    assert text == caller.spoken(session)[1][1]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert len(kinds) > 10
    assert times[0] < times[-1] / 2


@BOTH
def test_thinking_is_shown_where_it_is_asked_for(client: Anthropic, way: Any):
    session, answer = way(client, "new", user("!think Hello"), thinking={"type": "enabled", "budget_tokens": 2048})
    assert [block.type for block in answer.content] == ["thinking", "text"]
    thought = answer.content[0]
    assert thought.type == "thinking"
    assert thought.thinking
    assert thought.signature
    history = [user("!think Hello"), {"role": "assistant", "content": answer.content}]
    _, again = way(client, session, *history, user("!think And again"))
    assert [block.type for block in again.content] == ["text"]


@BOTH
@pytest.mark.parametrize("session", ["new", ""], ids=["in a session", "without one"])
def test_the_callers_tools_run_at_the_caller(caller: Caller, client: Anthropic, session: str, way: Any):
    history: list[Any] = [user(ASK_WEATHER)]
    where, asked = way(client, session, *history, tools=[WEATHER])
    assert asked.stop_reason == "tool_use"
    [call] = [block for block in asked.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("weather", {"place": "Kiel"})
    with pytest.raises(anthropic.ConflictError) as busy:
        ask(client.with_options(max_retries=0), where, user("Never mind"))
    assert busy.value.error_code == "SESSION_BUSY"
    picture = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(drawing()).decode()}
    result = {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": [{"type": "text", "text": "Rain in Kiel"}, {"type": "image", "source": picture}],
    }
    history += [
        {"role": "assistant", "content": asked.content},
        user([result, {"type": "text", "text": "Take an umbrella."}]),
    ]
    again, told = way(client, where if session else "", *history, tools=[WEATHER])
    assert (again, told.stop_reason) == (where, "end_turn")
    assert "Rain in Kiel" in text_of(told)
    _, repeated = way(client, where, *history, tools=[WEATHER])
    assert text_of(repeated) == text_of(told)
    [turn] = caller.call("GET", f"/api/sessions/{where}/turns")["items"]
    assert turn["state"] == "completed"
    [_, called, _] = caller.messages(where)
    [part] = [part for part in called["parts"] if part["type"] == "tool"]
    assert part["output"] == "Rain in Kiel\n\nTake an umbrella."
    [file, *_] = caller.call("GET", f"/api/files?session_id={where}")["items"]
    assert file["path"].startswith("tool-outputs/picture-")


def test_a_tool_that_failed_is_an_error_in_the_record(caller: Caller, client: Anthropic):
    where, asked = ask(client, "new", user(ASK_WEATHER), tools=[WEATHER])
    [call] = [block for block in asked.content if block.type == "tool_use"]
    failed: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "no signal", "is_error": True}
    for _ in range(2):
        ask(client, where, user([failed]), tools=[WEATHER])
    [_, called, _] = caller.messages(where)
    assert [part["error"] for part in called["parts"] if part["type"] == "tool"] == ["no signal"]


@BOTH
def test_pictures_are_files_of_the_session(caller: Caller, client: Anthropic, way: Any):
    data = base64.b64encode(drawing()).decode()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    session, answer = way(client, "new", user([picture, {"type": "text", "text": "What is it?"}]))
    assert answer.stop_reason == "end_turn"
    [asked, _] = caller.messages(session)
    assert [part["type"] for part in asked["parts"]] == ["text", "file_ref"]


@BOTH
def test_pictures_and_documents_at_addresses_are_files_of_the_session(caller: Caller, client: Anthropic, way: Any):
    with PictureServer() as server:
        shown = [at("image", f"{server.url}/quay.png"), at("document", f"{server.url}/tides.pdf")]
        session, answer = way(client, "new", user([*shown, {"type": "text", "text": "What are they?"}]))
        assert (answer.stop_reason, server.paths) == ("end_turn", ["/quay.png", "/tides.pdf"])
    [asked, _] = caller.messages(session)
    assert [part["type"] for part in asked["parts"]] == ["text", "file_ref", "file_ref"]


def test_without_a_session_a_call_is_a_record_of_its_own(caller: Caller, client: Anthropic):
    history = [user("Remember: the tide is high."), said("I do."), user("What is high?")]
    session, answer = ask(client, "", *history, system="Be brief.")
    assert "tide" in text_of(answer)
    expected = [*((one["role"], one["content"]) for one in history), ("assistant", text_of(answer))]
    assert caller.spoken(session) == expected
    record = caller.call("GET", f"/api/sessions/{session}")
    assert (record["labels"]["door"], record["labels"]["one_turn"]) == ("anthropic", "yes")
    [call] = caller.call("GET", f"/api/sessions/{session}/calls")["items"]
    payload = caller.call("GET", f"/api/calls/{call['id']}/payload")
    assert payload["digest_matches"]
    assert payload["payload"]["messages"] == [{"role": "system", "content": "Be brief."}, *history]


def test_a_client_that_goes_away_does_not_end_the_turn(caller: Caller, client: Anthropic):
    with raw_stream(client, "!slow 10 !long 80") as stream:
        session = stream.response.headers[SESSION]
        next(iter(stream))
    wait_until(lambda: caller.call("GET", f"/api/sessions/{session}")["state"] != "running")
    assert caller.call("GET", f"/api/sessions/{session}/turns")["items"][0]["state"] == "completed"
    assert len(caller.spoken(session)[1][1].split()) > 60


def test_a_key_makes_a_request_safe_to_repeat(caller: Caller, client: Anthropic):
    headers = {"Idempotency-Key": "once"}
    history = [user("Hello"), said("Hi"), user("!think What is 6 * 7?")]
    thinking = {"type": "adaptive"}
    session, one = ask(client, "", *history, extra_headers=headers, thinking=thinking)
    for way in (ask, streamed):
        again, two = way(client, "", *history, extra_headers=headers, thinking=thinking)
        assert (again, two.id, texts_in(two)) == (session, one.id, texts_in(one))
    with pytest.raises(anthropic.ConflictError) as different:
        ask(client.with_options(max_retries=0), "", user("And 6 * 8?"), extra_headers=headers)
    assert different.value.error_code == "IDEMPOTENCY_MISMATCH"


def test_a_key_may_come_either_way_and_errors_are_the_packages_own(caller: Caller, stranger: Caller, client: Anthropic):
    bearer = Anthropic(base_url=client.base_url, auth_token=caller.key, max_retries=0)
    with bearer:
        session, _ = ask(bearer, "new", user("Hello"))
    wrong = Anthropic(base_url=client.base_url, api_key="mns_wrong", max_retries=0)
    with wrong, pytest.raises(anthropic.AuthenticationError) as unknown:
        ask(wrong, "", user("Hello"))
    assert (unknown.value.type, unknown.value.error_code) == ("authentication_error", "NOT_SIGNED_IN")
    assert unknown.value.request_id
    other = Anthropic(base_url=client.base_url, api_key=stranger.key, max_retries=0)
    with other, pytest.raises(anthropic.NotFoundError) as missing:
        ask(other, session, user("Hello"))
    assert (missing.value.type, missing.value.error_code) == ("not_found_error", "SESSION_NOT_FOUND")
    given: list[tuple[str, dict[str, Any]]] = [
        ("INVALID_REQUEST", {"max_tokens": 0}),
        ("INVALID_REQUEST", {"tools": [{"type": "computer_20250124", "name": "computer"}]}),
        ("INVALID_REQUEST", {"messages": [said("Half of")]}),
        ("PICTURE_NOT_FETCHED", {"messages": [user([at("image", "http://127.0.0.1:1/a")])]}),
    ]
    for code, options in given:
        with pytest.raises(anthropic.BadRequestError) as refused:
            client.messages.create(**{"model": "demo", "max_tokens": 9, "messages": [user("Hello")], **options})  # type: ignore[call-overload]
        assert (refused.value.type, refused.value.error_code) == ("invalid_request_error", code)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        ("429", anthropic.RateLimitError, "MODEL_RATE_LIMITED"),
        ("401", anthropic.InternalServerError, "MODEL_AUTHENTICATION_FAILED"),
    ],
)
def test_a_model_that_fails_at_once_fails_with_a_status(caller: Caller, client: Anthropic, stream, failure, kind, code):
    session = caller.new_session(config={"turn": {"max_retries": 0}})
    with pytest.raises(kind) as failed:
        ask(client, session, user(f"!fail {failure}"), stream=stream)
    assert failed.value.error_code == code
    # The package was told not to ask again: the call is in the record, and was tried again here if that may help.
    assert len(caller.call("GET", f"/api/sessions/{session}/turns")["items"]) == 1


def test_tokens_are_counted_and_nothing_is_recorded(caller: Caller, client: Anthropic):
    before = len(caller.call("GET", "/api/sessions")["items"])
    short = client.messages.count_tokens(model="demo", messages=[user("Hello")]).input_tokens
    longer = client.messages.count_tokens(model="demo", messages=[user("Hello")], tools=[WEATHER], system="Be brief.")
    assert 0 < short < longer.input_tokens
    pages = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(document(*"abc")).decode()}
    asked = [user([{"type": "document", "source": pages}])]
    # The demo model counts as OpenAI's do: a picture of each page, and its text.
    assert client.messages.count_tokens(model="demo", messages=asked).input_tokens > 3 * OPENAI.page_tokens
    assert len(caller.call("GET", "/api/sessions")["items"]) == before
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(model="none", messages=[user("Hello")])


def test_betas_are_taken_and_what_changes_nothing_is_named(client: Anthropic):
    cached: Any = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    raw = client.beta.messages.with_raw_response.create(
        model="demo",
        max_tokens=100,
        messages=[{"role": "user", "content": [{**cached, "text": "Hello"}]}],
        system=[cached],
        extra_body={"top_k": 3, "temperature": 0.5},
        service_tier="auto",
        betas=["interleaved-thinking-2025-05-14", "context-1m-2025-08-07"],
        metadata={"user_id": "anna"},
    )
    assert raw.headers["X-Mnesis-Unused"] == "service_tier, temperature, top_k"  # the demo model has no temperature
    assert raw.parse().content


@pytest.fixture(scope="module")
def echo(caller: Caller, openai_server: OpenAIServer) -> OpenAIServer:
    """A model of the loopback server that repeats the last message, and what it received."""
    added = caller.site.manage("model", "add", "--alias", "repeats", *options_of(openai_server, "echo"))
    assert added.returncode == 0, added.stderr
    return openai_server


def test_parameters_reach_the_provider(caller: Caller, client: Anthropic, echo: OpenAIServer):
    session, _ = ask(
        client,
        "new",
        user("Hello"),
        model="repeats",
        max_tokens=77,
        stop_sequences=["END"],
        thinking={"type": "enabled", "budget_tokens": 6000},
        tools=[WEATHER],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
    )
    body = [request.body for request in echo.requests if request.model == "echo"][-1]
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 77
    expected = {"stop": ["END"], "reasoning_effort": "medium", "tool_choice": "required", "parallel_tool_calls": False}
    assert {name: body.get(name) for name in expected} == expected
    [call] = caller.call("GET", f"/api/sessions/{session}/calls")["items"]
    assert caller.call("GET", f"/api/calls/{call['id']}/payload")["digest_matches"]


@BOTH
def test_an_answer_says_at_which_text_it_stopped(caller: Caller, client: Anthropic, way: Any):
    with CachingProvider(lambda _: "The tide is high. END And more. STOP") as provider:
        alias = f"stops-{way.__name__}"
        about = ("--alias", alias, "--litellm", "anthropic/claude-sonnet-4-5", "--context", "200000")
        added = caller.site.manage("model", "add", *about, "--api-base", provider.url, "--api-key-env", "LOOPBACK_KEY")
        assert added.returncode == 0, added.stderr
        session, stopped = way(client, "new", user("Hi"), model=alias, stop_sequences=["STOP", "END"])
        _, whole = way(client, session, user("And?"), model=alias, stop_sequences=["never"])
    assert (text_of(stopped), stopped.stop_reason, stopped.stop_sequence) == (
        "The tide is high. ",
        "stop_sequence",
        "END",
    )
    assert (whole.stop_reason, whole.stop_sequence) == ("end_turn", None)
    last, first = caller.call("GET", f"/api/sessions/{session}/calls")["items"]
    assert [(call["finish_reason"], call["stop_sequence"]) for call in (first, last)] == [
        ("stop_sequence", "END"),
        ("stop", None),
    ]


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"{", b'{"model": 1}', b'{"model": "demo", "messages": 1}', b'{"model": "demo", "messages": []}'),
        b'{"model": "demo", "messages": [{"role": "user", "content": ' + b"[" * 3000 + b"]" * 3000 + b"}]}",
        b'{"model": "demo", "messages": [{"role": "user", "content": [{"type": ["text"]}]}]}',
        b'{"model": "demo", "messages": [{"role": "user", "content": "a"}], "thinking": {"type": []}}',
        b'{"model": "demo", "messages": [{"role": "user", "content": "a"}], "tools": [{"name": "\\ud800", "input_schema": {}}]}',
        b'{"model": "\\u0000", "messages": [{"role": "user", "content": "a"}]}',
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_no_body_is_a_server_error(caller: Caller, path: str, body: bytes):
    answer = caller.client.post(path, content=body, headers={"Content-Type": "application/json"})
    if answer.status_code != 200:  # Tokens of odd texts can be counted.
        assert answer.status_code in (400, 404)
        told = answer.json()
        assert (told["type"], told["request_id"]) == ("error", answer.headers["request-id"])
        assert told["error"]["type"] in ("invalid_request_error", "not_found_error")


def test_odd_texts_are_kept_and_a_read_only_key_is_refused(caller: Caller, client: Anthropic):
    body = {"model": "demo", "max_tokens": 9, "messages": [user("a\x00b \ud800")]}
    answer = caller.client.post("/v1/messages", content=json.dumps(body), headers={SESSION: "new"})
    assert answer.status_code == 200, answer.text
    session = answer.headers[SESSION]
    assert caller.messages(session)[0]["parts"][0]["text"].startswith("a\x00b")
    made = caller.site.manage("apikey", "create", "admin", "--scope", "read")
    reader = {"x-api-key": made.stdout.strip().splitlines()[-1], "Authorization": ""}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        refused = caller.client.post(path, json=body | {"messages": [user("Hello")]}, headers=reader)
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
