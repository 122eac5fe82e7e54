"""Tables of settings and counters beside the record: their rows may change and go."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from mnesis_core.llm.interface import LimitSource
from mnesis_core.text import STORED_NAME_CHARACTERS
from sessions_app.database.fields import EncodedCharField, EncodedJSONField, EncodedTextField, IdField
from sessions_app.models.record import ID_LENGTH, Organisation, Person


class Project(models.Model):
    """A folder of sessions with instructions and files, for its members.

    What it gave to a prompt is kept with the call, so its rows may change and go. A session names its project
    (``Session.project_id``) without a foreign key: the project may be deleted while sessions name it.
    """

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    owner = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="+")
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="+", db_index=False)
    """The owner's when the project was made. Only people who are in it have the project."""
    name = EncodedCharField(max_length=STORED_NAME_CHARACTERS)
    instructions = EncodedTextField(blank=True, default="")
    model = models.CharField(max_length=100, blank=True, default="")
    """The model of sessions that begin in the project; empty if it has no say."""
    config = EncodedJSONField(default=dict, blank=True)
    """What it configures of sessions that begin in it, in the form of a session's configuration. They keep a copy."""
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "projects"

    def __str__(self) -> str:
        return self.name or self.id


class ProjectMember(models.Model):
    """A person whose sessions may be in a project; its owner is one too."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="members", db_index=False)
    person = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="+")
    added_at = models.DateTimeField()

    class Meta:
        db_table = "project_members"
        constraints = [models.UniqueConstraint(fields=["project", "person"], name="project_member_once")]

    def __str__(self) -> str:
        return f"{self.person_id} in {self.project_id}"


class SavedPrompt(models.Model):
    """A text that a person saved to begin messages with. What is sent is a message like any other, so its rows may change and go."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    owner = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="+", db_index=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="+")
    """The owner's when it was saved. Only people who are in it have the prompt."""
    name = models.CharField(max_length=50)
    title = EncodedCharField(max_length=STORED_NAME_CHARACTERS)
    text = EncodedTextField()
    is_shared = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "saved_prompts"
        constraints = [models.UniqueConstraint(fields=["owner", "organisation", "name"], name="saved_prompt_name_once")]

    def __str__(self) -> str:
        return self.name


