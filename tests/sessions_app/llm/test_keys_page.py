"""The page of API keys: made, shown once, used and revoked by their owner and nobody else."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from sessions_app.llm import model_store
from sessions_app.llm.model_store import create_key, list_keys
from sessions_app.models import ApiKey
from tests.support.people.cast import make_user
from tests.support.record.talks import HOSTILE

KEY = re.compile(r"mns_[0-9a-f]{12}_[\w-]{43}")


@pytest.fixture
def web(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


def make(web: Client, **values: str) -> str:
    return web.post("/keys/", {"name": "notebook", "scope": "all", "mode": ""} | values).content.decode()


def test_a_key_is_made_shown_once_and_opens_what_it_says(web: Client, ada: User) -> None:
    page = make(web, scope="read", mode="gateway")
    [text] = set(KEY.findall(page))
    assert f"http://testserver/v1 OPENAI_API_KEY={text}" in page
    later = web.get("/keys/").content.decode()
    assert not KEY.search(later)
    assert all(words in later for words in ("notebook", "read only", "gateway", "never used"))
    program = Client(headers={"Authorization": f"Bearer {text}"})
    assert program.get("/api/sessions").status_code == 200
    assert program.post("/api/sessions", {}, content_type="application/json").status_code == 403
    assert "last used" in web.get("/keys/").content.decode()


def test_a_revoked_key_opens_nothing_and_is_listed_apart(web: Client) -> None:
    [text] = set(KEY.findall(make(web)))
    prefix = text.split("_")[1]
    page = web.post(f"/keys/{prefix}/revoke/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in page
    assert all(words in page for words in (f"The key {prefix} is revoked", "No API keys yet.", "Revoked keys"))
    assert Client(headers={"Authorization": f"Bearer {text}"}).get("/api/sessions").status_code == 401


def test_keys_of_others_are_neither_shown_nor_revoked(web: Client) -> None:
    eve = make_user("eve")
    prefix = create_key(owner_id=eve.pk, name="of eve alone").prefix
    assert "of eve alone" not in web.get("/keys/").content.decode()
    assert web.post(f"/keys/{prefix}/revoke/").status_code == 404
    assert list_keys()[0].revoked_at is None


def test_who_is_not_signed_in_makes_none_and_a_key_makes_no_other(ada: User) -> None:
    assert Client().post("/keys/", {"name": "x", "scope": "all"}).status_code == 302
    program = Client(headers={"Authorization": f"Bearer {create_key(owner_id=ada.pk)}"})
    assert program.post("/keys/", {"name": "x", "scope": "all"}).status_code == 302
    assert ApiKey.objects.count() == 1


def test_a_form_of_another_site_makes_none(ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    assert client.post("/keys/", {"name": "x", "scope": "all"}).status_code == 403
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize(
    "values", [{"name": ""}, {"name": " "}, {"name": "x" * 101}, {"name": "a\x00b"}, {"scope": "most"}, {"mode": "x"}]
)
def test_bad_values_are_told_at_the_field(values: dict[str, str], web: Client) -> None:
    page = make(web, **values)
    assert "errorlist" in page
    assert not ApiKey.objects.exists()


def test_a_hostile_name_is_shown_as_text(web: Client) -> None:
    make(web, name=HOSTILE.replace("\x00", "").replace("\ud800", "")[:100])
    page = web.get("/keys/").content.decode()
    assert "<script>alert" not in page
    assert "\u202e" not in page


def test_a_person_has_a_limited_number_of_keys(web: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_store, "MOST_KEYS", 1)
    make(web)
    assert "A person has at most 1 keys" in make(web)
    assert ApiKey.objects.count() == 1
