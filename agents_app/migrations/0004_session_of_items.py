"""Each item of a run names its session."""

from django.db import migrations, models

from sessions_app.database.fields import name_sessions


def session(**options: bool) -> models.ForeignKey:
    return models.ForeignKey(on_delete=models.PROTECT, related_name="+", to="sessions_app.session", **options)


class Migration(migrations.Migration):
    dependencies = [("agents_app", "0003_keys"), ("sessions_app", "0004_keys")]

    operations = [
        migrations.AddField("operatoritem", "session", session(null=True)),
        name_sessions("operator_items", of="operator_runs", by="run_id"),
        migrations.AlterField("operatoritem", "session", session()),
    ]
