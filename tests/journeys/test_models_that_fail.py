"""A model of any OpenAI-compatible server, added at the terminal; and every way it can go wrong, seen from outside."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.journeys.conftest import Caller
from tests.support.openai_server import TEXT, OpenAIServer

AddModel = Callable[[str], str]


@pytest.fixture(scope="module")
def add_model(caller: Caller, openai_server: OpenAIServer) -> AddModel:
    """Add the loopback server's model that plays a scenario."""

    def add(scenario: str, **options: str) -> str:
        alias = f"loopback-{scenario}"
        named = {"--api-base": openai_server.base_url, "--api-key-env": "LOOPBACK_KEY", "--context": "16000"} | options
        flags = [f"{name}={value}" for name, value in named.items()]
        made = caller.site.manage("model", "add", "--alias", alias, "--litellm", f"openai/{scenario}", *flags)
        assert made.returncode == 0, made.stderr
        return alias

    return add


def test_a_model_of_a_compatible_server_answers_with_its_own_numbers(caller: Caller, add_model: AddModel):
    model = add_model("ok")
    checked = caller.site.manage("model", "check", model)
    assert checked.returncode == 0, checked.stderr
    assert TEXT.strip() in checked.stdout
    session = caller.new_session(model=model)
    turn = caller.say(session, "Go")
    assert (turn["state"], turn["usage"]["source"]) == ("completed", "provider")
    assert caller.texts(session)[1] == TEXT


@pytest.mark.parametrize(
    ("scenario", "state", "code"),
    [
        ("unauthorized", "failed", "MODEL_AUTHENTICATION_FAILED"),
        ("rate_limited", "failed", "MODEL_RATE_LIMITED"),
        ("server_error", "failed", "MODEL_UNAVAILABLE"),
        ("html", "incomplete", "MODEL_REPLY_INCOMPLETE"),
        ("empty", "incomplete", "MODEL_REPLY_INCOMPLETE"),
        ("no_finish", "incomplete", "MODEL_REPLY_INCOMPLETE"),
        ("reset", "interrupted", "MODEL_STREAM_BROKEN"),
        ("malformed", "interrupted", "MODEL_STREAM_BROKEN"),
    ],
)
def test_each_failure_ends_the_turn_in_words_and_the_session_goes_on(
    caller: Caller, add_model: AddModel, scenario: str, state: str, code: str
):
    session = caller.new_session(model=add_model(scenario))
    for _ in range(2):
        turn = caller.say(session, "Go")
        assert (turn["state"], turn["error"]["code"]) == (state, code)
        assert len(turn["error"]["message"]) > 20
    shown = caller.messages(session)[1]
    assert shown["error"]["code"] == code
    if state == "interrupted" or scenario == "no_finish":
        assert TEXT.startswith(caller.texts(session)[1])
        assert caller.texts(session)[1]


def test_an_unreachable_server_a_missing_key_and_an_unknown_model_say_so(caller: Caller, add_model: AddModel):
    away = add_model("away", **{"--api-base": "http://127.0.0.1:9/v1"})
    assert caller.say(caller.new_session(model=away), "Go")["error"]["code"] == "MODEL_UNREACHABLE"
    keyless = add_model("keyless", **{"--api-base": "", "--api-key-env": "NO_SUCH_VARIABLE"})
    error = caller.say(caller.new_session(model=keyless), "Go")["error"]
    assert error["code"] == "MODEL_NOT_CONFIGURED"
    refused = caller.call("POST", "/api/sessions", {"model": "nosuch"}, status=404)["error"]
    assert refused["code"] == "MODEL_NOT_FOUND"
    checked = caller.site.manage("model", "check", keyless)
    assert checked.returncode == 10
    assert "MODEL_NOT_CONFIGURED" in checked.stderr
