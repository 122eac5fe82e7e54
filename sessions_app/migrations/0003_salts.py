"""Each row that can be erased has a salt of its own. Rows that are there already have none and go on using their session's."""

from django.db import migrations, models

from mnesis_core.events import new_salt


def salt() -> models.CharField:
    return models.CharField(db_default="", default=new_salt, max_length=64)


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0002_actors")]

    operations = [
        migrations.AddField("session", "own_salt", salt()),
        migrations.AddField("turn", "salt", salt()),
        migrations.AddField("message", "salt", salt()),
        migrations.AddField("prompttext", "salt", salt()),
        migrations.AddField("modelcall", "salt", salt()),
    ]
