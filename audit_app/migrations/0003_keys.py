"""Keys are compared byte by byte, and only what is looked up has an index."""

from django.db import migrations
from django.db.migrations import AlterField

from sessions_app.database.fields import IdField
from sessions_app.database.fields import ConvertKeys


class Migration(migrations.Migration):
    dependencies = [
        ("audit_app", "0002_first_form_entries"),
    ]

    operations = [
        ConvertKeys([
            AlterField("verification", "session_id", IdField(max_length=40, primary_key=True, serialize=False)),
        ]),
    ]
