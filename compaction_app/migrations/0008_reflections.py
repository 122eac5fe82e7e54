"""Reflections: the search for facts in the messages of a summary."""

import django.db.models.deletion
from django.db import migrations, models

import mnesis_core.events
import sessions_app.database.fields


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0007_facts'),
        ('sessions_app', '0007_lengths'),
    ]

    operations = [
        migrations.CreateModel(
            name='Reflection',
            fields=[
                ('id', sessions_app.database.fields.IdField(max_length=40, primary_key=True, serialize=False)),
                ('prompt_version', models.CharField(max_length=32)),
                ('state', models.CharField(choices=[('queued', 'queued'), ('completed', 'completed'), ('failed', 'failed')], max_length=16)),
                ('attempts', models.IntegerField(default=0)),
                ('lease_owner', models.CharField(default='', max_length=100)),
                ('lease_expires_at', models.DateTimeField(null=True)),
                ('created_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(null=True)),
                ('model', models.CharField(max_length=100, null=True)),
                ('found', models.IntegerField(null=True)),
                ('refused', models.IntegerField(null=True)),
                ('tokens_input', models.BigIntegerField(null=True)),
                ('tokens_output', models.BigIntegerField(null=True)),
                ('cost_micros', models.BigIntegerField(null=True)),
                ('error_code', models.CharField(max_length=64, null=True)),
                ('salt', models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.session')),
                ('summary', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compaction_app.summarynode')),
            ],
            options={
                'db_table': 'reflections',
            },
        ),
        migrations.AddField(
            model_name='fact',
            name='reflection',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compaction_app.reflection'),
        ),
        migrations.AddIndex(
            model_name='reflection',
            index=models.Index(fields=['session', 'created_at'], name='reflection_of_session'),
        ),
        migrations.AddIndex(
            model_name='reflection',
            index=models.Index(condition=models.Q(('state', 'queued')), fields=['lease_expires_at'], name='reflection_waiting'),
        ),
        migrations.AddConstraint(
            model_name='reflection',
            constraint=models.UniqueConstraint(fields=('summary', 'prompt_version'), name='reflection_once'),
        ),
    ]
