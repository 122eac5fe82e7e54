"""A session's messages are a tree: its branches, and to which of them messages and items of the context belong."""

import django.db.models.deletion
from django.db import migrations, models

from mnesis_core.events import new_salt


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0003_salts'),
    ]

    operations = [
        migrations.CreateModel(
            name='Branch',
            fields=[
                ('id', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('number', models.BigIntegerField()),
                ('parent', models.BigIntegerField()),
                ('after_seq', models.BigIntegerField()),
                ('created_at', models.DateTimeField()),
                ('salt', models.CharField(default=new_salt, max_length=64)),
            ],
            options={
                'db_table': 'branches',
            },
        ),
        migrations.RemoveConstraint(
            model_name='contextitem',
            name='context_position_unique',
        ),
        migrations.AddField(
            model_name='contextitem',
            name='branch',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='contextitem',
            name='until',
            field=models.BigIntegerField(default=None, null=True),
        ),
        migrations.AddField(
            model_name='message',
            name='branch',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='session',
            name='branch',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='session',
            name='branch_seq',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddConstraint(
            model_name='contextitem',
            constraint=models.UniqueConstraint(condition=models.Q(('removed_seq__isnull', True)), fields=('session', 'position', 'until'), name='context_position_unique'),
        ),
        migrations.AddField(
            model_name='branch',
            name='session',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='branches', to='sessions_app.session'),
        ),
        migrations.AddIndex(
            model_name='branch',
            index=models.Index(fields=['session', 'after_seq'], name='branch_place'),
        ),
        migrations.AddConstraint(
            model_name='branch',
            constraint=models.UniqueConstraint(fields=('session', 'number'), name='branch_number_unique'),
        ),
    ]
