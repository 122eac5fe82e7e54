"""The providers' own clients take our payloads and send them as they are, to a server on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from mnesis_core.context.assembly import assemble
from mnesis_core.providers.rendering import render
from tests.core.context import contexts as make
from tests.support.providers.threaded_server import QuietHandler, ThreadedServer

# Each sender imports its client when it is called: that takes a second, which other runs do not need.
Send = Callable[[str, dict[str, Any]], None]


class Handler(QuietHandler):
    """Keeps what it is sent, and answers 500."""

    def do_POST(self) -> None:
        assert isinstance(self.server, ThreadedServer)
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(500, {}, b"")


@pytest.fixture
def server() -> Iterator[ThreadedServer]:
    with ThreadedServer(Handler) as listening:
        yield listening


def send_openai(url: str, payload: dict[str, Any]) -> None:
    import openai

    with suppress(openai.InternalServerError), openai.OpenAI(api_key="key", base_url=url, max_retries=0) as client:
        client.responses.create(model="gpt", **payload)


def send_anthropic(url: str, payload: dict[str, Any]) -> None:
    import anthropic

    with (
        suppress(anthropic.InternalServerError),
        anthropic.Anthropic(api_key="key", base_url=url, max_retries=0) as client,
    ):
        client.messages.create(model="claude", max_tokens=1, **payload)


def send_gemini(url: str, payload: dict[str, Any]) -> None:
    from google import genai
    from google.genai import errors, types

    config = types.GenerateContentConfig.model_validate(
        {"systemInstruction": payload["systemInstruction"], "tools": payload["tools"]}
    )
    with (
        suppress(errors.ServerError),
        genai.Client(api_key="key", vertexai=False, http_options=types.HttpOptions(base_url=url)) as client,
    ):
        client.models.generate_content(model="gemini", contents=payload["contents"], config=config)


@pytest.mark.parametrize(
    ("provider", "send"),
    [("openai_responses", send_openai), ("anthropic", send_anthropic), ("gemini", send_gemini)],
)
def test_the_client_sends_what_was_rendered(server: ThreadedServer, provider: str, send: Send) -> None:
    broken = make.tool(output=None, error="disk full", tool_call_id="call_2")
    turn = make.turn(1, "go", "I look.", make.tool(output="é"), broken, "Found.")
    entries = make.entries_of([*turn, make.message(3, "user", "and now?")])
    prompt = assemble(entries, system_prompt="Be brief.", tools=(make.CALCULATOR,), budget=make.budget(50_000))
    payload = render(prompt, provider=provider)
    send(server.url, payload)
    sent = {name: server.requests[0][name] for name in payload}
    # Google's client writes this one name as its server also reads it.
    assert json.loads(json.dumps(sent).replace("parameters_json_schema", "parametersJsonSchema")) == payload
