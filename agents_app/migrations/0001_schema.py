"""Attached servers, the inbox, and operators with their items."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import mnesis_core.events


class Migration(migrations.Migration):
    initial = True

    # What a database of before has applied instead.
    replaces = [
        ("agents_app", "0001_mcp_servers_and_inbox"),
        ("agents_app", "0002_operators"),
        ("agents_app", "0003_server_audience"),
        ("agents_app", "0004_servers_entered_on_host"),
        ("agents_app", "0005_read_only_by_tool"),
    ]

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("files_app", "0001_schema"),
        ("sessions_app", "0001_schema"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="OperatorBrake",
            fields=[
                ("model", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("until", models.DateTimeField(null=True)),
                ("ceiling", models.IntegerField(null=True)),
                ("since", models.DateTimeField()),
            ],
            options={
                "db_table": "operator_brakes",
            },
        ),
        migrations.CreateModel(
            name="McpServer",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=32)),
                ("argv", models.JSONField(default=list)),
                ("url", models.CharField(default="", max_length=2000)),
                ("secrets", models.JSONField(default=dict)),
                ("timeout_seconds", models.FloatField()),
                ("needs_approval", models.BooleanField(default=False)),
                ("trust_annotations", models.BooleanField(default=False)),
                ("entered_on_host", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField()),
                ("removed_at", models.DateTimeField(null=True)),
                ("is_restricted", models.BooleanField(default=False)),
                ("listing", models.TextField(default="")),
                ("read_only_tools", models.JSONField(default=dict)),
                ("listed_at", models.DateTimeField(null=True)),
                ("problem", models.TextField(default="")),
                ("unreachable_since", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "MCP server",
                "db_table": "mcp_servers",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("removed_at__isnull", True)),
                        fields=("name",),
                        name="mcp_server_attached_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="OperatorRun",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("turn_id", models.CharField(default="", max_length=40)),
                ("part_id", models.CharField(default="", max_length=40)),
                ("kind", models.CharField(choices=[("llm", "llm"), ("agentic", "agentic")], max_length=16)),
                ("spec", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("running", "running"),
                            ("paused", "paused"),
                            ("completed", "completed"),
                            ("cancelled", "cancelled"),
                            ("failed", "failed"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("reason", models.CharField(default="", max_length=32)),
                ("item_count", models.BigIntegerField(null=True)),
                ("completed_count", models.BigIntegerField(default=0)),
                ("failed_count", models.BigIntegerField(default=0)),
                ("cancelled_count", models.BigIntegerField(default=0)),
                ("try_count", models.BigIntegerField(default=0)),
                ("tokens_input", models.BigIntegerField(default=0)),
                ("tokens_output", models.BigIntegerField(default=0)),
                ("cost_micros", models.BigIntegerField(default=0)),
                ("output_file_id", models.CharField(default="", max_length=40)),
                ("error_code", models.CharField(max_length=64, null=True)),
                ("error_message", models.TextField(null=True)),
                ("idempotency_key", models.CharField(max_length=200, null=True)),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("salt", models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                (
                    "input_file",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="files_app.filereference"
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
                "verbose_name": "operator run",
                "db_table": "operator_runs",
            },
        ),
        migrations.CreateModel(
            name="OperatorItem",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("number", models.BigIntegerField()),
                ("line_offset", models.BigIntegerField()),
                ("line_length", models.BigIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("running", "running"),
                            ("completed", "completed"),
                            ("failed", "failed"),
                            ("cancelled", "cancelled"),
                        ],
                        default="pending",
                        max_length=16,
                    ),
                ),
                ("attempts", models.IntegerField(default=0)),
                ("excused", models.IntegerField(default=0)),
                ("not_before", models.DateTimeField(null=True)),
                ("lease_owner", models.CharField(default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("error_kind", models.CharField(default="", max_length=16)),
                ("error", models.TextField(default="")),
                ("accepted_try_id", models.CharField(default="", max_length=40)),
                ("call_id", models.CharField(default="", max_length=40)),
                ("child_session_id", models.CharField(default="", max_length=40)),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("tokens_input", models.BigIntegerField(default=0)),
                ("tokens_output", models.BigIntegerField(default=0)),
                ("cost_micros", models.BigIntegerField(default=0)),
                ("duration_ms", models.BigIntegerField(default=0)),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="agents_app.operatorrun"
                    ),
                ),
            ],
            options={
                "verbose_name": "operator item",
                "db_table": "operator_items",
            },
        ),
        migrations.CreateModel(
            name="OperatorShare",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("worker", models.CharField(max_length=100)),
                ("run_id", models.CharField(max_length=40)),
                ("permits", models.IntegerField()),
                ("wanted", models.IntegerField()),
                ("lease_expires_at", models.DateTimeField()),
                ("model", models.CharField(max_length=100)),
                ("provider", models.CharField(max_length=100)),
                ("owner_id", models.BigIntegerField()),
            ],
            options={
                "db_table": "operator_shares",
                "constraints": [models.UniqueConstraint(fields=("worker", "run_id"), name="operator_share_once")],
            },
        ),
        migrations.CreateModel(
            name="OperatorTry",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("item", models.BigIntegerField()),
                ("number", models.IntegerField()),
                ("child_turn_id", models.CharField(default="", max_length=40)),
                ("output", models.TextField(default="")),
                ("accepted", models.BooleanField()),
                ("error_kind", models.CharField(default="", max_length=16)),
                ("error", models.TextField(default="")),
                ("tokens_input", models.BigIntegerField(null=True)),
                ("tokens_output", models.BigIntegerField(null=True)),
                ("tokens_cache_read", models.BigIntegerField(null=True)),
                ("tokens_cache_write", models.BigIntegerField(null=True)),
                ("usage_source", models.CharField(max_length=16, null=True)),
                ("cost_micros", models.BigIntegerField(null=True)),
                ("duration_ms", models.BigIntegerField(default=0)),
                ("created_at", models.DateTimeField()),
                ("salt", models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                (
                    "call",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.modelcall",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="agents_app.operatorrun"
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
                "verbose_name": "operator try",
                "verbose_name_plural": "operator tries",
                "db_table": "operator_tries",
            },
        ),
        migrations.CreateModel(
            name="InboxMessage",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("seq", models.BigIntegerField()),
                ("sender_id", models.CharField(default="", max_length=40)),
                ("sender_turn_id", models.CharField(default="", max_length=40)),
                ("kind", models.CharField(max_length=16)),
                ("in_reply_to", models.CharField(default="", max_length=40)),
                ("text", models.TextField()),
                ("hops", models.BigIntegerField(default=0)),
                ("idempotency_key", models.CharField(max_length=200, null=True)),
                ("created_at", models.DateTimeField()),
                ("salt", models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
                (
                    "turn",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.turn"
                    ),
                ),
            ],
            options={
                "verbose_name": "inbox message",
                "db_table": "inbox_messages",
                "indexes": [
                    models.Index(condition=models.Q(("turn__isnull", True)), fields=["session"], name="inbox_waiting")
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("session", "seq"), name="inbox_place"),
                    models.UniqueConstraint(
                        condition=models.Q(("idempotency_key__isnull", False)),
                        fields=("session", "idempotency_key"),
                        name="inbox_idempotent",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="McpServerGrant",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "group",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.CASCADE, related_name="+", to="auth.group"
                    ),
                ),
                (
                    "server",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="grants", to="agents_app.mcpserver"
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
                "db_table": "mcp_server_grants",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("group__isnull", True), ("user__isnull", True), _connector="XOR"),
                        name="mcp_server_grant_to_one",
                    ),
                    models.UniqueConstraint(fields=("server", "group"), name="mcp_server_grant_of_group"),
                    models.UniqueConstraint(fields=("server", "user"), name="mcp_server_grant_of_user"),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="operatorrun",
            index=models.Index(fields=["session", "-created_at"], name="operator_run_of_session"),
        ),
        migrations.AddIndex(
            model_name="operatorrun",
            index=models.Index(
                condition=models.Q(("state__in", ["pending", "running"])), fields=["state"], name="operator_run_live"
            ),
        ),
        migrations.AddConstraint(
            model_name="operatorrun",
            constraint=models.UniqueConstraint(
                condition=models.Q(("idempotency_key__isnull", False)),
                fields=("session", "idempotency_key"),
                name="operator_run_idempotent",
            ),
        ),
        migrations.AddIndex(
            model_name="operatoritem",
            index=models.Index(fields=["run", "state", "number"], name="operator_item_state"),
        ),
        migrations.AddIndex(
            model_name="operatoritem",
            index=models.Index(
                condition=models.Q(("state", "running")), fields=["lease_expires_at"], name="operator_item_leases"
            ),
        ),
        migrations.AddConstraint(
            model_name="operatoritem",
            constraint=models.UniqueConstraint(fields=("run", "number"), name="operator_item_number"),
        ),
        migrations.AddConstraint(
            model_name="operatortry",
            constraint=models.UniqueConstraint(fields=("run", "item", "number"), name="operator_try_number"),
        ),
        migrations.AddConstraint(
            model_name="operatortry",
            constraint=models.UniqueConstraint(
                condition=models.Q(("accepted", True)), fields=("run", "item"), name="operator_try_accepted"
            ),
        ),
    ]
