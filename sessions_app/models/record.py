"""The record's tables, named after the seed schema (000 "SQL schema"); every one says how its rows may change."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from mnesis_core.ledger import GENESIS, new_salt
from mnesis_core.record import TurnState
from sessions_app.append_only import AppendOnlyModel, Rules

ID_LENGTH = 40


TURN_STEPS = (
    *((TurnState.RUNNING.value, later.value) for later in TurnState if later is not TurnState.RUNNING),
    (TurnState.SUSPENDED.value, TurnState.RUNNING.value),
    (TurnState.SUSPENDED.value, TurnState.CANCELLED.value),
    (TurnState.SUSPENDED.value, TurnState.INTERRUPTED.value),
)
TOOL_STEPS = (
    ("pending", "approved"),
    ("approved", "running"),
    ("approved", "completed"),
    ("approved", "error"),
    ("pending", "running"),
    ("pending", "completed"),
    ("pending", "error"),
    ("running", "completed"),
    ("running", "error"),
)
USAGE_COLUMNS = (
    "tokens_input",
    "tokens_output",
    "tokens_cache_read",
    "tokens_cache_write",
    "usage_source",
    "cost_micros",
)


class UsageModel(AppendOnlyModel):
    """The numbers that a provider reports at the end, each set once."""

    tokens_input = models.BigIntegerField(null=True)
    tokens_output = models.BigIntegerField(null=True)
    tokens_cache_read = models.BigIntegerField(null=True)
    tokens_cache_write = models.BigIntegerField(null=True)
    usage_source = models.CharField(max_length=16, null=True)
    cost_micros = models.BigIntegerField(null=True)
    """Millionths of the currency unit."""

    class Meta:
        abstract = True


class Session(AppendOnlyModel):
    """A conversation without an end."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    parent = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="children")
    parent_part_id = models.CharField(max_length=ID_LENGTH, default="")
    """The tool call that launched this child session."""
    forked_message_id = models.CharField(max_length=ID_LENGTH, default="")
    """The parent's last message that a fork begins with; empty for every other session."""
    external_id = models.CharField(max_length=200, default="")
    """What an import or a client calls it. Of one owner and origin one session at a time has it; a deleted one gives it back."""
    origin = models.CharField(max_length=32, default="chat")
    model = models.CharField(max_length=100)
    agent = models.CharField(max_length=100, default="default")
    system_prompt = models.TextField(default="")
    title = models.CharField(max_length=400, default="")
    labels = models.JSONField(default=dict)
    config = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)
    event_seq = models.BigIntegerField(default=0)
    head_hash = models.CharField(max_length=64, default=GENESIS)
    message_seq = models.BigIntegerField(default=0)
    turn_seq = models.BigIntegerField(default=0)
    salt = models.CharField(max_length=64, default=new_salt)
    """Of the commitments to the session's rows; parts and summaries have their own."""
    host_mode = models.BooleanField(default=False)
    """Whether it stays alive for messages of peers."""
    peer_name = models.CharField(max_length=64, default="")
    """By which they address it."""

    rules = Rules(
        once=("deleted_at",),
        free=(
            "title",
            "labels",
            "config",
            "host_mode",
            "peer_name",
            "archived_at",
            "updated_at",
            "event_seq",
            "head_hash",
            "message_seq",
            "turn_seq",
        ),
        # The owner's number means nothing in another database; the first event says whose it was.
        unproven=("owner", "updated_at", "event_seq", "head_hash", "message_seq", "turn_seq"),
    )

    class Meta:
        db_table = "sessions"
        indexes = [
            models.Index(fields=["owner", "-created_at"], name="session_owner_newest"),
            models.Index(fields=["owner", "-updated_at"], name="session_owner_active"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "origin", "external_id"],
                condition=~Q(external_id="") & Q(deleted_at__isnull=True),
                name="session_imported_once",
            ),
            models.UniqueConstraint(
                fields=["owner", "peer_name"],
                condition=Q(host_mode=True, archived_at__isnull=True, deleted_at__isnull=True),
                name="session_peer_name",
            ),
        ]

    def __str__(self) -> str:
        return self.title or self.id


