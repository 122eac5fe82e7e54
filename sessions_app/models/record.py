"""The record's tables, each with rules for how its rows may change, and what is derived from them.

The names are those of the seed schema (000 "SQL schema").
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from mnesis_core.events import GENESIS, new_salt
from mnesis_core.network.sharing import Audience
from mnesis_core.records import Thumb, TurnState
from sessions_app.database.fields import EncodedCharField, EncodedJSONField, EncodedTextField, IdField
from sessions_app.database.guards.rules import AppendOnlyModel, Rules

ID_LENGTH = 40
TURN_STEPS = (
    *((TurnState.RUNNING.value, later.value) for later in TurnState if later is not TurnState.RUNNING),
    (TurnState.SUSPENDED.value, TurnState.RUNNING.value),
    (TurnState.SUSPENDED.value, TurnState.CANCELLED.value),
    (TurnState.SUSPENDED.value, TurnState.INTERRUPTED.value),
)
TOOL_STEPS = (
    ("pending", "approved"),
    *(("approved", later) for later in ("running", "completed", "error")),
    *(("pending", later) for later in ("running", "completed", "error")),
    *(("running", later) for later in ("completed", "error")),
)
USAGE_COLUMNS = (
    *("tokens_input", "tokens_output", "tokens_cache_read", "tokens_cache_write"),
    *("usage_source", "cost_micros"),
)
USAGE_SUMS = ("tokens_input", "tokens_output", "tokens_cache_read", "cost_micros")


class UsageModel(AppendOnlyModel):
    """The numbers that a provider reports at the end, each set once."""

    tokens_input = models.BigIntegerField(null=True)
    tokens_output = models.BigIntegerField(null=True)
    tokens_cache_read = models.BigIntegerField(null=True)
    tokens_cache_write = models.BigIntegerField(null=True)
    usage_source = models.CharField(max_length=16, null=True)
    cost_micros = models.BigIntegerField(null=True)  # millionths of the currency unit

    class Meta:
        abstract = True


class Organisation(AppendOnlyModel):
    """Owns sessions beside the person. Each account is in one (``Person``), and a site has one, ``default``, until more are added."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    slug = IdField(max_length=64, unique=True)
    name = EncodedCharField(max_length=200, default="", truncated=True)
    settings = EncodedJSONField(default=dict)
    created_at = models.DateTimeField()

    rules = Rules(free=("name", "settings"), bound=False)

    class Meta:
        db_table = "organisations"

    def __str__(self) -> str:
        return self.name or self.slug


