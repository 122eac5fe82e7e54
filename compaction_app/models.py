"""Summaries, what they stand for, and the runs that made them."""

from __future__ import annotations

from itertools import permutations

from django.db import models
from django.db.models import Q

from mnesis_core.compaction.lineage import Support
from mnesis_core.events import new_salt
from mnesis_core.facts import FORBIDDEN, USUAL_SALIENCE, FactKind, FactMethod, FactScope, HeldFor
from sessions_app.database.fields import EncodedJSONField, EncodedTextField, IdField
from sessions_app.database.guards.rules import AppendOnlyModel, Rules

ID_LENGTH = 40


class RunState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    """What it was about to summarise left the context meanwhile: it ended without harm, and without its last summary."""


LIVE = (RunState.QUEUED, RunState.RUNNING)  # it has not ended
RUN_STEPS = (
    ("queued", "running"),
    ("queued", "completed"),
    ("queued", "failed"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "superseded"),
    # Its worker died: it waits for another one.
    ("running", "queued"),
)


class CompactionRun(AppendOnlyModel):
    """One compaction of one session; at most one is live per session (decision 20)."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+", db_index=False)
    state = models.CharField(max_length=16, choices=RunState.choices, default=RunState.QUEUED)
    trigger = models.CharField(max_length=16, choices=[(t, t) for t in ("soft", "hard", "manual")])
    branch = models.BigIntegerField(default=0)  # whose context it makes smaller
    turn_ids = models.JSONField(default=list)  # the only turns that it may summarise; empty for no such restriction
    actor = models.TextField(default="")  # who requested it, or at whose turn it became due (``mnesis_core.actor``)
    attempts = models.IntegerField(default=0)
    lease_owner = models.CharField(max_length=100, default="")
    lease_expires_at = models.DateTimeField(null=True)
    fence = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=32, null=True)
    """Why it ended: a value of ``mnesis_core.compaction.selection.Outcome``; null where it failed or goes on."""
    tokens_before = models.BigIntegerField(null=True)
    tokens_after = models.BigIntegerField(null=True)
    level = models.IntegerField(null=True)
    """Highest escalation level that any of its summaries needed; 0 when nothing was summarised."""
    summary_ids = models.JSONField(null=True)
    source_count = models.IntegerField(null=True)
    pruned_parts = models.IntegerField(null=True)
    pruned_tokens = models.BigIntegerField(null=True)
    tokens_input = models.BigIntegerField(null=True)
    tokens_output = models.BigIntegerField(null=True)
    cost_micros = models.BigIntegerField(null=True)
    error_code = models.CharField(max_length=64, null=True)
    error_message = EncodedTextField(null=True)
    end_seq = models.BigIntegerField(null=True)  # the event that ended it: where the transcript shows its divider
    after_message_seq = models.BigIntegerField(null=True)  # the newest message when it ended
    salt = models.CharField(max_length=64, default=new_salt, db_default="")

    rules = Rules(
        once=(
            "started_at", "ended_at", "outcome", "tokens_before", "tokens_after", "level", "summary_ids", "source_count",
            "pruned_parts", "pruned_tokens", "tokens_input", "tokens_output", "cost_micros", "error_code", "error_message",
            "end_seq", "after_message_seq",
        ),
        steps={"state": RUN_STEPS},
        free=("attempts", "lease_owner", "lease_expires_at", "fence"),
        erasable=("error_message",),
        unproven=("attempts", "lease_owner", "lease_expires_at", "fence"),
    )  # fmt: skip

    class Meta:
        db_table = "compaction_runs"
        constraints = [
            models.UniqueConstraint(
                fields=["session"], condition=Q(state__in=["queued", "running"]), name="compaction_one_live"
            )
        ]
        indexes = [models.Index(fields=["session", "created_at"], name="compaction_of_session")]


class SummaryTry(AppendOnlyModel):
    """One attempt at a summary, or at a piece of one: the reply word for word, rejected or not."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+")
    run = models.ForeignKey(CompactionRun, null=True, on_delete=models.PROTECT, related_name="tries")
    """None for a revision, which no compaction asked for."""
    call = models.ForeignKey("sessions_app.ModelCall", null=True, on_delete=models.PROTECT, related_name="+")
    """None where no model was asked: at level 3, and where a limit forbade it."""
    summary_id = IdField(max_length=ID_LENGTH)
    """The summary that it was to be, or to be a part of; there is none of that id if nothing came of it."""
    number = models.IntegerField()  # its place among the attempts at its summary, counted from 1
    kind = models.CharField(max_length=16, choices=[("leaf", "leaf"), ("condensed", "condensed")])
    level = models.IntegerField()
    piece = models.IntegerField()
    pieces = models.IntegerField()
    target_tokens = models.BigIntegerField(null=True)
    prompt_version = models.CharField(max_length=32, default="")
    accepted = models.BooleanField()
    reason = models.CharField(max_length=64, default="")
    text = EncodedTextField(default="")  # the reply as it came, or the excerpt of level 3
    reasoning = EncodedTextField(default="")
    tool_calls = EncodedJSONField(default=list)
    tokens_input = models.BigIntegerField(default=0)
    tokens_output = models.BigIntegerField(default=0)
    usage_source = models.CharField(max_length=16)
    cost_micros = models.BigIntegerField(null=True)  # None where the price of the model is not known
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(erasable=("text", "reasoning", "tool_calls"))

    class Meta:
        db_table = "summary_tries"
        verbose_name = "summary attempt"
        constraints = [models.UniqueConstraint(fields=["summary_id", "number"], name="try_number_unique")]
        indexes = [models.Index(fields=["created_at"], name="try_of_day")]


