"""An index of the few events that tell what summaries have lost."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0008_vectors'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='event',
            index=models.Index(condition=models.Q(('type', 'fidelity.measured')), fields=['session', 'seq'], name='event_of_fidelity'),
        ),
    ]
