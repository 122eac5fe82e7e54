"""The directory of sessions, with those in it that were there before."""

from typing import Any

from django.db import migrations, models
from django.utils import timezone

from mnesis_core.ledger import GENESIS, canonical_body, entry_hash
from sessions_app.database.commitments import time_text

ROWS_AT_ONCE = 1_000


def enter_sessions(apps: Any, schema_editor: Any) -> None:
    """One entry each, in the order in which they began; that the migration made it is its type."""
    using, now = schema_editor.connection.alias, timezone.now()
    entries = apps.get_model("sessions_app", "DirectoryEntry").objects.using(using)
    sessions = apps.get_model("sessions_app", "Session").objects.using(using).order_by("created_at", "id")
    type, head, rows = "session.entered", GENESIS, []
    places = sessions.values_list("id", "owner_id", "event_seq", "head_hash")
    for seq, (id, owner_id, count, last) in enumerate(places.iterator(chunk_size=ROWS_AT_ONCE), 1):
        told = {"session_id": id, "owner_id": owner_id, "entries": count, "head": last, "at": time_text(now)}
        body = canonical_body(told)
        hash = entry_hash(prev_hash=head, seq=seq, type=type, body=body)
        named = {"seq": seq, "session_id": id, "type": type, "entries": count, "body": body}
        rows.append(entries.model(**named, prev_hash=head, hash=hash, created_at=now))
        head = hash
        if len(rows) == ROWS_AT_ONCE:
            entries.bulk_create(rows)
            rows = []
    entries.bulk_create(rows)


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0013_buckets_of_tries")]

    operations = [
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
        migrations.RunPython(enter_sessions, migrations.RunPython.noop),
    ]
