"""What is in the database beside the record: models that may be chosen, keys of programs, limits of people."""

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
    total_timeout_seconds = models.FloatField(default=1800.0)
    fallbacks = models.JSONField(default=list, blank=True)
    """Aliases of the models that are asked, in this order, when this one gives nothing."""
    is_restricted = models.BooleanField(default=False)
    """Whether only those may use it whom a ``ModelGrant`` names; a restricted one without grants is nobody's."""
    entered_on_host = models.BooleanField(default=False, editable=False)
    """Whether a command on the host entered how it is reached. What a page entered is bound by the host's lists
    (``mnesis_core.host_lists``), at each call too; so is a row of a time when nobody noted it."""
    last_check = models.JSONField(default=dict, blank=True, editable=False)
    """How it answered when somebody last asked it one word (``checking.ModelCheck``); empty: never asked as it is now."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "language_models"

    def __str__(self) -> str:
        return self.alias


class ModelGrant(models.Model):
    """One group or one person that may use a restricted model."""

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="grants")
    group = models.ForeignKey("auth.Group", null=True, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")

    class Meta:
        db_table = "model_grants"
        constraints = [
            models.CheckConstraint(
                condition=models.Q(group__isnull=True) ^ models.Q(user__isnull=True), name="model_grant_to_one"
            ),
            models.UniqueConstraint(fields=["model", "group"], name="model_grant_of_group"),
            models.UniqueConstraint(fields=["model", "user"], name="model_grant_of_user"),
        ]

    def __str__(self) -> str:
        return f"{self.model_id} for {'group' if self.user_id is None else 'account'} {self.group_id or self.user_id}"


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


class AccountLimit(models.Model):
    """What an administrator lets one person spend; without a row, what the site allows."""

    owner = models.OneToOneField(settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+")
    limits = models.JSONField(default=dict)
    """As in a configuration: ``{"day": {"tokens": 100000}}``."""
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "account_limits"

    def __str__(self) -> str:
        return f"limits of account {self.owner_id}"


class SpendingMark(models.Model):
    """What was spent up to a moment, so that nobody adds up a whole history; and what was warned of.

    Derived: the record's calls have it all, and without a row everything is added up once more.
    """

    id = models.CharField(primary_key=True, max_length=80)
    """``session:ID``, ``user:NUMBER``, ``day:NUMBER:DATE`` or ``turn:ID``; ``account:NUMBER`` is a lock."""
    until = models.DateTimeField(null=True)
    """Calls that began up to then are in the sums: none of them can change any more."""
    tokens = models.BigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    milliseconds = models.BigIntegerField(default=0)
    tool_calls = models.BigIntegerField(default=0)
    unpriced_calls = models.BigIntegerField(default=0)
    warned = models.JSONField(default=dict)
    """By measure, the limit that was nearly used up when it was said."""

    class Meta:
        db_table = "spending_marks"

    def __str__(self) -> str:
        return self.id


class TryBucket(models.Model):
    """Tries of passwords that were counted (``mnesis_core.rate_limits``). A row whose time is past means nothing."""

    key = models.CharField(primary_key=True, max_length=64)
    """A keyed hash of what is counted, so that the row tells neither names (perhaps mistyped passwords) nor addresses."""
    empty_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "try_buckets"

    def __str__(self) -> str:
        return self.key
