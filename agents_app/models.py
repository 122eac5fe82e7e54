"""Inboxes of sessions, runs of operators, and the MCP servers that bring tools."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from mnesis_core.events import new_salt
from mnesis_core.maps.values import ItemState, OperatorKind, RunState
from sessions_app.database.fields import EncodedCharField, EncodedTextField, IdField
from sessions_app.database.guards.rules import AppendOnlyModel, Rules

ID_LENGTH = 40


class InboxMessage(AppendOnlyModel):
    """A message to a session in host mode. It waits until a turn takes it, once."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+", db_index=False)
    turn = models.ForeignKey("sessions_app.Turn", null=True, on_delete=models.PROTECT, related_name="+")
    seq = models.BigIntegerField()  # the event that it came with: its place in the inbox
    # The session that sent it; empty: the owner, or a program of theirs. No foreign key: a session is exported alone.
    sender_id = IdField(max_length=ID_LENGTH, default="")
    sender_turn_id = IdField(max_length=ID_LENGTH, default="")
    kind = models.CharField(max_length=16)
    in_reply_to = IdField(max_length=ID_LENGTH, default="")
    text = EncodedTextField()
    hops = models.BigIntegerField(default=0)
    idempotency_key = models.CharField(max_length=200, null=True)
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(once=("turn",), erasable=("text", "idempotency_key"))

    class Meta:
        db_table = "inbox_messages"
        verbose_name = "inbox message"
        constraints = [
            models.UniqueConstraint(fields=["session", "seq"], name="inbox_place"),
            models.UniqueConstraint(
                fields=["session", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="inbox_idempotent",
            ),
        ]
        indexes = [models.Index(fields=["session"], condition=Q(turn__isnull=True), name="inbox_waiting")]


# Runs of operators over the lines of a file, their items, and every try at one.

RUN_STEPS = {
    "pending": ("running", "paused", "cancelled", "failed"),
    "running": ("paused", "completed", "cancelled"),
    "paused": ("pending", "running", "completed", "cancelled"),
    # More of it is asked for: what failed or was not begun is tried again.
    "completed": ("running",),
    "cancelled": ("pending", "running"),
}
ITEM_STEPS = {
    "pending": ("running", "failed", "cancelled"),
    "running": ("pending", "completed", "failed", "cancelled"),  # pending: to be tried again, or its worker died
    "failed": ("pending",),
    "cancelled": ("pending",),
}
_COUNTED = ("tokens_input", "tokens_output", "cost_micros")
_COUNTERS = ("completed_count", "failed_count", "cancelled_count", "try_count", *_COUNTED)


def _pairs(steps: dict[str, tuple[str, ...]]) -> tuple[tuple[str, str], ...]:
    return tuple((before, after) for before, later in steps.items() for after in later)


class OperatorRun(AppendOnlyModel):
    """One call of an operator over the lines of one JSON Lines file."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+", db_index=False)
    turn_id = IdField(max_length=ID_LENGTH, default="")
    part_id = IdField(max_length=ID_LENGTH, default="")  # the tool call that asked for it; empty: none did
    actor = models.TextField(default="")  # who asked for it (``mnesis_core.actor``)
    kind = models.CharField(max_length=16, choices=[(kind.value, kind.value) for kind in OperatorKind])
    # ``mnesis_core.maps.values.write_spec``. No JSON column: the keys of a schema keep their order.
    spec = models.TextField()
    input_file = models.ForeignKey(
        "files_app.FileReference", on_delete=models.PROTECT, related_name="+", db_index=False
    )
    state = models.CharField(
        max_length=16, choices=[(state.value, state.value) for state in RunState], default=RunState.PENDING.value
    )
    reason = models.CharField(max_length=32, default="")
    item_count = models.BigIntegerField(null=True)
    completed_count = models.BigIntegerField(default=0)
    failed_count = models.BigIntegerField(default=0)
    cancelled_count = models.BigIntegerField(default=0)
    try_count = models.BigIntegerField("attempt count", default=0)
    tokens_input = models.BigIntegerField(default=0)
    tokens_output = models.BigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    output_file_id = IdField(max_length=ID_LENGTH, default="")
    error_code = models.CharField(max_length=64, null=True)
    error_message = EncodedTextField(null=True)
    idempotency_key = EncodedCharField(max_length=200, null=True)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(
        once=("item_count", "error_code", "error_message", "started_at"),
        steps={"state": _pairs(RUN_STEPS)},
        free=("reason", "output_file_id", "ended_at", *_COUNTERS),
        erasable=("spec", "error_message", "idempotency_key"),
        # What the items and the tries come to.
        unproven=_COUNTERS,
    )

    class Meta:
        db_table = "operator_runs"
        verbose_name = "operator run"
        constraints = [
            models.UniqueConstraint(
                fields=["session", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="operator_run_idempotent",
            )
        ]
        indexes = [
            models.Index(fields=["session", "-created_at"], name="operator_run_of_session"),
            models.Index(fields=["state"], condition=Q(state__in=["pending", "running"]), name="operator_run_live"),
        ]


class OperatorItem(AppendOnlyModel):
    """One line of a run's input, and how far it is.

    What it says is the input's content, which its name proves; its result is the accepted try's; how it ended is in the
    events. So no commitment is made to it.
    """

    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+")  # the run's own
    run = models.ForeignKey(OperatorRun, on_delete=models.PROTECT, related_name="+", db_index=False)
    number = models.BigIntegerField()
    line_offset = models.BigIntegerField()
    line_length = models.BigIntegerField()  # bytes of its line in the input's content
    state = models.CharField(
        max_length=16, choices=[(state.value, state.value) for state in ItemState], default=ItemState.PENDING.value
    )
    attempts = models.IntegerField(default=0)
    excused = models.IntegerField(default=0)  # tries that count for nothing
    not_before = models.DateTimeField(null=True)
    lease_owner = EncodedCharField(max_length=100, default="")
    lease_expires_at = models.DateTimeField(null=True)
    error_kind = models.CharField(max_length=16, default="")
    error = EncodedTextField(default="")
    accepted_try_id = IdField("accepted attempt id", max_length=ID_LENGTH, default="")
    call_id = IdField(max_length=ID_LENGTH, default="")
    # The session of its sub-agent. No foreign key: a session is exported alone.
    child_session_id = IdField(max_length=ID_LENGTH, default="")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    tokens_input = models.BigIntegerField(default=0)
    tokens_output = models.BigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    duration_ms = models.BigIntegerField(default=0)

    rules = Rules(
        steps={"state": _pairs(ITEM_STEPS)},
        free=(
            *("attempts", "excused", "not_before", "lease_owner", "lease_expires_at", "error_kind", "error"),
            *("accepted_try_id", "call_id", "child_session_id", "started_at", "ended_at", *_COUNTED, "duration_ms"),
        ),
        bound=False,
    )

    class Meta:
        db_table = "operator_items"
        verbose_name = "operator item"
        constraints = [models.UniqueConstraint(fields=["run", "number"], name="operator_item_number")]
        indexes = [
            models.Index(fields=["run", "state", "number"], name="operator_item_state"),
            models.Index(fields=["lease_expires_at"], condition=Q(state="running"), name="operator_item_leases"),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} {self.number}"


class OperatorTry(AppendOnlyModel):
    """One try at an item: what came of it word for word, also when it was of no use."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+")
    run = models.ForeignKey(OperatorRun, on_delete=models.PROTECT, related_name="+", db_index=False)
    item = models.BigIntegerField()  # the item's number
    number = models.IntegerField()  # its place among the tries at its item, from 1; one whose worker died is missing
    # None for a sub-agent, whose turn has calls of its own, and where a limit forbade the question.
    call = models.ForeignKey("sessions_app.ModelCall", null=True, on_delete=models.PROTECT, related_name="+")
    child_turn_id = IdField(max_length=ID_LENGTH, default="")
    output = EncodedTextField(default="")
    accepted = models.BooleanField()
    error_kind = models.CharField(max_length=16, default="")
    error = EncodedTextField(default="")
    tokens_input = models.BigIntegerField(null=True)
    tokens_output = models.BigIntegerField(null=True)
    tokens_cache_read = models.BigIntegerField(null=True)
    tokens_cache_write = models.BigIntegerField(null=True)
    usage_source = models.CharField(max_length=16, null=True)
    cost_micros = models.BigIntegerField(null=True)
    duration_ms = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(erasable=("output", "error"))

    class Meta:
        db_table = "operator_tries"
        verbose_name = "operator attempt"
        verbose_name_plural = "operator attempts"
        constraints = [
            models.UniqueConstraint(fields=["run", "item", "number"], name="operator_try_number"),
            # Whatever the code does: an item has one result at the most.
            models.UniqueConstraint(fields=["run", "item"], condition=Q(accepted=True), name="operator_try_accepted"),
        ]


