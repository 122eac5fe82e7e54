"""Each edge of the DAG names its session."""

from django.db import migrations, models

from sessions_app.database.fields import name_sessions


def session(**options: bool) -> models.ForeignKey:
    return models.ForeignKey(
        db_index=False, on_delete=models.PROTECT, related_name="+", to="sessions_app.session", **options
    )


class Migration(migrations.Migration):
    dependencies = [("compaction_app", "0004_keys"), ("sessions_app", "0004_keys")]

    operations = [
        migrations.AddField("summaryedge", "session", session(null=True)),
        name_sessions("summary_edges", of="summary_nodes", by="node_id"),
        migrations.AlterField("summaryedge", "session", session()),
        migrations.RemoveIndex("summaryedge", "edge_source"),
        migrations.AddIndex("summaryedge", models.Index(fields=["session", "source_id"], name="edge_of_session")),
    ]
