"""Organisations own sessions beside the person. What is there already belongs to the site's own one."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q
from django.utils import timezone

from mnesis_core.records import new_id
from sessions_app.database.fields import IdField

OWNED = ("session", "person", "apikey")


def organisation(**how):
    return models.ForeignKey(
        db_index=False,
        on_delete=django.db.models.deletion.PROTECT,
        related_name="+",
        to="sessions_app.organisation",
        **how,
    )


def give_all_to_one(apps, schema_editor):
    alias = schema_editor.connection.alias
    rows = [apps.get_model("sessions_app", name).objects.using(alias) for name in OWNED]
    if any(owned.exists() for owned in rows):  # an empty database gets it with its first account
        organisations = apps.get_model("sessions_app", "Organisation").objects.using(alias)
        one = organisations.create(id=new_id("org"), slug="default", created_at=timezone.now())
        for owned in rows:
            owned.update(organisation=one)


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0004_keys")]

    operations = [
        migrations.CreateModel(
            name="Organisation",
            fields=[
                ("id", IdField(max_length=40, primary_key=True, serialize=False)),
                ("slug", IdField(max_length=64, unique=True)),
                ("name", models.CharField(default="", max_length=200)),
                ("settings", models.JSONField(default=dict)),
                ("created_at", models.DateTimeField()),
            ],
            options={"db_table": "organisations"},
        ),
        *(migrations.AddField(name, "organisation", organisation(null=True)) for name in OWNED),
        migrations.RunPython(give_all_to_one, migrations.RunPython.noop),
        *(migrations.AlterField(name, "organisation", organisation()) for name in OWNED),
        migrations.RemoveConstraint("session", "session_imported_once"),
        migrations.RemoveConstraint("session", "session_peer_name"),
        migrations.RemoveIndex("session", "session_owner_newest"),
        migrations.RemoveIndex("session", "session_owner_active"),
        migrations.AddIndex(
            "session", models.Index(fields=["owner", "-created_at", "organisation"], name="session_owner_newest")
        ),
        migrations.AddIndex(
            "session", models.Index(fields=["owner", "-updated_at", "organisation"], name="session_owner_active")
        ),
        migrations.AddConstraint(
            "session",
            models.UniqueConstraint(
                condition=Q(("external_id", ""), _negated=True) & Q(("deleted_at__isnull", True)),
                fields=("organisation", "owner", "origin", "external_id"),
                name="session_imported_once",
            ),
        ),
        migrations.AddConstraint(
            "session",
            models.UniqueConstraint(
                condition=Q(("archived_at__isnull", True), ("deleted_at__isnull", True), ("host_mode", True)),
                fields=("organisation", "owner", "peer_name"),
                name="session_peer_name",
            ),
        ),
    ]
