"""Files that are kept by reference."""

import django.db.models.deletion
from django.db import migrations, models

import mnesis_core.events


class Migration(migrations.Migration):
    initial = True

    # What a database of before has applied instead.
    replaces = [
        ("files_app", "0001_initial"),
        ("files_app", "0002_size_and_exploration"),
    ]

    dependencies = [
        ("sessions_app", "0001_schema"),
    ]

    operations = [
        migrations.CreateModel(
            name="FileReference",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("content_id", models.CharField(max_length=64)),
                ("path", models.CharField(max_length=4096)),
                ("file_type", models.CharField(default="unknown", max_length=64)),
                ("token_count", models.BigIntegerField(default=0)),
                ("size", models.BigIntegerField(null=True)),
                ("exploration_summary", models.TextField(default="", null=True)),
                ("exploration", models.JSONField(null=True)),
                ("added_seq", models.BigIntegerField()),
                ("after_message_seq", models.BigIntegerField()),
                ("created_at", models.DateTimeField()),
                ("salt", models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
            ],
            options={
                "db_table": "file_references",
                "indexes": [
                    models.Index(fields=["session", "content_id"], name="file_content"),
                    models.Index(fields=["content_id"], name="file_same_content"),
                ],
                "constraints": [models.UniqueConstraint(fields=("session", "added_seq"), name="file_added_once")],
            },
        ),
    ]