class Session(AppendOnlyModel):
    id = IdField(primary_key=True, max_length=ID_LENGTH)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False)
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="+", db_index=False)
    """The owner's when the session was made. Its owner has it only while they are in this one (``ownership``)."""
    parent = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="children")
    parent_part_id = IdField(max_length=ID_LENGTH, default="")
    """The tool call that launched this child session."""
    forked_message_id = IdField(max_length=ID_LENGTH, default="")
    """The parent's last message that a fork begins with; empty for every other session."""
    external_id = EncodedCharField(max_length=200, default="", truncated=True)
    """The name that an import or a client gives it: unique per organisation, owner and origin among sessions not deleted."""
    origin = models.CharField(max_length=32, default="chat")
    model = models.CharField(max_length=100)
    agent = EncodedCharField(max_length=100, default="default")
    system_prompt = EncodedTextField(default="")
    title = EncodedCharField(max_length=400, default="", truncated=True)
    labels = EncodedJSONField(default=dict)
    config = EncodedJSONField(default=dict)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    archived_at = models.DateTimeField(null=True)
    pinned_at = models.DateTimeField(null=True, default=None)
    """Since when its owner keeps it on top of their list."""
    deleted_at = models.DateTimeField(null=True)
    trashed_at = models.DateTimeField(null=True, default=None)
    """Set with ``deleted_at`` while the owner may restore the session; a session deleted for good has only the other."""
    seen_turn = models.BigIntegerField(null=True, default=None)
    """How many turns had ended when its owner last looked at it; ``None`` before they first did."""
    event_seq = models.BigIntegerField(default=0)
    head_hash = models.CharField(max_length=64, default=GENESIS)
    message_seq = models.BigIntegerField(default=0)
    turn_seq = models.BigIntegerField(default=0)
    branch = models.BigIntegerField(default=0)
    """The chosen branch, which the next message continues (``mnesis_core.context.branches``)."""
    branch_seq = models.BigIntegerField(default=0)
    salt = models.CharField(max_length=64, default=new_salt)
    """The salt of commitments to the session's rows that have none of their own."""
    host_mode = models.BooleanField(default=False)
    peer_name = IdField(max_length=64, default="")
    project_id = IdField(max_length=ID_LENGTH, default="", db_default="")
    """The project that its owner put it into. It is in that one while they are a member there (``ownership``)."""
    assistant_version_id = IdField(max_length=ID_LENGTH, default="", db_default="")
    """The version of an assistant that it began with. No foreign key: another site may not have it."""
    assistant_instructions = EncodedTextField(default="", db_default="")
    """A copy of that version's, which stand before the session's own."""
    began_temporary = models.BooleanField(default=False, db_default=False)
    """Whether the session began as a temporary chat. Its owner can keep it (``kept_at``)."""
    kept_at = models.DateTimeField(null=True, default=None)
    own_salt = models.CharField(max_length=64, default=new_salt, db_default="")

    rules = Rules(
        once=("kept_at",),
        free=(
            *("title", "labels", "config", "host_mode", "peer_name", "archived_at", "pinned_at", "deleted_at"),
            *("trashed_at", "updated_at", "seen_turn", "project_id"),
            *("event_seq", "head_hash", "message_seq", "turn_seq", "branch", "branch_seq"),
        ),
        erasable=(
            *("title", "system_prompt", "assistant_instructions", "labels", "config", "external_id", "peer_name"),
        ),
        # The owner's number and the organisation mean nothing in another database; the first event says whose it was.
        unproven=(
            *("owner", "organisation", "updated_at", "seen_turn", "event_seq", "head_hash", "message_seq", "turn_seq"),
            *("branch", "branch_seq"),
        ),
    )

    class Meta:
        db_table = "sessions"
        indexes = [
            # The organisation is last: what one account has in all of them is one range, and nearly all of it is in one.
            models.Index(fields=["owner", "-created_at", "organisation"], name="session_owner_newest"),
            models.Index(fields=["owner", "-updated_at", "organisation"], name="session_owner_active"),
            models.Index(fields=["owner", "-pinned_at"], name="session_pinned", condition=Q(pinned_at__isnull=False)),
            models.Index(
                fields=["project_id", "owner", "-updated_at"], name="session_of_project", condition=~Q(project_id="")
            ),
            models.Index(
                fields=["created_at"],
                condition=Q(began_temporary=True, kept_at__isnull=True, deleted_at__isnull=True),
                name="session_temporary",
            ),
            # Everybody's, for staff.
            models.Index(fields=["-updated_at", "-id"], name="session_active", condition=Q(deleted_at__isnull=True)),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "owner", "origin", "external_id"],
                condition=~Q(external_id="") & Q(deleted_at__isnull=True),
                name="session_imported_once",
            ),
            models.UniqueConstraint(
                fields=["organisation", "owner", "peer_name"],
                condition=Q(host_mode=True, archived_at__isnull=True, deleted_at__isnull=True),
                name="session_peer_name",
            ),
        ]

    def __str__(self) -> str:
        return self.title or self.id


class Branch(AppendOnlyModel):
    """A line of messages that leaves another one; branch 0 has no row (``mnesis_core.context.branches``)."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="branches", db_index=False)
    number = models.BigIntegerField()
    parent = models.BigIntegerField()
    after_seq = models.BigIntegerField()
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules()

    class Meta:
        db_table = "branches"
        constraints = [models.UniqueConstraint(fields=["session", "number"], name="branch_number_unique")]
        indexes = [models.Index(fields=["session", "after_seq"], name="branch_place")]


class Share(AppendOnlyModel):
    """A link that shows a session up to a message, to some people (``record.shares.sharing``)."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    message = models.ForeignKey("Message", on_delete=models.PROTECT, related_name="+", db_index=False)
    title = EncodedCharField(max_length=400, default="", truncated=True)
    """The session's at that time."""
    audience = models.CharField(max_length=16, choices=[(a.value, a.value) for a in Audience])
    people = models.JSONField(default=list)
    """The pseudonyms of those whom it is for (``Person``), if the audience is ``people``."""
    added_seq = models.BigIntegerField()
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(once=("revoked_at",), erasable=("title",))

    class Meta:
        db_table = "shares"


