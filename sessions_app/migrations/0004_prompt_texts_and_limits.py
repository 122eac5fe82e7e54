"""Texts that prompts were made with are kept; models say where their limits and prices come from."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0003_search'),
    ]

    operations = [
        migrations.AddField(
            model_name='languagemodel',
            name='cache_read_micros_per_million',
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='languagemodel',
            name='cache_write_micros_per_million',
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='languagemodel',
            name='context_window_source',
            field=models.CharField(default='configured', max_length=16),
        ),
        migrations.AddField(
            model_name='languagemodel',
            name='max_output_source',
            field=models.CharField(default='configured', max_length=16),
        ),
        migrations.AddField(
            model_name='languagemodel',
            name='prices_source',
            field=models.CharField(default='configured', max_length=16),
        ),
        migrations.AddField(
            model_name='languagemodel',
            name='shared_ratio',
            field=models.FloatField(editable=False, null=True),
        ),
        migrations.CreateModel(
            name='PromptText',
            fields=[
                ('id', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('digest', models.CharField(max_length=64)),
                ('content', models.TextField()),
                ('created_at', models.DateTimeField()),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.session')),
            ],
            options={
                'db_table': 'prompt_texts',
                'constraints': [models.UniqueConstraint(fields=('session', 'digest'), name='prompt_text_once')],
            },
        ),
    ]
