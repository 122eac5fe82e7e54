"""Who asked for each run of an operator."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('agents_app', '0001_schema'),
    ]

    operations = [
        migrations.AddField(
            model_name='operatorrun',
            name='actor',
            field=models.TextField(default=''),
        ),
    ]
