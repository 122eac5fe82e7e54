"""Keys are compared byte by byte, and only what is looked up has an index."""

from django.db import migrations, models
from django.db.migrations import AlterField

from sessions_app.database.fields import IdField
from sessions_app.database.fields import ConvertKeys


class Migration(migrations.Migration):
    dependencies = [
        ("compaction_app", "0003_salts"),
        ("sessions_app", "0004_keys"),
    ]

    operations = [
        ConvertKeys([
            AlterField("compactionrun", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("compactionrun", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session")),
            AlterField("summaryedge", "node", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="edges", to="compaction_app.summarynode")),
            AlterField("summaryedge", "source_id", IdField(max_length=40)),
            AlterField("summarynode", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("summarynode", "restores", models.ForeignKey(db_index=False, null=True, on_delete=models.PROTECT, related_name="+", to="compaction_app.summarynode")),
            AlterField("summarynode", "revises", models.ForeignKey(db_index=False, null=True, on_delete=models.PROTECT, related_name="+", to="compaction_app.summarynode")),
            AlterField("summarynode", "session", models.ForeignKey(db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session")),
            AlterField("summarypreview", "batch_id", IdField(max_length=40)),
            AlterField("summarypreview", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("summarytry", "id", IdField(max_length=40, primary_key=True, serialize=False)),
            AlterField("summarytry", "summary_id", IdField(max_length=40)),
        ]),
    ]
