"""The index of the search: derived from the record, so nothing guards it."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from sessions_app.models.record import ID_LENGTH, Session


class SearchEntry(models.Model):
    """A text that can be found, or a piece of a long one. It names the row that holds the text and has no copy.

    Derived from the record, so not guarded: 'manage.py rebuild_search' makes it again. Its words are in the table
    ``search_words`` (SQLite, FTS5, the same rowid) or in the column ``words`` (PostgreSQL, tsvector): migration 0003.
    """

    id = models.BigAutoField(primary_key=True)
    """Grows with time: on SQLite in the order of the commits, on PostgreSQL nearly so."""
    # Without constraints in the database: what is derived need not be checked at each insert.
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    kind = models.CharField(max_length=16)
    """``messages``, ``tools``, ``summaries`` or ``files``."""
    source_id = models.CharField(max_length=ID_LENGTH)
    """The row: of ``message_parts`` for messages and tools, else of the table that was registered for the kind."""
    field = models.CharField(max_length=32)
    """The row's column."""
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()
    """The messages that the text is of, or stands for."""
    start = models.BigIntegerField(default=0)
    """Characters of the column before this piece, as they are stored."""

    class Meta:
        db_table = "search_entries"
        indexes = [
            models.Index(fields=["session", "id"], name="search_of_session"),
            models.Index(fields=["owner", "id"], name="search_of_owner"),
        ]

    def __str__(self) -> str:
        return f"{self.source_id}.{self.field}+{self.start}"
