"""Where the calls of a model go that no command on the host has entered: to addresses that were looked at, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from mnesis_core.llm.interface import Reply, Request, complete
from mnesis_core.network import hosts
from mnesis_core.network.hosts import read_networks
from mnesis_core.providers.credentials import AT_ANY_ADDRESS
from mnesis_core.providers.litellm_ import LiteLLMModel
from tests.core.providers.litellm.questions import REQUEST, spec_for
from tests.support.providers.openai.openai_server import OpenAIServer

TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object"}}}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


class Names:
    """A name server that gives another answer each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def ask(
    server: OpenAIServer, *, host: str, listed: str, model: str = "openai/ok", request: Request = REQUEST
) -> Reply:
    address = server.base_url.replace("127.0.0.1", host)
    spec = spec_for("ok", server, api_base=address, listed_addresses=read_networks(listed), litellm_model=model)
    return await complete(LiteLLMModel(spec), request)


@pytest.mark.parametrize("provider", sorted(AT_ANY_ADDRESS))
@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "inside.test"])
async def test_no_provider_reaches_what_is_not_listed(
    provider: str, host: str, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if host.endswith(".test"):
        monkeypatch.setattr(hosts, "look_up", Names(["127.0.0.1"]))
    asked = replace(REQUEST, payload=REQUEST.payload | {"tools": [TOOL]})
    reply = await ask(server, host=host, listed="10.0.0.0/8", model=f"{provider}/ok", request=asked)
    assert reply.error is not None
    assert (reply.error.code, server.requests, server.disconnects) == ("MODEL_NOT_ALLOWED", [], 0)
    assert "MNESIS_PRIVATE_ADDRESSES=127.0.0.1" in reply.error.message


async def test_what_is_listed_is_reached_under_its_name(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "look_up", Names(["127.0.0.1"]))
    reply = await ask(server, host="inside.test", listed="127.0.0.1")
    assert (reply.error, len(server.requests)) == (None, 1)


async def test_one_address_inside_among_several_is_enough_to_refuse(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "look_up", Names(["127.0.0.1", "169.254.169.254"]))
    reply = await ask(server, host="both.test", listed="127.0.0.1")
    assert reply.error is not None
    assert (reply.error.code, server.requests) == ("MODEL_NOT_ALLOWED", [])


async def test_a_name_is_looked_up_once_so_that_a_second_answer_leads_nowhere(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(["127.0.0.1"], ["10.99.99.99"])
    monkeypatch.setattr(hosts, "look_up", names)
    reply = await ask(server, host="rebinds.test", listed="127.0.0.1")
    assert (reply.error, names.asked, len(server.requests)) == (None, 1, 1)
    again = await ask(server, host="rebinds.test", listed="127.0.0.1")
    assert again.error is not None
    assert (again.error.code, len(server.requests)) == ("MODEL_NOT_ALLOWED", 1)


async def test_a_name_that_nobody_knows_is_a_server_that_is_not_there(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known")

    monkeypatch.setattr(hosts, "look_up", unknown)
    reply = await ask(server, host="nowhere.test", listed="127.0.0.1")
    assert reply.error is not None
    assert reply.error.code == "MODEL_UNREACHABLE"


async def test_what_a_command_on_the_host_entered_goes_anywhere(server: OpenAIServer) -> None:
    reply = await complete(LiteLLMModel(spec_for("ok", server)), REQUEST)
    assert reply.error is None
