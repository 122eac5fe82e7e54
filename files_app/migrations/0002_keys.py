"""Keys are compared byte by byte, and only what is looked up has an index."""

from django.db import migrations, models
from django.db.migrations import AlterField

from sessions_app.database.fields import IdField
from sessions_app.database.fields import ConvertKeys


class Migration(migrations.Migration):
    dependencies = [
        ("files_app", "0001_schema"),
        ("sessions_app", "0004_keys"),
    ]

    operations = [
        ConvertKeys([
            AlterField("filereference", "content_id", IdField(max_length=64)),
            AlterField("filereference", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("filereference", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session")),
        ]),
    ]
