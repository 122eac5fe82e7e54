"""The official packages through the gateway of a real site, to a provider that keeps every byte of both sides."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.journeys.conftest import Caller
from tests.support.providers.raw_provider import RawProvider, Saying
from tests.support.sites.site import environment_for, lay_database, manage, wait_until

MODE = {"X-Mnesis-Mode": "gateway"}
LOOK = (("call_1", "look", {"at": "the tide"}),)


class Watched:
    """The bytes of each request and answer of a client."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.got: list[bytearray] = []

    def client(self, http: Any) -> Any:
        """A client of either generation of httpx."""
        watched = self

        class Stream(http.SyncByteStream):  # type: ignore[misc]
            def __init__(self, inner: Any, got: bytearray) -> None:
                self.inner, self.got = inner, got

            def __iter__(self) -> Iterator[bytes]:
                for piece in self.inner:
                    self.got.extend(piece)
                    yield piece

            def close(self) -> None:
                self.inner.close()

        class Transport(http.HTTPTransport):  # type: ignore[misc]
            def handle_request(self, request: Any) -> Any:
                watched.sent.append(request.read())
                watched.got.append(bytearray())
                response = super().handle_request(request)
                response.stream = Stream(response.stream, watched.got[-1])
                return response

        return http.Client(transport=Transport(), headers={"Accept-Encoding": "identity"})


@pytest.fixture(scope="module")
def provider() -> Iterator[RawProvider]:
    with RawProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def models(caller: Caller, provider: RawProvider) -> None:
    for alias, name, base in (("raw-a", "anthropic/raw-1", ""), ("raw-o", "openai/raw-1", "/v1")):
        address = ("--api-base", f"{provider.url}{base}", "--api-key-env", "LOOPBACK_KEY")
        made = caller.site.manage("model", "add", "--alias", alias, "--litellm", name, *address, "--context", "200000")
        assert made.returncode == 0, made.stderr


@pytest.fixture
def watched(provider: RawProvider, models: None) -> Watched:
    provider.exchanged.clear()
    provider.say = lambda body: (
        Saying(text="I look.", calls=LOOK) if len(provider.exchanged) == 1 else Saying(text="High.")
    )
    return Watched()


def check(caller: Caller, provider: RawProvider, watched: Watched, alias: str, *, stream: bool) -> None:
    """Compare every byte, and what the newest session says, in which everything was said once."""
    assert len(provider.exchanged) == len(watched.sent) == 3
    for one, sent, got in zip(provider.exchanged, watched.sent, watched.got, strict=True):
        assert one.got == sent.replace(f'"{alias}"'.encode(), b'"raw-1"')
        assert bytes(got) == one.sent
        assert one.headers.get("x-api-key", one.headers.get("authorization", "").removeprefix("Bearer ")) == "key"
    found = caller.call("GET", "/api/sessions?limit=5")["items"]
    session_id: str = found[0]["id"]
    assert caller.spoken(session_id) == [
        *(("user", f"Look {stream}"), ("assistant", "I look."), ("assistant", "High.")),
        *(("user", "And now?"), ("assistant", "High.")),
    ]
    calls = caller.call("GET", f"/api/sessions/{session_id}/calls")["items"]
    payloads = [caller.call("GET", f"/api/calls/{call['id']}/payload") for call in calls]
    assert sorted(payload["body"].encode() for payload in payloads) == sorted(one.got for one in provider.exchanged)
    assert all(payload["digest_matches"] for payload in payloads)
    turns = caller.call("GET", f"/api/sessions/{session_id}/turns")["items"]
    assert [turn["state"] for turn in turns] == ["completed", "completed"]