class ShareOpening(AppendOnlyModel):
    """A person opened a share on a day; those who are not signed in count as one, so a stranger cannot fill the ledger."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    share = models.ForeignKey(Share, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    reader = IdField(max_length=22, default="")
    """The person's pseudonym; empty for those who are not signed in."""
    day = models.IntegerField()  # the ordinal of the date in UTC, as Python counts it
    opened_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules()

    class Meta:
        db_table = "share_openings"
        constraints = [models.UniqueConstraint(fields=["share", "reader", "day"], name="share_opened_once_a_day")]


class Turn(UsageModel):
    """One user message to its final answer, with every call in between (decision 9)."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="turns", db_index=False)
    seq = models.BigIntegerField()
    state = models.CharField(
        max_length=16, choices=[(s.value, s.value) for s in TurnState], default=TurnState.RUNNING.value
    )
    origin = models.CharField(max_length=32, default="chat")
    model = EncodedCharField(max_length=100, truncated=True)
    idempotency_key = models.CharField(max_length=200, null=True)
    request_digest = models.CharField(max_length=64, default="")
    """SHA-256 of the request that the idempotency key stands for: another request with the same key is refused. Of a turn
    through the gateway, of all that its request said, so that the next one is found by how it begins."""
    options = models.TextField(default="")
    """The caller's options for this turn alone (``mnesis_core.turns.options``), so that any process can continue it."""
    actor = models.TextField(default="")
    """Who asked for it (``mnesis_core.actor``), so that what is done later or elsewhere says for whom."""
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    error_code = models.CharField(max_length=64, null=True)
    error_message = EncodedTextField(null=True)
    lease_owner = models.CharField(max_length=100, default="")
    lease_expires_at = models.DateTimeField(null=True)
    fence = models.BigIntegerField(default=1)
    """Goes up with each claim; a late writer has an old value and is refused."""
    interrupt_requested_at = models.DateTimeField(null=True)
    salt = models.CharField(max_length=64, default=new_salt, db_default="")

    rules = Rules(
        once=("ended_at", "error_code", "error_message", "interrupt_requested_at", *USAGE_COLUMNS),
        steps={"state": TURN_STEPS},
        free=("lease_owner", "lease_expires_at", "fence"),
        erasable=("idempotency_key", "request_digest", "options", "error_message"),
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
        indexes = [
            models.Index(fields=["lease_expires_at"], condition=Q(state="running"), name="turn_leases"),
            # What a client sends again through the gateway is found by how it began.
            models.Index(fields=["request_digest"], condition=Q(origin="gateway"), name="turn_beginning"),
            models.Index(fields=["error_code", "session"], condition=Q(error_code__isnull=False), name="turn_errors"),
        ]


class Message(UsageModel):
    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="messages", db_index=False)
    turn = models.ForeignKey(Turn, on_delete=models.PROTECT, related_name="messages", db_index=False)
    seq = models.BigIntegerField()
    branch = models.BigIntegerField(default=0)
    role = models.CharField(max_length=16)
    agent = models.CharField(max_length=100, default="default")
    model = EncodedCharField(max_length=200, default="", truncated=True)
    is_summary = models.BooleanField(default=False)
    external_id = EncodedCharField(max_length=200, default="", truncated=True)
    created_at = models.DateTimeField()  # when it was said; for an import, the original's time
    recorded_at = models.DateTimeField()  # when it was written here
    finish_reason = EncodedCharField(max_length=64, null=True, truncated=True)
    outcome = models.CharField(max_length=16, null=True)
    error_code = models.CharField(max_length=64, null=True)
    error_message = EncodedTextField(null=True)
    finalized_at = models.DateTimeField(null=True)
    salt = models.CharField(max_length=64, default=new_salt, db_default="")

    rules = Rules(
        once=("finish_reason", "outcome", "error_code", "error_message", "finalized_at", *USAGE_COLUMNS),
        erasable=("external_id", "error_message"),
    )

    class Meta:
        db_table = "messages"
        constraints = [models.UniqueConstraint(fields=["session", "seq"], name="message_seq_unique")]
        indexes = [models.Index(fields=["turn", "seq"], name="message_turn")]


