"""Keys are compared byte by byte, and only what is looked up has an index."""

from django.db import migrations, models
from django.db.migrations import AlterField

from sessions_app.database.fields import IdField
from sessions_app.database.fields import ConvertKeys


class Migration(migrations.Migration):
    dependencies = [
        ("agents_app", "0002_actors"),
        ("files_app", "0002_keys"),
        ("sessions_app", "0004_keys"),
    ]

    operations = [
        ConvertKeys([
            AlterField("inboxmessage", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("inboxmessage", "in_reply_to", IdField(default="", max_length=40)),
            AlterField("inboxmessage", "sender_id", IdField(default="", max_length=40)),
            AlterField("inboxmessage", "sender_turn_id", IdField(default="", max_length=40)),
            AlterField("inboxmessage", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session")),
            AlterField("mcpserver", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("mcpserver", "name", IdField(max_length=32)),
            AlterField("mcpservergrant", "server", models.ForeignKey(db_index=False, on_delete=models.CASCADE, related_name="grants", to="agents_app.mcpserver")),
            AlterField("operatorbrake", "model", IdField(max_length=100, primary_key=True, serialize=False)),
            AlterField("operatoritem", "accepted_try_id", IdField(default="", max_length=40)),
            AlterField("operatoritem", "call_id", IdField(default="", max_length=40)),
            AlterField("operatoritem", "child_session_id", IdField(default="", max_length=40)),
            AlterField("operatoritem", "run", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="agents_app.operatorrun")),
            AlterField("operatorrun", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("operatorrun", "input_file", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="files_app.filereference")),
            AlterField("operatorrun", "output_file_id", IdField(default="", max_length=40)),
            AlterField("operatorrun", "part_id", IdField(default="", max_length=40)),
            AlterField("operatorrun", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session")),
            AlterField("operatorrun", "turn_id", IdField(default="", max_length=40)),
            AlterField("operatorshare", "run_id", IdField(max_length=40)),
            AlterField("operatortry", "child_turn_id", IdField(default="", max_length=40)),
            AlterField("operatortry", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("operatortry", "run", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="agents_app.operatorrun")),
        ]),
    ]
