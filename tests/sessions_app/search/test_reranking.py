"""A reranker orders what a search found, within the same rights, and never breaks a search."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from django.contrib.auth.models import User

from mnesis_core.config import Config, SearchConfig
from mnesis_core.errors import ModelUnreachable
from mnesis_core.llm.interface import ModelSpec
from sessions_app import conf
from sessions_app.database import outages
from sessions_app.llm.model_store import put_model
from sessions_app.search import ranked
from sessions_app.search.ranked import answer
from sessions_app.search.search import Scope
from tests.support.providers.embedders import NEAR
from tests.support.record.talks import HOSTILE, exchange, new_session

JUDGE = replace(NEAR, alias="judge", litellm_model="demo/rerank")
QUESTION = "Where is the harbour code kept?"


@dataclass(slots=True)
class ScriptedReranker:
    """Gives what ``score`` makes of each text, and keeps the texts of each call."""

    score: Callable[[str], float]
    spec: ModelSpec = JUDGE
    asked: list[list[str]] = field(default_factory=list)

    async def rerank(self, question: str, texts: Sequence[str], *, seconds: float) -> tuple[float, ...]:
        assert (seconds > 0, question) == (True, QUESTION)
        self.asked.append([*texts])
        return tuple(map(self.score, texts))


@pytest.fixture
def judge(db: None, monkeypatch: pytest.MonkeyPatch) -> ScriptedReranker:
    """A site with a reranker, for which what is in a drawer answers best."""
    put_model(JUDGE, api_key_env="")
    config = replace(Config(), search=SearchConfig(rerank_model="judge", rerank_weight=0.9))
    for module in (conf, ranked, ranked):
        monkeypatch.setattr(module, "site_config", lambda: config)
    reranker = ScriptedReranker(lambda text: 7.5 if "drawer" in text else -3.0)
    monkeypatch.setattr(ranked, "get_reranker", lambda spec: reranker)
    ranked._scores_of.cache_clear()
    ranked.RERANKER.until = 0.0
    outages._logged_at.clear()
    return reranker


@pytest.fixture
def talk(reader: User) -> Scope:
    session_id = new_session(reader)
    exchange(session_id, "The code of the harbour is long.", "Where is the harbour code kept, then?")
    for number in range(45):
        exchange(session_id, f"The harbour code is kept safe, {number}.", "Noted.")
    exchange(session_id, "The harbour code is kept in the drawer, where else.", "Good.")
    return Scope(owner_id=reader.pk, session_id=session_id)


def first(scope: Scope) -> str:
    return answer(scope, QUESTION).hits[0].snippet


def test_what_the_model_scores_best_comes_first(talk: Scope, judge: ScriptedReranker) -> None:
    assert "drawer" in first(talk)
    [texts] = judge.asked
    assert len(texts) == ranked.MOST_RERANKED
    judge.score = lambda text: -7.5 if "drawer" in text else 3.0
    assert "drawer" in first(talk), "the same question is asked once"
    ranked._scores_of.cache_clear()
    assert "drawer" not in first(talk)


def test_every_page_is_ordered_as_the_first(talk: Scope, judge: ScriptedReranker) -> None:
    seqs: list[int] = []
    cursor = None
    while True:
        page = answer(talk, QUESTION, limit=20, cursor=cursor)
        seqs += [hit.message_seq for hit in page.hits]
        if not (cursor := page.next_cursor):
            break
    assert len(seqs) == len({*seqs}) > ranked.MOST_RERANKED
    assert len(judge.asked) == 1


def test_a_model_that_fails_is_left_alone_and_said_once(
    talk: Scope, judge: ScriptedReranker, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(text: str) -> float:
        raise ModelUnreachable("no route", model="judge")

    judge.score = fail
    with caplog.at_level(logging.WARNING):
        assert first(talk) == first(talk)
    assert len(judge.asked) == 1
    assert len([record for record in caplog.records if "reranker" in record.getMessage()]) == 1


def test_a_site_without_one_asks_none(talk: Scope, judge: ScriptedReranker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranked, "site_config", lambda: Config())
    first(talk)
    assert judge.asked == []


def test_whatever_was_said_is_read(reader: User, judge: ScriptedReranker) -> None:
    session_id = new_session(reader)
    exchange(session_id, f"harbour {HOSTILE} code", "kept")
    assert answer(Scope(owner_id=reader.pk, session_id=session_id), QUESTION).hits
    assert not any("\x00" in text for texts in judge.asked for text in texts)
