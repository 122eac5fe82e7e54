"""Facts, and the characters that they quote."""

import django.db.models.deletion
from django.db import migrations, models

import mnesis_core.events
import sessions_app.database.fields


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0006_branches'),
        ('sessions_app', '0007_lengths'),
    ]

    operations = [
        migrations.CreateModel(
            name='Fact',
            fields=[
                ('id', sessions_app.database.fields.IdField(max_length=40, primary_key=True, serialize=False)),
                ('scope', models.CharField(choices=[('session', 'session')], default='session', max_length=16)),
                ('kind', models.CharField(choices=[('preference', 'preference'), ('decision', 'decision'), ('constraint', 'constraint'), ('entity', 'entity'), ('open_task', 'open_task'), ('instruction', 'instruction')], max_length=16)),
                ('subject', models.TextField(default='')),
                ('statement', models.TextField()),
                ('said_at', models.DateTimeField()),
                ('said_seq', models.BigIntegerField()),
                ('valid_from', models.DateTimeField(null=True)),
                ('valid_to', models.DateTimeField(null=True)),
                ('salience', models.IntegerField(default=50)),
                ('method', models.CharField(choices=[('person', 'person'), ('model', 'model')], max_length=16)),
                ('model', models.CharField(default='', max_length=100)),
                ('created_at', models.DateTimeField()),
                ('created_seq', models.BigIntegerField()),
                ('superseded_seq', models.BigIntegerField(null=True)),
                ('withdrawn_seq', models.BigIntegerField(null=True)),
                ('salt', models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                ('session', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.session')),
                ('superseded_by', models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compaction_app.fact')),
            ],
            options={
                'db_table': 'facts',
            },
        ),
        migrations.CreateModel(
            name='FactSource',
            fields=[
                ('id', sessions_app.database.fields.IdField(max_length=40, primary_key=True, serialize=False)),
                ('quote_start', models.IntegerField()),
                ('quote_end', models.IntegerField()),
                ('salt', models.CharField(default=mnesis_core.events.new_salt, max_length=64)),
                ('fact', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='sources', to='compaction_app.fact')),
                ('part', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.messagepart')),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.session')),
            ],
            options={
                'db_table': 'fact_sources',
            },
        ),
        migrations.AddIndex(
            model_name='fact',
            index=models.Index(fields=['session', 'created_seq'], name='fact_of_session'),
        ),
        migrations.AddIndex(
            model_name='fact',
            index=models.Index(condition=models.Q(('superseded_seq__isnull', True), ('withdrawn_seq__isnull', True)), fields=['session', 'kind', 'subject'], name='fact_live'),
        ),
    ]