class Rating(AppendOnlyModel):
    """What a session's owner says of an answer. The newest one of a message counts."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="ratings")
    thumb = models.CharField(max_length=8, choices=[(thumb.value, thumb.value) for thumb in Thumb])
    comment = EncodedTextField(default="")
    rated_seq = models.BigIntegerField()
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(erasable=("comment",))

    class Meta:
        db_table = "ratings"


class MessagePart(AppendOnlyModel):
    """One part of a message. ``content`` is the text, or the JSON of what the other columns do not hold."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="parts", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    part_type = models.CharField(max_length=16)
    part_index = models.IntegerField()
    content = EncodedTextField(default="")
    label = EncodedCharField(max_length=200, default="", truncated=True)
    tool_name = EncodedCharField(max_length=200, default="", truncated=True)
    tool_call_id = EncodedCharField(max_length=200, default="", truncated=True)
    tool_input = EncodedTextField(default="")
    tool_state = models.CharField(max_length=16, null=True)
    output = EncodedTextField(null=True)
    error_message = EncodedTextField(null=True)
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    compacted_at = models.DateTimeField(null=True)
    decision_note = EncodedTextField(null=True)
    late_output = EncodedTextField(null=True)
    compacted_seq = models.BigIntegerField(null=True)
    """The event that tombstoned the output, so that any earlier context can be rebuilt."""
    token_estimate = models.BigIntegerField(default=0)
    output_token_estimate = models.BigIntegerField(null=True)
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(
        once=(
            *("output", "error_message", "started_at", "completed_at", "compacted_at", "compacted_seq"),
            *("output_token_estimate", "decision_note", "late_output"),
        ),
        steps={"tool_state": TOOL_STEPS},
        erasable=("content", "label", "tool_input", "output", "error_message", "decision_note", "late_output"),
    )

    class Meta:
        db_table = "message_parts"
        constraints = [models.UniqueConstraint(fields=["message", "part_index"], name="part_index_unique")]
        indexes = [
            models.Index(
                fields=["session", "compacted_at"], condition=Q(part_type="tool"), name="part_tools_of_session"
            )
        ]


class ContextItem(AppendOnlyModel):
    """One thing that is or was in a session's active context.

    The context as of event N is the rows with ``added_seq <= N`` and no ``removed_seq <= N`` (decision 3). In a session
    with branches a row may have left the context of one branch and stand in that of another, so there it follows from
    what the rows stand for (decision 147).
    """

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+", db_index=False)
    item_type = models.CharField(max_length=16, choices=[("message", "message"), ("summary", "summary")])
    item_id = IdField(max_length=ID_LENGTH)
    branch = models.BigIntegerField(default=0)
    position = models.BigIntegerField()
    until = models.BigIntegerField(null=True, default=None)
    """The last message that a summary stands for, whose branch ``branch`` is; None for a message."""
    added_seq = models.BigIntegerField()
    removed_seq = models.BigIntegerField(null=True)
    """The first event with which a summary took its place, on whichever branch."""

    # Rows of an older export have no ``until``; it follows from their summaries.
    rules = Rules(once=("removed_seq", "until"), bound=False)

    class Meta:
        db_table = "context_items"
        constraints = [
            models.UniqueConstraint(
                fields=["session", "position", "until"],
                condition=Q(removed_seq__isnull=True),
                name="context_position_unique",
            ),
            models.UniqueConstraint(fields=["session", "item_id"], name="context_item_once"),
        ]
        indexes = [models.Index(fields=["session", "added_seq"], name="context_as_of")]

    def __str__(self) -> str:
        return f"{self.item_type} {self.item_id}"


