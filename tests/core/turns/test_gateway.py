"""Digests of a request's beginnings, by which conversations that began under an earlier version are found again; and what
goes to a provider and comes back."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path

import pytest

from mnesis_core.errors import ModelNotAllowed
from mnesis_core.llm.interface import ModelSpec, Reply, Request, TextDelta, complete
from mnesis_core.network.hosts import read_networks
from mnesis_core.providers.passing import AnswerReader, Exchange, PassedOn, Target, close_connections
from mnesis_core.turns.gateway import GatewayRequest, Protocol, read_request
from tests.support.providers.raw_provider import RawProvider

TEXTS = ("Hi", ' \n Grüße ☕ \U0001f30a "quoted" back\\slash \x00\x1f\x7f\u2028 ', "\ud800 alone", "", "x" * 5_000)


def messages() -> list[dict[str, object]]:
    said: list[dict[str, object]] = []
    for number, text in enumerate(TEXTS):
        call = {"type": "tool_use", "id": f"call {number}", "name": 'look"up', "input": {"q": text}}
        other = call | {"id": "é"}
        said += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": [{"type": "text", "text": text}, call, other]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"call {number}", "content": text}]},
        ]
    return said


def written_out(request: GatewayRequest, owner_id: int) -> list[str]:
    state, found = sha256(f"{owner_id} {request.protocol}".encode()).digest(), []
    for said in request.said:
        told = [said.role, said.text.strip(), said.call_id, [[call.id, call.name] for call in said.calls]]
        state = sha256(state + json.dumps(told).encode()).digest()
        found.append(state.hex())
    return found


def test_digests_are_those_of_json() -> None:
    body = json.dumps({"model": "m", "messages": messages()}).encode()
    request = read_request(Protocol.MESSAGES, body, {})
    assert len(request.said) == 3 * len(TEXTS) - 1, "an empty question says nothing"
    assert request.beginnings(7) == written_out(request, 7)


def test_a_text_alone_says_what_a_block_of_it_says() -> None:
    def said(content: object) -> object:
        body = {"model": "m", "messages": [{"role": "user", "content": content}, {"role": "assistant"}]}
        return read_request(Protocol.MESSAGES, json.dumps(body).encode(), {}).said

    for text in TEXTS:
        assert said(text) == said([{"type": "text", "text": text}])


def event(**data: object) -> bytes:
    return f"event: {data['type']}\r\ndata: {json.dumps(data)}\r\n\r\n".encode()


ANSWER = (
    event(type="message_start", message={}),
    event(type="content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "Noon"}),
    event(type="message_stop"),
)


def test_only_the_last_event_of_an_answer_waits_for_the_record() -> None:
    whole, last = b"".join(ANSWER), len(ANSWER[-1])
    for cut in range(len(whole) + 1):
        reader, passed, said = AnswerReader(Protocol.MESSAGES, limit=1_000), b"", ""
        for piece in filter(None, (whole[:cut], whole[cut:])):
            items, end = reader.feed(piece)
            passed += piece[:end]
            said += "".join(item.text for item in items if isinstance(item, TextDelta))
        assert said == "Noon"
        assert reader.is_over
        # A piece that came before the end did has gone on.
        assert passed == whole[: max(cut % len(whole), len(whole) - last)]


async def ask(listed: str | None, *, host: str) -> tuple[RawProvider, Reply, Exchange]:
    spec = ModelSpec(
        alias="raw",
        litellm_model="anthropic/raw-1",
        context_window=9_000,
        max_output_tokens=9,
        listed_addresses=None if listed is None else read_networks(listed),
    )
    with RawProvider() as provider:
        target = Target(url=f"http://{host}:{provider.server_address[1]}/v1/messages?beta=true", headers={"x-a": "b"})
        model = PassedOn(
            spec,
            protocol=Protocol.MESSAGES,
            target=target,
            body=b'{"stream": true}',
            exchange=(exchange := Exchange()),
            prompt_tokens=1,
        )
        reply = await complete(model, Request(payload={}, max_output_tokens=9))
        await close_connections()
    return provider, reply, exchange


async def test_a_name_is_led_to_an_address_that_is_listed_and_stays_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = tmp_path / "netrc"
    passwords.write_text("default login host password secret\n")
    monkeypatch.setenv("NETRC", str(passwords))
    provider, reply, exchange = await ask("loopback", host="localhost")
    assert reply.text == "Answer 1."
    assert provider.last.headers["host"] == f"localhost:{provider.server_address[1]}"
    assert set(provider.last.headers) == {"host", "x-a", "content-length"}, "nothing is added"
    assert (await exchange.head())[1]["request-id"] == "req_raw"


@pytest.mark.slow
async def test_a_proxy_of_the_environment_is_used_but_for_hosts_that_it_excepts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with RawProvider() as proxy:
        monkeypatch.setenv("http_proxy", f"127.0.0.1:{proxy.server_address[1]}")
        _, reply, _ = await ask(None, host="models.example")
        assert reply.text == "Answer 1."
        assert proxy.last.path.startswith("http://models.example:")
        monkeypatch.setenv("no_proxy", "localhost")
        provider, _, _ = await ask(None, host="localhost")
        assert provider.last.path == "/v1/messages?beta=true"


async def test_an_address_that_is_not_listed_is_not_asked() -> None:
    provider, reply, _ = await ask("private", host="127.0.0.1")
    assert isinstance(reply.error, ModelNotAllowed)
    assert provider.exchanged == []


async def test_the_end_of_an_answer_comes_once_it_is_recorded() -> None:
    provider, _, exchange = await ask("loopback", host="localhost")
    got = bytearray()

    async def read() -> None:
        async for piece in exchange.pieces():
            got.extend(piece)

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    assert provider.last.sent.startswith(got)
    assert b"text_delta" in got
    assert b"message_stop" not in got
    exchange.close()  # as its recorder does
    await reading
    assert got == provider.last.sent
