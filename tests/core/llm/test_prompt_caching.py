"""Where prompts are marked for a provider's cache, and what that costs and saves."""

from __future__ import annotations

import pytest

from mnesis_core.llm.caching import (
    cache_key,
    choose_places,
    plan_cache,
    read_prices,
    saved_micros,
    takes_marks,
    with_marks,
)
from mnesis_core.llm.interface import ModelSpec, Prices, Usage, cost_micros
from tests.support.providers.caching_provider import CachingProvider, Refused, check

PRICES = Prices(input=3_000_000, output=15_000_000, cache_read=300_000, cache_write=3_750_000, cache_write_1h=6_000_000)
MANIFEST = [
    {"kind": "system"},
    {"kind": "tools"},
    {"kind": "facts"},
    {"kind": "summary"},
    {"kind": "summary"},
    *({"kind": "message"} for _ in range(3)),
]


def said(role: str, text: str | None = "text") -> dict:
    return {"role": role, "content": text}


def payload(*messages: dict, tools: int = 1) -> dict:
    found = {"messages": list(messages)}
    return found | ({"tools": [{"type": "function", "number": number} for number in range(tools)]} if tools else {})


WHOLE = payload(
    said("system"),
    *(said("user") for _ in range(4)),
    said("assistant", None),
    said("tool"),
    said("assistant", None),
    *(said("tool") for _ in range(30)),
)


def spec(name: str, **about) -> ModelSpec:
    return ModelSpec(alias="a", litellm_model=name, context_window=1, max_output_tokens=1, **about)


def test_the_places_are_the_ends_of_system_prompt_summaries_the_call_before_and_all() -> None:
    assert choose_places(WHOLE, MANIFEST) == [0, 3, 6, 37]


def test_without_a_system_prompt_the_last_tool_is_marked() -> None:
    without = payload(said("user"), said("assistant"), said("user"), tools=2)
    assert choose_places(without, [{"kind": "tools"}, {"kind": "message"}]) == [-1, 0, 2]
    marked = with_marks(without, {"lifetime": "1h", "places": [-1, 0, 2]})
    assert ["cache_control" in tool for tool in marked["tools"]] == [False, True]


def test_nothing_empty_and_no_answer_is_marked() -> None:
    blank = payload(said("user"), said("assistant"), said("tool", " \n"), tools=0)
    assert choose_places(blank, []) == [0]
    assert choose_places(payload(tools=0), []) == []


