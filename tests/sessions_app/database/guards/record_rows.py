"""One row of every guarded table that the guards' tests attack, inserted with plain ``save()``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import models
from django.db.models.query import QuerySet

from agents_app.models import InboxMessage
from compaction_app.models import CompactionRun
from sessions_app.database.guards.rules import AppendOnlyModel
from sessions_app.database.guards.triggers import guarded_models
from sessions_app.models import (
    ContextItem,
    Event,
    Message,
    MessagePart,
    ModelCall,
    PromptText,
    Session,
    StreamJournal,
    Turn,
)
from sessions_app.record.organisation_store import home_of

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MAIN_MODELS = (Session, Turn, Message, MessagePart, ContextItem, Event)

Rows = dict[type[AppendOnlyModel], AppendOnlyModel]


def insert_rows() -> Rows:
    """A session with one of everything, all set-once columns NULL."""
    owner = User(username="ada")
    owner.save()
    of = {"owner": owner, "organisation_id": home_of(owner.pk)}
    session = Session(id="sess_1", **of, model="demo", created_at=NOW, updated_at=NOW)
    turn = Turn(id="turn_1", session=session, seq=1, model="demo", idempotency_key="key", created_at=NOW)
    message = Message(id="msg_1", session=session, turn=turn, seq=1, role="assistant", created_at=NOW, recorded_at=NOW)
    part = MessagePart(
        id="part_1", message=message, session=session, part_type="tool", part_index=0, tool_state="pending"
    )
    item = ContextItem(session=session, item_type="message", item_id="msg_1", position=1, added_seq=1)
    event = Event(session=session, seq=1, type="session.created", body="{}", prev_hash="0", hash="1", created_at=NOW)
    piece = StreamJournal(message=message, session=session, part_index=0, part_type="text", offset=0, text="so far")
    call = ModelCall(
        id="call_1", session=session, model="demo", provider_model="demo", manifest=[1], digest="d", created_at=NOW
    )
    run = CompactionRun(id="run_1", session=session, trigger="soft", created_at=NOW)
    text = PromptText(id="text_1", session=session, digest="d", content="[]", created_at=NOW)
    letter = InboxMessage(id="inbox_1", session=session, seq=1, kind="message", text="Hello", created_at=NOW)
    rows = (session, turn, message, part, item, event, piece, call, run, text, letter)
    for row in rows:
        row.save()
    return {type(row): row for row in rows}


def plain(model: type[models.Model]) -> QuerySet[Any]:
    """A query set without the friendly refusals of the model's own."""
    return QuerySet(model)


def everything() -> dict[str, list[dict[str, Any]]]:
    """Every row of the record, by table."""
    return {model._meta.db_table: list(plain(model).values()) for model in guarded_models()}


def stored(row: models.Model) -> dict[str, Any] | None:
    """What the database holds under the row's key."""
    return plain(type(row)).filter(pk=row.pk).values().first()


def other_value(field: models.Field[Any, Any], number: int = 1) -> Any:
    """A value of the field's type that no inserted row has, and another for each number."""
    if isinstance(field, models.DateTimeField):
        return NOW.replace(year=2026 + number)
    if isinstance(field, models.BooleanField):
        return True
    if isinstance(field, models.JSONField):
        return {"other": number}
    if isinstance(field, models.CharField | models.TextField):
        return f"other {number}"
    if isinstance(field, models.ForeignKey):
        return other_value(field.target_field, number)
    return 7000 + number
