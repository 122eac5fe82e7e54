"""Summaries, what they stand for, and the runs that made them."""

import django.db.models.deletion
from django.db import migrations, models

import mnesis_core.events


class Migration(migrations.Migration):
    initial = True

    # What a database of before has applied instead.
    replaces = [
        ("compaction_app", "0001_initial"),
        ("compaction_app", "0002_search_summaries"),
        ("compaction_app", "0003_revisions_and_tries"),
    ]

    dependencies = [
        ("sessions_app", "0001_schema"),
    ]

    operations = [
        migrations.CreateModel(
            name="CompactionRun",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("superseded", "Superseded"),
                        ],
                        default="queued",
                        max_length=16,
                    ),
                ),
                (
                    "trigger",
                    models.CharField(choices=[("soft", "soft"), ("hard", "hard"), ("manual", "manual")], max_length=16),
                ),
                ("attempts", models.IntegerField(default=0)),
                ("lease_owner", models.CharField(default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("fence", models.BigIntegerField(default=0)),
                ("created_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("outcome", models.CharField(max_length=32, null=True)),
                ("tokens_before", models.BigIntegerField(null=True)),
                ("tokens_after", models.BigIntegerField(null=True)),
                ("level", models.IntegerField(null=True)),
                ("summary_ids", models.JSONField(null=True)),
                ("source_count", models.IntegerField(null=True)),
                ("pruned_parts", models.IntegerField(null=True)),
                ("pruned_tokens", models.BigIntegerField(null=True)),
                ("tokens_input", models.BigIntegerField(null=True)),
                ("tokens_output", models.BigIntegerField(null=True)),
                ("cost_micros", models.BigIntegerField(null=True)),
                ("error_code", models.CharField(max_length=64, null=True)),
                ("error_message", models.TextField(null=True)),
                ("end_seq", models.BigIntegerField(null=True)),
                ("after_message_seq", models.BigIntegerField(null=True)),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
            ],
            options={
                "db_table": "compaction_runs",
            },
        ),
        migrations.CreateModel(
            name="SummaryNode",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("kind", models.CharField(choices=[("leaf", "leaf"), ("condensed", "condensed")], max_length=16)),
                ("depth", models.IntegerField()),
                ("level", models.IntegerField()),
                ("text", models.TextField()),
                ("token_count", models.BigIntegerField()),
                ("source_tokens", models.BigIntegerField()),
                ("first_seq", models.BigIntegerField()),
                ("last_seq", models.BigIntegerField()),
                ("message_count", models.BigIntegerField()),
                ("model", models.CharField(default="", max_length=100)),
                ("prompt_version", models.CharField(default="", max_length=32)),
                ("tokens_input", models.BigIntegerField(default=0)),
                ("tokens_output", models.BigIntegerField(default=0)),
                ("cost_micros", models.BigIntegerField(default=0)),
                ("duration_ms", models.BigIntegerField(default=0)),
                ("attempt", models.IntegerField(default=1)),
                ("created_at", models.DateTimeField()),
                ("superseded_seq", models.BigIntegerField(null=True)),
                (
                    "freshness",
                    models.CharField(choices=[("fresh", "Fresh"), ("stale", "Stale")], default="fresh", max_length=8),
                ),
                ("salt", models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                (
                    "restores",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="compaction_app.summarynode",
                    ),
                ),
                (
                    "revises",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="compaction_app.summarynode",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="summaries",
                        to="compaction_app.compactionrun",
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
                "db_table": "summary_nodes",
            },
        ),
        migrations.CreateModel(
            name="SummaryEdge",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("position", models.IntegerField()),
                (
                    "source_type",
                    models.CharField(choices=[("message", "message"), ("summary", "summary")], max_length=16),
                ),
                ("source_id", models.CharField(max_length=40)),
                ("of_revision", models.BooleanField(default=False)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="edges",
                        to="compaction_app.summarynode",
                    ),
                ),
            ],
            options={
                "db_table": "summary_edges",
            },
        ),
        migrations.CreateModel(
            name="SummaryPreview",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("batch_id", models.CharField(max_length=40)),
                ("level", models.IntegerField()),
                ("text", models.TextField()),
                ("token_count", models.BigIntegerField()),
                ("source_tokens", models.BigIntegerField()),
                ("model", models.CharField(default="", max_length=100)),
                ("prompt_version", models.CharField(default="", max_length=64)),
                ("tokens_input", models.BigIntegerField(default=0)),
                ("tokens_output", models.BigIntegerField(default=0)),
                ("cost_micros", models.BigIntegerField(default=0)),
                ("duration_ms", models.BigIntegerField(default=0)),
                ("source_ids", models.JSONField()),
                ("created_at", models.DateTimeField()),
                ("salt", models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session"
                    ),
                ),
                (
                    "summary",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="previews",
                        to="compaction_app.summarynode",
                    ),
                ),
            ],
            options={
                "db_table": "summary_previews",
            },
        ),
        migrations.CreateModel(
            name="SummaryTry",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("summary_id", models.CharField(max_length=40)),
                ("number", models.IntegerField()),
                ("kind", models.CharField(choices=[("leaf", "leaf"), ("condensed", "condensed")], max_length=16)),
                ("level", models.IntegerField()),
                ("piece", models.IntegerField()),
                ("pieces", models.IntegerField()),
                ("target_tokens", models.BigIntegerField(null=True)),
                ("prompt_version", models.CharField(default="", max_length=32)),
                ("accepted", models.BooleanField()),
                ("reason", models.CharField(default="", max_length=64)),
                ("text", models.TextField(default="")),
                ("reasoning", models.TextField(default="")),
                ("tool_calls", models.JSONField(default=list)),
                ("tokens_input", models.BigIntegerField(default=0)),
                ("tokens_output", models.BigIntegerField(default=0)),
                ("usage_source", models.CharField(max_length=16)),
                ("cost_micros", models.BigIntegerField(null=True)),
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
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tries",
                        to="compaction_app.compactionrun",
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
                "verbose_name_plural": "summary tries",
                "db_table": "summary_tries",
            },
        ),
        migrations.AddIndex(
            model_name="compactionrun",
            index=models.Index(fields=["session", "created_at"], name="compaction_of_session"),
        ),
        migrations.AddConstraint(
            model_name="compactionrun",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state__in", ["queued", "running"])),
                fields=("session",),
                name="compaction_one_live",
            ),
        ),
        migrations.AddIndex(
            model_name="summarynode",
            index=models.Index(fields=["session", "first_seq"], name="summary_span"),
        ),
        migrations.AddConstraint(
            model_name="summarynode",
            constraint=models.UniqueConstraint(fields=("revises",), name="summary_revised_once"),
        ),
        migrations.AddIndex(
            model_name="summaryedge",
            index=models.Index(fields=["source_id"], name="edge_source"),
        ),
        migrations.AddConstraint(
            model_name="summaryedge",
            constraint=models.UniqueConstraint(fields=("node", "position"), name="edge_position_unique"),
        ),
        migrations.AddConstraint(
            model_name="summaryedge",
            constraint=models.UniqueConstraint(fields=("node", "source_id"), name="edge_source_once"),
        ),
        migrations.AddConstraint(
            model_name="summaryedge",
            constraint=models.UniqueConstraint(
                condition=models.Q(("of_revision", False)), fields=("source_id",), name="edge_source_covered_once"
            ),
        ),
        migrations.AddIndex(
            model_name="summarypreview",
            index=models.Index(fields=["batch_id"], name="preview_batch"),
        ),
        migrations.AddIndex(
            model_name="summarytry",
            index=models.Index(fields=["created_at"], name="try_of_day"),
        ),
        migrations.AddConstraint(
            model_name="summarytry",
            constraint=models.UniqueConstraint(fields=("summary_id", "number"), name="try_number_unique"),
        ),
    ]
