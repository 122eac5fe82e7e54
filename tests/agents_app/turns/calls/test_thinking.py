"""What a model signs of its thinking is kept, and goes back to it as it came."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from agents_app.turns import lifecycle
from audit_app.transfer.export import export_session
from compaction_app.context.state import load_meter
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.parameters import Parameters
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import ProviderPart, ReasoningPart
from mnesis_core.providers.litellm_parameters import UNTHOUGHT
from mnesis_core.records import TurnState
from sessions_app.database.threads import db
from sessions_app.llm.model_store import put_model
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls
from tests.support.material.thinking_sessions import (
    ADAPTIVE,
    CHAT,
    GEMINI,
    MANUAL,
    MODELS,
    OPENAI,
    PROVIDERS,
    WEATHER,
    Imagined,
    check_calls,
    thinking_session,
)
from tests.support.people.story import begin, ended, history, say
from tests.support.providers.caching_provider import Refused, check
from tests.support.providers.event_provider import ReasoningProvider, chat
from tests.support.providers.thinking_provider import (
    OPAQUE,
    Block,
    ThinkingProvider,
    check_signatures,
    check_thinking,
    signature,
    spoken,
)


def call(number: int) -> Block:
    return "call", ("shelf", {"number": number})


@pytest.fixture(autouse=True)
def _keys(monkeypatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "key")


def thinks(body: dict[str, Any]) -> Any:
    asked = body.get("thinking") or body.get("reasoning") or body.get("reasoning_effort")
    return asked or body.get("generationConfig", {}).get("thinkingConfig")


def sealed(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what of a request its model has signed or encrypted."""
    said = [part for one in body.get("contents", ()) for part in one["parts"] if "thoughtSignature" in part]
    said += [item for item in body.get("input", ()) if item.get("type") == "reasoning"]
    contents = [one["content"] for one in body.get("messages", ()) if isinstance(one.get("content"), list)]
    blocks = [block for content in contents for block in content]
    return said + [block for block in blocks if block["type"] in OPAQUE]


def brings_results(body: dict[str, Any]) -> bool:
    return any(block["type"] == "tool_result" for block in body["messages"][-1]["content"])


SCRIPT: list[list[Block]] = [
    [("think", "Which shelf? "), ("redact", "b64"), ("text", "I look."), call(1), ("think", "And the other."), call(2)],
    [("think", ""), call(3)],
    [("think", "Enough."), ("text", "Ledgers.")],
    [("text", "As I said.")],
]
SENT = {MANUAL: [0, 3, 3, 3], ADAPTIVE: [0, 3, 4, 5], GEMINI: [0, 1, 2, 3], OPENAI: [0, 3, 4, 4], CHAT: [0, 0, 0, 0]}
"""How much of it each call sends back; to OpenAI, what led to calls; in Chat Completions nothing."""


@pytest.mark.parametrize("name", MODELS)
async def test_thinking_comes_back_unchanged_with_the_results_of_its_calls(alice, name: str) -> None:
    with ThinkingProvider(SCRIPT.__getitem__) as provider:
        session = await thinking_session(alice, provider, name)
        for question in ("What is there?", "Again?"):
            ended = await say(session, question)
            assert (provider.refusals, ended.state) == ([], TurnState.COMPLETED), ended.error_message
    assert [bool(thinks(body)) for body in provider.requests] == [True] * 4
    assert [len(sealed(body)) for body in provider.requests] == SENT[name]
    await check_calls(session)


async def test_what_people_read_of_it_stands_before_what_only_the_model_reads(alice) -> None:
    with ThinkingProvider(SCRIPT.__getitem__) as provider:
        session = await thinking_session(alice, provider, ADAPTIVE)
        await say(session, "What is there?")
    [_, answer, *_] = await db(load_messages, session.id, limit=50)
    kinds = [getattr(stored.part, "kind", stored.part.type) for stored in answer.parts]
    assert kinds == [
        *("reasoning", "thinking", "redacted_thinking", "text", "reasoning", "tool", "thinking", "tool"),
    ]
    signed = answer.parts[1].part
    assert isinstance(signed, ProviderPart)
    assert (signed.provider, signed.model, len(signed.prompt)) == ("anthropic", "claude-opus-4-6", 32)
    assert json.loads(signed.data).keys() == {"type", "thinking", "signature"}
    assert answer.parts[0].part == ReasoningPart(text="Which shelf? ")


CHANGES = (
    "compactions",
    "waits",
    "thinking",
    "sealed",
    "thinking with results",
    "searches sent back",
    "pictures",
    "read from a cache",
)


