"""What an administrator may set in the inspector: models, and the end of a key."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from agents_app.models import McpServer
from agents_app.store import put_server
from mnesis_core.llm.interface import LimitSource, ModelSpec, StatedLimits, settle_limits
from mnesis_core.turns.mcp_servers import ServerAddress
from sessions_app.llm.model_store import Audience, create_key, enter_model, put_model
from sessions_app.llm.spending_store import put_account_limits
from sessions_app.models import AccountLimit, ApiKey, LanguageModel
from tests.support.record.inspected import list_of, page_of, shown, texts_in
from tests.support.sites.listed import list_for_pages


@pytest.fixture(autouse=True)
def listed_things(settings: Any) -> None:
    list_for_pages(settings)


def test_the_forms_of_a_model_are_the_portals(inspector: Client) -> None:
    put_model(ModelSpec(alias="big", litellm_model="openai/big", **settle_limits()))
    row = LanguageModel.objects.get()
    assert inspector.get(list_of(LanguageModel, "add")).headers["Location"] == reverse("model-add")
    assert inspector.get(page_of(row, "delete")).headers["Location"] == reverse("model-remove", args=["big"])
    assert reverse("model-change", args=["big"]) in shown(inspector, page_of(row))
    assert LanguageModel.objects.exists()


def test_a_model_says_where_its_numbers_are_from(inspector: Client) -> None:
    limits = settle_limits(StatedLimits(source=LimitSource.LITELLM, context_window=8_000, max_output_tokens=1_000))
    put_model(ModelSpec(alias="big", litellm_model="openai/big", **limits))
    row = LanguageModel.objects.get()
    assert "8,000 (litellm)" in shown(inspector, list_of(LanguageModel))
    assert "not known (default)" in shown(inspector, list_of(LanguageModel))
    facts = [text.strip() for text in texts_in(shown(inspector, page_of(row)), "dd")]
    assert [facts.count(source) for source in ("litellm", "default")] == [2, 1]


def test_a_model_says_for_whom_it_is(ada: User, inspector: Client) -> None:
    audience = Audience(groups=[Group.objects.create(name="keepers")], users=[ada])
    enter_model(
        ModelSpec(alias="big", litellm_model="openai/big", **settle_limits()), api_key_env="", audience=audience
    )
    assert f"{ada.get_username()}, group keepers" in shown(inspector, page_of(LanguageModel.objects.get()))


def test_a_models_key_is_never_on_a_page(inspector: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIG_KEY", "the-secret-itself")
    enter_model(
        ModelSpec(alias="big", litellm_model="openai/big", **settle_limits()), api_key_env="BIG_KEY", audience=None
    )
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
        assert client.post(page_of(row), {"alias": "other"}).status_code == 403
        assert client.get(list_of(model, "add")).status_code == 403
        assert client.get(page_of(row, "delete")).status_code == 403
        if model in (LanguageModel, McpServer):
            assert "Change it" not in page
    assert "superusers only" in shown(client, page_of(LanguageModel.objects.get()))
