"""Nothing has two summaries, but for revisions of one; which edges are a revision's is filled in for what is there."""

from typing import Any

from django.db import migrations, models


def mark_revisions(apps: Any, schema_editor: Any) -> None:
    """Whose summary takes another one's place."""
    edges = apps.get_model("compaction_app", "SummaryEdge")._base_manager.using(schema_editor.connection.alias)
    edges.filter(node__revises__isnull=False).update(of_revision=True)


class Migration(migrations.Migration):
    dependencies = [("compaction_app", "0005_revisions")]

    operations = [
        migrations.AddField(
            model_name="summaryedge", name="of_revision", field=models.BooleanField(default=False)
        ),
        migrations.RunPython(mark_revisions, migrations.RunPython.noop),
        migrations.AddConstraint(
            model_name="summaryedge",
            constraint=models.UniqueConstraint(
                condition=models.Q(("of_revision", False)), fields=("source_id",), name="edge_source_covered_once"
            ),
        ),
    ]
