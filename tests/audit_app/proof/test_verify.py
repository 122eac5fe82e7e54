"""Verify names every change that was made to the record past its guards, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.db import connection, models
from django.db.models import BooleanField
from django.test import Client

from agents_app.models import OperatorItem, OperatorRun
from audit_app.proof import ledger
from audit_app.proof.verify import check_replay, replay_session, verify_session, verify_sessions
from audit_app.tables import session_tables
from sessions_app.database.guards.triggers import guarded_models, install_guards, remove_guards
from sessions_app.models import DirectoryEntry, Event, MessagePart, Session, StreamJournal
from sessions_app.record.session_store import enter_imported
from tests.sessions_app.database.guards.record_rows import other_value, plain
from tests.support.people.cast import make_user
from tests.support.record.tampered import chain_again, found, make_rich_session, undone, write_body

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True), pytest.mark.owner]

NOT_PROVEN = {
    *("updated_at", "seen_turn", "lease_owner", "lease_expires_at", "fence", "interrupt_requested_at", "attempts"),
}
"""Columns that say how something is worked on or looked at, not what was said."""


def record_models() -> list[type[models.Model]]:
    """The tables that sessions are made of. Others are guarded too, and nothing in a ledger tells of them."""
    return [table.model for table in session_tables().values()]


def test_an_untouched_record_is_as_it_was_written(session_id: str) -> None:
    report = verify_sessions([session_id], jobs=1)
    assert report.problems == []
    assert report.entries == Session.objects.get().event_seq
    assert report.commitments > 15
    assert check_replay(session_id) == []


def test_every_table_of_the_record_has_a_row_to_tamper_with(session_id: str) -> None:
    empty = {model for model in record_models() if not plain(model).exists()}
    assert empty == {StreamJournal}


UNSEEN = {
    "Session.salt",  # of rows without their own: none here
    *("Event.id", "ContextItem.id", "SummaryEdge.id", "OperatorItem.id"),
    *("OperatorItem.excused", "OperatorItem.not_before", "OperatorItem.started_at", "OperatorItem.ended_at"),
}
"""The salt of older rows; numbers that the database gives to rows and that nothing refers to; and when and how often an item was worked on."""
COUNTERS = {"event_seq", "head_hash", "message_seq", "turn_seq", "branch", "branch_seq", "held_seq"}
KEYS = {
    "Branch": ("id", "number"),
    "Share": ("id",),
    "ShareOpening": ("id", "day"),
    "Rating": ("id",),
    "Turn": ("id", "seq"),
    "Message": ("id", "seq"),
    "MessagePart": ("id", "part_index"),
    "ContextItem": ("item_id", "position"),
    "Event": ("seq",),
    "ModelCall": ("id",),
    "PromptText": ("id", "digest"),
    "CompactionRun": ("id",),
    "SummaryNode": ("id",),
    "SummaryPreview": ("id",),
    "SummaryTry": ("id", "number"),
    "SummaryEdge": ("source_id", "position"),
    "Reflection": ("id", "prompt_version"),
    "Claim": ("id", "number"),
    "Fact": ("id",),
    "FactSource": ("id",),
    "InboxMessage": ("id", "seq"),
    "FileReference": ("id", "content_id", "path", "added_seq"),
    "OperatorRun": ("id",),
    "OperatorItem": ("number",),
    "OperatorTry": ("id", "item", "number"),
}
"""What has to differ for a second row to be let in."""


@pytest.mark.slow
def test_a_value_that_was_changed_is_named_whatever_the_column(
    session_id: str, unguarded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor == "postgresql":  # a hundred looks at the whole session; SQLite has them in pieces
        monkeypatch.setattr(ledger, "ENTRIES_AT_A_TIME", 1_000)
    unseen = set()
    for model in record_models():
        fields = model._meta.concrete_fields if model is not StreamJournal else ()
        proven = [field for field in fields if field.name not in NOT_PROVEN and (model, field.name) != (Session, "id")]
        for field in of_every_type(proven) if connection.vendor == "postgresql" else proven:
            row = plain(model).order_by("pk").last()
            is_truth = isinstance(field, BooleanField)
            value = not getattr(row, field.attname) if is_truth else other_value(field)
            with undone():
                plain(model).filter(pk=row.pk).update(**{field.attname: value})
                problems = found(session_id)
            if not problems:
                unseen.add(f"{model.__name__}.{field.name}")
            elif model.rules.bound and field.name not in (*model.rules.steps, *COUNTERS):
                assert any(model._meta.db_table in problem for problem in problems), (field, problems)
    assert unseen == UNSEEN if connection.vendor == "sqlite" else unseen <= UNSEEN


def of_every_type(fields: list[models.Field[Any, Any]]) -> list[models.Field[Any, Any]]:
    """The last field of each type: a database reads types in its own way, and not columns."""
    return list({field.get_internal_type(): field for field in fields}.values())


OF_ITEMS = {
    "accepted_try_id": "try_other",
    "error_kind": "timeout",
    "error": "forged",
    "call_id": "call_other",
    "child_session_id": "sess_other",
    "tokens_input": 1,
    "tokens_output": 1,
    "cost_micros": 1,
    "duration_ms": 1,
    "line_offset": 1,
    "line_length": 1,
    "session_id": "sess_other",
}


@pytest.mark.parametrize("state", ["completed", "failed", "pending", "running"])
def test_what_an_item_says_of_itself_is_what_its_tries_and_its_line_come_to(
    session_id: str, unguarded: None, state: str
) -> None:
    item = OperatorItem.objects.filter(state=state).earliest("pk")
    for name, value in OF_ITEMS.items():
        with undone():
            plain(OperatorItem).filter(pk=item.pk).update(**{name: value})
            [difference] = check_replay(session_id)
        where = (f"operator_items.{name}", f"{item.run_id} {item.number}")
        assert (difference.what, difference.id) in (where, ("map_children", where[1])), (name, difference)
        assert difference.rows == value


@pytest.mark.slow
def test_what_a_run_counts_is_what_its_items_and_tries_come_to(session_id: str, unguarded: None) -> None:
    for run in OperatorRun.objects.all():
        for name in OperatorRun.rules.unproven:
            with undone():
                plain(OperatorRun).filter(pk=run.pk).update(**{name: 77})
                assert [(one.what, one.id, one.rows) for one in check_replay(session_id)] == [
                    (f"operator_runs.{name}", run.pk, 77)
                ]


def test_an_error_that_was_taken_away_is_named(session_id: str, unguarded: None) -> None:
    plain(OperatorItem).filter(state="failed").update(error="", error_kind="")
    assert {one.what for one in check_replay(session_id)} == {"operator_items.error", "operator_items.error_kind"}


def test_lines_whose_content_is_gone_prove_nothing_and_that_is_said(session_id: str) -> None:
    for content_id in {run.input_file.content_id for run in OperatorRun.objects.select_related("input_file")}:
        storages["files"].delete(f"{content_id[:2]}/{content_id[2:4]}/{content_id}")
    assert {(one.what, one.rows) for one in check_replay(session_id)} == {("operator_items.line_offset", "gone")}
    assert {problem.kind for problem in verify_session(session_id).problems} == {"content", "replay"}


@pytest.mark.parametrize("state", ["failed", "pending"])
def test_an_item_of_a_run_whose_end_was_changed_is_named(session_id: str, unguarded: None, state: str) -> None:
    plain(OperatorItem).filter(pk=OperatorItem.objects.filter(state="completed")[0].pk).update(state=state)
    assert found(session_id)


def test_a_session_that_was_given_away_is_a_problem(session_id: str, unguarded: None) -> None:
    plain(Session).filter(pk=session_id).update(owner=make_user("bob"))
    report = verify_session(session_id)
    assert report.moved == []
    assert [problem.kind for problem in report.problems if problem.kind != "search"] == ["owner"]


@pytest.mark.slow
def test_a_row_that_was_taken_away_is_named(session_id: str, unguarded: None) -> None:
    for model in record_models():
        if model in (Session, StreamJournal):
            continue
        row = plain(model).order_by("pk").first()
        with undone():
            plain(model).filter(pk=row.pk)._raw_delete("default")
            assert found(session_id), model


@pytest.mark.slow
def test_a_row_that_was_put_in_is_named(session_id: str, unguarded: None) -> None:
    for model in record_models():
        if model in (Session, StreamJournal):
            continue
        row = plain(model).order_by("pk").first()
        fields = [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]
        values = {field.attname: getattr(row, field.attname) for field in fields}
        others = {name: other_value(model._meta.get_field(name)) for name in KEYS[model.__name__]}
        with undone():
            models.Model.save(model(**values | others))
            assert found(session_id), model


def edit_a_body(session_id: str) -> None:
    event = Event.objects.get(session_id=session_id, seq=3)
    write_body(event, json.loads(event.body) | {"role": "assistant"})


def edit_a_body_and_chain_again(session_id: str) -> None:
    edit_a_body(session_id)
    chain_again(session_id, head=False)


def cut_the_tail(session_id: str) -> None:
    plain(Event).filter(session_id=session_id, seq__gt=5)._raw_delete("default")


def cut_the_tail_and_the_head(session_id: str) -> None:
    cut_the_tail(session_id)
    chain_again(session_id, head=True)


def swap_two_entries(session_id: str) -> None:
    first, second = Event.objects.filter(session_id=session_id, seq__in=[3, 4]).order_by("seq")
    for event, seq in ((first, 1000), (second, 3), (first, 4)):
        plain(Event).filter(pk=event.pk).update(seq=seq)


def write_a_body_that_says_nothing(session_id: str) -> None:
    write_body(Event.objects.get(session_id=session_id, seq=3), [1])
    chain_again(session_id, head=True)


def hide_an_entry_before_the_first(session_id: str) -> None:
    models.Model.save(
        Event(
            session_id=session_id,
            seq=-1,
            type="x",
            body="{}",
            prev_hash="0",
            hash="0",
            created_at=Event.objects.first().created_at,
        )
    )


def take_the_commitments_out(session_id: str) -> None:
    for event in Event.objects.filter(session_id=session_id, type="message.created"):
        write_body(event, {key: value for key, value in json.loads(event.body).items() if key != "rows"})
    chain_again(session_id, head=True)


@pytest.mark.parametrize(
    ("attack", "kinds"),
    [
        (edit_a_body, {"chain"}),
        (edit_a_body_and_chain_again, {"head"}),
        (cut_the_tail, {"head", "unexplained", "replay"}),
        (cut_the_tail_and_the_head, {"unexplained", "replay"}),
        (swap_two_entries, {"chain"}),
        (write_a_body_that_says_nothing, {"chain", "unexplained", "replay"}),
        (take_the_commitments_out, {"unexplained"}),
        (hide_an_entry_before_the_first, {"chain"}),
    ],
)
def test_an_attack_on_the_ledger_is_named(
    session_id: str, unguarded: None, attack: Callable[[str], None], kinds: set[str]
) -> None:
    attack(session_id)
    assert {words.split()[1] for words in found(session_id)} >= kinds
    assert {problem.session for problem in verify_session(session_id).problems} == {session_id}


def test_the_problem_names_the_entry_that_says_otherwise(session_id: str, unguarded: None) -> None:
    part = MessagePart.objects.filter(part_type="text").first()
    plain(MessagePart).filter(pk=part.pk).update(content="forged")
    told = Event.objects.get(type="message.created", body__contains=part.id)
    assert found(session_id) == [f"{told.seq} row message_parts {part.id}"]


def test_a_result_that_no_entry_tells_of_is_named_with_its_row(session_id: str, unguarded: None) -> None:
    part = MessagePart.objects.filter(part_type="text").first()
    plain(MessagePart).filter(pk=part.pk).update(output="forged")
    assert found(session_id) == [f"0 unexplained message_parts {part.id} output"]


def test_another_session_is_not_blamed(session_id: str, unguarded: None) -> None:
    other = make_rich_session(make_user("bob"))
    plain(MessagePart).filter(session_id=other).update(content="forged")
    assert found(session_id) == []
    blamed = {problem.session for problem in verify_sessions([session_id, other], jobs=1).problems}
    assert blamed == {"", other}, "and the guards, which are away"


def test_a_ledger_from_before_rows_were_bound_is_followed_and_said_to_prove_less(
    session_id: str, unguarded: None
) -> None:
    for event in Event.objects.all():
        write_body(event, {key: value for key, value in json.loads(event.body).items() if key not in ("rows", "at")})
    chain_again(session_id, head=True)
    plain(DirectoryEntry).filter(session_id=session_id).delete()
    enter_imported(session_id)
    report = verify_session(session_id)
    assert (report.problems, report.unbound_sessions) == ([], 1)


def test_an_entry_of_a_form_that_is_not_known_is_named(session_id: str, unguarded: None) -> None:
    event = Event.objects.get(seq=3)
    write_body(event, json.loads(event.body) | {"v": 3})
    chain_again(session_id, head=True)
    assert "3 chain entry 3 is of form 3, which this version does not know" in found(session_id)


def test_rows_are_proven_without_the_salt_of_their_session(session_id: str, unguarded: None) -> None:
    """Each row that was written now has its own, so one can be erased and the others stay proven."""
    salts = [
        *(
            salt
            for model in record_models()
            if hasattr(model, "salt")
            for salt in plain(model).values_list("salt", flat=True)
        ),
        *Session.objects.values_list("own_salt", flat=True),
    ]
    assert len(set(salts)) == len(salts) > 20
    assert {len(salt) for salt in salts} == {43}
    plain(Session).update(salt="")
    assert found(session_id) == []


def test_a_ledger_is_replayed_up_to_any_entry(session_id: str) -> None:
    assert len(replay_session(session_id).summaries) == 1
    before = replay_session(session_id, at=3)
    assert (before.turn_seq, before.message_seq, before.summaries) == (1, 1, {})


def test_the_commands_say_what_they_found_and_exit_by_it(
    session_id: str, capsys: pytest.CaptureFixture[str], unguarded: None
) -> None:
    with pytest.raises(CommandError, match="not as it was written"):
        call_command("verify", "--all", "--json")
    assert {problem["kind"] for problem in json.loads(capsys.readouterr().out)["problems"]} == {"guard"}
    install_guards(connection, guarded_models())
    call_command("verify", session_id, "--json")
    assert json.loads(capsys.readouterr().out)["ok"] is True
    call_command("replay", "--all", "--check")
    remove_guards(connection, guarded_models())
    plain(Session).update(turn_seq=9)
    with pytest.raises(CommandError, match="differ from their ledger"):
        call_command("replay", session_id, "--check")
    with pytest.raises(CommandError, match="SESSION_NOT_FOUND"):
        call_command("verify", "sess_nosuch")
    write_body(Event.objects.get(seq=3), [1])
    with pytest.raises(CommandError, match=r"CONFLICT: entry 3 .* cannot be read"):
        call_command("replay", session_id)


def test_a_person_verifies_their_own_sessions_over_rest_and_nobody_elses(session_id: str) -> None:
    alice, bob = Client(), Client()
    alice.force_login(User.objects.get(username="alice"))
    bob.force_login(make_user("bob"))
    answer = alice.post(f"/api/sessions/{session_id}/verify")
    assert (answer.status_code, answer.json()["ok"], answer.json()["problems"]) == (200, True, [])
    assert bob.post(f"/api/sessions/{session_id}/verify").status_code == 404
