"""Reads of the record: what they return, in which order, and what they say of ids that are not there."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from compaction_app.queries import last_summary, list_summaries
from mnesis_core.errors import MessageNotFoundError, SessionNotFoundError
from mnesis_core.messages import TextPart
from sessions_app.record import message_queries, session_queries
from tests.support.people.cast import make_user
from tests.support.record.inspected import add_summary, claim
from tests.support.record.talks import exchange, new_session, say, tool

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]


@pytest.fixture
def alice() -> User:
    return make_user("alice")


@pytest.fixture
def bob() -> User:
    return make_user("bob")


@pytest.fixture
def session_id(alice: User) -> str:
    return new_session(alice)


def test_messages_since_one_are_those_after_it_and_never_itself(session_id, django_assert_num_queries):
    ids = exchange(session_id, "one", "two") + exchange(session_id, "three", "four")
    with django_assert_num_queries(2):
        since = message_queries.load_messages_since(ids[1], session_id=session_id)
    assert [message.id for message in since] == ids[2:]
    assert message_queries.load_messages_since(ids[0], session_id=session_id, limit=1)[0].id == ids[1]
    assert message_queries.load_messages_since(ids[-1], session_id=session_id) == []


def test_messages_come_in_the_order_of_the_ids_also_twice(session_id):
    first, second = exchange(session_id, "one", "two")
    loaded = message_queries.load_messages_by_ids([second, first, second], session_id=session_id)
    assert [message.id for message in loaded] == [second, first, second]
    assert message_queries.load_messages_by_ids([], session_id=session_id) == []


def test_a_message_and_its_parts_by_id(session_id):
    [message_id] = say(session_id, ("assistant", [TextPart(text="a"), tool(output="b")]))
    message = message_queries.load_message(message_id, session_id=session_id)
    assert [stored.part for stored in message.parts] == [TextPart(text="a"), tool(output="b")]


@pytest.mark.parametrize("read", [message_queries.load_message, message_queries.load_messages_since])
def test_a_message_that_is_not_in_the_session_is_not_found(alice, session_id, read):
    [elsewhere, _] = exchange(new_session(alice), "one", "two")
    for unknown in (elsewhere, "msg_nosuch", "", "nul \x00 and \ud800"):
        with pytest.raises(MessageNotFoundError):
            read(unknown, session_id=session_id)
        with pytest.raises(MessageNotFoundError):
            message_queries.load_messages_by_ids([unknown], session_id=session_id)


@pytest.mark.parametrize("key", ["colour", "isnull", "contains", "has_key", "gt", "in", "pk"])
def test_a_label_of_any_name_finds_its_sessions_and_no_others(alice, key):
    labelled = new_session(alice, labels={key: "blue", "other": "x"})
    new_session(alice, labels={key: "blue and green", "other": "blue"})
    new_session(alice)
    assert [session.id for session in session_queries.list_sessions(owner_id=alice.pk, label=(key, "blue"))] == [
        labelled
    ]


def test_children_of_a_session_are_listed_and_an_unknown_parent_is_not_found(alice, bob, session_id):
    child = new_session(alice, parent_id=session_id)
    new_session(alice)
    listed = session_queries.list_sessions(owner_id=alice.pk, parent_id=session_id)
    assert [session.id for session in listed] == [child]
    for owner, parent in ((bob, session_id), (alice, "sess_nosuch"), (alice, "")):
        with pytest.raises(SessionNotFoundError):
            session_queries.list_sessions(owner_id=owner.pk, parent_id=parent)


def test_the_last_summary_is_the_last_of_the_ledger_also_when_it_was_condensed(session_id, django_assert_num_queries):
    assert last_summary(session_id) is None
    ids = [id for number in range(3) for id in exchange(session_id, f"{number}", "yes")]
    run = claim(session_id)
    first = add_summary(session_id, run, ids[:2], (1, 2))
    second = add_summary(session_id, run, ids[2:4], (3, 4))
    assert last_summary(session_id).id == second
    condensed = add_summary(session_id, run, [first, second], (1, 4), kind="condensed")
    with django_assert_num_queries(3):
        assert last_summary(session_id).id == condensed
    with django_assert_num_queries(2):
        summaries = list_summaries(session_id)
    assert [summary.source_ids for summary in summaries] == [
        [("message", ids[0]), ("message", ids[1])],
        [("message", ids[2]), ("message", ids[3])],
        [("summary", first), ("summary", second)],
    ]
