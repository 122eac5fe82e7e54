"""Models keep what their counts were to our estimates, for sessions to come."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0005_limits_with_sources")]

    operations = [
        migrations.AddField("languagemodel", "shared_ratio", models.FloatField(editable=False, null=True)),
    ]
