"""The search index, and what is in the record already put into it."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from sessions_app.search.engines import engine
from sessions_app.search.index import rebuild


def create_index(apps: Any, schema_editor: Any) -> None:
    """The part of the index that no model describes."""
    for statement in engine(schema_editor.connection).create:
        schema_editor.execute(statement, params=None)


def drop_index(apps: Any, schema_editor: Any) -> None:
    """The same backwards."""
    for statement in engine(schema_editor.connection).drop:
        schema_editor.execute(statement, params=None)


def fill_index(apps: Any, schema_editor: Any) -> None:
    """What was said before there was an index."""
    rebuild(using=schema_editor.connection.alias, sources={})


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0002_session_salt_and_fork"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="SearchEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=16)),
                ("source_id", models.CharField(max_length=40)),
                ("field", models.CharField(max_length=32)),
                ("first_seq", models.BigIntegerField()),
                ("last_seq", models.BigIntegerField()),
                ("start", models.BigIntegerField(default=0)),
                (
                    "owner",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.session",
                    ),
                ),
            ],
            options={
                "db_table": "search_entries",
                "indexes": [
                    models.Index(fields=["session", "id"], name="search_of_session"),
                    models.Index(fields=["owner", "id"], name="search_of_owner"),
                ],
            },
        ),
        migrations.RunPython(create_index, drop_index),
        migrations.RunPython(fill_index, migrations.RunPython.noop),
    ]