class Freshness(models.TextChoices):
    """Whether a summary was made from what stands under it now."""

    FRESH = "fresh"
    STALE = "stale"  # something under it was revised to another text since


class SummaryNode(AppendOnlyModel):
    """A summary in the DAG: a leaf stands for messages, a condensed node for summaries.

    It is never rewritten: a revision is another row that stands for the same.
    """

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+", db_index=False)
    run = models.ForeignKey(CompactionRun, on_delete=models.PROTECT, null=True, related_name="summaries")
    """The compaction that wrote it; none for a revision."""
    revises = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    restores = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    """The earlier revision whose text it has, after an undo."""
    branch = models.BigIntegerField(default=0)
    """The branch that it was made for. It serves every branch that has all of its messages."""
    kind = models.CharField(max_length=16, choices=[("leaf", "leaf"), ("condensed", "condensed")])
    depth = models.IntegerField()  # 0 for a leaf, one more than its deepest source otherwise
    level = models.IntegerField()  # the escalation level that wrote it: 1, 2 or 3
    text = EncodedTextField()
    token_count = models.BigIntegerField()
    source_tokens = models.BigIntegerField()
    first_seq = models.BigIntegerField()
    last_seq = models.BigIntegerField()
    message_count = models.BigIntegerField()
    model = models.CharField(max_length=100, default="")
    prompt_version = models.CharField(max_length=32, default="")
    tokens_input = models.BigIntegerField(default=0)
    tokens_output = models.BigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    duration_ms = models.BigIntegerField(default=0)
    attempt = models.IntegerField(default=1)
    created_at = models.DateTimeField()
    superseded_seq = models.BigIntegerField(null=True)  # the event with which a revision took its place
    freshness = models.CharField(max_length=8, choices=Freshness.choices, default=Freshness.FRESH)
    """Kept up while nothing has taken its place."""
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(
        once=("superseded_seq",),
        steps={"freshness": (("fresh", "stale"), ("stale", "fresh"))},
        erasable=("text",),
    )

    class Meta:
        db_table = "summary_nodes"
        constraints = [models.UniqueConstraint(fields=["revises"], name="summary_revised_once")]
        indexes = [models.Index(fields=["session", "first_seq"], name="summary_span")]


