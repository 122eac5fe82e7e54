"""Retrieval: what a question finds among messages that a summary stands for, and what a call of a turn is sent of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext

from compaction_app.compact import compact_now
from compaction_app.context.retrieval import Retriever, retrieve
from compaction_app.context.state import ContextState, load_state, rebuild_payload
from compaction_app.inspector.messages import trace
from mnesis_core.context.entries import MessageEntry
from mnesis_core.messages import StoredMessage, TextPart
from mnesis_core.records import SessionRecord
from mnesis_core.search.ranking import LONGEST_QUESTION
from sessions_app.database.threads import db
from sessions_app.record import session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.turn_queries import list_calls
from tests.support.people.cast import make_user
from tests.support.people.story import say
from tests.support.record.inspected import add_turn
from tests.support.record.talks import exchange, new_session
from tests.support.record.trees import make_tree

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]
FACT = "My sister Lea lives in Bergen."
MOST_QUERIES = 24


@pytest.fixture
def session_id() -> str:
    """A session in which a fact was said long ago, and summarised since."""
    session_id = new_session(make_user("carla"))
    add_turn(session_id, FACT)
    for number in range(30):
        add_turn(session_id, f"The tide of day {number} turned at ten. " * 8)
    assert compact_now(session_id).summary_ids
    return session_id


def asked(session_id: str, question: str) -> tuple[ContextState, StoredMessage]:
    """Ask, and return the context with the question that stands in it."""
    exchange(session_id, question, "Let me see.")
    state = load_state(session_id)
    newest = [entry.message for entry in state.entries if isinstance(entry, MessageEntry)]
    return state, newest[-2]


def found(session_id: str, question: str) -> list[str]:
    """The texts of the messages that are quoted."""
    state, message = asked(session_id, question)
    passages = retrieve(state, question, question=message)
    return [text_of(message) for message in passages.messages] if passages else []


def text_of(message: StoredMessage) -> str:
    return "".join(stored.part.text for stored in message.parts if isinstance(stored.part, TextPart))


def test_a_question_finds_what_a_summary_stands_for(session_id):
    assert FACT in found(session_id, "Where does my sister live?")


@pytest.mark.slow
def test_only_what_was_said_before_the_question_answers_it():
    session_id = new_session(make_user("carla"))
    add_turn(session_id, FACT)
    for number in range(60):
        add_turn(session_id, f"My sister Lea lives on island {number}.")
    assert compact_now(session_id).summary_ids
    first, _, question, *_ = load_messages(session_id)
    state = load_state(session_id)
    passages = retrieve(state, "On which island does my sister Lea live?", question=question)
    assert passages is not None
    assert text_of(passages.messages[0]) == FACT
    assert max(message.seq for message in passages.messages) < question.seq
    assert retrieve(state, "On which island does my sister Lea live?", question=first) is None


def test_of_long_messages_that_all_match_the_best_are_quoted_and_the_newer_of_two_facts():
    session_id = new_session(make_user("carla"))
    with change(session_id) as record:
        session_store.update_session(record, config={"context_window": 4_096})
    prose = "The harbour office looked for a code at the gate of each pier. " * 12
    codes = {"Lisbon": "7F-2K5", "Bergen": "3N-4X8"}
    for number in range(16):
        place = {2: "Lisbon", 5: "Bergen"}.get(number)
        add_turn(session_id, f"{prose}The gate code of {place} is {codes[place]}." if place else prose)
    add_turn(session_id, f"{prose}The gate code of Lisbon is now 9T-6M2.")
    add_turn(session_id, prose)
    assert compact_now(session_id).summary_ids
    state = load_state(session_id)
    for place, code in (("Lisbon", "9T-6M2"), ("Bergen", "3N-4X8")):
        question = f"What is the gate code of {place}?"
        passages = retrieve(state, question)
        assert passages is not None
        assert code in str(state.assemble(passages=passages).messages[-1].text)
        assert passages.tokens <= state.budget.usable // 6


def test_what_the_prompt_has_word_for_word_is_not_repeated(session_id):
    exchange(session_id, "Lea also lives on an island.", "Noted.")
    texts = found(session_id, "Where does Lea live?")
    assert FACT in texts
    assert "Lea also lives on an island." not in texts


def test_nothing_is_searched_while_everything_is_in_the_context():
    session_id = new_session(make_user("carla"))
    add_turn(session_id, FACT)
    state, _ = asked(session_id, "Where does Lea live?")
    with CaptureQueriesContext(connection) as queries:
        assert Retriever().passages_for(state) is None
    assert not queries.captured_queries


def test_a_search_takes_a_bounded_number_of_queries(session_id):
    state, question = asked(session_id, "Where does my sister live?")
    with CaptureQueriesContext(connection) as queries:
        assert retrieve(state, text_of(question), question=question)
    assert len(queries) <= MOST_QUERIES


@pytest.mark.parametrize("question", ["?", "\u200b", "!!! …", "👋", "\x00", "\ud800"])
def test_a_message_without_a_word_finds_nothing(session_id, question):
    assert found(session_id, question) == []


@pytest.mark.parametrize("question", ["Lea " * LONGEST_QUESTION, "Wo wohnt meine Schwester Lea?", "レア Lea は?"])
def test_a_question_may_be_long_and_in_any_language(session_id, question):
    assert FACT in found(session_id, question)


def test_a_configuration_bounds_passages_or_does_without(session_id):
    state, question = asked(session_id, "Where does my sister live?")

    def found_with(**values: int) -> int:
        config = replace(state.config, retrieval=replace(state.config.retrieval, **values))
        passages = retrieve(replace(state, config=config), text_of(question), question=question)
        return passages.tokens if passages else 0

    assert found_with() > 0
    assert found_with(max_passages=0) == found_with(max_tokens=0) == 0
    assert found_with(max_tokens=80) <= 80


def test_a_question_that_is_not_said_yet_has_its_passages_at_the_end(session_id):
    state = load_state(session_id)
    passages = retrieve(state, "Where does my sister live?")
    assert FACT in state.build(passages=passages).payload["messages"][-1]["content"]


def test_a_context_is_read_with_a_question(session_id, client):
    client.force_login(User.objects.get(username="carla"))

    def read(**asked: str) -> HttpResponse:
        return client.get(f"/api/sessions/{session_id}/context", asked)

    assert "passages" not in read().json()["messages"][-1]["text"]
    shown = read(question="Where does my sister live?").json()
    assert FACT in shown["messages"][-1]["text"]
    assert shown["manifest"][-1]["kind"] == "retrieved"
    assert shown["breakdown"]["passages"] > 0
    for refused in ({"question": "Lea?", "at": "1"}, {"question": "x" * 1_001}):
        assert (read(**refused).status_code, read(**refused).json()["error"]["code"]) == (422, "INVALID_REQUEST")


def test_what_was_said_on_another_branch_is_not_quoted():
    session_id = make_tree(make_user("carla"))  # branch 2 is chosen, whose messages are all in its context
    assert found(session_id, "Which colours have the tulip and the marigold?") == []
    with change(session_id) as record:
        session_store.choose_branch(record, 1)  # which was compacted
    texts = found(session_id, "Which colours have the tulip and the marigold?")
    assert "The tulip number 0 is red." in texts
    assert not any(f"marigold number {number}" in text for number in range(2, 6) for text in texts)


def test_the_passages_stay_the_same_until_another_question_or_a_compaction(session_id):
    retriever = Retriever()
    state, _ = asked(session_id, "Where does my sister live?")
    first = retriever.passages_for(state)
    with CaptureQueriesContext(connection) as queries:
        assert retriever.passages_for(load_state(session_id)) is first
    assert not any("search" in query["sql"] for query in queries.captured_queries)
    other, _ = asked(session_id, "When did the tide of day 3 turn?")
    assert retriever.passages_for(other) != first


@pytest.mark.slow
async def test_a_call_is_sent_the_passages_and_its_payload_is_rebuilt_after_whatever_comes(
    session: SessionRecord, script
):
    model = script(lambda request: "Noted.")
    await say(session, FACT)
    for number in range(12):
        await say(session, f"The tide of day {number} turned at ten. " * 8)
    await db(compact_now, session.id)
    await say(session, "Where does my sister live?")
    sent = model.requests[-1].payload["messages"]
    assert sent[-2]["content"].startswith("<passages>")
    assert FACT in sent[-2]["content"]
    assert sent[-1]["content"] == "Where does my sister live?"
    call = (await db(list_calls, session.id))[0]
    [fact, *_] = await db(load_messages, session.id)
    story = await db(trace, session.id, fact.id)
    [beside] = story.seen["beside"]
    assert (beside["kind"], beside["ends"][-1]["call"].id, story.still_shown) == ("retrieved", call.id, "retrieved")
    for number in range(12):
        await say(session, f"The wind of day {number} came from the west. " * 8)
    await db(compact_now, session.id)
    rebuilt = await db(rebuild_payload, call)
    assert (rebuilt.problems, rebuilt.digest_matches) == ((), True)
    assert len(await db(load_messages, session.id)) == 52