@pytest.mark.parametrize("stream", [True, False])
def test_anthropics_package(caller: Caller, provider: RawProvider, watched: Watched, stream: bool) -> None:
    tools: Any = [{"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}]
    history: list[Any] = [{"role": "user", "content": f"Look {stream}"}]
    with Anthropic(
        base_url=caller.site.url, api_key=caller.key, default_headers=MODE, http_client=watched.client(httpx2)
    ) as client:
        for asked in ("result", "And now?", ""):
            given: Any = {"model": "raw-a", "max_tokens": 500, "messages": history, "tools": tools}
            if stream:
                with client.messages.stream(**given) as coming:
                    answer = coming.get_final_message()
            else:
                answer = client.messages.create(**given)
            history.append({"role": "assistant", "content": answer.content})
            result = [{"type": "tool_result", "tool_use_id": "call_1", "content": "The tide is high."}]
            history.append({"role": "user", "content": result if asked == "result" else asked})
    check(caller, provider, watched, "raw-a", stream=stream)


@pytest.mark.parametrize("stream", [True, False])
def test_openais_package(caller: Caller, provider: RawProvider, watched: Watched, stream: bool) -> None:
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    history: list[Any] = [{"role": "system", "content": "Brief."}, {"role": "user", "content": f"Look {stream}"}]
    url = f"{caller.site.url}/v1"
    with OpenAI(base_url=url, api_key=caller.key, default_headers=MODE, http_client=watched.client(httpx2)) as client:
        for asked in ("result", "And now?", ""):
            given: Any = {"model": "raw-o", "messages": history, "tools": tools}
            if stream:
                with client.chat.completions.stream(**given) as coming:
                    message = coming.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(**given).choices[0].message
            history.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
            result = {"role": "tool", "tool_call_id": "call_1", "content": "The tide is high."}
            history.append(result if asked == "result" else {"role": "user", "content": asked})
    check(caller, provider, watched, "raw-o", stream=stream)


@pytest.mark.parametrize("stream", [True, False])
def test_the_responses_of_openais_package(
    caller: Caller, provider: RawProvider, watched: Watched, stream: bool
) -> None:
    tools: Any = [{"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}]
    history: list[Any] = [{"role": "user", "content": f"Look {stream}"}]
    url = f"{caller.site.url}/v1"
    with OpenAI(base_url=url, api_key=caller.key, default_headers=MODE, http_client=watched.client(httpx2)) as client:
        for asked in ("result", "And now?", ""):
            given: Any = {"model": "raw-o", "input": history, "tools": tools, "store": False, "instructions": "Brief."}
            if stream:
                with client.responses.stream(**given) as coming:
                    response = coming.get_final_response()
            else:
                response = client.responses.create(**given)
            history += [item.model_dump(exclude={"parsed_arguments", "parsed"}) for item in response.output]
            result = {"type": "function_call_output", "call_id": "call_1", "output": "The tide is high."}
            history.append(result if asked == "result" else {"role": "user", "content": asked})
    check(caller, provider, watched, "raw-o", stream=stream)


def test_a_client_that_hangs_up_leaves_a_whole_record(caller: Caller, provider: RawProvider, models: None) -> None:
    gate = threading.Event()
    provider.exchanged.clear()
    provider.say = lambda body: Saying(text="One two three four five six seven eight", gate=gate)
    body = {"model": "raw-a", "max_tokens": 50, "stream": True, "messages": [{"role": "user", "content": "Count"}]}
    with caller.client.stream("POST", "/v1/messages", json=body, headers=MODE) as answer:
        session_id = answer.headers["X-Mnesis-Session"]
        for line in answer.iter_lines():
            if "three" in line:
                break
    try:
        path = f"/api/sessions/{session_id}/turns"
        wait_until(lambda: caller.call("GET", path)["items"][0]["state"] == "cancelled")
    finally:
        gate.set()
    assert caller.spoken(session_id)[1][1].startswith("One two three")
    calls = caller.call("GET", f"/api/sessions/{session_id}/calls")["items"]
    assert [call["state"] for call in calls] == ["failed"] or calls[0]["outcome"] == "cancelled"


def test_a_session_of_the_gateway_is_imported_into_another_site_verified_and_forked(
    caller: Caller, provider: RawProvider, models: None, tmp_path: Path
) -> None:
    provider.say = lambda body: Saying(text="High.")
    history: list[Any] = [{"role": "user", "content": "The tide?"}]
    for _ in range(2):
        body = {"model": "raw-a", "max_tokens": 50, "messages": history}
        answer = caller.client.post("/v1/messages", json=body, headers=MODE)
        assert answer.status_code == 200, answer.text
        history += [{"role": "assistant", "content": "High."}, {"role": "user", "content": "And now?"}]
    session_id = answer.headers["X-Mnesis-Session"]
    last = caller.messages(session_id)[-1]["id"]
    fork = caller.call("POST", f"/api/sessions/{session_id}/fork", {"at_message_id": last})
    assert len(caller.spoken(session_id)) == 4
    assert caller.spoken(fork["id"]) == caller.spoken(session_id)
    file = tmp_path / "session.jsonl"
    exported = caller.site.manage("export", session_id, "--out", str(file))
    assert exported.returncode == 0, exported.stderr
    lay_database(tmp_path)
    elsewhere = partial(manage, environment=environment_for(tmp_path))
    person = "from django.contrib.auth.models import User; User.objects.create_user('ada')"
    for command in (
        ("shell", "-v0", "-c", person),
        ("import_session", str(file), "--user", "ada"),
        ("verify", session_id),
    ):
        done = elsewhere(*command)
        assert done.returncode == 0, (done.stdout, done.stderr)
