"""Tables beside the record: what the last verification of each session found, and the saved views of *Observe*.

What a verification found proves nothing later: only a new verification does.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from mnesis_core.text import STORED_NAME_CHARACTERS
from sessions_app.database.fields import EncodedCharField, EncodedTextField, IdField

ID_LENGTH = 40


class Verification(models.Model):
    """The verification of a session that waits or runs, and what the last one that came to its end found.

    A table and not the cache, which may forget: pages show for years when a session was verified last.
    """

    # No foreign key: what belongs to a session is exported with it, and this is this site's own.
    session_id = IdField(primary_key=True, max_length=ID_LENGTH)
    state = models.CharField(max_length=16, choices=[(s, s) for s in ("queued", "running", "done", "failed")])
    asked_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    worker = models.CharField(max_length=100, default="")
    lease_expires_at = models.DateTimeField(null=True)
    # Entries that the session had when it began.
    entries_total = models.BigIntegerField(default=0)
    entries_done = models.BigIntegerField(default=0)

    # When the last one that came to its end did; what follows is what it found.
    verified_at = models.DateTimeField(null=True)
    duration_ms = models.BigIntegerField(default=0)
    # The last entry that it followed, and that one's hash.
    seq = models.BigIntegerField(default=0)
    head_hash = models.CharField(max_length=64, default="")
    entries = models.BigIntegerField(default=0)
    commitments = models.BigIntegerField(default=0)
    problem_count = models.BigIntegerField(default=0)
    # The first of them, as objects of seq, kind, detail and session.
    problems = models.JSONField(default=list)
    is_unbound = models.BooleanField(default=False)
    is_moved = models.BooleanField(default=False)
    first_form_entries = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "verifications"
        constraints = [
            # One at a time on the whole site.
            models.UniqueConstraint(fields=["state"], condition=Q(state="running"), name="verification_one_runs")
        ]

    def __str__(self) -> str:
        return self.session_id


class SavedView(models.Model):
    """A query and the columns of *Observe* under a name, for one member of staff. A setting, so its rows may change and go."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    name = EncodedCharField(max_length=STORED_NAME_CHARACTERS)
    query = EncodedTextField(default="")
    columns = models.JSONField(default=list)
    """Names of columns; none for the usual ones."""
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()

    class Meta:
        db_table = "saved_views"
        constraints = [models.UniqueConstraint(fields=["owner", "name"], name="saved_view_name_once")]

    def __str__(self) -> str:
        return self.name
