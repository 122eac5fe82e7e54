"""Put the summaries that are there already into the search index."""

from typing import Any

from django.db import migrations

from sessions_app.search.index import fill


def fill_index(apps: Any, schema_editor: Any) -> None:
    """What was summarised before there was an index."""
    fill("summaries", using=schema_editor.connection.alias)


class Migration(migrations.Migration):
    dependencies = [("compaction_app", "0001_initial"), ("sessions_app", "0003_search")]

    operations = [migrations.RunPython(fill_index, migrations.RunPython.noop)]
