"""Sessions get a salt for the commitments to their rows, and say where they were forked."""

from typing import Any

from django.db import migrations, models

import mnesis_core.ledger


def salt_old_sessions(apps: Any, schema_editor: Any) -> None:
    """Each session a salt of its own: adding the column gave one and the same to all."""
    sessions = apps.get_model("sessions_app", "Session").objects.using(schema_editor.connection.alias)
    for session in sessions.only("pk").iterator():
        sessions.filter(pk=session.pk).update(salt=mnesis_core.ledger.new_salt())


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0001_initial")]

    operations = [
        migrations.AddField("session", "forked_message_id", models.CharField(default="", max_length=40)),
        migrations.AddField(
            "session", "salt", models.CharField(default=mnesis_core.ledger.new_salt, max_length=64)
        ),
        migrations.RunPython(salt_old_sessions, migrations.RunPython.noop),
    ]
