"""A search entry says how long its text is, which a ranked search weighs. Entries of before have no length until rebuilt."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0006_branches")]

    operations = [migrations.AddField("searchentry", "length", models.BigIntegerField(null=True))]
