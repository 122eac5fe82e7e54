"""What models of the search take counts towards people's limits, and without anything left the search goes by words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

from mnesis_core.config import Config, SearchConfig
from mnesis_core.errors import BudgetExhausted, ModelUnreachable
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.spending import Spent
from mnesis_site import health
from sessions_app import conf
from sessions_app.llm.limits import drawing_for_search, limits_for_person, look, usage_today
from sessions_app.llm.model_store import put_model
from sessions_app.llm.spending_store import put_account_limits
from sessions_app.models import SearchVector, SpendingMark
from sessions_app.search import ranked, vector_store
from sessions_app.search.ranked import NOTHING_EXACT, answer
from sessions_app.search.search import Scope
from sessions_app.tasks import fill_vectors
from tests.support.people.cast import make_user
from tests.support.providers.embedders import NEAR, answer_with, by_words, failing, search_with
from tests.support.record.talks import exchange, new_session
from tests.support.sites.commands import printed

pytestmark = pytest.mark.both_databases

SHIP = by_words(ferry=(1.0, 0.0, 0.0), vessel=(0.95, 0.1, 0.0))
VESSEL = "on which vessel?"


@pytest.fixture(autouse=True)
def _model(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    search_with(monkeypatch)


@pytest.fixture
def talk(reader: User) -> Scope:
    session_id = new_session(reader)
    exchange(session_id, "We crossed by ferry.", "Was it rough?")
    exchange(session_id, "The roses are out.", "Early this year.")
    return Scope(owner_id=reader.pk, session_id=session_id)


def spent(owner_id: int) -> Spent:
    [allowance] = look(limits_for_person(owner_id))
    return allowance.spent


def test_without_limits_nothing_is_counted(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, SHIP)
    vector_store.fill()
    assert answer(talk, VESSEL).hits
    assert not SpendingMark.objects.exists()


def test_a_question_counts_as_the_model_says_and_a_used_up_limit_leaves_words(
    talk: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = answer_with(monkeypatch, SHIP)
    vector_store.fill()
    embedder.asked.clear()
    put_account_limits(talk.owner_id, {"day": {"tokens": 20}})
    found = answer(talk, VESSEL)
    assert (found.hits[0].message_seq, found.note) == (1, "")
    assert spent(talk.owner_id).tokens == len(VESSEL)
    assert answer(talk, VESSEL).hits
    assert spent(talk.owner_id).tokens == len(VESSEL), "the same question is asked once"
    assert usage_today(talk.owner_id, limit=5)["total"].tokens == len(VESSEL)

    found = answer(talk, "Which vessel has roses, and which of them came early this year?")
    assert found.hits[0].message_seq == 4
    assert found.note.startswith("The search did without its models. A limit leaves too little")
    assert "16 of 20 tokens a day" in found.note
    assert answer(talk, '"no such words" roses').note.startswith(NOTHING_EXACT)
    assert embedder.asked == [[VESSEL]]
    assert ranked.EMBEDDING.until == 0.0, "the model is not at fault"

    put_account_limits(talk.owner_id, {"day": {"tokens": 2_000}})
    assert answer(talk, "Which vessel has roses, and which of them came early this year?").note == ""
    assert len(embedder.asked) == 2


def test_money_is_limited_too_and_other_people_are_not(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = answer_with(monkeypatch, SHIP)
    put_account_limits(talk.owner_id, {"user": {"cost_micros": 1}})
    assert answer(talk, VESSEL).note
    assert embedder.asked == []
    other = make_user("bob")
    assert answer(Scope(owner_id=other.pk), VESSEL).note == ""
    assert embedder.asked == [[VESSEL]]


def test_what_ran_when_a_process_died_stays_counted_and_a_failure_costs_nothing(
    talk: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_account_limits(talk.owner_id, {"day": {"tokens": 100}})
    with drawing_for_search(talk.owner_id, NEAR, tokens=60) as tell:
        assert spent(talk.owner_id).tokens == 60
        with pytest.raises(BudgetExhausted), drawing_for_search(talk.owner_id, NEAR, tokens=41):
            raise AssertionError("not within the limit")
        tell(7)
    assert (spent(talk.owner_id).tokens, spent(talk.owner_id).cost_micros) == (7, 7)
    embedder = answer_with(monkeypatch, failing(ModelUnreachable("no route", model="near")))
    assert answer(talk, VESSEL).note == ""
    assert (len(embedder.asked), spent(talk.owner_id).tokens) == (1, 7)


def test_a_model_without_a_price_counts_as_such(talk: Scope) -> None:
    put_account_limits(talk.owner_id, {"day": {"tokens": 100}})
    unpriced = replace(NEAR, prices_source=type(NEAR.prices_source).DEFAULT)
    with drawing_for_search(talk.owner_id, unpriced, tokens=9) as tell:
        tell(5)
    assert spent(talk.owner_id) == Spent(tokens=5, unpriced_calls=1)


def test_workers_pause_for_a_person_and_go_on_with_others_and_when_there_is_more(
    talk: Scope, reader: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "site_config", conf.site_config)
    embedder = answer_with(monkeypatch, SHIP)
    other = make_user("bob")
    theirs = new_session(other)
    exchange(theirs, "We took the ferry too.", "Noted.")
    exchange(new_session(reader), "The boiler broke.", "Call somebody.")
    put_account_limits(reader.pk, {"day": {"tokens": 1}})
    with drawing_for_search(reader.pk, NEAR, tokens=1) as tell:
        tell(1)
    assert not vector_store.fill(), "or a worker would go round and round"
    assert {*SearchVector.objects.values_list("session_id", flat=True)} == {theirs}
    assert len(embedder.asked) == 1
    assert "get no vectors for now" in caplog.text
    [check] = health._vectors()
    assert check.words.endswith("2 of them are waiting, because their owners have reached a spending limit.")
    assert "2 sessions have texts to read" in printed("fill_vectors")

    put_account_limits(reader.pk, {"day": {"tokens": 1_000}})
    fill_vectors()
    assert SearchVector.objects.count() == 8
    assert [check.words for check in health._vectors()] == ["The embedding model has read every text."]


def test_a_batch_that_a_limit_leaves_no_room_for_is_made_smaller_and_what_was_paid_is_kept(
    talk: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = answer_with(monkeypatch, SHIP)
    put_account_limits(talk.owner_id, {"day": {"tokens": 8}})
    assert not vector_store.fill()
    made = {*SearchVector.objects.values_list("part_id", flat=True)}
    assert 0 < len(made) < 4
    put_account_limits(talk.owner_id, {"day": {"tokens": 1_000}})
    assert not vector_store.fill()
    assert sorted(text for texts in embedder.asked for text in texts) == sorted(
        ["We crossed by ferry.", "Was it rough?", "The roses are out.", "Early this year."]
    )


class Judge:
    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.asked = 0

    async def rerank(self, question: str, texts: Any, *, seconds: float) -> tuple[float, ...]:
        self.asked += 1
        return tuple(float(len(text)) for text in texts)


def test_a_reranker_counts_by_our_estimate_and_is_left_out_where_nothing_is_left(
    talk: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Judge(replace(NEAR, alias="judge", litellm_model="demo/rerank"))
    put_model(judge.spec, api_key_env="")
    config = replace(Config(), search=SearchConfig(rerank_model="judge", rerank_weight=0.9))
    for module in (conf, ranked, ranked, ranked):
        monkeypatch.setattr(module, "site_config", lambda: config)
    monkeypatch.setattr(ranked, "get_reranker", lambda spec: judge)
    ranked._scores_of.cache_clear()
    ranked.RERANKER.until = 0.0
    put_account_limits(talk.owner_id, {"day": {"tokens": 3}})
    assert "did without its models" in answer(talk, "Are the roses out?").note
    assert judge.asked == 0
    put_account_limits(talk.owner_id, {"day": {"tokens": 500}})
    assert answer(talk, "Are the roses out?").note == ""
    assert judge.asked == 1
    assert 10 < spent(talk.owner_id).tokens < 100