@pytest.mark.slow
# Each session has an address of its own; litellm keeps 200 clients and forgets older ones without closing them.
@pytest.mark.filterwarnings("ignore:Unclosed (client session|connector):ResourceWarning")
@pytest.mark.parametrize(
    ("models", "count"),
    [
        pytest.param(tuple(MODELS), 8, id="each"),
        *(pytest.param(models, 1_000, marks=pytest.mark.soak, id=name) for name, models in PROVIDERS.items()),
    ],
)
async def test_no_session_is_refused_whatever_happens_between_its_calls(alice, models, count: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(count):
        imagined = Imagined(seed)
        with ThinkingProvider(imagined.say, window=30_000) as provider:
            session = await thinking_session(alice, provider, models[seed % len(models)], window=30_000)
            await imagined.live(session, provider)
        seen += imagined.seen
        for body in provider.requests:
            seen["calls"] += 1
            seen["thinking"] += bool(thinks(body))
            seen["sealed"] += bool(sealed(body))
            seen["searches sent back"] += "web_search_tool_result" in json.dumps(body)
            seen["goes on after a pause"] += body.get("messages", [{}])[-1].get("role") == "assistant"
            seen["pictures"] += "image/png" in json.dumps(body)
            seen["thinking with results"] += bool(body.get("thinking")) and brings_results(body)
        seen["read from a cache"] += sum(bill.read > 0 for bill in provider.bills)
    print(seen)
    assert min(seen[what] for what in CHANGES) > 0


def talk(number: int) -> list[Block]:
    """Answers of a model that reads two shelves in each turn."""
    said: Block = call(number) if number % 3 < 2 else ("text", "Ledgers.")
    return [("think", f"Thought {number}."), said]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "other"), [(MANUAL, ADAPTIVE), (ADAPTIVE, MANUAL), (GEMINI, MANUAL)])
async def test_another_model_and_another_effort_are_sent_none_of_it(alice, name: str, other: str) -> None:
    with ThinkingProvider(talk) as provider:
        session = await thinking_session(alice, provider, name)
        await say(session, "What is there?")
        before = len(sealed(provider.requests[-1]))
        for options in ({"model": MODELS[other]}, {"parameters": Parameters(effort="none")}, {}):
            assert (await ended(await begin(session, "Again?", **options))).state == TurnState.COMPLETED
    assert provider.refusals == []
    first = [sealed(body) for body in provider.requests[3::3]]
    assert before > 0
    assert first[0] == []
    assert bool(first[1]) is (name == GEMINI)  # Google wants its signatures also where it is asked to think little.
    assert "Thought 1." not in json.dumps(provider.requests[3])
    await check_calls(session)


@pytest.mark.slow
async def test_a_fork_sends_it_back_and_an_export_has_it(alice) -> None:
    with ThinkingProvider(talk) as provider:
        session = await thinking_session(alice, provider, ADAPTIVE)
        await say(session, "What is there?")
        [*_, last] = await history(session)
        fork = await db(lifecycle.fork_session, session.id, owner=alice, at_message_id=last.id)
        lines = await db(lambda: list(export_session(session.id)))
        for _ in range(2):
            await say(fork, "Again?")
    assert provider.refusals == []
    assert [len(sealed(body)) for body in provider.requests] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    await check_calls(fork)
    assert b"claude-opus-4-6" in b"".join(lines)


async def test_it_counts_in_the_meter_of_the_model_that_gets_it_back_only(alice) -> None:
    thought = "The harbour has ninety-seven shelves, and each of them has ledgers. " * 100
    with ThinkingProvider(lambda _: [("think", thought), ("text", "Ledgers.")]) as provider:
        session = await thinking_session(alice, provider, ADAPTIVE)
        await say(session, "What is there?")
        with_it = await db(load_meter, session.id)
        await db(lifecycle.update_session, session.id, owner_id=alice.id, config={"parameters": {"effort": "none"}})
        without_it = await db(load_meter, session.id)
    tokens = estimate_text(thought)
    assert with_it.context_tokens - without_it.context_tokens > tokens
    assert without_it.context_tokens < tokens


BODY: dict[str, Any] = {
    "model": "claude",
    "max_tokens": 5_000,
    "thinking": {"type": "enabled", "budget_tokens": 2_000},
    "messages": [{"role": "user", "content": "What is there?"}],
}


def asked_again(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], **changes: Any) -> dict[str, Any]:
    """Return a request that brings the result of a call, whose answer was changed."""
    body = BODY | changes
    answer = spoken(body, [("think", "Hm."), ("redact", "b64"), ("text", "I look."), call(1)])
    result = {"type": "tool_result", "tool_use_id": answer[-1]["id"], "content": "empty"}
    said = {"role": "assistant", "content": change(answer)}
    return body | {"messages": [*body["messages"], said, {"role": "user", "content": [result]}]}


def refusal(body: dict[str, Any]) -> str:
    try:
        check(body, 200_000)
        check_thinking(body)
    except Refused as refused:
        return str(refused)
    return ""


