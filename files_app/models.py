"""Files that stand outside the context, by reference."""

from __future__ import annotations

from django.db import models

from mnesis_core.events import new_salt
from sessions_app.database.fields import EncodedCharField, EncodedJSONField, EncodedTextField, IdField
from sessions_app.database.guards.rules import AppendOnlyModel, Rules

ID_LENGTH = 40
PATH_LENGTH = 4_096  # stored characters: the longest path of Linux (PATH_MAX)
TYPE_LENGTH = 64


class FileReference(AppendOnlyModel):
    """One file of one session (seed schema); a later file at the same path is another row."""

    rules = Rules(
        once=("exploration_summary", "exploration"),
        erasable=("content_id", "path", "exploration_summary", "exploration"),
    )

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+", db_index=False)
    content_id = IdField(max_length=64)
    path = EncodedCharField(max_length=PATH_LENGTH)
    file_type = EncodedCharField(max_length=TYPE_LENGTH, default="unknown")
    token_count = models.BigIntegerField(default=0)
    # In bytes; NULL if it was not given.
    size = models.BigIntegerField(null=True)
    # NULL until the file is explored.
    exploration_summary = EncodedTextField(null=True, default="")
    # The explorer, what it covered, its problem and its cost. NULL: not explored.
    exploration = EncodedJSONField(null=True)
    # The event that added it, which orders versions.
    added_seq = models.BigIntegerField()
    # The newest message then: where in the session a search finds it.
    after_message_seq = models.BigIntegerField()
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    class Meta:
        db_table = "file_references"
        # No index on the path: it may be longer than what an index of PostgreSQL takes.
        constraints = [models.UniqueConstraint(fields=["session", "added_seq"], name="file_added_once")]
        indexes = [
            models.Index(fields=["session", "content_id"], name="file_content"),
            # An exploration holds for every file of the same content.
            models.Index(fields=["content_id"], name="file_same_content"),
        ]

    def __str__(self) -> str:
        return self.path or self.id


class ProjectFile(models.Model):
    """A file that its project's sessions are given. Their references outlast it, so it may be taken away."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    project = models.ForeignKey("sessions_app.Project", on_delete=models.CASCADE, related_name="+")
    content_id = IdField(max_length=64)
    path = EncodedCharField(max_length=PATH_LENGTH)
    size = models.BigIntegerField()  # bytes
    added_at = models.DateTimeField()

    class Meta:
        db_table = "project_files"

    def __str__(self) -> str:
        return self.path or self.id
