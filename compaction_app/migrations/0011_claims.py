"""Sentences of summaries, and what they rest on."""

import django.db.models.deletion
from django.db import migrations, models

import mnesis_core.events
import sessions_app.database.fields


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0010_facts_by_rule'),
        ('sessions_app', '0008_vectors'),
    ]

    operations = [
        migrations.CreateModel(
            name='Claim',
            fields=[
                ('id', sessions_app.database.fields.IdField(max_length=40, primary_key=True, serialize=False)),
                ('method', models.CharField(max_length=32)),
                ('number', models.IntegerField()),
                ('text_start', models.IntegerField()),
                ('text_end', models.IntegerField()),
                ('support', models.CharField(choices=[('quoted', 'quoted'), ('supported', 'supported'), ('partly', 'partly'), ('none', 'none')], max_length=16)),
                ('share', models.IntegerField()),
                ('missing', models.JSONField(default=list)),
                ('places', models.JSONField(default=list)),
                ('created_at', models.DateTimeField()),
                ('salt', models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.session')),
                ('summary', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compaction_app.summarynode')),
            ],
            options={
                'db_table': 'claims',
                'indexes': [models.Index(fields=['session', 'summary'], name='claim_of_session')],
                'constraints': [models.UniqueConstraint(fields=('summary', 'method', 'number'), name='claim_once')],
            },
        ),
    ]
