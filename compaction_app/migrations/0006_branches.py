"""Compactions and summaries name their branches, and the context how far each summary reaches."""

from django.db import migrations, models


def number() -> models.BigIntegerField:
    return models.BigIntegerField(default=0)


class Migration(migrations.Migration):
    dependencies = [("compaction_app", "0005_session_of_edges"), ("sessions_app", "0006_branches")]

    operations = [
        migrations.RemoveConstraint("summaryedge", "edge_source_covered_once"),
        migrations.AddField("compactionrun", "branch", number()),
        migrations.AddField("summaryedge", "branch", number()),
        migrations.AddField("summarynode", "branch", number()),
        migrations.AddConstraint(
            "summaryedge",
            models.UniqueConstraint(
                condition=models.Q(of_revision=False), fields=["source_id", "branch"], name="edge_source_covered_once"
            ),
        ),
        migrations.RunSQL(
            "UPDATE context_items SET until = (SELECT last_seq FROM summary_nodes WHERE summary_nodes.id = item_id)"
            " WHERE item_type = 'summary'",
            migrations.RunSQL.noop,
        ),
    ]
