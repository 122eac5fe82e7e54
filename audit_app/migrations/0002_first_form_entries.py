from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("audit_app", "0001_schema")]

    operations = [
        migrations.AddField("verification", "first_form_entries", models.BigIntegerField(db_default=0, default=0)),
    ]
