"""The directory of sessions: one ledger of the whole site that tells which sessions there are, and how far they were."""

from __future__ import annotations

from django.db import models

from sessions_app.append_only import AppendOnlyModel, Rules
from sessions_app.models.record import ID_LENGTH


class DirectoryEntry(AppendOnlyModel):
    """One thing that became of a session as a whole; chained by hash as the entries of a session are.

    No foreign key leads to the session: an entry outlasts it, and is neither exported nor imported with it.
    """

    seq = models.BigIntegerField(primary_key=True)
    session_id = models.CharField(max_length=ID_LENGTH)
    type = models.CharField(max_length=64)
    entries = models.BigIntegerField()
    """The number of the session's entries at that time; the body says it too."""
    body = models.TextField()
    """The exact canonical text that was hashed: session, owner, number of entries, head, time; no content."""
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    rules = Rules(bound=False)

    class Meta:
        db_table = "directory_entries"
        indexes = [models.Index(fields=["session_id", "seq"], name="directory_of_session")]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"
