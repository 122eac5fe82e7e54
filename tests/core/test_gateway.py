"""Digests of a request's beginnings, by which conversations that began under an earlier version are found again."""

from __future__ import annotations

import json
from hashlib import sha256

from mnesis_core.turns.gateway import GatewayRequest, Protocol, read_request

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
