"""``manage.py fill_vectors``, and what the site's health says of vectors."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError

from agents_app.turns.runner import Runner
from mnesis_core.config import Config
from mnesis_core.errors import ModelAuthenticationFailed
from mnesis_site import health
from sessions_app import conf
from sessions_app.models import LanguageModel, SearchVector
from sessions_app.search import vector_store
from tests.support.providers.embedders import answer_with, failing, search_with
from tests.support.record.talks import exchange, new_session
from tests.support.sites.commands import printed

pytestmark = pytest.mark.both_databases


@pytest.fixture(autouse=True)
def _said(reader: User, monkeypatch: pytest.MonkeyPatch) -> None:
    search_with(monkeypatch)
    monkeypatch.setattr(health, "site_config", conf.site_config)
    exchange(new_session(reader), "We crossed by ferry.", "Was it rough?")


def test_the_command_makes_what_is_missing_and_says_how_far_it_is() -> None:
    assert printed("fill_vectors", "--show").startswith("0 messages have a vector of demo/embedding")
    text = printed("fill_vectors")
    assert text.startswith("2 messages have a vector of demo/embedding; 0 texts get none. 0 sessions")
    assert printed("fill_vectors", "--anew") == text


def test_the_command_says_why_the_model_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, failing(ModelAuthenticationFailed()))
    with pytest.raises(CommandError, match=r"^MODEL_"):
        printed("fill_vectors")
    LanguageModel.objects.all().delete()
    with pytest.raises(CommandError, match="no model is called 'near'"):
        printed("fill_vectors")


def test_without_a_model_the_command_removes_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    printed("fill_vectors")
    monkeypatch.setattr(conf, "site_config", Config)
    assert printed("fill_vectors", "--show") == ""
    assert SearchVector.objects.exists()
    assert printed("fill_vectors") == ""
    assert not SearchVector.objects.exists()


def test_the_health_of_the_site_says_how_far_vectors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def said() -> list[tuple[str, str]]:
        return [(str(check.state.value), check.words) for check in health._vectors()]

    behind = "Sessions with texts that the model has yet to read: 1; search uses only words for these."
    assert said() == [("note", behind)]
    vector_store.fill()
    assert said() == [("good", "The embedding model has read every text.")]
    LanguageModel.objects.all().delete()
    assert said()[0][0] == "look"
    monkeypatch.setattr(health, "site_config", Config)
    assert said() == []


@pytest.mark.django_db(transaction=True)
async def test_a_web_process_wakes_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[bool] = []
    monkeypatch.setattr(vector_store.waker, "wake", lambda: woken.append(True))
    await Runner()._beat()
    assert woken == [True]