class Turn(UsageModel):
    """One user message to its final answer, with every call in between (decision 9)."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="turns")
    seq = models.BigIntegerField()
    state = models.CharField(
        max_length=16, choices=[(s.value, s.value) for s in TurnState], default=TurnState.RUNNING.value
    )
    origin = models.CharField(max_length=32, default="chat")
    model = models.CharField(max_length=100)
    idempotency_key = models.CharField(max_length=200, null=True)
    request_digest = models.CharField(max_length=64, default="")
    """Of the request behind the idempotency key, so that a key is not used for two."""
    options = models.TextField(default="")
    """What its caller asked of this turn alone (``mnesis_core.turn_options``), so that any process can go on with it."""
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    error_code = models.CharField(max_length=64, null=True)
    error_message = models.TextField(null=True)
    lease_owner = models.CharField(max_length=100, default="")
    lease_expires_at = models.DateTimeField(null=True)
    fence = models.BigIntegerField(default=1)
    """Grows with each claim; a writer that comes back late has an old one and is refused."""
    interrupt_requested_at = models.DateTimeField(null=True)

    rules = Rules(
        once=("ended_at", "error_code", "error_message", "interrupt_requested_at", *USAGE_COLUMNS),
        steps={"state": TURN_STEPS},
        free=("lease_owner", "lease_expires_at", "fence"),
        unproven=("lease_owner", "lease_expires_at", "fence", "interrupt_requested_at"),
    )

    class Meta:
        db_table = "turns"
        constraints = [
            models.UniqueConstraint(fields=["session", "seq"], name="turn_seq_unique"),
            models.UniqueConstraint(fields=["session"], condition=Q(ended_at__isnull=True), name="turn_one_open"),
            models.UniqueConstraint(
                fields=["session", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="turn_idempotent",
            ),
        ]
        indexes = [models.Index(fields=["lease_expires_at"], condition=Q(state="running"), name="turn_leases")]

    def __str__(self) -> str:
        return self.id


class Message(UsageModel):
    """One message of the record."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="messages")
    turn = models.ForeignKey(Turn, on_delete=models.PROTECT, related_name="messages")
    seq = models.BigIntegerField()
    role = models.CharField(max_length=16)
    agent = models.CharField(max_length=100, default="default")
    model = models.CharField(max_length=200, default="")
    is_summary = models.BooleanField(default=False)
    external_id = models.CharField(max_length=200, default="")
    created_at = models.DateTimeField()
    """When it was said; for an import, the original's time."""
    recorded_at = models.DateTimeField()
    """When it was written here."""
    finish_reason = models.CharField(max_length=64, null=True)
    outcome = models.CharField(max_length=16, null=True)
    error_code = models.CharField(max_length=64, null=True)
    error_message = models.TextField(null=True)
    finalized_at = models.DateTimeField(null=True)

    rules = Rules(once=("finish_reason", "outcome", "error_code", "error_message", "finalized_at", *USAGE_COLUMNS))

    class Meta:
        db_table = "messages"
        constraints = [models.UniqueConstraint(fields=["session", "seq"], name="message_seq_unique")]
        indexes = [models.Index(fields=["turn", "seq"], name="message_turn")]

    def __str__(self) -> str:
        return self.id


class MessagePart(AppendOnlyModel):
    """One part of a message. ``content`` is the text, or the JSON of what the other columns do not hold."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="parts")
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    part_type = models.CharField(max_length=16)
    part_index = models.IntegerField()
    content = models.TextField(default="")
    label = models.CharField(max_length=200, default="")
    tool_name = models.CharField(max_length=200, default="")
    tool_call_id = models.CharField(max_length=200, default="")
    tool_input = models.TextField(default="")
    tool_state = models.CharField(max_length=16, null=True)
    output = models.TextField(null=True)
    error_message = models.TextField(null=True)
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    compacted_at = models.DateTimeField(null=True)
    decision_note = models.TextField(null=True)
    late_output = models.TextField(null=True)
    compacted_seq = models.BigIntegerField(null=True)
    """The event that tombstoned the output, so that any earlier context can be rebuilt."""
    token_estimate = models.BigIntegerField(default=0)
    output_token_estimate = models.BigIntegerField(null=True)
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(
        once=(
            "output",
            "error_message",
            "started_at",
            "completed_at",
            "compacted_at",
            "compacted_seq",
            "output_token_estimate",
            "decision_note",
            "late_output",
        ),
        steps={"tool_state": TOOL_STEPS},
    )

    class Meta:
        db_table = "message_parts"
        constraints = [models.UniqueConstraint(fields=["message", "part_index"], name="part_index_unique")]
        indexes = [
            models.Index(
                fields=["session", "compacted_at"], condition=Q(part_type="tool"), name="part_tools_of_session"
            )
        ]

    def __str__(self) -> str:
        return self.id


class ContextItem(AppendOnlyModel):
    """One thing that is or was in a session's active context.

    The context as of event N is the rows with ``added_seq <= N`` and no ``removed_seq <= N`` (decision 3).
    """

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    item_type = models.CharField(max_length=16, choices=[("message", "message"), ("summary", "summary")])
    item_id = models.CharField(max_length=ID_LENGTH)
    position = models.BigIntegerField()
    added_seq = models.BigIntegerField()
    removed_seq = models.BigIntegerField(null=True)

    rules = Rules(once=("removed_seq",), bound=False)

    class Meta:
        db_table = "context_items"
        constraints = [
            models.UniqueConstraint(
                fields=["session", "position"], condition=Q(removed_seq__isnull=True), name="context_position_unique"
            ),
            models.UniqueConstraint(fields=["session", "item_id"], name="context_item_once"),
        ]
        indexes = [models.Index(fields=["session", "added_seq"], name="context_as_of")]

    def __str__(self) -> str:
        return f"{self.item_type} {self.item_id}"


class Event(AppendOnlyModel):
    """The ledger: one entry for every change, chained by hash (decision 4)."""

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    seq = models.BigIntegerField()
    type = models.CharField(max_length=64)
    body = models.TextField()
    """The exact canonical text that was hashed."""
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    rules = Rules(bound=False)

    class Meta:
        db_table = "events"
        constraints = [models.UniqueConstraint(fields=["session", "seq"], name="event_seq_unique")]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"


class StreamJournal(AppendOnlyModel):
    """What a running answer said so far, in pieces; folded into parts at its end, then deleted."""

    id = models.BigAutoField(primary_key=True)
    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    part_index = models.IntegerField()
    part_type = models.CharField(max_length=16)
    offset = models.BigIntegerField()
    """Characters of this part before this piece."""
    text = models.TextField()

    rules = Rules(deletable=True, bound=False)

    class Meta:
        db_table = "stream_journal"
        constraints = [models.UniqueConstraint(fields=["message", "part_index", "offset"], name="journal_piece_unique")]

    def __str__(self) -> str:
        return f"{self.message_id}+{self.offset}"
