"""Facts that are not forbidden have an empty ban, which is one of the choices."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0011_claims'),
    ]

    operations = [
        migrations.AlterField(
            model_name='fact',
            name='ban',
            field=models.CharField(choices=[('', 'none'), ('forbidden', 'forbidden')], default='', max_length=16),
        ),
    ]
