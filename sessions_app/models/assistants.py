"""Assistants: what a new session can begin with. Their versions are never changed, so a session can name the one it had."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from mnesis_core.text import STORED_NAME_CHARACTERS
from sessions_app.database.fields import EncodedCharField, EncodedJSONField, EncodedTextField, IdField
from sessions_app.database.guards.rules import AppendOnlyModel, Rules
from sessions_app.models.record import ID_LENGTH, Organisation, Person


class Assistant(AppendOnlyModel):
    """An assistant and who may use it; what it is stands in its versions.

    It belongs to no session, so no ledger has entries of it. What it gives to a session is copied into the session's
    row, which is bound.
    """

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    owner = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="+")
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="+")
    """The owner's when it was made. Only people who are in it may use it."""
    version = models.BigIntegerField(default=1)
    """The number of the newest version, which new sessions begin with."""
    for_everyone = models.BooleanField(default=False)
    """Whether everyone in the organisation may use it; if not, its owner and those named by an ``AssistantGrant``."""
    created_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True)

    rules = Rules(once=("removed_at",), free=("version", "for_everyone"), bound=False)

    class Meta:
        db_table = "assistants"


class AssistantVersion(AppendOnlyModel):
    id = IdField(primary_key=True, max_length=ID_LENGTH)
    assistant = models.ForeignKey(Assistant, on_delete=models.PROTECT, related_name="versions", db_index=False)
    number = models.BigIntegerField()
    name = EncodedCharField(max_length=STORED_NAME_CHARACTERS)
    description = EncodedTextField(default="")
    instructions = EncodedTextField(default="")
    model = models.CharField(max_length=100, default="")
    """The model of its sessions; empty if it has no say."""
    config = EncodedJSONField(default=dict)
    """What it configures of a session, in the form of a session's configuration."""
    starters = EncodedJSONField(default=list)
    """Questions to begin with."""
    files = EncodedJSONField(default=list, db_default=[])
    """The files that its sessions are given, each with its id, its path, its content's id and its size."""
    picture = IdField(max_length=64, default="", db_default="")
    """The id of the content that is shown beside its name; empty if it has none."""
    created_by = models.ForeignKey(Person, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()

    rules = Rules(bound=False)

    class Meta:
        db_table = "assistant_versions"
        constraints = [models.UniqueConstraint(fields=["assistant", "number"], name="assistant_version_once")]


class AssistantGrant(models.Model):
    """One group or one person that may use an assistant. This is a setting: its rows come and go."""

    assistant = models.ForeignKey(Assistant, on_delete=models.CASCADE, related_name="grants", db_index=False)
    group = models.ForeignKey("auth.Group", null=True, on_delete=models.CASCADE, related_name="+")
    person = models.ForeignKey(Person, null=True, on_delete=models.CASCADE, related_name="+")

    class Meta:
        db_table = "assistant_grants"
        constraints = [
            models.CheckConstraint(
                condition=Q(group__isnull=True) ^ Q(person__isnull=True), name="assistant_grant_to_one"
            ),
            models.UniqueConstraint(fields=["assistant", "group"], name="assistant_grant_of_group"),
            models.UniqueConstraint(fields=["assistant", "person"], name="assistant_grant_of_person"),
        ]

    def __str__(self) -> str:
        return f"{self.assistant_id} for {self.group_id or self.person_id}"
