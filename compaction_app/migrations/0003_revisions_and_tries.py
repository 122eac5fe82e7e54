"""Summaries are revised and previewed, each attempt at one is a row, and nothing has two summaries."""

import django.db.models.deletion
import mnesis_core.ledger
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('compaction_app', '0002_search_summaries'),
        ('sessions_app', '0004_prompt_texts_and_limits'),
    ]

    operations = [
        migrations.CreateModel(
            name='SummaryPreview',
            fields=[
                ('id', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('batch_id', models.CharField(max_length=40)),
                ('level', models.IntegerField()),
                ('text', models.TextField()),
                ('token_count', models.BigIntegerField()),
                ('source_tokens', models.BigIntegerField()),
                ('model', models.CharField(default='', max_length=100)),
                ('prompt_version', models.CharField(default='', max_length=64)),
                ('tokens_input', models.BigIntegerField(default=0)),
                ('tokens_output', models.BigIntegerField(default=0)),
                ('cost_micros', models.BigIntegerField(default=0)),
                ('duration_ms', models.BigIntegerField(default=0)),
                ('source_ids', models.JSONField()),
                ('created_at', models.DateTimeField()),
                ('salt', models.CharField(default=mnesis_core.ledger.new_salt, max_length=64)),
            ],
            options={
                'db_table': 'summary_previews',
            },
        ),
        migrations.CreateModel(
            name='SummaryTry',
            fields=[
                ('id', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('summary_id', models.CharField(max_length=40)),
                ('number', models.IntegerField()),
                ('kind', models.CharField(choices=[('leaf', 'leaf'), ('condensed', 'condensed')], max_length=16)),
                ('level', models.IntegerField()),
                ('piece', models.IntegerField()),
                ('pieces', models.IntegerField()),
                ('target_tokens', models.BigIntegerField(null=True)),
                ('prompt_version', models.CharField(default='', max_length=32)),
                ('accepted', models.BooleanField()),
                ('reason', models.CharField(default='', max_length=64)),
                ('text', models.TextField(default='')),
                ('reasoning', models.TextField(default='')),
                ('tool_calls', models.JSONField(default=list)),
                ('tokens_input', models.BigIntegerField(default=0)),
                ('tokens_output', models.BigIntegerField(default=0)),
                ('usage_source', models.CharField(max_length=16)),
                ('cost_micros', models.BigIntegerField(null=True)),
                ('created_at', models.DateTimeField()),
                ('salt', models.CharField(default=mnesis_core.ledger.new_salt, max_length=64)),
            ],
            options={
                'verbose_name_plural': 'summary tries',
                'db_table': 'summary_tries',
            },
        ),
        migrations.RemoveField(
            model_name='compactionrun',
            name='tries',
        ),
        migrations.AddField(
            model_name='compactionrun',
            name='outcome',
            field=models.CharField(max_length=32, null=True),
        ),
        migrations.AddField(
            model_name='summaryedge',
            name='of_revision',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='summarynode',
            name='freshness',
            field=models.CharField(choices=[('fresh', 'Fresh'), ('stale', 'Stale')], default='fresh', max_length=8),
        ),
        migrations.AddField(
            model_name='summarynode',
            name='restores',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compaction_app.summarynode'),
        ),
        migrations.AddField(
            model_name='summarynode',
            name='revises',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='compaction_app.summarynode'),
        ),
        migrations.AlterField(
            model_name='compactionrun',
            name='state',
            field=models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('completed', 'Completed'), ('failed', 'Failed'), ('superseded', 'Superseded')], default='queued', max_length=16),
        ),
        migrations.AlterField(
            model_name='summarynode',
            name='run',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='summaries', to='compaction_app.compactionrun'),
        ),
        migrations.AddConstraint(
            model_name='summaryedge',
            constraint=models.UniqueConstraint(condition=models.Q(('of_revision', False)), fields=('source_id',), name='edge_source_covered_once'),
        ),
        migrations.AddConstraint(
            model_name='summarynode',
            constraint=models.UniqueConstraint(fields=('revises',), name='summary_revised_once'),
        ),
        migrations.AddField(
            model_name='summarypreview',
            name='session',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.session'),
        ),
        migrations.AddField(
            model_name='summarypreview',
            name='summary',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='previews', to='compaction_app.summarynode'),
        ),
        migrations.AddField(
            model_name='summarytry',
            name='call',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.modelcall'),
        ),
        migrations.AddField(
            model_name='summarytry',
            name='run',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='tries', to='compaction_app.compactionrun'),
        ),
        migrations.AddField(
            model_name='summarytry',
            name='session',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.session'),
        ),
        migrations.AddIndex(
            model_name='summarypreview',
            index=models.Index(fields=['batch_id'], name='preview_batch'),
        ),
        migrations.AddIndex(
            model_name='summarytry',
            index=models.Index(fields=['created_at'], name='try_of_day'),
        ),
        migrations.AddConstraint(
            model_name='summarytry',
            constraint=models.UniqueConstraint(fields=('summary_id', 'number'), name='try_number_unique'),
        ),
    ]
