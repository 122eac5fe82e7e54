"""Prompt caching: the places up to which a provider may keep a prompt for the next call, and what that saves.

OpenAI, Gemini and others find by themselves what a prompt has in common with an earlier one. Claude keeps what stands
before a mark (``cache_control``), of which it takes four, and looks for what it kept at most 20 blocks before a mark:
https://docs.claude.com/en/docs/build-with-claude/prompt-caching. litellm passes the marks of messages and tools on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from mnesis_core.llm.interface import ModelSpec, Prices

LIFETIMES = ("off", "5m", "1h")
"""How long a provider keeps what is marked after it was last read; ``off``: nothing is marked."""
MOST_PLACES = 4
LAST_TOOL = -1
"""The place of the last tool. The other places are numbers of messages."""
_CLAUDE_IN = ("bedrock", "vertex_ai")
_OPENING = ("system", "facts", "summary")  # The kinds of rows that change at a compaction only; each is one message.


def takes_marks(spec: ModelSpec) -> bool:
    provider, _, name = spec.litellm_model.partition("/")
    is_claude = provider == "anthropic" or (provider in _CLAUDE_IN and "claude" in name)
    return is_claude and spec.cache in LIFETIMES[1:]


def cache_key(spec: ModelSpec, session_id: str) -> dict[str, str]:
    """Return what OpenAI is told so that calls of one session meet the same cache; nothing for any other server."""
    is_theirs = spec.litellm_model.startswith("openai/") and not spec.api_base
    return {"prompt_cache_key": session_id} if is_theirs and spec.cache != "off" else {}


def plan_cache(
    spec: ModelSpec, payload: Mapping[str, Any], manifest: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return what the row of a call says of the cache; ``None`` where nothing is to be marked."""
    if not takes_marks(spec):
        return None
    return {"lifetime": spec.cache, "places": choose_places(payload, manifest)}


def choose_places(payload: Mapping[str, Any], manifest: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the places to mark in the payload of OpenAI's Chat Completions that was rendered from a manifest.

    They are the end of what no compaction changes (tools and system prompt), the end of the summaries, the end of the call
    before, which is what stands before the newest answer, and the end of all. An answer with many calls lies between the
    last two, where 20 blocks would not reach back.
    """
    messages = payload["messages"]
    rows = list(takewhile(lambda row: row["kind"] in (*_OPENING, "tools"), manifest))
    opening = sum(row["kind"] in _OPENING for row in rows)
    answer = max((place for place, said in enumerate(messages) if said["role"] == "assistant"), default=0)
    first = [0] if rows and rows[0]["kind"] == "system" else []
    # A text block that is empty must not be marked, and an answer may be nothing but calls. Of blocks litellm reads no mark
    # of their message.
    usable = [
        place
        for place, said in enumerate(messages)
        if said["role"] != "assistant" and isinstance(said["content"], str) and said["content"].strip()
    ]
    ends = [usable[at - 1] for length in (opening, answer, len(messages)) if (at := bisect_left(usable, length))]
    tools = [LAST_TOOL] if payload.get("tools") and not first else []
    return sorted({*tools, *first, *ends})[-MOST_PLACES:]


def with_marks(payload: dict[str, Any], cache: object) -> dict[str, Any]:
    """Return a payload as it is sent with what its call's row says of the ``cache``, or unchanged where that is nothing.

    :raises ValueError: the payload has no such places, or there are none of that lifetime.
    """
    if cache is None:
        return payload
    lifetime = cache.get("lifetime") if isinstance(cache, Mapping) else None
    places = cache.get("places") if isinstance(cache, Mapping) else None
    messages, tools = list(payload["messages"]), list(payload.get("tools", ()))
    if lifetime not in LIFETIMES[1:] or not isinstance(places, list):
        raise ValueError("what the call says of the cache cannot be read")
    # Five minutes go without saying, also to servers that know no other lifetime.
    longer = {} if lifetime == "5m" else {"ttl": lifetime}
    for place in places:
        marked = tools if place == LAST_TOOL else messages
        if type(place) is not int or not LAST_TOOL <= place < len(messages) or not marked:
            raise ValueError("the call marks a place for the cache that its prompt does not have")
        marked[place] = {**marked[place], "cache_control": {"type": "ephemeral", **longer}}
    return payload | {"messages": messages} | ({"tools": tools} if tools else {})


def read_prices(stored: object) -> Prices | None:
    """Return the prices that the row of a call says it was asked at; ``None`` where it says none."""
    names = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
    if not isinstance(stored, Mapping):
        return None
    found = {name: stored.get(name) for name in names}
    known = {name: price for name, price in found.items() if type(price) is int and 0 <= price <= 10**12}
    return Prices(**known) if "input" in known else None


def saved_micros(prices: Prices, *, read: int, written: int, hour: int = 0) -> int:
    """Return what reading from a cache saved, less what writing into it cost more, in millionths of the currency unit.

    It is negative where what was written has not been read yet.

    :param hour: how many of the written tokens the cache keeps for an hour
    """
    reading = read * (prices.input - (prices.input if prices.cache_read is None else prices.cache_read))
    writing = (written - hour) * (prices.write_price() - prices.input)
    writing += hour * (prices.write_price("1h") - prices.input)
    return (reading - writing) // 1_000_000
