"""Settings in the database, which are no part of the record: models that may be chosen, and keys of programs."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from mnesis_core.llm import LimitSource


class LanguageModel(models.Model):
    """A model that people may choose. Keys stay in the environment; this row names the variable."""

    alias = models.CharField(primary_key=True, max_length=100)
    litellm_model = models.CharField(max_length=200)
    api_base = models.CharField(max_length=500, blank=True, default="")
    api_key_env = models.CharField(max_length=100, blank=True, default="")
    context_window = models.PositiveIntegerField()
    context_window_source = models.CharField(max_length=16, default=LimitSource.CONFIGURED.value)
    max_output_tokens = models.PositiveIntegerField()
    max_output_source = models.CharField(max_length=16, default=LimitSource.CONFIGURED.value)
    input_micros_per_million = models.PositiveBigIntegerField(default=0)
    output_micros_per_million = models.PositiveBigIntegerField(default=0)
    cache_read_micros_per_million = models.PositiveBigIntegerField(null=True, blank=True)
    cache_write_micros_per_million = models.PositiveBigIntegerField(null=True, blank=True)
    prices_source = models.CharField(max_length=16, default=LimitSource.CONFIGURED.value)
    shared_ratio = models.FloatField(null=True, editable=False)
    """Learnt, not configured: what its counts were to our estimates in the sessions so far."""
    timeout_seconds = models.FloatField(default=120.0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "language_models"

    def __str__(self) -> str:
        return self.alias


class ApiKey(models.Model):
    """A key for programs: ``mns_<prefix>_<secret>``; only its SHA-256 is kept."""

    prefix = models.CharField(primary_key=True, max_length=16)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    secret_hash = models.CharField(max_length=64)
    scope = models.CharField(max_length=32, default="all")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "api_keys"

    def __str__(self) -> str:
        return self.prefix
