"""Models as people add and see them: limits and prices, each with its source."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from agents_app.turns import lifecycle
from mnesis_core.llm.interface import Usage
from mnesis_core.providers.scripted import Step
from sessions_app.conf import get_spec
from sessions_app.database.threads import db
from sessions_app.models import LanguageModel
from tests.support.people.story import say


def model(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    call_command("model", *words)
    return capsys.readouterr().out


@pytest.mark.django_db
@pytest.mark.parametrize(
    "words",
    [
        ["--context=0"],
        ["--max-output=10000001"],
        ["--input-price=1"],
        ["--cache-read-price=1"],
        ["--input-price=-1", "--output-price=1"],
        ["--input-price=nan", "--output-price=1"],
        ["--input-price=inf", "--output-price=1"],
    ],
)
def test_a_number_that_cannot_be_is_refused(words: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("model", "add", "--alias=mine", "--litellm=openai/mine", "--api-base=http://127.0.0.1/v1", *words)
    assert not LanguageModel.objects.exists()


@pytest.mark.slow
@pytest.mark.django_db
def test_the_api_says_where_each_number_comes_from(django_user_model: Any, client: Client) -> None:
    client.force_login(django_user_model.objects.create_user("ada"))
    call_command(
        "model", "add", "--alias=local", "--litellm=openai/x", "--api-base=http://127.0.0.1/v1", "--context=9000"
    )
    demo, local = client.get("/api/models").json()["items"]
    assert (demo["alias"], demo["context_window"], demo["context_window_source"]) == ("demo", 8_000, "configured")
    assert local == {
        "alias": "local",
        "litellm_model": "openai/x",
        "context_window": 9_000,
        "context_window_source": "configured",
        "max_output_tokens": 4_096,
        "max_output_source": "default",
        "prices": {"input": 0, "output": 0, "cache_read": None, "cache_write": None, "cache_write_1h": None},
        "prices_source": "default",
        "fallbacks": [],
        "parameters": {},
        "cache": "5m",
    }


async def test_a_session_pays_its_own_prices(alice, script):
    config = {"prices": {"input": 2_000_000, "output": 1_000_000, "cache_read": 500_000}}
    session = await db(lifecycle.create_session, owner=alice, config=config)
    usage = Usage(input_tokens=1_000, output_tokens=10, cache_read_tokens=800)
    script(Step(text="Done.", usage=usage))
    turn = await say(session, "What does this cost?")
    assert turn.usage.cost_micros == 200 * 2 + 800 * 0.5 + 10


async def test_a_turn_with_a_model_of_unknown_price_has_no_cost(session, script):
    asked = script("Done.")
    asked.spec = await db(unpriced)
    turn = await say(session, "What does this cost?")
    assert turn.usage.cost_micros is None
    assert turn.usage.tokens_input


def unpriced():
    call_command("model", "add", "--alias=x", "--litellm=openai/x", "--api-base=http://127.0.0.1/v1", verbosity=0)
    return get_spec("x", user_id=None)
