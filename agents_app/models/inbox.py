"""What waits in the inboxes of sessions."""

from __future__ import annotations

from django.db import models

from mnesis_core.ledger import new_salt
from sessions_app.append_only import AppendOnlyModel, Rules

ID_LENGTH = 40


class InboxMessage(AppendOnlyModel):
    """A message to a session in host mode. It waits until a turn takes it, once."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+")
    turn = models.ForeignKey("sessions_app.Turn", null=True, on_delete=models.PROTECT, related_name="+")
    """The turn that took it."""
    seq = models.BigIntegerField()
    """The event that it came with: its place in the inbox."""
    sender_id = models.CharField(max_length=ID_LENGTH, default="")
    """The session that sent it; empty: the owner, or a program of theirs. No foreign key: a session is exported alone."""
    sender_turn_id = models.CharField(max_length=ID_LENGTH, default="")
    kind = models.CharField(max_length=16)
    in_reply_to = models.CharField(max_length=ID_LENGTH, default="")
    text = models.TextField()
    hops = models.BigIntegerField(default=0)
    idempotency_key = models.CharField(max_length=200, null=True)
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(once=("turn",))

    class Meta:
        db_table = "inbox_messages"
        verbose_name = "inbox message"
        constraints = [
            models.UniqueConstraint(fields=["session", "seq"], name="inbox_place"),
            models.UniqueConstraint(
                fields=["session", "idempotency_key"],
                condition=models.Q(idempotency_key__isnull=False),
                name="inbox_idempotent",
            ),
        ]
        indexes = [models.Index(fields=["session"], condition=models.Q(turn__isnull=True), name="inbox_waiting")]

    def __str__(self) -> str:
        return self.id
