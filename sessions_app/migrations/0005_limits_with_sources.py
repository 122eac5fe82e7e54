"""Models say where their limits and prices come from, and what the provider's cache costs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0004_prompt_texts")]

    operations = [
        *(
            migrations.AddField("languagemodel", name, models.CharField(default="configured", max_length=16))
            for name in ("context_window_source", "max_output_source", "prices_source")
        ),
        *(
            migrations.AddField("languagemodel", name, models.PositiveBigIntegerField(blank=True, null=True))
            for name in ("cache_read_micros_per_million", "cache_write_micros_per_million")
        ),
    ]
