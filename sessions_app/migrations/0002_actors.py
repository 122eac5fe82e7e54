"""Actors: who asked for each turn, and the pseudonyms by which the ledgers name the accounts that there are."""

import secrets

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def name_accounts(apps, schema_editor):
    Person, User = apps.get_model("sessions_app", "Person"), apps.get_model("auth", "User")
    alias = schema_editor.connection.alias
    accounts = User.objects.using(alias).values_list("pk", flat=True)
    people = [Person(ref=secrets.token_urlsafe(16), user_id=account) for account in accounts]
    Person.objects.using(alias).bulk_create(people, batch_size=500)


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0001_schema'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='turn',
            name='actor',
            field=models.TextField(default=''),
        ),
        migrations.CreateModel(
            name='Person',
            fields=[
                ('ref', models.CharField(max_length=22, primary_key=True, serialize=False)),
                ('user', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name_plural': 'people',
                'db_table': 'people',
            },
        ),
        migrations.RunPython(name_accounts, migrations.RunPython.noop),
    ]
