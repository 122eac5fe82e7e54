"""The record's tables, its search index, and what is in the database beside it."""

from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import mnesis_core.events
from sessions_app.search.index import engine


def create_index(apps: Any, schema_editor: Any) -> None:
    """Create the part of the search index that no model describes."""
    for statement in engine(schema_editor.connection).create:
        schema_editor.execute(statement, params=None)


def drop_index(apps: Any, schema_editor: Any) -> None:
    for statement in engine(schema_editor.connection).drop:
        schema_editor.execute(statement, params=None)


class Migration(migrations.Migration):
    initial = True

    # What a database of before has applied instead.
    replaces = [
        ("sessions_app", "0001_initial"),
        ("sessions_app", "0002_session_salt_and_fork"),
        ("sessions_app", "0003_search"),
        ("sessions_app", "0004_prompt_texts_and_limits"),
        ("sessions_app", "0005_waiting_and_limits"),
        ("sessions_app", "0006_calls_of_no_turn"),
        ("sessions_app", "0007_model_access"),
        ("sessions_app", "0008_calls_of_a_day"),
        ("sessions_app", "0009_sums_of_calls"),
        ("sessions_app", "0010_names_of_deleted_sessions"),
        ("sessions_app", "0011_usage_as_said"),
        ("sessions_app", "0012_models_entered_on_host"),
        ("sessions_app", "0013_buckets_of_tries"),
        ("sessions_app", "0014_directory_of_sessions"),
    ]

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="AccountLimit",
            fields=[
                (
                    "owner",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                ("limits", models.JSONField(default=dict)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "db_table": "account_limits",
            },
        ),
        migrations.CreateModel(
            name="LanguageModel",
            fields=[
                ("alias", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("litellm_model", models.CharField(max_length=200)),
                ("api_base", models.CharField(blank=True, default="", max_length=500)),
                ("api_key_env", models.CharField(blank=True, default="", max_length=100)),
                ("context_window", models.PositiveIntegerField()),
                ("context_window_source", models.CharField(default="configured", max_length=16)),
                ("max_output_tokens", models.PositiveIntegerField()),
                ("max_output_source", models.CharField(default="configured", max_length=16)),
                ("input_micros_per_million", models.PositiveBigIntegerField(default=0)),
                ("output_micros_per_million", models.PositiveBigIntegerField(default=0)),
                ("cache_read_micros_per_million", models.PositiveBigIntegerField(blank=True, null=True)),
                ("cache_write_micros_per_million", models.PositiveBigIntegerField(blank=True, null=True)),
                ("prices_source", models.CharField(default="configured", max_length=16)),
                ("shared_ratio", models.FloatField(editable=False, null=True)),
                ("timeout_seconds", models.FloatField(default=120.0)),
                ("total_timeout_seconds", models.FloatField(default=1800.0)),
                ("fallbacks", models.JSONField(blank=True, default=list)),
                ("is_restricted", models.BooleanField(default=False)),
                ("entered_on_host", models.BooleanField(default=False, editable=False)),
                ("last_check", models.JSONField(blank=True, default=dict, editable=False)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "db_table": "language_models",
            },
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("tokens_input", models.BigIntegerField(null=True)),
                ("tokens_output", models.BigIntegerField(null=True)),
                ("tokens_cache_read", models.BigIntegerField(null=True)),
                ("tokens_cache_write", models.BigIntegerField(null=True)),
                ("usage_source", models.CharField(max_length=16, null=True)),
                ("cost_micros", models.BigIntegerField(null=True)),
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                ("role", models.CharField(max_length=16)),
                ("agent", models.CharField(default="default", max_length=100)),
                ("model", models.CharField(default="", max_length=200)),
                ("is_summary", models.BooleanField(default=False)),
                ("external_id", models.CharField(default="", max_length=200)),
                ("created_at", models.DateTimeField()),
                ("recorded_at", models.DateTimeField()),
                ("finish_reason", models.CharField(max_length=64, null=True)),
                ("outcome", models.CharField(max_length=16, null=True)),
                ("error_code", models.CharField(max_length=64, null=True)),
                ("error_message", models.TextField(null=True)),
                ("finalized_at", models.DateTimeField(null=True)),
            ],
            options={
                "db_table": "messages",
            },
        ),
        migrations.CreateModel(
            name="SpendingMark",
            fields=[
                ("id", models.CharField(max_length=80, primary_key=True, serialize=False)),
                ("until", models.DateTimeField(null=True)),
                ("tokens", models.BigIntegerField(default=0)),
                ("cost_micros", models.BigIntegerField(default=0)),
                ("milliseconds", models.BigIntegerField(default=0)),
                ("tool_calls", models.BigIntegerField(default=0)),
                ("unpriced_calls", models.BigIntegerField(default=0)),
                ("warned", models.JSONField(default=dict)),
            ],
            options={
                "db_table": "spending_marks",
            },
        ),
        migrations.CreateModel(
            name="TryBucket",
            fields=[
                ("key", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("empty_at", models.DateTimeField(db_index=True)),
            ],
            options={
                "db_table": "try_buckets",
            },
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("prefix", models.CharField(max_length=16, primary_key=True, serialize=False)),
                ("secret_hash", models.CharField(max_length=64)),
                ("scope", models.CharField(default="all", max_length=32)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("last_used_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "db_table": "api_keys",
            },
        ),
        migrations.CreateModel(
            name="DirectoryEntry",
            fields=[
                ("seq", models.BigIntegerField(primary_key=True, serialize=False)),
                ("session_id", models.CharField(max_length=40)),
                ("type", models.CharField(max_length=64)),
                ("entries", models.BigIntegerField()),
                ("body", models.TextField()),
                ("prev_hash", models.CharField(max_length=64)),
                ("hash", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "db_table": "directory_entries",
                "indexes": [models.Index(fields=["session_id", "seq"], name="directory_of_session")],
            },
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("parent_part_id", models.CharField(default="", max_length=40)),
                ("forked_message_id", models.CharField(default="", max_length=40)),
                ("external_id", models.CharField(default="", max_length=200)),
                ("origin", models.CharField(default="chat", max_length=32)),
                ("model", models.CharField(max_length=100)),
                ("agent", models.CharField(default="default", max_length=100)),
                ("system_prompt", models.TextField(default="")),
                ("title", models.CharField(default="", max_length=400)),
                ("labels", models.JSONField(default=dict)),
                ("config", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("archived_at", models.DateTimeField(null=True)),
                ("deleted_at", models.DateTimeField(null=True)),
                ("event_seq", models.BigIntegerField(default=0)),
                (
                    "head_hash",
                    models.CharField(
                        default="0000000000000000000000000000000000000000000000000000000000000000", max_length=64
                    ),
                ),
                ("message_seq", models.BigIntegerField(default=0)),
                ("turn_seq", models.BigIntegerField(default=0)),
                ("salt", models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                ("host_mode", models.BooleanField(default=False)),
                ("peer_name", models.CharField(default="", max_length=64)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="children",
                        to="sessions_app.session",
                    ),
                ),
            ],
            options={
                "db_table": "sessions",
            },
        ),
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
            },
        ),
        migrations.CreateModel(
            name="PromptText",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("digest", models.CharField(max_length=64)),
                ("content", models.TextField()),
                ("created_at", models.DateTimeField()),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
            ],
            options={
                "db_table": "prompt_texts",
            },
        ),
        migrations.CreateModel(
            name="MessagePart",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("part_type", models.CharField(max_length=16)),
                ("part_index", models.IntegerField()),
                ("content", models.TextField(default="")),
                ("label", models.CharField(default="", max_length=200)),
                ("tool_name", models.CharField(default="", max_length=200)),
                ("tool_call_id", models.CharField(default="", max_length=200)),
                ("tool_input", models.TextField(default="")),
                ("tool_state", models.CharField(max_length=16, null=True)),
                ("output", models.TextField(null=True)),
                ("error_message", models.TextField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("completed_at", models.DateTimeField(null=True)),
                ("compacted_at", models.DateTimeField(null=True)),
                ("decision_note", models.TextField(null=True)),
                ("late_output", models.TextField(null=True)),
                ("compacted_seq", models.BigIntegerField(null=True)),
                ("token_estimate", models.BigIntegerField(default=0)),
                ("output_token_estimate", models.BigIntegerField(null=True)),
                ("salt", models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="parts", to="sessions_app.message"
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
            ],
            options={
                "db_table": "message_parts",
            },
        ),
        migrations.AddField(
            model_name="message",
            name="session",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="messages", to="sessions_app.session"
            ),
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                ("type", models.CharField(max_length=64)),
                ("body", models.TextField()),
                ("prev_hash", models.CharField(max_length=64)),
                ("hash", models.CharField(max_length=64)),
                ("created_at", models.DateTimeField()),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
            ],
            options={
                "db_table": "events",
            },
        ),
        migrations.CreateModel(
            name="ContextItem",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "item_type",
                    models.CharField(choices=[("message", "message"), ("summary", "summary")], max_length=16),
                ),
                ("item_id", models.CharField(max_length=40)),
                ("position", models.BigIntegerField()),
                ("added_seq", models.BigIntegerField()),
                ("removed_seq", models.BigIntegerField(null=True)),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
            ],
            options={
                "db_table": "context_items",
            },
        ),
        migrations.CreateModel(
            name="StreamJournal",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("part_index", models.IntegerField()),
                ("part_type", models.CharField(max_length=16)),
                ("offset", models.BigIntegerField()),
                ("text", models.TextField()),
                (
                    "message",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.message"
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
            ],
            options={
                "db_table": "stream_journal",
            },
        ),
        migrations.CreateModel(
            name="Turn",
            fields=[
                ("tokens_input", models.BigIntegerField(null=True)),
                ("tokens_output", models.BigIntegerField(null=True)),
                ("tokens_cache_read", models.BigIntegerField(null=True)),
                ("tokens_cache_write", models.BigIntegerField(null=True)),
                ("usage_source", models.CharField(max_length=16, null=True)),
                ("cost_micros", models.BigIntegerField(null=True)),
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("running", "running"),
                            ("suspended", "suspended"),
                            ("completed", "completed"),
                            ("cancelled", "cancelled"),
                            ("interrupted", "interrupted"),
                            ("failed", "failed"),
                            ("incomplete", "incomplete"),
                        ],
                        default="running",
                        max_length=16,
                    ),
                ),
                ("origin", models.CharField(default="chat", max_length=32)),
                ("model", models.CharField(max_length=100)),
                ("idempotency_key", models.CharField(max_length=200, null=True)),
                ("request_digest", models.CharField(default="", max_length=64)),
                ("options", models.TextField(default="")),
                ("created_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                ("error_code", models.CharField(max_length=64, null=True)),
                ("error_message", models.TextField(null=True)),
                ("lease_owner", models.CharField(default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("fence", models.BigIntegerField(default=1)),
                ("interrupt_requested_at", models.DateTimeField(null=True)),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="turns", to="sessions_app.session"
                    ),
                ),
            ],
            options={
                "db_table": "turns",
            },
        ),
        migrations.CreateModel(
            name="ModelCall",
            fields=[
                ("tokens_input", models.BigIntegerField(null=True)),
                ("tokens_output", models.BigIntegerField(null=True)),
                ("tokens_cache_read", models.BigIntegerField(null=True)),
                ("tokens_cache_write", models.BigIntegerField(null=True)),
                ("usage_source", models.CharField(max_length=16, null=True)),
                ("cost_micros", models.BigIntegerField(null=True)),
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("purpose", models.CharField(default="turn", max_length=16)),
                ("model", models.CharField(max_length=100)),
                ("provider_model", models.CharField(max_length=200)),
                ("parameters", models.JSONField(default=dict)),
                ("manifest", models.JSONField(default=list)),
                ("context_seq", models.BigIntegerField(default=0)),
                ("digest", models.CharField(max_length=64)),
                ("estimated_tokens", models.BigIntegerField(default=0)),
                ("attempts", models.IntegerField(null=True)),
                ("state", models.CharField(default="running", max_length=16)),
                ("outcome", models.CharField(max_length=16, null=True)),
                ("finish_reason", models.CharField(max_length=64, null=True)),
                ("usage_said", models.TextField(null=True)),
                ("error_code", models.CharField(max_length=64, null=True)),
                ("error_message", models.TextField(null=True)),
                ("created_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "message",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.message",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
                (
                    "turn",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="calls",
                        to="sessions_app.turn",
                    ),
                ),
            ],
            options={
                "db_table": "model_calls",
            },
        ),
        migrations.AddField(
            model_name="message",
            name="turn",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="messages", to="sessions_app.turn"
            ),
        ),
        migrations.CreateModel(
            name="ModelGrant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "group",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="auth.group"
                    ),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="grants",
                        to="sessions_app.languagemodel",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "model_grants",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("group__isnull", True), ("user__isnull", True), _connector="XOR"),
                        name="model_grant_to_one",
                    ),
                    models.UniqueConstraint(fields=("model", "group"), name="model_grant_of_group"),
                    models.UniqueConstraint(fields=("model", "user"), name="model_grant_of_user"),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["owner", "-created_at"], name="session_owner_newest"),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(fields=["owner", "-updated_at"], name="session_owner_active"),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(
                condition=models.Q(models.Q(("external_id", ""), _negated=True), ("deleted_at__isnull", True)),
                fields=("owner", "origin", "external_id"),
                name="session_imported_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="session",
            constraint=models.UniqueConstraint(
                condition=models.Q(("archived_at__isnull", True), ("deleted_at__isnull", True), ("host_mode", True)),
                fields=("owner", "peer_name"),
                name="session_peer_name",
            ),
        ),
        migrations.AddIndex(
            model_name="searchentry",
            index=models.Index(fields=["session", "id"], name="search_of_session"),
        ),
        migrations.AddIndex(
            model_name="searchentry",
            index=models.Index(fields=["owner", "id"], name="search_of_owner"),
        ),
        migrations.AddConstraint(
            model_name="prompttext",
            constraint=models.UniqueConstraint(fields=("session", "digest"), name="prompt_text_once"),
        ),
        migrations.AddIndex(
            model_name="messagepart",
            index=models.Index(
                condition=models.Q(("part_type", "tool")),
                fields=["session", "compacted_at"],
                name="part_tools_of_session",
            ),
        ),
        migrations.AddConstraint(
            model_name="messagepart",
            constraint=models.UniqueConstraint(fields=("message", "part_index"), name="part_index_unique"),
        ),
        migrations.AddConstraint(
            model_name="event",
            constraint=models.UniqueConstraint(fields=("session", "seq"), name="event_seq_unique"),
        ),
        migrations.AddIndex(
            model_name="contextitem",
            index=models.Index(fields=["session", "added_seq"], name="context_as_of"),
        ),
        migrations.AddConstraint(
            model_name="contextitem",
            constraint=models.UniqueConstraint(
                condition=models.Q(("removed_seq__isnull", True)),
                fields=("session", "position"),
                name="context_position_unique",
            ),
        ),
        migrations.AddConstraint(
            model_name="contextitem",
            constraint=models.UniqueConstraint(fields=("session", "item_id"), name="context_item_once"),
        ),
        migrations.AddConstraint(
            model_name="streamjournal",
            constraint=models.UniqueConstraint(fields=("message", "part_index", "offset"), name="journal_piece_unique"),
        ),
        migrations.AddIndex(
            model_name="turn",
            index=models.Index(
                condition=models.Q(("state", "running")), fields=["lease_expires_at"], name="turn_leases"
            ),
        ),
        migrations.AddConstraint(
            model_name="turn",
            constraint=models.UniqueConstraint(fields=("session", "seq"), name="turn_seq_unique"),
        ),
        migrations.AddConstraint(
            model_name="turn",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at__isnull", True)), fields=("session",), name="turn_one_open"
            ),
        ),
        migrations.AddConstraint(
            model_name="turn",
            constraint=models.UniqueConstraint(
                condition=models.Q(("idempotency_key__isnull", False)),
                fields=("session", "idempotency_key"),
                name="turn_idempotent",
            ),
        ),
        migrations.AddIndex(
            model_name="modelcall",
            index=models.Index(
                fields=[
                    "session",
                    "created_at",
                    "model",
                    "purpose",
                    "tokens_input",
                    "tokens_output",
                    "tokens_cache_read",
                    "cost_micros",
                ],
                name="call_of_session",
            ),
        ),
        migrations.AddIndex(
            model_name="modelcall",
            index=models.Index(
                fields=[
                    "created_at",
                    "session",
                    "model",
                    "purpose",
                    "tokens_input",
                    "tokens_output",
                    "tokens_cache_read",
                    "cost_micros",
                ],
                name="call_of_day",
            ),
        ),
        migrations.AddIndex(
            model_name="modelcall",
            index=models.Index(
                condition=models.Q(("turn", None)), fields=["session", "purpose"], name="call_of_no_turn"
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(fields=["turn", "seq"], name="message_turn"),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.UniqueConstraint(fields=("session", "seq"), name="message_seq_unique"),
        ),
        migrations.RunPython(create_index, drop_index),
    ]
