"""What an embedding model made of texts, and how far that is in each session: derived, as the search index is."""

import django.db.models.deletion
from django.db import migrations, models

import sessions_app.database.fields


class Migration(migrations.Migration):

    dependencies = [
        ('sessions_app', '0007_lengths'),
    ]

    operations = [
        migrations.CreateModel(
            name='VectorMark',
            fields=[
                ('session', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='+', serialize=False, to='sessions_app.session')),
                ('model', models.CharField(max_length=200)),
                ('entry_id', models.BigIntegerField(default=0)),
                ('busy_until', models.DateTimeField(null=True)),
                ('tokens', models.BigIntegerField(default=0)),
                ('cost_micros', models.BigIntegerField(default=0)),
                ('skipped', models.BigIntegerField(default=0)),
            ],
            options={
                'db_table': 'search_vector_marks',
            },
        ),
        migrations.CreateModel(
            name='VectorNumbers',
            fields=[
                ('part_id', sessions_app.database.fields.IdField(max_length=40, primary_key=True, serialize=False)),
                ('numbers', models.BinaryField()),
            ],
            options={
                'verbose_name_plural': 'vector numbers',
                'db_table': 'search_vector_numbers',
            },
        ),
        migrations.CreateModel(
            name='SearchVector',
            fields=[
                ('part_id', sessions_app.database.fields.IdField(max_length=40, primary_key=True, serialize=False)),
                ('model', models.CharField(max_length=200)),
                ('signs', models.BinaryField()),
                ('session', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='sessions_app.session')),
            ],
            options={
                'db_table': 'search_vectors',
            },
        ),
    ]
