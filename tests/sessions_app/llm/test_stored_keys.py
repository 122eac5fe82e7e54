"""The stored keys of models when SECRET_KEY changes: what reads them, and ``manage.py reencrypt_keys``."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mnesis_core.llm.interface import ModelSpec, settle_limits
from mnesis_core.providers.credentials import KeyState
from mnesis_site.health import _stored_keys
from sessions_app.conf import UNREADABLE_KEY, get_spec
from sessions_app.llm import model_store
from sessions_app.llm.model_store import enter_model, list_stored_keys
from sessions_app.models import LanguageModel
from tests.support.sites.commands import printed

pytestmark = pytest.mark.both_databases


def enter(alias: str, key: str) -> None:
    spec = ModelSpec(alias=alias, litellm_model=f"openai/{alias}", **settle_limits())
    enter_model(spec, api_key_env="", key=key, audience=None)


def change_secret(settings: Any, secret: str) -> None:
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    settings.SECRET_KEY = secret


def key_of(alias: str) -> str:
    return get_spec(alias, user_id=None).api_key


def states() -> dict[str, str]:
    return {key.alias: key.state.value for key in list_stored_keys()}


def test_an_earlier_secret_reads_what_it_encrypted(db: None, settings: Any) -> None:
    enter("old", "sk-1")
    change_secret(settings, "second")
    enter("mid", "sk-2")
    change_secret(settings, "third")
    enter("new", "sk-3")
    assert [key_of(alias) for alias in ("old", "mid", "new")] == ["sk-1", "sk-2", "sk-3"]
    assert states() == {"old": "earlier", "mid": "earlier", "new": "current"}
    settings.SECRET_KEY_FALLBACKS = []
    assert [get_spec(alias, user_id=None).refusal for alias in ("old", "new")] == [UNREADABLE_KEY, ""]


def test_the_command_lets_the_earlier_secret_go(db: None, settings: Any) -> None:
    enter("old", "sk-1")
    enter("named", "")
    change_secret(settings, "second")
    enter("new", "sk-2")
    assert printed("reencrypt_keys") == "Stored keys: 1 re-encrypted, 1 already current, 0 unreadable.\n"
    before = list(LanguageModel.objects.values_list("alias", "sealed_key"))
    assert printed("reencrypt_keys") == "Stored keys: 0 re-encrypted, 2 already current, 0 unreadable.\n"
    assert list(LanguageModel.objects.values_list("alias", "sealed_key")) == before
    settings.SECRET_KEY_FALLBACKS = []
    assert (key_of("old"), key_of("new")) == ("sk-1", "sk-2")


def test_the_command_names_what_it_cannot_read_and_renews_the_rest(db: None, settings: Any) -> None:
    enter("lost", "sk-1")
    settings.SECRET_KEY = "second"
    enter("old", "sk-2")
    sealed = LanguageModel.objects.get(alias="lost").sealed_key
    change_secret(settings, "third")
    with pytest.raises(CommandError, match=r"cannot be read: lost \(openai/lost\)\. ") as caught:
        printed("reencrypt_keys")
    assert caught.value.returncode == 1
    assert "sk-" not in str(caught.value)
    assert states() == {"lost": "unreadable", "old": "current"}
    assert LanguageModel.objects.get(alias="lost").sealed_key == sealed


def test_the_command_reads_all_keys_at_once(db: None, settings: Any) -> None:
    for number in range(5):
        enter(f"model{number}", "sk-1")
    with CaptureQueriesContext(connection) as queries:
        printed("reencrypt_keys")
    assert len([query for query in queries if "language_models" in query["sql"]]) == 1


def test_a_key_that_is_entered_meanwhile_stays(
    transactional_db: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page waits for the command here, which has read the row and has yet to write it."""
    enter("big", "sk-1")
    change_secret(settings, "second")

    def enter_and_close() -> None:
        enter("big", "sk-2")
        connection.close()

    page, reseal = Thread(target=enter_and_close), model_store.reseal

    def slowly(*args: Any, **place: Any) -> tuple[str, KeyState]:
        page.start()
        page.join(0.3)
        return reseal(*args, **place)

    monkeypatch.setattr(model_store, "reseal", slowly)
    printed("reencrypt_keys")
    page.join()
    assert key_of("big") == "sk-2"


def test_the_health_of_the_site_names_them(db: None, settings: Any) -> None:
    assert list(_stored_keys()) == []
    enter("lost", "sk-1")
    settings.SECRET_KEY = "second"
    enter("old", "sk-2")
    assert [(check.name, check.state.value) for check in _stored_keys()] == [("lost", "problem")]
    change_secret(settings, "third")
    [lost, old] = _stored_keys()
    assert (old.state.value, old.words) == ("look", "Encrypted with an earlier SECRET_KEY: 1.")
    assert "sk-" not in repr([lost, old])
