"""Texts that prompts were made with are kept, so that any past payload can be rebuilt."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0003_search")]

    operations = [
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
            options={"db_table": "prompt_texts"},
        ),
        migrations.AddConstraint(
            model_name="prompttext",
            constraint=models.UniqueConstraint(fields=("session", "digest"), name="prompt_text_once"),
        ),
    ]
