"""What an administrator may set in the inspector: models, and the end of a key."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from agents_app.models import McpServer
from agents_app.store import put_server
from mnesis_core.attached import ServerAddress
from mnesis_core.limits import StatedLimits, settle_limits
from mnesis_core.llm import LimitSource, ModelSpec
from sessions_app.models import AccountLimit, ApiKey, LanguageModel
from sessions_app.store.keys import create_key
from sessions_app.store.models import Audience, enter_model, put_model
from sessions_app.store.spending import put_account_limits
from tests.support.inspected import list_of, page_of, shown
from tests.support.listed import list_for_pages

MODEL = {
    "alias": "big", "litellm_model": "openai/big", "api_base": "", "api_key_env": "BIG_KEY", "context_window": "8000",
    "max_output_tokens": "1000", "input_micros_per_million": "0", "output_micros_per_million": "0",
    "timeout_seconds": "60", "total_timeout_seconds": "600", "fallbacks": "demo", "audience": "everybody",
}  # fmt: skip


@pytest.fixture(autouse=True)
def listed_things(settings: Any) -> None:
    list_for_pages(settings)


def test_a_model_can_be_added_and_changed_but_not_renamed(inspector: Client) -> None:
    assert inspector.post(list_of(LanguageModel, "add"), MODEL).status_code == 302
    row = LanguageModel.objects.get()
    assert (row.alias, row.api_key_env, row.context_window) == ("big", "BIG_KEY", 8000)
    assert (row.fallbacks, row.total_timeout_seconds) == (["demo"], 600.0)
    assert 'value="demo"' in shown(inspector, page_of(row))
    changed = MODEL | {"alias": "other", "context_window": "16000"}
    assert inspector.post(page_of(row), changed).status_code == 302
    assert list(LanguageModel.objects.values_list("alias", "context_window")) == [("big", 16000)]


def test_a_number_that_is_changed_is_configured_from_then_on(inspector: Client) -> None:
    limits = settle_limits(StatedLimits(source=LimitSource.LITELLM, context_window=8_000, max_output_tokens=1_000))
    put_model(ModelSpec(alias="big", litellm_model="openai/big", **limits))
    row = LanguageModel.objects.get()
    assert "8,000 (litellm)" in shown(inspector, list_of(LanguageModel))
    assert "not known (default)" in shown(inspector, list_of(LanguageModel))
    assert "Source: litellm." in shown(inspector, page_of(row))
    inspector.post(page_of(row), MODEL | {"context_window": "16000"})
    sources = ("context_window_source", "max_output_source", "prices_source")
    assert list(LanguageModel.objects.values_list(*sources)) == [("configured", "litellm", "default")]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("api_key_env", "sk-proj-abcdefghijk"),
        ("api_base", "file:///etc/passwd"),
        ("api_base", "not an address"),
        ("max_output_tokens", "8001"),
        ("context_window", "0"),
        ("timeout_seconds", "nan"),
        ("total_timeout_seconds", "0"),
        ("fallbacks", "demo, nosuch"),
    ],
)
def test_a_model_that_could_not_work_is_refused(field: str, value: str, inspector: Client) -> None:
    answer = inspector.post(list_of(LanguageModel, "add"), MODEL | {field: value})
    assert answer.status_code == 200
    assert field in answer.context["adminform"].form.errors
    assert not LanguageModel.objects.exists()


def test_a_model_is_for_the_groups_and_people_that_are_named(ada: User, inspector: Client) -> None:
    group = Group.objects.create(name="keepers")
    named = MODEL | {"audience": "named", "groups": ["keepers"], "users": ada.get_username()}
    assert inspector.post(list_of(LanguageModel, "add"), named).status_code == 302
    row = LanguageModel.objects.get()
    assert row.is_restricted
    assert {(grant.group, grant.user) for grant in row.grants.all()} == {(group, None), (None, ada)}
    page = shown(inspector, page_of(row))
    assert 'value="keepers" id="id_groups_0" checked' in page
    assert f"{ada.get_username()}</textarea>" in page
    assert inspector.post(page_of(row), MODEL).status_code == 302
    row.refresh_from_db()
    assert not row.is_restricted
    assert not row.grants.exists()


@pytest.mark.parametrize("named", [{}, {"users": "nobody"}])
def test_a_restricted_model_is_for_somebody(named: dict[str, str], inspector: Client) -> None:
    answer = inspector.post(list_of(LanguageModel, "add"), MODEL | {"audience": "named"} | named)
    assert answer.status_code == 200
    assert not LanguageModel.objects.exists()


def test_a_models_key_is_never_on_a_page(inspector: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", "the-secret-itself")
    inspector.post(list_of(LanguageModel, "add"), MODEL)
    for url in (list_of(LanguageModel), page_of(LanguageModel.objects.get())):
        assert "the-secret-itself" not in shown(inspector, url)
    assert "BIG_KEY (set)" in shown(inspector, list_of(LanguageModel))


def test_a_key_can_be_revoked_and_nothing_else(ada: User, inspector: Client) -> None:
    key = ApiKey.objects.get(prefix=create_key(owner_id=ada.pk).prefix)
    url = reverse("admin:sessions_app_apikey_revoke", args=[key.prefix])
    assert "Revoke this key" in shown(inspector, page_of(key))
    assert inspector.get(url).status_code == 403
    assert inspector.post(url).status_code == 302
    key.refresh_from_db()
    assert key.revoked_at is not None
    assert "Revoke this key" not in shown(inspector, page_of(key))
    assert inspector.post(reverse("admin:sessions_app_apikey_revoke", args=["nobody"]), follow=True).status_code == 200


def test_who_may_only_view_keys_revokes_none(ada: User, client: Client) -> None:
    grace = User.objects.create_user("grace", is_staff=True)
    grace.user_permissions.add(Permission.objects.get(codename="view_apikey"))
    client.force_login(grace)
    key = ApiKey.objects.get(prefix=create_key(owner_id=ada.pk).prefix)
    assert "Revoke this key" not in shown(client, page_of(key))
    assert client.post(reverse("admin:sessions_app_apikey_revoke", args=[key.prefix])).status_code == 403
    key.refresh_from_db()
    assert key.revoked_at is None


SETTINGS = (LanguageModel, McpServer, AccountLimit, ApiKey)


@pytest.mark.django_db
def test_who_may_only_look_sees_what_is_set_and_changes_nothing(ada: User, client: Client) -> None:
    watcher = User.objects.create_user("watcher", is_staff=True)
    watcher.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client.force_login(watcher)
    enter_model(
        ModelSpec(alias="big", litellm_model="openai/big", **settle_limits()), api_key_env="", audience=Audience()
    )
    put_server(ServerAddress(name="away", url="http://127.0.0.1:9/mcp"))
    put_account_limits(ada.pk, {"day": {"tokens": 5}})
    create_key(owner_id=ada.pk)
    for model in SETTINGS:
        [row] = model._default_manager.all()
        assert page_of(row) in shown(client, list_of(model))
        page = shown(client, page_of(row))
        assert 'name="_save"' not in page
        assert client.post(page_of(row), MODEL).status_code == 403
    assert "nobody but administrators" in shown(client, page_of(LanguageModel.objects.get()))