class Event(AppendOnlyModel):
    """The ledger: one entry for every change, chained by hash (decision 4)."""

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+", db_index=False)
    seq = models.BigIntegerField()
    type = models.CharField(max_length=64)
    body = models.TextField()  # the exact canonical text that was hashed
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    rules = Rules(bound=False)

    class Meta:
        db_table = "events"
        constraints = [models.UniqueConstraint(fields=["session", "seq"], name="event_seq_unique")]
        indexes = [
            models.Index(fields=["session", "seq"], condition=Q(type="fidelity.measured"), name="event_of_fidelity")
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"


class StreamJournal(AppendOnlyModel):
    """What a running answer said so far, in pieces; folded into parts at its end, then deleted."""

    id = models.BigAutoField(primary_key=True)
    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    part_index = models.IntegerField()
    part_type = models.CharField(max_length=16)
    offset = models.BigIntegerField()  # characters of this part before this piece
    text = EncodedTextField()

    rules = Rules(deletable=True, bound=False)

    class Meta:
        db_table = "stream_journal"
        constraints = [models.UniqueConstraint(fields=["message", "part_index", "offset"], name="journal_piece_unique")]

    def __str__(self) -> str:
        return f"{self.message_id}+{self.offset}"


class PromptText(AppendOnlyModel):
    """A text beside the messages that calls of a session were made with, such as its tools' descriptions: kept once."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+", db_index=False)
    digest = models.CharField(max_length=64)
    """SHA-256 of the text, by which ``ModelCall.parameters["texts"]`` names it."""
    content = EncodedTextField()
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt, db_default="")

    rules = Rules(erasable=("digest", "content"))

    class Meta:
        db_table = "prompt_texts"
        constraints = [models.UniqueConstraint(fields=["session", "digest"], name="prompt_text_once")]


class ModelCall(UsageModel):
    """One question to a model: what it was shown (manifest and digest) and how it ended."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+", db_index=False)
    turn = models.ForeignKey(Turn, null=True, on_delete=models.PROTECT, related_name="calls")
    message = models.ForeignKey(Message, null=True, on_delete=models.PROTECT, related_name="+")
    purpose = IdField(max_length=16, default="turn")
    model = EncodedCharField(max_length=100)
    provider_model = models.CharField(max_length=200)
    parameters = EncodedJSONField(default=dict)
    manifest = EncodedJSONField(default=list)
    context_seq = models.BigIntegerField(default=0)  # the event as of which the context was read
    digest = models.CharField(max_length=64)
    """SHA-256 of the payload. No event has it: whoever has it can try out what the payload might be."""
    estimated_tokens = models.BigIntegerField(default=0)
    attempts = models.IntegerField(null=True)
    state = IdField(max_length=16, default="running")
    outcome = models.CharField(max_length=16, null=True)
    finish_reason = EncodedCharField(max_length=64, null=True, truncated=True)
    usage_said = EncodedTextField(null=True)
    """What the provider said of tokens, as JSON, whether it can be true or not."""
    stop_sequence = EncodedTextField(null=True, default=None)
    """The stop text at which the answer ended, if the provider says so."""
    first_token_ms = models.BigIntegerField(null=True, default=None)
    """From the beginning of the call, its attempts included, to the first text, reasoning or tool call that was streamed."""
    tokens_cache_write_1h = models.BigIntegerField(null=True, default=None)
    """How many of ``tokens_cache_write`` the cache keeps for an hour; the others are kept for 5 minutes."""
    error_code = models.CharField(max_length=64, null=True)
    error_message = EncodedTextField(null=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    salt = models.CharField(max_length=64, default=new_salt, db_default="")

    rules = Rules(
        once=(
            *("attempts", "outcome", "finish_reason", "error_code", "error_message", "ended_at", "usage_said"),
            *("stop_sequence", "first_token_ms", "tokens_cache_write_1h"),
            *USAGE_COLUMNS,
        ),
        steps={"state": (("running", "completed"), ("running", "failed"))},
        erasable=("parameters", "manifest", "digest", "usage_said", "stop_sequence", "error_message"),
    )

    class Meta:
        db_table = "model_calls"
        indexes = [
            # Both with all that is added up: a row itself has the prompt's manifest too.
            models.Index(fields=["session", "created_at", "model", "purpose", *USAGE_SUMS], name="call_of_session"),
            models.Index(fields=["created_at", "session", "model", "purpose", *USAGE_SUMS], name="call_of_day"),
            # Those about summaries and files are few among many.
            models.Index(fields=["session", "purpose"], condition=models.Q(turn=None), name="call_of_no_turn"),
            models.Index(fields=["error_code", "session"], condition=Q(error_code__isnull=False), name="call_errors"),
        ]


class DirectoryEntry(AppendOnlyModel):
    """An entry of the directory: what became of a session as a whole, in one chain of hashes for the whole site.

    No foreign key leads to the session: an entry outlasts it, and is neither exported nor imported with it.
    """

    seq = models.BigIntegerField(primary_key=True)
    session_id = IdField(max_length=ID_LENGTH)
    type = models.CharField(max_length=64)
    entries = models.BigIntegerField()  # the number of the session's entries at that time; the body says it too
    body = models.TextField()
    prev_hash = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)
    created_at = models.DateTimeField()

    rules = Rules(bound=False)

    class Meta:
        db_table = "directory_entries"
        indexes = [models.Index(fields=["session_id", "seq"], name="directory_of_session")]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"


