"""The plain SQL of the store does what the ORM would."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode

import pytest
from django.db import IntegrityError, connection
from django.db.transaction import TransactionManagementError
from django.utils import timezone

from audit_app.proof.verify import verify_session
from mnesis_core.errors import ImmutableFieldError
from mnesis_core.events import EventType
from mnesis_core.messages import Message, TextPart
from mnesis_core.records import TurnState
from sessions_app.database import tables
from sessions_app.database.tables import ROWS_A_STATEMENT, Table, commitments_of
from sessions_app.models import ContextItem, Event, MessagePart, Session, StreamJournal, Turn
from sessions_app.models import Message as MessageRow
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change
from tests.support.people.cast import make_user

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def session_id() -> str:
    return session_store.create_session(owner=make_user("alice"), model="demo")


@pytest.mark.parametrize("model", [Turn, MessageRow, MessagePart, ContextItem, StreamJournal])
def test_a_row_has_every_column_and_the_defaults_of_the_model(model):
    fields = [field for field in model._meta.concrete_fields if field.get_internal_type() != "BigAutoField"]
    constant = {field.column: field.get_default() for field in fields if field.has_default() and field.column != "salt"}
    row = vars(Table(model).row())
    salt = {"salt": row["salt"]} if "salt" in row else {}
    assert row == dict.fromkeys([field.column for field in fields]) | constant | salt


def test_each_row_has_another_salt_of_32_bytes():
    salts = {Table(Turn).row().salt for _ in range(100)}
    assert (len(salts), {len(urlsafe_b64decode(salt + "=")) for salt in salts}) == (100, {32})


def test_a_row_from_before_rows_had_salts_is_bound_by_that_of_its_session(session_id):
    turns = Table(Turn)
    values = {"seq": 1, "model": "demo", "lease_owner": "me"}
    with change(session_id) as record:
        row = turns.row(id="turn_1", session_id=session_id, created_at=record.now, salt="", **values)
        record.turn_seq = 1
        record.insert(turns, row)
        record.publish(EventType.TURN_STARTED, turn_id=row.id, turn_seq=1)
    with change(session_id) as record:
        turn_store.finish_turn(record, row.id, state=TurnState.COMPLETED, error_message="why")
        turn_store.start_turn(record, model="demo")
    assert verify_session(session_id).problems == []
    [bound] = json.loads(Event.objects.filter(type="turn.started").earliest("seq").body)["rows"]
    assert bound == commitments_of(Turn).inserted(vars(row), salt=Session.objects.get().salt)[0]


def test_after_an_error_nothing_is_committed_and_that_is_said_even_if_somebody_catches_it(session_id):
    before = Event.objects.count()
    with pytest.raises(TransactionManagementError), change(session_id) as record:  # noqa: PT012 - the block is what is tested
        turn_store.start_turn(record, model="demo")
        turns = Table(Turn)
        with pytest.raises(IntegrityError):
            turns.insert(record.cursor, [turns.row(id="turn_2", session_id="nobody", seq=None, created_at=record.now)])
        record.entries.clear()
    assert not Turn.objects.exists()
    assert Event.objects.count() == before
    assert not connection.needs_rollback


def test_an_update_of_a_frozen_column_is_refused_in_words(session_id):
    with pytest.raises(ImmutableFieldError, match=r"Session\.model"), change(session_id) as record:
        record.update(Table(Session), {"model": "other"}, id=session_id)


def test_none_finds_null_and_nothing_else(session_id):
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        turns = Table(Turn)
        assert record.find(turns, "id", session_id=session_id, ended_at=None) == (turn_id,)
        assert record.find(turns, "id", session_id=session_id, created_at=None) is None
        assert record.update(turns, {"lease_owner": "me"}, id=turn_id, ended_at=None) == 1
        assert record.update(turns, {"lease_owner": "you"}, id=turn_id, created_at=None) == 0
    assert Turn.objects.get().lease_owner == "me"


def test_more_rows_than_one_statement_takes_are_all_written_once(session_id):
    parts = tuple(TextPart(text=str(number)) for number in range(ROWS_A_STATEMENT + 1))
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
        message_store.append_message(record, turn_id=turn_id, message=Message(role="user", parts=parts))
    rows = MessagePart.objects.order_by("part_index")
    assert list(rows.values_list("part_index", "content")) == [(index, part.text) for index, part in enumerate(parts)]


def test_a_state_of_ours_stands_in_the_statement_and_a_partial_index_can_be_used():
    condition, values = tables._condition({"session_id": "s", "state": TurnState.RUNNING, "ended_at": None})
    assert (condition, values) == ("session_id = %s AND state = 'running' AND ended_at IS NULL", ["s"])


def test_each_of_many_rows_gets_its_own_values_in_one_statement(session_id):
    turns = Table(Turn)
    with change(session_id) as record:
        for _ in range(ROWS_A_STATEMENT + 3):
            id = turn_store.start_turn(record, model="demo")
            turn_store.finish_turn(record, id, state=TurnState.COMPLETED)
    ids = list(Turn.objects.order_by("seq").values_list("id", flat=True))
    later = timezone.now()
    given = {id: {"fence": number, "lease_expires_at": later if number % 2 else None} for number, id in enumerate(ids)}
    with change(session_id) as record:
        found = turns.update_each(
            record.cursor, given | {"turn_none": given[ids[0]]}, session_id=session_id, add=["fence"]
        )
    assert found == dict(Turn.objects.values_list("id", "salt"))
    assert list(Turn.objects.order_by("seq").values_list("fence", flat=True)) == [
        1 + number for number in range(len(ids))
    ]
    assert Turn.objects.filter(lease_expires_at=later).count() == len(ids) // 2
    with change(session_id) as record:
        assert turns.update_each(record.cursor, given, session_id="nobody") == {}
        assert turns.update_each(record.cursor, {}) == {}
    with change(session_id) as record, pytest.raises(ImmutableFieldError):
        turns.update_each(record.cursor, {ids[0]: {"seq": 9}})
