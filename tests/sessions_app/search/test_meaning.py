"""Search by meaning: an embedding model adds to what words say, within the same rights and filters, and never breaks a search."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from math import nan
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_q.models import OrmQ

from mnesis_core.errors import ModelRefusedRequest, ModelUnavailable, ModelUnreachable
from mnesis_core.messages import ReasoningPart, TextPart
from sessions_app.llm.model_store import put_model
from sessions_app.models import MessagePart, SearchVector, VectorMark, VectorNumbers
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.search import ranked, vector_store
from sessions_app.search.index import rebuild
from sessions_app.search.ranked import answer
from sessions_app.search.search import Scope, SearchResult, read_filters
from sessions_app.tasks import fill_vectors
from tests.support.providers.embedders import NEAR, answer_with, by_words, failing, forget, search_with
from tests.support.record.talks import HOSTILE, exchange, new_session, say

pytestmark = pytest.mark.both_databases

TALK = (
    ("We crossed by ferry.", "Was it rough?"),
    ("The roses are out.", "Early this year."),
    ("The boiler broke.", "Call somebody."),
    ("We had soup.", "Which one?"),
    ("The dog barked all night.", "At whom?"),
    ("I lost my keys.", "Again?"),
)
SHIP = by_words(ferry=(1.0, 0.0, 0.0), vessel=(0.95, 0.1, 0.0))
"""For which a vessel is nearly a ferry, and everything else far from both."""


@pytest.fixture(autouse=True)
def _model(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    search_with(monkeypatch)


@pytest.fixture
def talk(reader: User) -> Scope:
    session_id = new_session(reader)
    for question, reply in TALK:
        exchange(session_id, question, reply)
    return Scope(owner_id=reader.pk, session_id=session_id)


def seqs(result: SearchResult) -> list[int]:
    return [hit.message_seq for hit in result.hits]


def test_what_no_word_finds_is_found_by_meaning(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, SHIP)
    assert seqs(answer(talk, "on which vessel?")) == []
    assert not vector_store.fill()
    result = answer(talk, "on which vessel?")
    assert (seqs(result), result.mode, result.hits[0].snippet) == ([1], "ranked", "We crossed by ferry.")
    assert [line.seq for line in result.hits[0].passage] == [1, 2, 3]
    assert seqs(answer(replace(talk, session_id=None), "on which vessel?")) == [1]


def test_words_stay_the_better_half(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, SHIP)
    vector_store.fill()
    assert seqs(answer(talk, "Which vessel has roses?"))[0] == 3


def test_rights_and_filters_hold_for_what_is_near_too(
    talk: Scope, reader: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, SHIP)
    other = User.objects.create_user("other")
    foreign = new_session(other)
    for question, reply in TALK:
        exchange(foreign, question, reply)
    second = new_session(reader)
    exchange(second, "A third ferry.", "Indeed.")
    vector_store.fill()
    assert SearchVector.objects.count() == 26
    question, everywhere = "on which vessel?", Scope(owner_id=reader.pk)
    found = answer(everywhere, question).hits
    assert {hit.session_id for hit in found} == {talk.session_id, second}
    assert seqs(answer(talk, question)) == [1]
    assert {hit.session_id for hit in answer(Scope(owner_id=other.pk), question).hits} == {foreign}
    tomorrow = str((timezone.now() + timedelta(days=1)).date())
    for narrowed in (
        replace(talk, kind="tools"),
        replace(talk, kind="summaries"),
        replace(talk, first_seq=2, last_seq=9),
        replace(talk, before_seq=1),
        replace(talk, filters=read_filters(since=tomorrow)),
        replace(talk, filters=read_filters(speaker="assistant")),
        replace(talk, filters=read_filters(tool="bash")),
        replace(talk, filters=read_filters(branch=1)),
        replace(talk, filters=read_filters(compacted=True)),
    ):
        assert seqs(answer(narrowed, question)) == [], narrowed
    with change(second) as record:
        session_store.soft_delete_session(record)
    assert {hit.session_id for hit in answer(everywhere, question).hits} == {talk.session_id}


def test_vectors_are_made_once_and_of_what_is_new(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk.session_id
    embedder = answer_with(monkeypatch, SHIP)
    assert [vector_store.fill() for _ in range(3)] == [False] * 3
    assert [len(texts) for texts in embedder.asked] == [12]
    exchange(talk.session_id, "New words.", "And an answer.")
    say(talk.session_id, ("assistant", [ReasoningPart(text="a thought"), TextPart(text="said")]))
    vector_store.fill()
    assert embedder.asked[1:] == [["New words.", "And an answer.", "said"]]
    rebuild()
    vector_store.fill()
    assert len(embedder.asked) == 2
    [mark] = VectorMark.objects.all()
    read = sum(len(text) for texts in embedder.asked for text in texts)
    assert (mark.tokens, mark.cost_micros, mark.skipped, mark.busy_until) == (read, read, 0, None)


def test_another_model_replaces_the_vectors_of_the_last_one(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, SHIP)
    vector_store.fill()
    put_model(replace(NEAR, litellm_model="demo/other"), api_key_env="")
    embedder = answer_with(monkeypatch, by_words(ferry=(1.0,) * 5, vessel=(1.0,) * 5, e=(-1.0,) * 5))
    embedder.answer = by_words(ferry=[1.0] * 5, vessel=[1.0] * 5, **{"": [1.0, -1.0, 1.0, -1.0, 1.0]})
    assert seqs(answer(talk, "on which vessel?")) == []
    vector_store.fill()
    assert {(row.model, len(row.signs)) for row in SearchVector.objects.all()} == {("demo/other", 1)}
    assert {len(row.numbers) for row in VectorNumbers.objects.all()} == {20}
    assert seqs(answer(talk, "on which vessel?")) == [1]


def test_a_model_that_fails_breaks_no_search_and_rests(
    talk: Scope, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer_with(monkeypatch, SHIP)
    vector_store.fill()
    embedder = answer_with(monkeypatch, failing(ModelUnreachable("No model server answers at nowhere.")))
    with caplog.at_level(logging.ERROR):
        assert seqs(answer(talk, "Which roses?"))[0] == 3
    assert any("does not answer; words alone do" in record.message for record in caplog.records)
    assert seqs(answer(talk, "Which soup?"))[0] == 7
    assert len(embedder.asked) == 1
    forget()
    answer(talk, "Which soup?")
    assert len(embedder.asked) == 2


def test_a_model_that_is_not_there_breaks_nothing(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    search_with(monkeypatch)
    from sessions_app.models import LanguageModel

    LanguageModel.objects.all().delete()
    fill_vectors()
    assert seqs(answer(talk, "Which roses?"))[0] == 3


def test_a_worker_asks_again_and_else_leaves_the_rest_for_later(
    talk: Scope, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = answer_with(monkeypatch, failing(ModelUnavailable()))
    with caplog.at_level(logging.ERROR):
        fill_vectors()
    assert len(embedder.asked) == 2
    assert any("words alone answer for them" in record.message for record in caplog.records)
    assert not SearchVector.objects.exists()
    assert vector_store.sessions_behind(NEAR.litellm_model) == [(talk.session_id, talk.owner_id)]
    answer_with(monkeypatch, SHIP)
    fill_vectors()
    assert SearchVector.objects.count() == 12


def _refuse_soup(texts: Sequence[str]) -> list[Any]:
    if any("soup" in text for text in texts):
        raise ModelRefusedRequest("There is soup in it.")
    return SHIP(texts)


@pytest.mark.parametrize(
    "bad",
    [
        _refuse_soup,
        lambda texts: [(nan, 1.0, 1.0) if "soup" in text else [1.0, 0.0, 0.0] for text in texts],
        lambda texts: [() if "soup" in text else (1.0, 0.0, 0.0) for text in texts],
        lambda texts: [
            (1.0, 0.0) if "soup" in text else (1.0, 0.0, 0.0) for text in texts if len(texts) > 1 or "soup" not in text
        ],
    ],
    ids=["refused", "nan", "empty", "missing"],
)
def test_one_text_without_a_vector_spoils_no_other(talk: Scope, monkeypatch: pytest.MonkeyPatch, bad: Any) -> None:
    answer_with(monkeypatch, bad)
    assert not vector_store.fill()
    assert SearchVector.objects.count() == 11
    assert VectorMark.objects.get().skipped == 1
    assert vector_store.sessions_behind(NEAR.litellm_model) == []


def test_a_text_alone_without_a_vector_holds_up_no_other(
    talk: Scope, reader: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_with(monkeypatch, _refuse_soup)
    say(new_session(reader), ("user", [TextPart(text="soup")]))
    assert not vector_store.fill()
    assert SearchVector.objects.count() == 11
    assert vector_store.sessions_behind(NEAR.litellm_model) == []


def test_a_model_that_refuses_everything_is_not_asked_for_each_text(
    talk: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = answer_with(monkeypatch, failing(ModelRefusedRequest("There is no such model.")))
    fill_vectors()
    assert len(embedder.asked) == 2
    assert vector_store.sessions_behind(NEAR.litellm_model) == [(talk.session_id, talk.owner_id)]


def test_a_vector_of_another_length_is_compared_with_nothing(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_with(monkeypatch, SHIP)
    vector_store.fill()
    answer_with(monkeypatch, lambda texts: [(1.0,) * 7 for _ in texts])
    assert seqs(answer(talk, "on which vessel?")) == []
    assert seqs(answer(talk, "Which roses?"))[0] == 3


@pytest.mark.slow
def test_hostile_texts_get_vectors_or_are_passed_over(reader: User) -> None:
    session_id = new_session(reader)
    for text in (HOSTILE, "\x00", "\ud800", " \n ", "\u200b", "ferry " * 3_500_000):
        say(session_id, ("user", [TextPart(text=text)]))
    while vector_store.fill():
        pass
    made = set(SearchVector.objects.values_list("part_id", flat=True))
    texts = MessagePart.objects.filter(id__in=made).order_by("message__seq").values_list("content", flat=True)
    assert [text[:5] for text in texts] == ["<scri", "\ud800", "\u200b", "ferry"]
    assert seqs(answer(Scope(owner_id=reader.pk), "Why ferries? \x00 \ud800"))[0] == 6
    assert VectorMark.objects.get().tokens < 10_000


def test_deleted_sessions_and_a_model_that_is_none_any_more_leave_nothing(talk: Scope, reader: User) -> None:
    second = new_session(reader)
    exchange(second, "Something.", "Else.")
    vector_store.fill()
    with change(second) as record:
        session_store.soft_delete_session(record)
    vector_store.fill()
    assert set(SearchVector.objects.values_list("session_id", flat=True)) == {talk.session_id}
    assert set(VectorMark.objects.values_list("session_id", flat=True)) == {talk.session_id}
    assert VectorNumbers.objects.count() == SearchVector.objects.count() == 12
    vector_store.forget_all()
    assert not SearchVector.objects.exists()
    assert not VectorNumbers.objects.exists()


def test_a_session_that_another_worker_fills_is_left_to_it(talk: Scope) -> None:
    assert talk.session_id
    assert vector_store.claim(talk.session_id, NEAR.litellm_model) == 0
    vector_store.fill()
    assert not SearchVector.objects.exists()
    VectorMark.objects.update(busy_until=timezone.now())
    vector_store.fill()
    assert SearchVector.objects.count() == 12


def test_a_slice_ends_and_the_rest_is_queued(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_store, "TEXTS", 5)
    assert vector_store.fill(seconds=0.0)
    assert SearchVector.objects.count() == 5
    monkeypatch.setattr(vector_store, "fill", lambda: True)
    fill_vectors()
    assert [row.func() for row in OrmQ.objects.all()] == [vector_store.TASK]


def test_a_worker_is_woken_once_for_what_is_new(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk.session_id
    waker = vector_store.Waker()
    assert [waker.wake(), waker.wake()] == [True, False]
    OrmQ.objects.all().delete()
    assert not waker.wake()
    exchange(talk.session_id, "New.", "Newer.")
    assert waker.wake()
    exchange(talk.session_id, "Newest.", "Newest of all.")
    assert not waker.wake()  # The task that waits will see it.
    OrmQ.objects.all().delete()
    monkeypatch.setattr(vector_store, "AGAIN_SECONDS", 0.0)
    assert waker.wake()


def test_pages_of_an_answer_ask_the_model_once_and_repeat_no_hit(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = answer_with(monkeypatch, SHIP)
    vector_store.fill()
    shown: list[int] = []
    cursor = None
    while True:
        page = answer(talk, "Which vessel, roses or soup?", limit=1, cursor=cursor)
        shown += seqs(page)
        if (cursor := page.next_cursor) is None:
            break
    assert len(shown) == len(set(shown)) > 2
    assert len(embedder.asked) == 2


def test_a_search_in_which_nothing_has_a_vector_asks_no_model(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = answer_with(monkeypatch, SHIP)
    for narrowed in (replace(talk, kind="tools"), replace(talk, filters=read_filters(tool="bash"))):
        answer(narrowed, "on which vessel?")
    answer(talk, "vessel ferry", mode="regex")
    assert not embedder.asked


def test_meaning_costs_two_queries_more_however_much_was_said(talk: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk.session_id
    answer_with(monkeypatch, SHIP)
    vector_store.fill()

    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as asked:
            answer(talk, "Which vessel has roses?")
        return len(asked)

    answer(talk, "Which vessel has roses?")
    few = queries()
    for number in range(60):
        exchange(talk.session_id, f"ferry {number}", "noted")
    vector_store.fill()
    assert queries() == few
    monkeypatch.setattr(ranked.EMBEDDING, "until", float("inf"))
    assert queries() in (few - 2, few - 3)
