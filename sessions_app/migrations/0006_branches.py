"""A session's messages are a tree: its branches, and to which of them messages and items of the context belong."""

from django.db import migrations, models

from mnesis_core.events import new_salt
from sessions_app.database.fields import IdField


def number() -> models.BigIntegerField:
    return models.BigIntegerField(default=0)


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0005_organisations")]

    operations = [
        migrations.CreateModel(
            name="Branch",
            fields=[
                ("id", IdField(max_length=40, primary_key=True, serialize=False)),
                ("number", models.BigIntegerField()),
                ("parent", models.BigIntegerField()),
                ("after_seq", models.BigIntegerField()),
                ("created_at", models.DateTimeField()),
                ("salt", models.CharField(default=new_salt, max_length=64)),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=models.PROTECT,
                        related_name="branches",
                        to="sessions_app.session",
                    ),
                ),
            ],
            options={"db_table": "branches"},
        ),
        migrations.AddConstraint(
            "branch", models.UniqueConstraint(fields=["session", "number"], name="branch_number_unique")
        ),
        migrations.AddIndex("branch", models.Index(fields=["session", "after_seq"], name="branch_place")),
        migrations.AddField("session", "branch", number()),
        migrations.AddField("session", "branch_seq", number()),
        migrations.AddField("message", "branch", number()),
        migrations.RemoveConstraint("contextitem", "context_position_unique"),
        migrations.AddField("contextitem", "branch", number()),
        migrations.AddField("contextitem", "until", models.BigIntegerField(default=None, null=True)),
        migrations.AddConstraint(
            "contextitem",
            models.UniqueConstraint(
                condition=models.Q(removed_seq__isnull=True),
                fields=["session", "position", "until"],
                name="context_position_unique",
            ),
        ),
    ]
