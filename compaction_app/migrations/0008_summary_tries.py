"""Every attempt at a summary is a row, where it was JSON at its run."""

import django.db.models.deletion
from django.db import migrations, models

import mnesis_core.ledger


class Migration(migrations.Migration):
    dependencies = [("compaction_app", "0007_previews"), ("sessions_app", "0004_prompt_texts")]

    operations = [
        migrations.RemoveField(
            model_name="compactionrun",
            name="tries",
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
                ("salt", models.CharField(default=mnesis_core.ledger.new_salt, max_length=64)),
                ("call", models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.modelcall")),
                ("run", models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name="tries", to="compaction_app.compactionrun")),
                ("session", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name="+", to="sessions_app.session")),
            ],
            options={
                "verbose_name_plural": "summary tries",
                "db_table": "summary_tries",
                "indexes": [models.Index(fields=["created_at"], name="try_of_day")],
                "constraints": [models.UniqueConstraint(fields=("summary_id", "number"), name="try_number_unique")],
            },
        ),
    ]