class Person(AppendOnlyModel):
    """The account that a pseudonym of the ledgers stands for, the only place where the two meet, and its organisation.

    A move carries it, an export does not. The row outlasts its account.
    """

    ref = IdField(primary_key=True, max_length=22)  # 16 random bytes as base64url
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False
    )
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="+", db_index=False)

    rules = Rules(free=("organisation",), bound=False)

    class Meta:
        db_table = "people"
        verbose_name_plural = "people"


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
    kind = models.CharField(max_length=16)  # ``messages``, ``tools``, ``summaries`` or ``files``
    source_id = IdField(max_length=ID_LENGTH)
    """The row: of ``message_parts`` for messages and tools, else of the table that was registered for the kind."""
    field = models.CharField(max_length=32)
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()  # the messages that the text is of, or stands for
    start = models.BigIntegerField(default=0)  # characters of the column before this piece, as they are stored
    length = models.BigIntegerField(null=True)
    """Characters of the piece; empty for entries of versions that did not count them, until the index is rebuilt."""

    class Meta:
        db_table = "search_entries"
        indexes = [
            models.Index(fields=["session", "id"], name="search_of_session"),
            models.Index(fields=["owner", "id"], name="search_of_owner"),
        ]

    def __str__(self) -> str:
        return f"{self.source_id}.{self.field}+{self.start}"


class SearchVector(models.Model):
    """The vector of a text part, or of the beginning of a long one. It is derived from the record, like search entries."""

    part_id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+", db_constraint=False)
    model = models.CharField(max_length=200)
    """The model's name at litellm, since an alias may come to mean another model."""
    signs = models.BinaryField()
    """The signs of its numbers. Every search reads them, so they stand apart from the numbers (``VectorNumbers``)."""

    class Meta:
        db_table = "search_vectors"

    def __str__(self) -> str:
        return self.part_id


class VectorNumbers(models.Model):
    part_id = IdField(primary_key=True, max_length=ID_LENGTH)
    numbers = models.BinaryField()  # ``mnesis_core.search.ranking.packed``

    class Meta:
        db_table = "search_vector_numbers"
        verbose_name_plural = "vector numbers"

    def __str__(self) -> str:
        return self.part_id


class VectorMark(models.Model):
    """The entry of the search index up to which the texts of a session have vectors, as far as these can be made."""

    session = models.OneToOneField(
        Session, primary_key=True, on_delete=models.PROTECT, related_name="+", db_constraint=False
    )
    model = models.CharField(max_length=200)
    entry_id = models.BigIntegerField(default=0)
    busy_until = models.DateTimeField(null=True)
    """The time until which one worker has the session to itself."""
    tokens = models.BigIntegerField(default=0)  # that the model has read so far
    cost_micros = models.BigIntegerField(default=0)
    skipped = models.BigIntegerField(default=0)  # texts of which the model makes no vector

    class Meta:
        db_table = "search_vector_marks"

    def __str__(self) -> str:
        return f"{self.session_id} up to {self.entry_id}"
