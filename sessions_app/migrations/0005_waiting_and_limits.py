"""Turns that wait and what they were asked; sessions in host mode; limits of people, and what their sessions have spent; models that stand in."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('auth', '0012_alter_user_first_name_max_length'),
        ('sessions_app', '0004_prompt_texts_and_limits'),
    ]

    operations = [
        migrations.CreateModel(
            name='AccountLimit',
            fields=[
                ('owner', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to=settings.AUTH_USER_MODEL)),
                ('limits', models.JSONField(default=dict)),
                ('updated_at', models.DateTimeField(auto_now=True)),
            ],
            options={
                'db_table': 'account_limits',
            },
        ),
        migrations.CreateModel(
            name='SpendingMark',
            fields=[
                ('id', models.CharField(max_length=80, primary_key=True, serialize=False)),
                ('until', models.DateTimeField(null=True)),
                ('tokens', models.BigIntegerField(default=0)),
                ('cost_micros', models.BigIntegerField(default=0)),
                ('milliseconds', models.BigIntegerField(default=0)),
                ('tool_calls', models.BigIntegerField(default=0)),
                ('unpriced_calls', models.BigIntegerField(default=0)),
                ('warned', models.JSONField(default=dict)),
            ],
            options={
                'db_table': 'spending_marks',
            },
        ),
        migrations.RemoveConstraint(
            model_name='turn',
            name='turn_one_running',
        ),
        migrations.AddField(
            model_name='messagepart',
            name='decision_note',
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name='messagepart',
            name='late_output',
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name='turn',
            name='options',
            field=models.TextField(default=''),
        ),
        migrations.AlterField(
            model_name='turn',
            name='state',
            field=models.CharField(choices=[('running', 'running'), ('suspended', 'suspended'), ('completed', 'completed'), ('cancelled', 'cancelled'), ('interrupted', 'interrupted'), ('failed', 'failed'), ('incomplete', 'incomplete')], default='running', max_length=16),
        ),
        migrations.AddConstraint(
            model_name='turn',
            constraint=models.UniqueConstraint(condition=models.Q(('ended_at__isnull', True)), fields=('session',), name='turn_one_open'),
        ),
        migrations.AddField(
            model_name='languagemodel',
            name='fallbacks',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='languagemodel',
            name='total_timeout_seconds',
            field=models.FloatField(default=1800.0),
        ),
        migrations.AddField(
            model_name='session',
            name='host_mode',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='session',
            name='peer_name',
            field=models.CharField(default='', max_length=64),
        ),
        migrations.AddConstraint(
            model_name='session',
            constraint=models.UniqueConstraint(condition=models.Q(('archived_at__isnull', True), ('deleted_at__isnull', True), ('host_mode', True)), fields=('owner', 'peer_name'), name='session_peer_name'),
        ),
    ]
