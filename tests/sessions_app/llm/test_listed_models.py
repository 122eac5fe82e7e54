"""What a page may name of a model: what the host's owner has listed. A command on the host names what it likes."""

from __future__ import annotations

from html import unescape
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from mnesis_core.llm.interface import ModelSpec, settle_limits
from sessions_app.conf import get_spec
from sessions_app.llm.model_store import put_model
from sessions_app.models import LanguageModel
from tests.sessions_app.llm.test_models_page import ENTERED
from tests.support.providers.openai.openai_server import OpenAIServer
from tests.support.sites.listed import list_on_host

WITHOUT_PARAMETERS = {"parameters": ""}  # Not every one of these providers' models takes them.
PLACE = WITHOUT_PARAMETERS | {
    "litellm_model": "openai/big",
    "api_base": "https://models.example.org/v1",
    "api_key_env": "BIG_KEY",
}
FORM = "/models/add/"


def entered(browser: Client, path: str, values: dict[str, Any]) -> str:
    answer = browser.post(path, values, follow=True)
    assert answer.status_code == 200, answer.content
    return unescape(answer.content.decode())


def put(**values: Any) -> LanguageModel:
    """A model as a command on the host enters it."""
    spec = ModelSpec(alias="big", litellm_model="openai/big", entered_on_host=True, **settle_limits())
    key = values.pop("api_key_env", "")
    put_model(ModelSpec(**{name: getattr(spec, name) for name in spec.__slots__} | values), api_key_env=key)
    return LanguageModel.objects.get()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "setting"),
    [
        ({"api_key_env": "SECRET_KEY"}, "is never given away"),
        ({"api_key_env": "AWS_SECRET_ACCESS_KEY"}, "is never given away"),
        ({"api_key_env": "OTHER_KEY"}, "MNESIS_KEY_VARIABLES=OTHER_KEY@https://models.example.org:443"),
        ({"api_base": "https://evil.example/v1"}, "MNESIS_KEY_VARIABLES=BIG_KEY@https://evil.example:443"),
        (
            {"api_base": "http://169.254.169.254/v1", "api_key_env": ""},
            "169.254.169.254 hands out the credentials of the machine",
        ),
        ({"api_base": "http://10.0.0.5:6379/v1", "api_key_env": ""}, "MNESIS_PRIVATE_ADDRESSES=10.0.0.5"),
        ({"api_base": "http://localhost/v1", "api_key_env": ""}, "MNESIS_PRIVATE_ADDRESSES=127.0.0.1"),
        ({"litellm_model": "vertex_ai/gemini"}, "only by a command on the host"),
        ({"litellm_model": "huggingface/https://evil.example/x", "api_base": ""}, "only by a command on the host"),
        ({"litellm_model": "baseten/evil.example/x", "api_base": ""}, "only by a command on the host"),
        ({"litellm_model": "bedrock/x", "api_base": "", "api_key_env": ""}, "only by a command on the host"),
    ],
)
def test_a_page_names_nothing_that_is_not_listed(
    changed: dict[str, str], setting: str, inspector: Client, settings: Any
) -> None:
    list_on_host(settings, variables="BIG_KEY@models.example.org, BIG_KEY")
    assert setting in entered(inspector, FORM, ENTERED | PLACE | changed)
    assert not LanguageModel.objects.exists()


def test_a_page_names_what_is_listed(inspector: Client, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", "the-key")
    list_on_host(settings, variables="BIG_KEY@models.example.org")
    entered(inspector, FORM, ENTERED | PLACE)
    spec = get_spec("big", user_id=None)
    assert (spec.api_key, spec.refusal, spec.listed_addresses, spec.entered_on_host) == ("the-key", "", (), False)


def test_a_list_that_became_shorter_holds_for_what_was_entered_before(
    inspector: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIG_KEY", "the-key")
    list_on_host(settings, variables="BIG_KEY@models.example.org")
    entered(inspector, FORM, ENTERED | PLACE)
    list_on_host(settings)
    spec = get_spec("big", user_id=None)
    assert spec.api_key == ""
    assert "MNESIS_KEY_VARIABLES=" in spec.refusal
    assert "big gave no answer" in entered(inspector, "/models/big/check/", {"go": "1"})
    assert LanguageModel.objects.get().last_check["code"] == "MODEL_NOT_ALLOWED"


def test_the_key_of_a_hosts_model_is_not_led_elsewhere_by_a_page(
    inspector: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTS_KEY", "the-key")
    list_on_host(settings, addresses="127.0.0.1")
    row = put(api_key_env="HOSTS_KEY", api_base="https://models.example.org/v1")
    named = {"api_key_env": "HOSTS_KEY", "api_base": "https://models.example.org/v1"}
    with OpenAIServer() as evil:
        path, values = "/models/big/change/", ENTERED | WITHOUT_PARAMETERS | named
        assert "MNESIS_KEY_VARIABLES=HOSTS_KEY@" in entered(inspector, path, values | {"api_base": evil.base_url})
        for changed in ({"api_base": ""}, {"api_base": "", "litellm_model": "groq/x"}):
            assert "MNESIS_KEY_VARIABLES=HOSTS_KEY" in entered(inspector, path, values | changed)
        inspector.post("/models/big/check/")
        assert evil.requests == []
    row.refresh_from_db()
    assert (row.api_base, row.entered_on_host) == ("https://models.example.org/v1", True)


def test_what_else_there_is_of_a_hosts_model_is_changed_by_a_page(
    inspector: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTS_KEY", "the-key")
    list_on_host(settings)
    put(api_key_env="HOSTS_KEY", api_base="http://10.0.0.5/v1")
    same = {"api_key_env": "HOSTS_KEY", "api_base": "http://10.0.0.5/v1", "litellm_model": "openai/big"}
    entered(inspector, "/models/big/change/", ENTERED | same | {"context_window": "9999"})
    spec = get_spec("big", user_id=None)
    assert (spec.context_window, spec.entered_on_host, spec.api_key, spec.refusal) == (9999, True, "the-key", "")


def test_a_command_on_the_host_enters_what_it_likes(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("ANY_KEY", "the-key")
    list_on_host(settings)
    with OpenAIServer() as server:
        place = ("--api-base", server.base_url, "--api-key-env", "ANY_KEY")
        call_command("model", "add", "--alias", "own", "--litellm", "openai/ok", *place)
        call_command("model", "check", "own")
        assert server.requests[-1].headers["authorization"] == "Bearer the-key"
    assert "own answers" in capsys.readouterr().out


def test_a_row_that_does_not_say_where_it_was_entered_is_bound_by_the_lists(
    db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", "the-key")
    list_on_host(settings)
    LanguageModel.objects.create(
        alias="old", litellm_model="openai/x", api_key_env="OTHER_KEY", context_window=8_000, max_output_tokens=500
    )
    spec = get_spec("old", user_id=None)
    assert (spec.api_key, spec.refusal != "") == ("", True)


def test_the_form_says_what_is_listed(inspector: Client, settings: Any) -> None:
    list_on_host(settings)
    assert "No variable is listed on this host (MNESIS_KEY_VARIABLES)" in entered(inspector, "/models/add/", {})
    list_on_host(settings, variables="MY_KEY@models.example.org, OPENAI_API_KEY", addresses="192.168.4.0/24")
    page = unescape(inspector.get("/models/add/").content.decode())
    for words in ("MY_KEY", "https://models.example.org:443", "OPENAI_API_KEY", "192.168.4.0/24"):
        assert words in page