class LanguageModel(models.Model):
    """A model that people may choose. Its key is in the environment, and this row names the variable; or it is here, sealed."""

    alias = IdField(primary_key=True, max_length=100)
    litellm_model = models.CharField(max_length=200)
    api_base = models.CharField(max_length=500, blank=True, default="")
    api_key_env = models.CharField(max_length=100, blank=True, default="")
    sealed_key = models.TextField(blank=True, default="", db_default="", editable=False)
    """A key that was entered on a page (``mnesis_core.providers.credentials``). Empty where a variable holds it, or none is needed."""
    context_window = models.PositiveIntegerField()
    context_window_source = models.CharField(max_length=16, default=LimitSource.CONFIGURED.value)
    max_output_tokens = models.PositiveIntegerField()
    max_output_source = models.CharField(max_length=16, default=LimitSource.CONFIGURED.value)
    input_micros_per_million = models.PositiveBigIntegerField(default=0)
    output_micros_per_million = models.PositiveBigIntegerField(default=0)
    cache_read_micros_per_million = models.PositiveBigIntegerField(null=True, blank=True)
    cache_write_micros_per_million = models.PositiveBigIntegerField(null=True, blank=True)
    cache_write_1h_micros_per_million = models.PositiveBigIntegerField(null=True, blank=True)
    prices_source = models.CharField(max_length=16, default=LimitSource.CONFIGURED.value)
    shared_ratio = models.FloatField(null=True, editable=False)
    """Learnt, not configured: what its counts were to our estimates in the sessions so far."""
    timeout_seconds = models.FloatField(default=120.0)
    total_timeout_seconds = models.FloatField(default=1800.0)
    takes_pictures = models.BooleanField(null=True, blank=True)
    """Whether the model is shown pictures; NULL where litellm's table decides."""
    takes_documents = models.BooleanField(null=True, blank=True)
    takes_audio = models.BooleanField(null=True, blank=True)
    """Whether the model is sent PDFs; NULL where litellm's table decides."""
    fallbacks = models.JSONField(default=list, blank=True)
    """Aliases of the models that are asked, in this order, when this one gives nothing."""
    parameters = models.JSONField(default=dict, blank=True)
    """What it is asked with where neither a session nor a turn asks for another value (``mnesis_core.llm.parameters``)."""
    cache = models.CharField(max_length=8, default="5m")
    """How long its provider is to keep prompts: one of ``caching.LIFETIMES``."""
    through_gateway = models.BooleanField(default=False, db_default=False)
    """Whether requests at ``/v1`` for it go on to its provider unchanged, where neither they nor their key say otherwise."""
    is_restricted = models.BooleanField(default=False)
    """If set, only users named by a ``ModelGrant`` may use the model; without grants no one may."""
    entered_on_host = models.BooleanField(default=False, editable=False)
    """Whether a command on the host entered the model's address. Addresses entered on a page are checked against the
    host's lists (``mnesis_core.network.hosts``), also at each call; so are rows from before this was recorded."""
    last_check = models.JSONField(default=dict, blank=True, editable=False)
    """The last check of the model (``ModelCheck``). Empty if it has not been checked since it was changed."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "language_models"

    def __str__(self) -> str:
        return self.alias


class ModelGrant(models.Model):
    """One group or one person that may use a restricted model."""

    model = models.ForeignKey(LanguageModel, on_delete=models.CASCADE, related_name="grants", db_index=False)
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

    prefix = IdField(primary_key=True, max_length=16)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="+", db_index=False)
    """The owner's when the key was made; it opens nothing once they have left it."""
    secret_hash = models.CharField(max_length=64)
    name = EncodedCharField(max_length=100, default="", db_default="", truncated=True)
    scope = models.CharField(max_length=32, default="all")
    mode = models.CharField(max_length=16, default="", db_default="")
    """``gateway``, ``server``, or nothing: as the model's entry says (``agents_app.endpoints.gateway``)."""
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "api_keys"

    def __str__(self) -> str:
        return self.prefix


class AccountLimit(models.Model):
    """The spending limits that an administrator set for one person. Without a row, those of the site hold."""

    owner = models.OneToOneField(settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+")
    limits = models.JSONField(default=dict)
    """Limits by period, in the form of the configuration: ``{"day": {"tokens": 100000}}``."""
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "account_limits"

    def __str__(self) -> str:
        return f"limits of account {self.owner_id}"


class SpendingMark(models.Model):
    """Spending up to a point in time, so that the whole history need not be added up again, and the warnings given.

    Derived from the calls in the record, but for what evaluations and models of the search took, which have no calls there.
    Without a row the calls are added up again.
    """

    id = IdField(primary_key=True, max_length=80)
    """``session:ID``, ``user:NUMBER``, ``day:NUMBER:DATE`` or ``turn:ID``, with ``search:`` before it for models of the search;
    ``account:NUMBER`` is a lock.
    """
    until = models.DateTimeField(null=True)
    """Calls that began up to then are in the sums: none of them can change any more."""
    tokens = models.BigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    milliseconds = models.BigIntegerField(default=0)
    tool_calls = models.BigIntegerField(default=0)
    unpriced_calls = models.BigIntegerField(default=0)
    warned = models.JSONField(default=dict)  # by measure, the limit that was nearly used up when it was said

    class Meta:
        db_table = "spending_marks"

    def __str__(self) -> str:
        return self.id


class TryBucket(models.Model):
    """Tries of passwords that were counted (``mnesis_core.network.rate_limits``). A row whose time is past means nothing."""

    key = IdField(primary_key=True, max_length=64)
    """A keyed hash of what is counted, so that the row tells neither names (perhaps mistyped passwords) nor addresses."""
    empty_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "try_buckets"

    def __str__(self) -> str:
        return self.key
