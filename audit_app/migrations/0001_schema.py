"""What the last verification of each session found."""

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    # What a database of before has applied instead.
    replaces = [
        ("audit_app", "0001_verifications"),
    ]

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Verification",
            fields=[
                ("session_id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                (
                    "state",
                    models.CharField(
                        choices=[("queued", "queued"), ("running", "running"), ("done", "done"), ("failed", "failed")],
                        max_length=16,
                    ),
                ),
                ("asked_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("worker", models.CharField(default="", max_length=100)),
                ("lease_expires_at", models.DateTimeField(null=True)),
                ("entries_total", models.BigIntegerField(default=0)),
                ("entries_done", models.BigIntegerField(default=0)),
                ("verified_at", models.DateTimeField(null=True)),
                ("duration_ms", models.BigIntegerField(default=0)),
                ("seq", models.BigIntegerField(default=0)),
                ("head_hash", models.CharField(default="", max_length=64)),
                ("entries", models.BigIntegerField(default=0)),
                ("commitments", models.BigIntegerField(default=0)),
                ("problem_count", models.BigIntegerField(default=0)),
                ("problems", models.JSONField(default=list)),
                ("is_unbound", models.BooleanField(default=False)),
                ("is_moved", models.BooleanField(default=False)),
            ],
            options={
                "db_table": "verifications",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "running")), fields=("state",), name="verification_one_runs"
                    )
                ],
            },
        ),
    ]
