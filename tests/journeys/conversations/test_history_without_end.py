"""Hundreds of turns through a small window, by OpenAI's own package and one header: the beginning is still known."""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI

from tests.journeys.conftest import Caller
from tests.support.waiting import PATIENCE_SECONDS

WINDOW = 16_000
CRATES = 24
"""Told of in each turn: far too many for a summary to keep."""


@pytest.fixture(scope="module")
def small_model(caller: Caller) -> str:
    """A model with a small window."""
    made = caller.site.manage("model", "add", "--alias", "small", "--litellm", "demo/chat", "--context", str(WINDOW))
    assert made.returncode == 0, made.stderr
    return "small"


@pytest.mark.parametrize("turns", [40, pytest.param(300, marks=pytest.mark.soak)])
def test_a_detail_of_the_beginning_is_found_after_many_turns(caller: Caller, small_model: str, turns: int):
    with OpenAI(base_url=f"{caller.site.url}/v1", api_key=caller.key, timeout=PATIENCE_SECONDS) as client:
        session = caller.new_session(model=small_model, config={"compaction": {"summary_target_tokens": 500}})
        for number in range(turns - 1):
            ask(client, small_model, session, cargo(number))
        answer = ask(client, small_model, session, "What is stamped on the crate of Xanadu?")
        ask(client, small_model, session, '!tool lcm_grep {"pattern": "crate of Xanadu"}')
    # Whether a summary still held it or the model searched for it by itself.
    assert "Walrus-88" in answer
    _, called, _ = last_messages(caller, session)
    [search] = [part for part in called["parts"] if part["type"] == "tool"]
    assert search["tool_name"] == "lcm_grep"
    assert "Walrus-88" in search["output"]
    check_record(caller, session, turns)


def cargo(number: int) -> str:
    """What came in one day; on the first, among everything else, what is asked for at the end."""
    crates = [f"The crate of Port {number}-{index} is stamped Seal-{number * 100 + index}." for index in range(CRATES)]
    if number == 0:
        crates[CRATES // 2] = "The crate of Xanadu is stamped Walrus-88."
    return " ".join(crates)


def ask(client: OpenAI, model: str, session: str, text: str) -> str:
    """One turn of which the client sends nothing but the new message; returns the answer."""
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], extra_headers={"X-Mnesis-Session": session}
    )
    return answer.choices[0].message.content or ""


def last_messages(caller: Caller, session: str) -> list[dict[str, Any]]:
    """The newest messages."""
    count = caller.call("GET", f"/api/sessions/{session}")["message_count"]
    items: list[dict[str, Any]] = caller.call("GET", f"/api/sessions/{session}/messages?after={count - 3}")["items"]
    return items


def check_record(caller: Caller, session: str, turns: int) -> None:
    """Nothing is lost, no call was larger than the window, and it was the compaction that made room."""
    read = caller.call("GET", f"/api/sessions/{session}")
    assert read["turn_count"] == turns + 1
    assert read["message_count"] in (2 * turns + 3, 2 * turns + 4)
    calls = caller.call("GET", f"/api/sessions/{session}/calls?limit=500")["items"]
    assert max(call["estimated_tokens"] for call in calls) < WINDOW
    assert sum(call["usage"]["output_tokens"] for call in calls if call["purpose"] == "turn") > 0
    done = [run for run in caller.call("GET", f"/api/sessions/{session}/compactions")["items"] if run["tokens_after"]]
    assert done
    assert caller.call("POST", f"/api/sessions/{session}/verify")["ok"]
