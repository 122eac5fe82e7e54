"""Facts that carry over by rule what a summary had lost."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0009_forbidden_facts'),
    ]

    operations = [
        migrations.AlterField(
            model_name='fact',
            name='method',
            field=models.CharField(choices=[('person', 'person'), ('model', 'model'), ('rule', 'rule')], max_length=16),
        ),
    ]