class OperatorShare(models.Model):
    """The number of items of a run that one worker may have in flight until its lease ends. Not part of the record."""

    worker = models.CharField(max_length=100)
    run_id = IdField(max_length=ID_LENGTH)
    permits = models.IntegerField()
    wanted = models.IntegerField()
    lease_expires_at = models.DateTimeField()
    model = EncodedCharField(max_length=100)
    provider = EncodedCharField(max_length=100)
    owner_id = models.BigIntegerField()

    class Meta:
        db_table = "operator_shares"
        constraints = [models.UniqueConstraint(fields=["worker", "run_id"], name="operator_share_once")]

    def __str__(self) -> str:
        return f"{self.worker}: {self.permits} of {self.run_id}"


class OperatorBrake(models.Model):
    """The pause that a provider's rate limit imposes on all calls to a model. No part of the record."""

    model = IdField(primary_key=True, max_length=100)
    until = models.DateTimeField(null=True)  # no call begins before
    ceiling = models.IntegerField(null=True)  # calls in flight at the most, of all workers; NULL: as configured
    since = models.DateTimeField()

    class Meta:
        db_table = "operator_brakes"

    def __str__(self) -> str:
        return self.model


NAME_LENGTH = 32
ADDRESS_LENGTH = 2_000


class McpServer(AppendOnlyModel):
    """One way to reach a tool server (MCP, or with an OpenAPI document), from when it was attached until it was removed.

    A change of it is another row: what sessions could call at any time stays known. No session's ledger binds it.
    """

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    name = IdField(max_length=NAME_LENGTH)
    argv = models.JSONField(default=list)  # the program and its arguments; empty for a server over HTTP
    url = models.CharField(max_length=ADDRESS_LENGTH, default="")
    is_openapi = models.BooleanField("OpenAPI document", default=False)  # whether the address is that of one
    # Names only: of an environment variable of the program, or a header -> of the variable of ours with the value.
    secrets = models.JSONField(default=dict)
    timeout_seconds = models.FloatField()
    needs_approval = models.BooleanField(default=False)
    # Whether the server's own annotations say which of its tools change nothing.
    trust_annotations = models.BooleanField(default=False)
    # Whether a command on the host entered how it is reached. What a page entered is bound by the host's lists
    # (``mnesis_core.network.hosts``), at each connection too; so is a row that was written before this column existed.
    entered_on_host = models.BooleanField(default=False)
    created_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True)
    # Whether only the users that a ``McpServerGrant`` names may be offered its tools; without any, no user is.
    is_restricted = models.BooleanField(default=False)
    # Its tools as they were when an administrator last asked for them
    # (``mnesis_core.turns.mcp_servers.write_listing``).
    listing = models.TextField(default="")
    # Tools of which an administrator has said that they change nothing -> digest of the listing they saw.
    read_only_tools = models.JSONField(default=dict)
    listed_at = models.DateTimeField(null=True)
    problem = EncodedTextField(default="")
    unreachable_since = models.DateTimeField(null=True)

    rules = Rules(
        once=("removed_at",),
        free=("is_restricted", "listing", "listed_at", "read_only_tools", "problem", "unreachable_since"),
        bound=False,
    )

    class Meta:
        db_table = "mcp_servers"
        verbose_name = "MCP server"
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(removed_at__isnull=True), name="mcp_server_attached_once"
            )
        ]

    def __str__(self) -> str:
        return self.name


class McpServerGrant(models.Model):
    """One group or one person whose sessions may be offered the tools of a restricted server."""

    server = models.ForeignKey(McpServer, on_delete=models.CASCADE, related_name="grants", db_index=False)
    group = models.ForeignKey("auth.Group", null=True, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")

    class Meta:
        db_table = "mcp_server_grants"
        constraints = [
            models.CheckConstraint(
                condition=Q(group__isnull=True) ^ Q(user__isnull=True), name="mcp_server_grant_to_one"
            ),
            models.UniqueConstraint(fields=["server", "group"], name="mcp_server_grant_of_group"),
            models.UniqueConstraint(fields=["server", "user"], name="mcp_server_grant_of_user"),
        ]

    def __str__(self) -> str:
        return f"{self.server_id} for {'group' if self.user_id is None else 'account'} {self.group_id or self.user_id}"
