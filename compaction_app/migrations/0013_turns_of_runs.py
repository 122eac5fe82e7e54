"""Compactions of named turns."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0012_choices_of_ban'),
    ]

    operations = [
        migrations.AddField('compactionrun', 'turn_ids', models.JSONField(default=list)),
    ]
