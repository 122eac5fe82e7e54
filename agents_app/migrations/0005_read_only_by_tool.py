"""Mark single tools as read-only, not whole servers. Earlier marks are dropped: nobody had looked at each tool."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('agents_app', '0004_servers_entered_on_host'),
    ]

    operations = [
        migrations.RemoveField(
            model_name='mcpserver',
            name='read_only',
        ),
        migrations.AddField(
            model_name='mcpserver',
            name='read_only_tools',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='mcpserver',
            name='trust_annotations',
            field=models.BooleanField(default=False),
        ),
    ]
