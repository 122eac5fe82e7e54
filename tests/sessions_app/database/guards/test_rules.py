"""What may ever change, table by table, said a second time: a rule that is loosened has to be loosened here as well."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, connection, models, transaction

from audit_app.tables import session_tables
from compaction_app.models import FactSource, Reflection
from sessions_app.database.guards.triggers import guarded_models
from sessions_app.database.tables import commitments_of
from sessions_app.models import Branch, ContextItem, Session, ShareOpening
from sessions_app.record import session_store
from sessions_app.record.change import change

pytestmark = pytest.mark.both_databases

COUNTED = {
    *("completed_count", "failed_count", "cancelled_count", "try_count"),
    *("tokens_input", "tokens_output", "cost_micros"),
}
FREE = {
    "Assistant": {"version", "for_everyone"},
    "Organisation": {"name", "settings"},
    "Person": {"organisation"},
    "Session": {
        *("title", "labels", "config", "host_mode", "peer_name", "archived_at", "pinned_at", "updated_at"),
        *("deleted_at", "trashed_at", "seen_turn", "project_id"),
        *("event_seq", "head_hash", "message_seq", "turn_seq", "branch", "branch_seq"),
    },
    "Turn": {"lease_owner", "lease_expires_at", "fence"},
    "CompactionRun": {"attempts", "lease_owner", "lease_expires_at", "fence"},
    "Reflection": {"attempts", "lease_owner", "lease_expires_at"},
    "Fact": {"held_seq"},
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
    "Session": {
        *("owner", "organisation", "updated_at", "seen_turn", "event_seq", "head_hash", "message_seq", "turn_seq"),
        *("branch", "branch_seq"),
    },
    "Turn": {"lease_owner", "lease_expires_at", "fence", "interrupt_requested_at"},
    "CompactionRun": {"attempts", "lease_owner", "lease_expires_at", "fence"},
    "Reflection": {"attempts", "lease_owner", "lease_expires_at"},
    "Fact": {"held_seq"},
    "OperatorRun": COUNTED,
}
STATES = {
    "Turn": {"state"},
    "MessagePart": {"tool_state"},
    "ModelCall": {"state"},
    "CompactionRun": {"state"},
    "Reflection": {"state"},
    "SummaryNode": {"freshness"},
    "Fact": {"ban", "held_for"},
    "OperatorRun": {"state"},
    "OperatorItem": {"state"},
}


def test_only_these_columns_may_change_more_than_once() -> None:
    guarded = guarded_models()
    assert {model.__name__: set(model.rules.free) for model in guarded if model.rules.free} == FREE
    assert {model.__name__: set(model.rules.steps) for model in guarded if model.rules.steps} == STATES
    assert [model.__name__ for model in guarded if model.rules.deletable] == ["StreamJournal"]


def test_only_these_columns_are_bound_by_no_entry_of_the_ledger() -> None:
    guarded = guarded_models()
    assert {model.__name__: set(model.rules.unproven) for model in guarded if model.rules.unproven} == UNPROVEN
    unbound = {model.__name__ for model in guarded if not model.rules.bound}
    # Tool servers, assistants, people and organisations are no session's, so no ledger tells of them; the directory is a ledger itself.
    others = {"McpServer", "Assistant", "AssistantVersion", "DirectoryEntry", "Person", "Organisation"}
    assert unbound == {"Event", "ContextItem", "StreamJournal", "SummaryEdge", "OperatorItem"} | others


ERASABLE = {
    "Session": {"title", "system_prompt", "assistant_instructions", "labels", "config", "external_id", "peer_name"},
    "Share": {"title"},
    "Rating": {"comment"},
    "Turn": {"idempotency_key", "request_digest", "options", "error_message"},
    "Message": {"external_id", "error_message"},
    "MessagePart": {"content", "label", "tool_input", "output", "error_message", "decision_note", "late_output"},
    "PromptText": {"digest", "content"},
    "ModelCall": {"parameters", "manifest", "digest", "usage_said", "stop_sequence", "error_message"},
    "CompactionRun": {"error_message"},
    "SummaryTry": {"text", "reasoning", "tool_calls"},
    "SummaryNode": {"text"},
    "SummaryPreview": {"text"},
    "Claim": {"missing"},
    "Fact": {"subject", "statement"},
    "FileReference": {"content_id", "path", "exploration_summary", "exploration"},
    "InboxMessage": {"text", "idempotency_key"},
    "OperatorRun": {"spec", "error_message", "idempotency_key"},
    "OperatorTry": {"output", "error"},
}
KEPT = {
    # ids of rows
    *(
        "parent_part_id",
        "forked_message_id",
        "project_id",
        "assistant_version_id",
        "item_id",
        "summary_id",
        "summary_ids",
        "batch_id",
        "source_id",
        "source_ids",
        "turn_ids",
    ),
    *(
        "of_fact_id",
        "of_session_id",
        "sender_id",
        "sender_turn_id",
        "places",
        "in_reply_to",
        "turn_id",
        "part_id",
        "output_file_id",
        "accepted_try_id",
        "call_id",
    ),
    *("child_session_id", "child_turn_id"),
    # words of closed vocabularies
    *(
        "origin",
        "state",
        "tool_state",
        "role",
        "outcome",
        "error_code",
        "error_kind",
        "reason",
        "usage_source",
        "purpose",
    ),
    *(
        "part_type",
        "item_type",
        "source_type",
        "kind",
        "trigger",
        "freshness",
        "type",
        "scope",
        "method",
        "ban",
        "held_for",
        "support",
    ),
    # names of who took part: agents, models, prompts, tools and their calls, kinds of files; a provider's word for an end
    *("agent", "model", "provider_model", "prompt_version", "tool_name", "tool_call_id", "file_type", "finish_reason"),
    *("lease_owner", "actor"),
    # pseudonyms of people, and whom a share is for
    *("people", "reader", "audience"),
    "thumb",
    # the ledger and the keys of its commitments
    *("body", "hash", "prev_hash", "head_hash", "salt", "own_salt"),
}
"""Columns of text that are no content, by name in whichever table: what is left of a row when it was erased."""
GOES_OTHERWISE = {
    ("StreamJournal", "text"),  # deleted when the message has it
    ("OperatorItem", "error"),  # free, and unbound: what the attempt says
}


def test_every_column_that_may_hold_words_can_be_erased_and_no_other() -> None:
    texts = (models.CharField, models.TextField, models.JSONField)
    tables = [table.model for table in session_tables().values()]
    columns = {
        (model.__name__, field.name)
        for model in tables
        for field in model._meta.concrete_fields
        if isinstance(field, texts) and not field.primary_key
    }
    erasable = {(model.__name__, name) for model in guarded_models() for name in model.rules.erasable}
    assert erasable == {(model, name) for model, names in ERASABLE.items() for name in names}
    assert columns == erasable | GOES_OTHERWISE | {(model, name) for model, name in columns if name in KEPT}
    assert not {name for _, name in erasable} & KEPT


def test_what_can_be_erased_is_bound_by_a_salt_of_its_own() -> None:
    for model in guarded_models():
        rules = model.rules
        assert not {*rules.erasable} & {*rules.steps, *rules.unproven}, model
        is_of_numbers = model in (Branch, FactSource, Reflection, ShareOpening)
        assert bool(rules.erasable) == (rules.bound and not is_of_numbers), "every other row may hold words"
        assert not rules.erasable or commitments_of(model).salt == ("own_salt" if model is Session else "salt")


def test_what_never_changes_at_all() -> None:
    unchangeable = {model.__name__ for model in guarded_models() if not model.rules.changeable}
    never = {"Event", "SummaryEdge", "SummaryPreview", "SummaryTry", "StreamJournal", "PromptText", "OperatorTry"}
    assert unchangeable == never | {
        "AssistantVersion",
        "Branch",
        "Claim",
        "DirectoryEntry",
        "FactSource",
        "Rating",
        "ShareOpening",
    }


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
