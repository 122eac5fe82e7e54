"""Tools that a provider runs: permitted by the model's entry, asked for, kept as its own, and sent back to it alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from django.test import Client
from django.urls import reverse

from mnesis_core.llm.parameters import Parameters
from mnesis_core.messages import CitationPart, ProviderToolPart
from mnesis_core.providers.litellm_parameters import settle_parameters
from mnesis_core.records import TurnState
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from sessions_app.record.turn_queries import list_calls
from tests.support.material.thinking_sessions import ADAPTIVE, GEMINI, MANUAL, MODELS, check_calls, thinking_session
from tests.support.people.programs import Program
from tests.support.people.story import begin, ended, history
from tests.support.providers.caching_provider import Refused
from tests.support.providers.thinking_provider import Block, ThinkingProvider, check_searches, may_search

pytestmark = pytest.mark.usefixtures("no_connection_left")
SEARCHES = Parameters(effort="high", provider_tools=("web_search",))
ADDRESS = "https://harbour.example/"
ASKED: list[list[Block]] = [
    [("think", "Is it high?"), ("text", "I look."), ("search", "tide"), ("think", "More."), ("pause", None)],
    [
        ("search", "quay"),
        ("text", "It is "),
        ("cite", ("14 m", ADDRESS)),
        ("text", " high."),
        ("call", ("shelf", {"number": 1})),
    ],
    [("think", "Enough."), ("text", "Done.")],
    [("text", "As I said.")],
]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: Any) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, "key")


async def ask(session: Any, text: str, **options: Any) -> Any:
    return await ended(await begin(session, text, **{"parameters": SEARCHES} | options))


def blocks_of(body: dict[str, Any], role: str) -> list[dict[str, Any]]:
    return [block for said in body["messages"] if said["role"] == role for block in said["content"]]


@pytest.mark.parametrize("name", [MANUAL, ADAPTIVE])
async def test_a_search_is_kept_as_the_provider_s_and_goes_back_as_it_came(alice: Any, name: str) -> None:
    with ThinkingProvider(ASKED.__getitem__) as provider:
        session = await thinking_session(alice, provider, name)
        turn = await ask(session, "How high?")
        assert (provider.refusals, turn.state) == ([], TurnState.COMPLETED), turn.error_message
        assert (await ask(session, "Again?")).state == TurnState.COMPLETED
    assert provider.refusals == []
    first, paused, _, again = provider.requests
    assert first["tools"][-1] == {"type": "web_search_20250305", "name": "web_search"}
    assert paused["messages"][-1]["role"] == "assistant"
    kinds = [block["type"] for block in blocks_of(paused, "assistant")]
    # An older Claude thinks only where its turn begins.
    thought = ["thinking"] * (name == MANUAL)
    assert kinds == ["thinking", *thought, "text", "server_tool_use", "web_search_tool_result"]
    sent = [block for block in blocks_of(again, "assistant") if block["type"] == "web_search_tool_result"]
    assert [block["content"][0]["title"] for block in sent] == ["tide", "quay"]
    parts = [stored.part for message in await history(session) for stored in message.parts]
    ran = [part for part in parts if isinstance(part, ProviderToolPart)]
    assert [(part.provider, json.loads(part.input)["query"]) for part in ran] == [
        ("anthropic", "tide"),
        ("anthropic", "quay"),
    ]
    [cited] = [part for part in parts if isinstance(part, CitationPart)]
    assert (cited.url, cited.text, cited.start, cited.end) == (ADDRESS, "14 m", 6, 10)
    await check_calls(session)
    [call, *_] = await db(list_calls, session.id)
    assert call.parameters["sent"]["provider_tools"] == first["tools"][-1:]


async def test_another_provider_is_told_of_it_in_words(alice: Any) -> None:
    with ThinkingProvider(ASKED.__getitem__) as provider:
        session = await thinking_session(alice, provider, ADAPTIVE)
        await ask(session, "How high?")
        turn = await ask(session, "Again?", model=MODELS[GEMINI])
        assert (provider.refusals, turn.state) == ([], TurnState.COMPLETED)
    sent = json.dumps(provider.requests[-1])
    assert "[TOOL web_search, run by anthropic]" in sent
    assert "encrypted_content" not in sent
    await check_calls(session)
    # Gemini does not take its own search beside the session's tools, and the call says so.
    [call, *_] = await db(list_calls, session.id)
    assert "together with others" in call.parameters["not_taken"]["provider_tools"]


async def test_what_the_entry_does_not_permit_is_not_sent(alice: Any) -> None:
    with ThinkingProvider(ASKED.__getitem__) as provider:
        session = await thinking_session(alice, provider, MANUAL)
        wanted = replace(SEARCHES, provider_tools=("code_execution",))
        await ask(session, "How high?", parameters=wanted)
        assert all("type" not in tool or tool["type"] == "custom" for tool in provider.requests[0]["tools"])
        await ask(session, "And?", parameters=Parameters(provider_tools=()))
    calls = await db(list_calls, session.id)
    assert calls[-1].parameters["not_taken"]["provider_tools"] == "the model's entry does not permit code_execution"


@pytest.mark.parametrize(
    ("model", "has_tools", "names"),
    [
        ("anthropic/claude-sonnet-4-5", True, ["web_search_20250305", "code_execution_20250825"]),
        ("openai/responses/gpt-5", True, ["web_search", "code_interpreter"]),
        ("gemini/gemini-2.5-flash", False, ["googleSearch", "codeExecution"]),
        ("gemini/gemini-2.5-flash", True, []),
        ("openai/gpt-4o", True, []),
        ("demo/chat", False, []),
    ],
)
def test_each_provider_has_its_own_form(make_spec: Any, model: str, has_tools: bool, names: list[str]) -> None:
    asked = Parameters(provider_tools=("web_search", "code_execution"))
    settled = settle_parameters(make_spec(model, parameters=asked), asked, has_tools=has_tools)
    assert [tool.get("type") or next(iter(tool)) for tool in settled.sent.get("provider_tools", ())] == names
    assert bool(settled.not_taken) is not bool(names)
    assert settle_parameters(make_spec(model), asked, has_tools=False).sent == {}


@pytest.fixture
def make_spec() -> Any:
    from mnesis_core.llm.interface import ModelSpec

    return lambda name, **about: ModelSpec(
        alias="a", litellm_model=name, context_window=9_000, max_output_tokens=900, **about
    )


async def test_the_endpoints_take_them_and_show_the_sources(alice: Any) -> None:
    key = await db(create_key, owner_id=alice.pk)
    said: list[Block] = [("search", "tide"), ("text", "It is "), ("cite", ("14 m", ADDRESS)), ("text", " high.")]
    with ThinkingProvider(lambda _: said) as provider:
        await thinking_session(alice, provider, MANUAL)
        about = {"model": MODELS[MANUAL]}
        chat = await Program(key, "/v1/chat/completions").ask("How?", web_search_options={}, **about)
        [choice] = json.loads(chat.content)["choices"]
        anthropic_s = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
        message = await Program(key, "/v1/messages").ask("How?", max_tokens=900, tools=[anthropic_s], **about)
        hosted = await Program(key, "/v1/responses").post(input="How?", tools=[{"type": "web_search"}], **about)
        coded = await Program(key, "/v1/responses").post(input="How?", tools=[{"type": "code_interpreter"}], **about)
    assert [may_search(body) for body in provider.requests] == [True, True, True, False]
    assert choice["message"]["content"] == "It is 14 m high."
    cited = {"url": ADDRESS, "title": "A <b>page</b>", "start_index": 6, "end_index": 10}
    assert choice["message"]["annotations"] == [{"type": "url_citation", "url_citation": cited}]
    block, search, found = AnthropicMessage.model_validate(json.loads(message.content)).content
    assert (search.type, search.input) == ("server_tool_use", {"query": "tide"})  # type: ignore[union-attr]
    assert (found.type, found.tool_use_id, found.content[0].title) == ("web_search_tool_result", search.id, "tide")  # type: ignore[union-attr, index]
    block = block.model_dump()
    assert [source["url"] for source in block["citations"]] == [ADDRESS]
    [item, search] = json.loads(hosted.content)["output"]
    assert (search["type"], search["action"]["query"]) == ("web_search_call", "tide")
    assert item["content"][0]["annotations"] == [{"type": "url_citation", **cited}]
    assert coded.headers["X-Mnesis-Unused"] == "tools.hosted"


async def test_the_page_numbers_sources_and_trusts_none_of_them(alice: Any, client: Client) -> None:
    hostile = ("x", "javascript:alert(1)")
    said: list[Block] = [
        ("text", "It is "),
        ("cite", ("14 m", ADDRESS)),
        ("cite", ("14 m", ADDRESS)),
        ("cite", hostile),
    ]
    with ThinkingProvider(lambda _: said) as provider:
        session = await thinking_session(alice, provider, MANUAL)
        await ask(session, "How high?")
    await db(client.force_login, alice)
    page = (await db(client.get, reverse("session", args=[session.id]))).content.decode()
    assert page.count(f'href="{ADDRESS}"') == 1
    assert 'rel="noopener noreferrer' in page
    assert "Source 1:" in page
    assert "Source 2:" in page
    assert "Source 3:" not in page
    assert 'href="javascript:' not in page
    assert "A &lt;b&gt;page&lt;/b&gt;" in page


def searched(**changes: Any) -> dict[str, Any]:
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found = {"type": "web_search_result", "url": ADDRESS, "title": "", "encrypted_content": "other"}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [], **changes}
    return {"call": call, "found": found, "result": result}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda one: [one["call"]], "without a `web_search_tool_result`"),
        (lambda one: [one["result"]], "unexpected `tool_use_id`"),
        (lambda one: [one["call"], one["result"] | {"tool_use_id": "srvtoolu_2"}], "unexpected `tool_use_id`"),
        (lambda one: [one["call"], one["result"] | {"content": [one["found"]]}], "Invalid `encrypted_content`"),
        (lambda one: [{"type": "text", "text": "Half"}], "prefill"),
    ],
)
def test_the_provider_refuses_searches_that_anthropic_refuses(content: Any, says: str) -> None:
    body = {"messages": [{"role": "assistant", "content": content(searched())}]}
    with pytest.raises(Refused, match=says.replace("`", ".")):
        check_searches(body)