class SummaryPreview(AppendOnlyModel):
    """What a summary would say in a revision. It is in no context, and nothing in the DAG knows of it."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)  # the id of the revision, when it is applied
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+")
    summary = models.ForeignKey(SummaryNode, on_delete=models.PROTECT, related_name="previews")
    batch_id = IdField(max_length=ID_LENGTH)
    """The preview at the top of its subtree, or itself: they are applied together."""
    level = models.IntegerField()
    text = EncodedTextField()
    token_count = models.BigIntegerField()
    source_tokens = models.BigIntegerField()
    model = models.CharField(max_length=100, default="")
    prompt_version = models.CharField(max_length=64, default="")
    tokens_input = models.BigIntegerField(default=0)
    tokens_output = models.BigIntegerField(default=0)
    cost_micros = models.BigIntegerField(default=0)
    duration_ms = models.BigIntegerField(default=0)
    source_ids = models.JSONField()  # what was read for it, previews of the same batch among it, in order
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(erasable=("text",))

    class Meta:
        db_table = "summary_previews"
        indexes = [models.Index(fields=["batch_id"], name="preview_batch")]


class SummaryEdge(AppendOnlyModel):
    id = models.BigAutoField(primary_key=True)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+", db_index=False)
    """The node's own."""
    node = models.ForeignKey(SummaryNode, on_delete=models.PROTECT, related_name="edges", db_index=False)
    position = models.IntegerField()
    source_type = models.CharField(max_length=16, choices=[("message", "message"), ("summary", "summary")])
    source_id = IdField(max_length=ID_LENGTH)
    branch = models.BigIntegerField(default=0)
    """The branch of its summary."""
    of_revision = models.BooleanField(default=False)
    """Its summary takes the place of another one, so it may stand for what that one stands for."""

    rules = Rules(bound=False)

    class Meta:
        db_table = "summary_edges"
        constraints = [
            models.UniqueConstraint(fields=["node", "position"], name="edge_position_unique"),
            models.UniqueConstraint(fields=["node", "source_id"], name="edge_source_once"),
            # Nothing is covered twice for one branch, whatever the code above does.
            models.UniqueConstraint(
                fields=["source_id", "branch"], condition=Q(of_revision=False), name="edge_source_covered_once"
            ),
        ]
        indexes = [models.Index(fields=["session", "source_id"], name="edge_of_session")]

    def __str__(self) -> str:
        return f"{self.node_id} <- {self.source_id}"


class Claim(AppendOnlyModel):
    """A sentence of a summary and the places that it rests on: once for each version of the method that finds them."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+", db_index=False)
    summary = models.ForeignKey(SummaryNode, on_delete=models.PROTECT, related_name="+", db_index=False)
    method = models.CharField(max_length=32)
    number = models.IntegerField()  # of the sentence within the summary, from 1 on
    text_start = models.IntegerField()  # characters of the summary's text as it is stored
    text_end = models.IntegerField()
    support = models.CharField(max_length=16, choices=[(word.value, word.value) for word in Support])
    share = models.IntegerField()  # percent of its words that the places have
    missing = EncodedJSONField(default=list)  # its numbers, dates, names and identifiers that the places lack
    places = models.JSONField(
        default=list
    )  # [message id, part id], or [summary id, number of a sentence] under a condensed one
    created_at = models.DateTimeField()
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(erasable=("missing",))

    class Meta:
        db_table = "claims"
        constraints = [models.UniqueConstraint(fields=["summary", "method", "number"], name="claim_once")]
        indexes = [models.Index(fields=["session", "summary"], name="claim_of_session")]


class Reflection(AppendOnlyModel):
    """The search for facts in the messages of one summary: once for each version of the question."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+", db_index=False)
    summary = models.ForeignKey(SummaryNode, on_delete=models.PROTECT, related_name="+", db_index=False)
    prompt_version = models.CharField(max_length=32)
    state = models.CharField(max_length=16, choices=[(word, word) for word in ("queued", "completed", "failed")])
    attempts = models.IntegerField(default=0)
    lease_owner = models.CharField(max_length=100, default="")
    lease_expires_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    model = models.CharField(max_length=100, null=True)
    """The alias of the model that was asked; none where nobody said anything."""
    found = models.IntegerField(null=True)  # facts
    refused = models.IntegerField(null=True)  # what the model called facts, and was not said
    tokens_input = models.BigIntegerField(null=True)
    tokens_output = models.BigIntegerField(null=True)
    cost_micros = models.BigIntegerField(null=True)
    error_code = models.CharField(max_length=64, null=True)
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(
        once=("ended_at", "model", "found", "refused", "tokens_input", "tokens_output", "cost_micros", "error_code"),
        steps={"state": (("queued", "completed"), ("queued", "failed"))},
        free=("attempts", "lease_owner", "lease_expires_at"),
        unproven=("attempts", "lease_owner", "lease_expires_at"),
    )

    class Meta:
        db_table = "reflections"
        constraints = [models.UniqueConstraint(fields=["summary", "prompt_version"], name="reflection_once")]
        indexes = [
            models.Index(fields=["session", "created_at"], name="reflection_of_session"),
            models.Index(fields=["lease_expires_at"], condition=Q(state="queued"), name="reflection_waiting"),
        ]


