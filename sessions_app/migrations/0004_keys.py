"""Keys are compared byte by byte, and only what is looked up has an index."""

from django.conf import settings
from django.db import migrations, models
from django.db.migrations import AlterField

from sessions_app.database.fields import IdField
from sessions_app.database.fields import ConvertKeys


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0003_salts"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        ConvertKeys([
            AlterField("apikey", "prefix", IdField(max_length=16, primary_key=True, serialize=False)),
            AlterField("contextitem", "item_id", IdField(max_length=40)),
            AlterField("contextitem", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session")),
            AlterField("directoryentry", "session_id", IdField(max_length=40)),
            AlterField("event", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session")),
            AlterField("languagemodel", "alias", IdField(max_length=100, primary_key=True, serialize=False)),
            AlterField("message", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("message", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="messages", to="sessions_app.session")),
            AlterField("message", "turn", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="messages", to="sessions_app.turn")),
            AlterField("messagepart", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("messagepart", "message", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="parts", to="sessions_app.message")),
            AlterField("modelcall", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("modelcall", "purpose", IdField(default="turn", max_length=16)),
            AlterField("modelcall", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session")),
            AlterField("modelcall", "state", IdField(default="running", max_length=16)),
            AlterField("modelgrant", "model", models.ForeignKey(db_index=False, on_delete=models.CASCADE, related_name="grants", to="sessions_app.languagemodel")),
            AlterField("person", "ref", IdField(max_length=22, primary_key=True, serialize=False)),
            AlterField("prompttext", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("prompttext", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session")),
            AlterField("searchentry", "source_id", IdField(max_length=40)),
            AlterField("session", "forked_message_id", IdField(default="", max_length=40)),
            AlterField("session", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("session", "owner", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL)),
            AlterField("session", "parent_part_id", IdField(default="", max_length=40)),
            AlterField("session", "peer_name", IdField(default="", max_length=64)),
            AlterField("spendingmark", "id", IdField(max_length=80, primary_key=True, serialize=False)),
            AlterField("streamjournal", "message", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.message")),
            AlterField("trybucket", "key", IdField(max_length=64, primary_key=True, serialize=False)),
            AlterField("turn", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("turn", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="turns", to="sessions_app.session")),
        ]),
    ]
