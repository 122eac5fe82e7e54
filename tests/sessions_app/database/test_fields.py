"""Every column with a codec inside holds any text, once encoded, whichever way it is written and read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models, transaction
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mnesis_core.text import ESCAPE, encode_json, encode_text
from sessions_app.database.fields import (
    EncodedCharField,
    EncodedField,
    EncodedJSONField,
    Head,
    IdField,
    plain_field,
    stored_values,
)
from sessions_app.database.guards.rules import AppendOnlyModel
from sessions_app.database.tables import Table
from sessions_app.models import MessagePart, Session
from sessions_app.record.organisation_store import home_of

pytestmark = pytest.mark.both_databases

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ENCODED = [
    model
    for model in apps.get_models()
    if any(isinstance(field, EncodedField) and not isinstance(field, IdField) for field in model._meta.concrete_fields)
]
"""Every model that has such a column."""
HOSTILE = f"\0 \ud800 {ESCAPE} {ESCAPE}0000 {ESCAPE}241B \\u241b é 😀"
texts = st.text(
    st.one_of(st.characters(codec=None), st.sampled_from(f"\0\ud83d\ude00{ESCAPE}0241B\\u")), min_size=1, max_size=12
)


def columns(model: type[models.Model]) -> list[EncodedField[Any, Any]]:
    """The columns of a model that hold any text."""
    fields = model._meta.concrete_fields
    return [field for field in fields if isinstance(field, EncodedField) and not isinstance(field, IdField)]


def values(model: type[models.Model], text: str) -> dict[str, Any]:
    """A row whose columns all hold this text, as far as they may."""
    given: dict[str, Any] = {}
    for field in model._meta.concrete_fields:
        if isinstance(field, models.AutoField):
            continue
        if isinstance(field, EncodedJSONField):
            given[field.attname] = {text: [text, 1, None]}
        elif isinstance(field, EncodedField) and not isinstance(field, IdField):
            given[field.attname] = text
        elif not field.null and not field.has_default():
            given[field.attname] = _anything(field)
    return given


def _anything(field: models.Field[Any, Any]) -> Any:
    if field.choices:
        return field.flatchoices[0][0]
    if isinstance(field, models.JSONField):
        return []
    if isinstance(field, models.DateTimeField):
        return NOW
    kind = getattr(field, "target_field", field)
    if isinstance(field, models.BooleanField):
        return True
    return 1 if isinstance(kind, models.IntegerField | models.FloatField) else f"any_{field.attname}"[:30]


def stored(field: EncodedField[Any, Any], text: str) -> Any:
    """What the database is to hold."""
    return encode_json({text: [text, 1, None]}) if isinstance(field, EncodedJSONField) else encode_text(text)


def raw(model: type[models.Model], field: models.Field[Any, Any]) -> Any:
    """What the database holds in the one row."""
    with connection.cursor() as cursor:
        cursor.execute(f'SELECT "{field.column}" FROM "{model._meta.db_table}"')
        [(value,)] = cursor.fetchall()
    return json.loads(value) if isinstance(field, EncodedJSONField) else value


def insert(model: type[models.Model], row: dict[str, Any], *, by_table: bool) -> None:
    """Write a row by the ORM, or by the statements of the store."""
    if by_table and issubclass(model, AppendOnlyModel) and model.rules.bound:
        table = Table(model)
        with connection.cursor() as cursor:
            table.insert(cursor, [table.row(**_constant(model), **row)])
    else:
        model._default_manager.bulk_create([model(**row)])


def _constant(model: type[models.Model]) -> dict[str, Any]:
    """Defaults that are made, which the store names itself."""
    made = [field for field in model._meta.concrete_fields if field.has_default() and callable(field.default)]
    return {field.attname: field.get_default() for field in made if not isinstance(field, EncodedField)}


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.owner
@pytest.mark.parametrize("by_table", [False, True], ids=["orm", "table"])
@pytest.mark.parametrize("model", ENCODED, ids=lambda model: model.__name__)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=texts)
@example(text=HOSTILE)
@example(text=f"{ESCAPE}0041")
def test_a_column_gives_back_what_it_was_given(model: type[models.Model], by_table: bool, text: str) -> None:
    with transaction.atomic():
        insert(model, values(model, text), by_table=by_table)
        rows = model._default_manager.all()
        [row] = rows
        for field in columns(model):
            plain = {text: [text, 1, None]} if isinstance(field, EncodedJSONField) else text
            assert raw(model, field) == stored(field, text)
            assert getattr(row, field.attname) == plain
            assert rows.values_list(field.attname, flat=True).get() == plain
            assert rows.filter(**{field.attname: plain}).exists()
        # A copy of the row as it is stored.
        fields = [field for field in model._meta.concrete_fields if not field.primary_key]
        [copy] = stored_values(rows, fields)
        for field, value in zip(fields, copy, strict=True):
            if field in columns(model):
                assert value == raw(model, field)
                assert plain_field(field).get_prep_value(value) == value
        transaction.set_rollback(True)


@pytest.mark.django_db
@pytest.mark.parametrize("escaped", [f"{ESCAPE}24", f"{ESCAPE}", f"{ESCAPE}XYZ1", f"{ESCAPE}0041"])
def test_a_copy_of_a_row_keeps_what_no_codec_wrote(escaped: str, django_user_model: Any) -> None:
    owner = django_user_model.objects.create(username="ada")
    of = {"owner": owner, "organisation_id": home_of(owner.pk)}
    Session.objects.create(id="sess_1", **of, model="demo", title="x", created_at=NOW, updated_at=NOW)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sessions SET title = %s", [escaped])
    field = Session._meta.get_field("title")
    assert isinstance(field, EncodedCharField)
    [(title,)] = stored_values(Session.objects.all(), [field])
    assert plain_field(field).get_db_prep_save(title, connection) == escaped


@pytest.mark.django_db
@pytest.mark.owner
def test_a_head_is_decoded_and_keeps_an_escape_that_is_cut() -> None:
    with transaction.atomic():
        insert(MessagePart, values(MessagePart, "a\0b"), by_table=False)
        heads = MessagePart.objects.annotate(whole=Head("content", 6), cut=Head("content", 4)).values("whole", "cut")
        assert heads.get() == {"whole": "a\0", "cut": f"a{ESCAPE}00"}
        transaction.set_rollback(True)


@pytest.mark.django_db
@pytest.mark.parametrize("id", ["\0", "\ud800", ESCAPE, "nothing"])
def test_an_id_that_may_be_anything_finds_nothing(id: str) -> None:
    assert not Session.objects.filter(id=id).exists()
    assert not Session.objects.filter(id__in=[id]).exists()
    assert not MessagePart.objects.filter(session_id=id, message__turn_id=id).exists()


@pytest.mark.parametrize("model", ENCODED, ids=lambda model: model.__name__)
def test_a_migration_sees_a_field_of_django(model: type[models.Model]) -> None:
    for field in columns(model):
        _, path, _, options = field.deconstruct()
        assert path == f"django.db.models.{field.get_internal_type()}"
        assert "truncated" not in options
        assert field.db_type(connection) == plain_field(field).db_type(connection)


def test_a_text_is_truncated_as_it_is_stored() -> None:
    title = Session._meta.get_field("title")
    assert isinstance(title, EncodedCharField)
    assert title.stored("\0" * 100) == encode_text("\0" * 100)[:400]
    assert title.get_db_prep_save("\0" * 100, connection) == title.stored("\0" * 100)
