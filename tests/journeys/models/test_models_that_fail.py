"""A model of any OpenAI-compatible server, added at the terminal; and every way it can go wrong, seen from outside."""

from __future__ import annotations

import pytest

from tests.journeys.conftest import Caller
from tests.support.providers.openai.openai_server import TEXT, OpenAIServer

FAILURES = {
    "unauthorized": ("failed", "MODEL_AUTHENTICATION_FAILED"),
    "rate_limited_for_long": ("failed", "MODEL_RATE_LIMITED"),
    "server_error": ("failed", "MODEL_UNAVAILABLE"),
    "html": ("incomplete", "MODEL_REPLY_INCOMPLETE"),
    "empty": ("incomplete", "MODEL_REPLY_INCOMPLETE"),
    "no_finish": ("incomplete", "MODEL_REPLY_INCOMPLETE"),
    "reset": ("interrupted", "MODEL_STREAM_BROKEN"),
    "malformed": ("interrupted", "MODEL_STREAM_BROKEN"),
}
ADD_ALL = """
from django.core.management import call_command
for alias, options in {models!r}.items():
    call_command("model", "add", "--alias", alias, *options)
"""


def options_of(server: OpenAIServer, scenario: str, **options: str) -> list[str]:
    """What adds the loopback server's model that plays a scenario."""
    named = {"--api-base": server.base_url, "--api-key-env": "LOOPBACK_KEY", "--context": "16000"} | options
    return ["--litellm", f"openai/{scenario}", *(f"{name}={value}" for name, value in named.items())]


@pytest.fixture(scope="module")
def models(caller: Caller, openai_server: OpenAIServer) -> None:
    """A model for each scenario, named after it, all added by one process."""
    scenarios = {name: options_of(openai_server, name) for name in (*FAILURES, "ok", "busy_once")}
    others = {
        "chained": options_of(openai_server, "rate_limited_for_long", **{"--fallback": "ok"}),
        "away": options_of(openai_server, "away", **{"--api-base": "http://127.0.0.1:9/v1"}),
        "keyless": options_of(openai_server, "keyless", **{"--api-base": "", "--api-key-env": "NO_SUCH_VARIABLE"}),
    }
    added = caller.site.manage("shell", "-v0", "-c", ADD_ALL.format(models=scenarios | others))
    assert added.returncode == 0, added.stderr


def test_a_model_of_a_compatible_server_answers_with_its_own_numbers(caller: Caller, openai_server: OpenAIServer):
    made = caller.site.manage("model", "add", "--alias", "added", *options_of(openai_server, "ok"))
    assert made.returncode == 0, made.stderr
    checked = caller.site.manage("model", "check", "added")
    assert checked.returncode == 0, checked.stderr
    assert TEXT.strip() in checked.stdout
    session = caller.new_session(model="added")
    turn = caller.say(session, "Go")
    assert (turn["state"], turn["usage"]["source"]) == ("completed", "provider")
    assert caller.texts(session)[1] == TEXT


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(("scenario", "state", "code"), [(name, *end) for name, end in FAILURES.items()])
def test_each_failure_ends_the_turn_in_words_and_the_session_goes_on(
    caller: Caller, scenario: str, state: str, code: str
):
    session = caller.new_session(model=scenario)
    for _ in range(2):
        turn = caller.say(session, "Go")
        assert (turn["state"], turn["error"]["code"]) == (state, code)
        assert len(turn["error"]["message"]) > 20
    shown = caller.messages(session)[1]
    assert shown["error"]["code"] == code
    if state == "interrupted" or scenario == "no_finish":
        assert TEXT.startswith(caller.texts(session)[1])
        assert caller.texts(session)[1]


@pytest.mark.usefixtures("models")
def test_a_busy_server_is_asked_again_and_then_another_model_says_the_answer(caller: Caller):
    assert caller.say(caller.new_session(model="busy_once"), "Go")["state"] == "completed"
    session = caller.new_session(model="chained")
    assert caller.say(session, "Go")["state"] == "completed"
    calls = caller.call("GET", f"/api/sessions/{session}/calls")["items"]
    assert {(call["model"], call["attempts"], (call["error"] or {}).get("code")) for call in calls} == {
        ("chained", 1, "MODEL_RATE_LIMITED"),
        ("ok", 1, None),
    }
    assert caller.texts(session) == ["Go", "", TEXT]
    assert caller.say(caller.new_session(model="chained", config={"fallbacks": ["chained"]}), "Go")["state"] == "failed"


@pytest.mark.usefixtures("models")
def test_an_unreachable_server_a_missing_key_and_an_unknown_model_say_so(caller: Caller):
    assert caller.say(caller.new_session(model="away"), "Go")["error"]["code"] == "MODEL_UNREACHABLE"
    error = caller.say(caller.new_session(model="keyless"), "Go")["error"]
    assert error["code"] == "MODEL_NOT_CONFIGURED"
    refused = caller.call("POST", "/api/sessions", {"model": "nosuch"}, status=404)["error"]
    assert refused["code"] == "MODEL_NOT_FOUND"
    checked = caller.site.manage("model", "check", "keyless")
    assert checked.returncode == 10
    assert "MODEL_NOT_CONFIGURED" in checked.stderr