def test_marks_leave_the_payload_that_they_are_made_of_alone() -> None:
    marked = with_marks(WHOLE, {"lifetime": "5m", "places": [0, 3]})
    assert [place for place, one in enumerate(marked["messages"]) if "cache_control" in one] == [0, 3]
    assert marked["messages"][0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in str(WHOLE)
    assert with_marks(WHOLE, None) is WHOLE


@pytest.mark.parametrize(
    "cache",
    [
        *("", [], 5, {}, {"lifetime": "5m"}, {"lifetime": "1d", "places": []}, {"lifetime": "5m", "places": 3}),
        *({"lifetime": "5m", "places": [place]} for place in (38, -2, True, "0", None, 2.0)),
    ],
)
def test_hostile_marks_of_an_imported_call_are_a_problem_and_no_error(cache: object) -> None:
    with pytest.raises(ValueError, match="call"):
        with_marks(WHOLE, cache)


def test_the_last_tool_is_not_marked_where_there_is_none() -> None:
    with pytest.raises(ValueError, match="place"):
        with_marks(payload(said("user"), tools=0), {"lifetime": "5m", "places": [-1]})


@pytest.mark.parametrize(
    ("name", "is_marked"),
    [
        ("anthropic/claude-sonnet-4-5", True),
        ("bedrock/us.anthropic.claude-sonnet-4-5-v1:0", True),
        ("vertex_ai/claude-sonnet-4-5", True),
        ("bedrock/amazon.nova-pro-v1:0", False),
        ("vertex_ai/gemini-2.5-pro", False),
        ("openai/claude", False),
        ("demo/chat", False),
    ],
)
def test_only_claude_takes_marks(name: str, is_marked: bool) -> None:
    assert takes_marks(spec(name)) is is_marked
    assert (plan_cache(spec(name), WHOLE, MANIFEST) is not None) is is_marked
    assert not takes_marks(spec(name, cache="off"))


def test_openai_alone_is_told_which_calls_belong_together() -> None:
    assert cache_key(spec("openai/gpt-4.1"), "sess_1") == {"prompt_cache_key": "sess_1"}
    assert cache_key(spec("openai/gpt-4.1", cache="off"), "sess_1") == {}
    assert cache_key(spec("openai/local", api_base="http://127.0.0.1/v1"), "sess_1") == {}
    assert cache_key(spec("anthropic/claude-sonnet-4-5"), "sess_1") == {}


def test_what_is_kept_for_an_hour_has_its_own_price() -> None:
    usage = Usage(
        input_tokens=10_000,
        output_tokens=0,
        cache_read_tokens=7_000,
        cache_write_tokens=2_000,
        cache_write_1h_tokens=1_500,
    )
    cost = 1_000 * 3 + 7_000 * 0.3 + 500 * 3.75 + 1_500 * 6
    assert cost_micros(spec("a/b", prices=PRICES), usage) == cost
    assert Prices(input=2, cache_write=3).write_price("1h") == 3
    assert Prices(input=2).write_price("1h") == 2


def test_what_the_cache_saved_counts_what_it_cost() -> None:
    assert saved_micros(PRICES, read=10_000, written=0) == 27_000
    assert saved_micros(PRICES, read=0, written=1_000) == -750
    assert saved_micros(PRICES, read=10_000, written=1_000, hour=1_000) == 24_000
    assert saved_micros(PRICES, read=10_000, written=1_000, hour=400) == 25_350
    assert saved_micros(Prices(input=5), read=10_000, written=9) == 0


@pytest.mark.parametrize("stored", [None, 7, [], {}, {"input": "3"}, {"input": -1}, {"output": 3}, {"input": True}])
def test_prices_that_no_call_of_ours_has_are_none(stored: object) -> None:
    assert read_prices(stored) is None


def test_prices_of_a_call_are_read_as_they_were() -> None:
    assert read_prices(
        {"input": 3_000_000, "output": 15_000_000, "cache_read": 300_000, "cache_write": None}
    ) == Prices(input=3_000_000, output=15_000_000, cache_read=300_000)


def request(*messages: dict, **more) -> dict:
    return {"model": "claude", "max_tokens": 10, "messages": list(messages), **more}


CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "t", "input": {}}]}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r"}]}
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def text(value: str = "text", **more) -> dict:
    return {"type": "text", "text": value, **more}


def asked(*blocks: dict) -> dict:
    return {"role": "user", "content": list(blocks)}


@pytest.mark.parametrize(
    "body",
    [
        request(asked(text()), prompt_cache_key="x"),
        request(asked(*(text(**MARK) for _ in range(5)))),
        request(asked(text(" ", **MARK))),
        request(asked(text(**MARK), text(**HOUR))),
        request({"role": "assistant", "content": [text()]}),
        request(asked(text()), {"role": "system", "content": "x"}),
        request(asked(text()), RESULT),
        request(asked(text()), CALL, asked(text())),
        request(asked(text()), CALL),
        request(asked(text()), CALL, asked(text(), *RESULT["content"])),
        request(asked(text("x" * 4_000))),
    ],
)
def test_the_strict_provider_refuses_what_anthropic_refuses(body: dict) -> None:
    with pytest.raises(Refused):
        check(body, 1_000)


def test_the_strict_provider_takes_the_rest() -> None:
    check(request(asked(text(**HOUR)), CALL, asked(*RESULT["content"], text(**MARK)), system="s"), 1_000)


def test_the_strict_provider_bills_like_anthropic() -> None:
    long, other = text("a" * 8_000, **MARK), text("b" * 8_000)
    with CachingProvider(lambda number: "yes") as provider:

        def bill(*blocks: dict) -> tuple[int, int, int]:
            list(provider.respond("/v1/messages", request(asked(*blocks))))
            last = provider.bills[-1]
            return last.fresh, last.read, sum(last.written.values())

        assert bill(long)[:2] == (0, 0)
        size = provider.bills[0].total
        assert bill(long, other)[1:] == (size, 0)
        provider.clock = 299.0
        assert bill(long)[1:] == (size, 0)
        provider.clock = 299.0 + 301.0
        assert bill(long)[1:] == (0, size)
        near = [text(f"{number}") for number in range(19)]
        assert bill(text(long["text"]), *near, text("end", **MARK))[1] == size
        far = [text(f"{number}") for number in range(20, 41)]
        assert bill(text(long["text"]), *far, text("end", **MARK))[1] == 0
        assert bill(text("short", **MARK))[1:] == (0, 0)
