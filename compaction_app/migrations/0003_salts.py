from django.db import migrations, models

from mnesis_core.events import new_salt


class Migration(migrations.Migration):
    dependencies = [("compaction_app", "0002_actors")]

    operations = [
        migrations.AddField(
            "compactionrun", "salt", models.CharField(db_default="", default=new_salt, max_length=64)
        ),
    ]
