"""Servers of tools, and inboxes of sessions."""

import django.db.models.deletion
from django.db import migrations, models

import mnesis_core.ledger


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('sessions_app', '0005_waiting_and_limits'),
    ]

    operations = [
        migrations.CreateModel(
            name='McpServer',
            fields=[
                ('id', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=32)),
                ('argv', models.JSONField(default=list)),
                ('url', models.CharField(default='', max_length=2000)),
                ('secrets', models.JSONField(default=dict)),
                ('timeout_seconds', models.FloatField()),
                ('needs_approval', models.BooleanField(default=False)),
                ('read_only', models.BooleanField(default=False)),
                ('created_at', models.DateTimeField()),
                ('removed_at', models.DateTimeField(null=True)),
                ('listing', models.TextField(default='')),
                ('listed_at', models.DateTimeField(null=True)),
                ('problem', models.TextField(default='')),
                ('unreachable_since', models.DateTimeField(null=True)),
            ],
            options={
                'verbose_name': 'MCP server',
                'db_table': 'mcp_servers',
                'constraints': [models.UniqueConstraint(condition=models.Q(('removed_at__isnull', True)), fields=('name',), name='mcp_server_attached_once')],
            },
        ),
        migrations.CreateModel(
            name='InboxMessage',
            fields=[
                ('id', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('seq', models.BigIntegerField()),
                ('sender_id', models.CharField(default='', max_length=40)),
                ('sender_turn_id', models.CharField(default='', max_length=40)),
                ('kind', models.CharField(max_length=16)),
                ('in_reply_to', models.CharField(default='', max_length=40)),
                ('text', models.TextField()),
                ('hops', models.BigIntegerField(default=0)),
                ('idempotency_key', models.CharField(max_length=200, null=True)),
                ('created_at', models.DateTimeField()),
                ('salt', models.CharField(default=mnesis_core.ledger.new_salt, max_length=64)),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.session')),
                ('turn', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.turn')),
            ],
            options={
                'verbose_name': 'inbox message',
                'db_table': 'inbox_messages',
                'indexes': [models.Index(condition=models.Q(('turn__isnull', True)), fields=['session'], name='inbox_waiting')],
                'constraints': [models.UniqueConstraint(fields=('session', 'seq'), name='inbox_place'), models.UniqueConstraint(condition=models.Q(('idempotency_key__isnull', False)), fields=('session', 'idempotency_key'), name='inbox_idempotent')],
            },
        ),
    ]
