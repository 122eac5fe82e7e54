"""Who requested each compaction, or at whose turn it became due."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0001_schema'),
    ]

    operations = [
        migrations.AddField(
            model_name='compactionrun',
            name='actor',
            field=models.TextField(default=''),
        ),
    ]