ADAPTED = {"thinking": {"type": "adaptive"}}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (asked_again(list), ""),
        (asked_again(list, **ADAPTED), ""),
        (asked_again(lambda said: [{**said[0], "thinking": "Ha."}, *said[1:]]), "Invalid `signature`"),
        (asked_again(lambda said: [{**said[0], "signature": ""}, *said[1:]]), "Invalid `signature`"),
        (asked_again(lambda said: [{"type": "thinking", "thinking": "Hm."}, *said[1:]]), "a field is missing"),
        (asked_again(lambda said: said[2:]), "Expected `thinking`"),
        (asked_again(lambda said: [said[0], *said[2:]]) | {"model": "other"}, "Invalid `signature`"),
        (asked_again(lambda said: said[1:]), "Invalid `signature`"),
        (asked_again(lambda said: [said[1], said[0], *said[2:]]), "Invalid `signature`"),
        (asked_again(lambda said: [said[2], *said[:2], said[3]]), "Expected `thinking`"),
        (asked_again(lambda said: [said[2], *said[:2], said[3]], **ADAPTED), "Invalid `signature`"),
        (asked_again(list, **ADAPTED) | {"system": "Another."}, "Invalid `signature`"),
        (asked_again(list) | {"thinking": {"type": "disabled"}}, "thinking may not stand here"),
        (asked_again(list) | {"thinking": {"type": "often"}}, "Input tag"),
        (asked_again(list) | {"effort": "high"}, "Extra inputs are not permitted"),
        (asked_again(list) | {"temperature": 0.5}, "`temperature`"),
        (asked_again(list) | {"tool_choice": {"type": "any"}}, "forces tool use"),
        (asked_again(list) | {"max_tokens": 1_500}, "`max_tokens`"),
    ],
)
def test_the_provider_refuses_what_anthropic_refuses(body: dict[str, Any], says: str) -> None:
    assert says in refusal(body)
    assert bool(refusal(body)) is bool(says)


@pytest.mark.parametrize("change", [{"thoughtSignature": "c2ln"}, {"thoughtSignature": None}])
def test_the_provider_refuses_what_google_refuses(change: dict[str, Any]) -> None:
    part: dict[str, Any] = {"functionCall": {"name": "shelf", "args": {"number": 1}}}
    signed = part | {"thoughtSignature": signature(part, "gemini")}
    other = {name: value for name, value in (signed | change).items() if value}
    for parts, is_refused in ([signed, part], False), ([other], True), ([part, signed], True):
        contents = [{"role": "user", "parts": [{"text": "?"}]}, {"role": "model", "parts": parts}]
        with pytest.raises(Refused) if is_refused else nullcontext():
            check_signatures({"contents": contents}, "gemini")


async def test_a_turn_that_began_without_thinking_goes_on_without_it(alice) -> None:
    thought: list[Block] = [("think", "Is it?"), ("text", "Rain.")]
    said: list[list[Block]] = [thought, [("call", ("weather", {}))], thought, thought]
    with ThinkingProvider(said.__getitem__) as provider:
        session = await thinking_session(alice, provider, MANUAL)
        await say(session, "Is there weather?")
        waiting = await ended(
            await begin(session, "Is it wet?", tools=(WEATHER,), parameters=Parameters(effort="none"))
        )
        assert waiting.state == TurnState.SUSPENDED
        await db(lifecycle.interrupt, session.id, owner_id=alice.id)
        # To Claude, the result of the interrupted call and the next question are one message in one turn.
        for question in ("And now?", "Sure?"):
            assert (await say(session, question)).state == TurnState.COMPLETED
    assert provider.refusals == []
    assert [bool(thinks(body)) for body in provider.requests] == [True, False, False, True]
    assert [len(sealed(body)) for body in provider.requests] == [0, 0, 0, 1]
    calls = await db(list_calls, session.id, limit=5)
    assert calls[1].parameters["not_taken"] == {"effort": UNTHOUGHT}


@pytest.mark.parametrize(
    ("name", "key"), [("deepseek/deepseek-reasoner", "DEEPSEEK"), ("moonshot/kimi-k2-thinking", "MOONSHOT")]
)
async def test_thinking_that_is_not_signed_goes_back_with_the_calls_that_it_led_to(
    alice, monkeypatch, name, key
) -> None:
    monkeypatch.setenv(f"{key}_API_KEY", "key")
    used = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "shelf", "arguments": '{"number": 1}'}}

    def answers(number: int) -> Any:
        thought = {"role": "assistant", "reasoning_content": f"Thought {number}."}
        does = {"tool_calls": [used | {"id": f"call_{number}"}]} if number < 2 else {}
        return chat(thought, {"content": "I look."}, does, finish="tool_calls" if does else "stop")

    with ReasoningProvider(answers) as provider:
        await db(
            lambda: put_model(
                ModelSpec(
                    alias="mine",
                    litellm_model=name,
                    entered_on_host=True,
                    api_base=provider.url,
                    context_window=50_000,
                    max_output_tokens=900,
                )
            )
        )
        session = await db(lifecycle.create_session, owner=alice, model="mine", config={"turn": {"tools": ["shelf"]}})
        for question in ("What is there?", "Again?"):
            turn = await say(session, question)
            assert (provider.refusals, turn.state) == ([], TurnState.COMPLETED), turn.error_message
    last = [message for message in provider.requests[-1]["messages"] if "tool_calls" in message]
    assert [(message["content"], message["reasoning_content"]) for message in last] == [
        ("I look.", "Thought 0."),
        ("I look.", "Thought 1."),
    ]
    await check_calls(session)
