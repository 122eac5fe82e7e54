"""What may ever change, table by table, said a second time: a rule that is loosened has to be loosened here as well."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection, transaction

from sessions_app.guards.triggers import guarded_models
from sessions_app.models import ContextItem
from sessions_app.record import session_store
from sessions_app.record.change import change

pytestmark = pytest.mark.both_databases

COUNTED = {
    *("completed_count", "failed_count", "cancelled_count", "try_count"),
    *("tokens_input", "tokens_output", "cost_micros"),
}
FREE = {
    "Session": {
        *("title", "labels", "config", "host_mode", "peer_name", "archived_at", "updated_at"),
        *("event_seq", "head_hash", "message_seq", "turn_seq"),
    },
    "Turn": {"lease_owner", "lease_expires_at", "fence"},
    "CompactionRun": {"attempts", "lease_owner", "lease_expires_at", "fence"},
    # What the server said when it was asked, and whether it could be.
    "McpServer": {"is_restricted", "listing", "listed_at", "problem", "read_only_tools", "unreachable_since"},
    "OperatorRun": {"reason", "output_file_id", "ended_at", *COUNTED},
    # How far an item is. What it says is the input's content; what came of it is in its tries.
    "OperatorItem": {
        *("attempts", "excused", "not_before", "lease_owner", "lease_expires_at", "error_kind", "error"),
        *("accepted_try_id", "call_id", "child_session_id", "started_at", "ended_at"),
        *("tokens_input", "tokens_output", "cost_micros", "duration_ms"),
    },
}
UNPROVEN = {
    "Session": {"owner", "updated_at", "event_seq", "head_hash", "message_seq", "turn_seq"},
    "Turn": {"lease_owner", "lease_expires_at", "fence", "interrupt_requested_at"},
    "CompactionRun": {"attempts", "lease_owner", "lease_expires_at", "fence"},
    "OperatorRun": COUNTED,
}
STATES = {
    "Turn": {"state"},
    "MessagePart": {"tool_state"},
    "ModelCall": {"state"},
    "CompactionRun": {"state"},
    "SummaryNode": {"freshness"},
    "OperatorRun": {"state"},
    "OperatorItem": {"state"},
}


def test_only_these_columns_may_change_more_than_once() -> None:
    models = guarded_models()
    assert {model.__name__: set(model.rules.free) for model in models if model.rules.free} == FREE
    assert {model.__name__: set(model.rules.steps) for model in models if model.rules.steps} == STATES
    assert [model.__name__ for model in models if model.rules.deletable] == ["StreamJournal"]


def test_only_these_columns_are_bound_by_no_entry_of_the_ledger() -> None:
    models = guarded_models()
    assert {model.__name__: set(model.rules.unproven) for model in models if model.rules.unproven} == UNPROVEN
    unbound = {model.__name__ for model in models if not model.rules.bound}
    # Servers of tools and people are no session's, so no ledger tells of them; the directory is a ledger itself.
    others = {"McpServer", "DirectoryEntry", "Person"}
    assert unbound == {"Event", "ContextItem", "StreamJournal", "SummaryEdge", "OperatorItem"} | others


def test_what_never_changes_at_all() -> None:
    unchangeable = {model.__name__ for model in guarded_models() if not model.rules.changeable}
    never = {"Event", "SummaryEdge", "SummaryPreview", "SummaryTry", "StreamJournal", "PromptText", "OperatorTry"}
    assert unchangeable == never | {"DirectoryEntry", "Person"}


@pytest.mark.django_db
@pytest.mark.parametrize("value", ["removed_seq + 1", "NULL"])
def test_what_has_left_the_context_has_left_it_for_good(value: str) -> None:
    session_id = session_store.create_session(owner=get_user_model().objects.create_user("alice"), model="demo")
    with change(session_id) as record:
        seq = record.next_seq
        session_store.update_session(record, title="x")
    item = ContextItem(session_id=session_id, item_type="message", item_id="msg_1", position=1, added_seq=1)
    item.save()
    assert ContextItem.objects.filter(pk=item.pk).update(removed_seq=seq) == 1
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE context_items SET removed_seq = {value} WHERE id = %s", [item.pk])
    item.refresh_from_db()
    assert item.removed_seq == seq