class Fact(AppendOnlyModel):
    """What was said and holds. Whether it still does follows from the two events that may end it."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+", db_index=False)
    scope = models.CharField(max_length=16, choices=[(word.value, word.value) for word in FactScope], default="session")
    kind = models.CharField(max_length=16, choices=[(word.value, word.value) for word in FactKind])
    subject = EncodedTextField(default="")
    """What it is about, as ``plain_subject`` writes it. Of one subject and kind the fact that was said last is live."""
    statement = EncodedTextField()
    said_at = models.DateTimeField()
    said_seq = (
        models.BigIntegerField()
    )  # the number of the message it was said in, or the newest one when a person wrote it
    valid_from = models.DateTimeField(null=True)
    valid_to = models.DateTimeField(null=True)
    salience = models.IntegerField(default=USUAL_SALIENCE)  # 0 to 100
    method = models.CharField(max_length=16, choices=[(word.value, word.value) for word in FactMethod])
    model = models.CharField(max_length=100, default="")
    created_at = models.DateTimeField()
    created_seq = models.BigIntegerField()  # the event that tells of it: facts come in this order
    reflection = models.ForeignKey(Reflection, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    superseded_by = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    superseded_seq = models.BigIntegerField(null=True)
    withdrawn_seq = models.BigIntegerField(null=True)
    ban = models.CharField(max_length=16, choices=[("", "none"), (FORBIDDEN, FORBIDDEN)], default="")
    """The value ``forbidden`` while no reflection may find the statement again."""
    held_for = models.CharField(
        max_length=16, choices=[(word.value, word.value) for word in HeldFor], default="session", db_default="session"
    )
    held_seq = models.BigIntegerField(null=True)
    """The event since which it is held. Facts of an imported session reach no other one until a person here holds them."""
    of_fact_id = IdField(max_length=ID_LENGTH, default="", db_default="")
    """The held fact of another session that this is a copy of. No key leads there, so each session is whole without the others."""
    of_session_id = IdField(max_length=ID_LENGTH, default="", db_default="")
    salt = models.CharField(max_length=64, default=new_salt)

    rules = Rules(
        once=("superseded_by", "superseded_seq", "withdrawn_seq"),
        steps={
            "ban": (("", FORBIDDEN), (FORBIDDEN, "")),
            "held_for": tuple(permutations([word.value for word in HeldFor], 2)),
        },
        free=("held_seq",),
        unproven=("held_seq",),
        erasable=("subject", "statement"),
    )

    class Meta:
        db_table = "facts"
        indexes = [
            models.Index(fields=["session", "created_seq"], name="fact_of_session"),
            models.Index(
                fields=["session", "kind", "subject"],
                condition=Q(superseded_seq__isnull=True, withdrawn_seq__isnull=True),
                name="fact_live",
            ),
            models.Index(fields=["session"], condition=Q(held_seq__isnull=False), name="fact_held"),
        ]
        permissions = [("hold_for_organisation", "Can hold facts for the organisation")]


class FactSource(AppendOnlyModel):
    """The characters of a message's part that a fact quotes, counted as the text is stored."""

    id = IdField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey("sessions_app.Session", on_delete=models.PROTECT, related_name="+")
    fact = models.ForeignKey(Fact, on_delete=models.PROTECT, related_name="sources")
    part = models.ForeignKey("sessions_app.MessagePart", on_delete=models.PROTECT, related_name="+")
    quote_start = models.IntegerField()
    quote_end = models.IntegerField()
    salt = models.CharField(max_length=64, default=new_salt)

    class Meta:
        db_table = "fact_sources"
