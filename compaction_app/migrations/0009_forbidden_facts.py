"""Facts that must not be found again."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0008_reflections'),
    ]

    operations = [
        migrations.AddField(
            model_name='fact',
            name='ban',
            field=models.CharField(choices=[('forbidden', 'forbidden')], default='', max_length=16),
        ),
    ]
