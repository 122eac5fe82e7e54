"""Questions to models, and the texts that they were made with."""

from __future__ import annotations

from django.db import models

from sessions_app.append_only import AppendOnlyModel, Rules
from sessions_app.models.record import ID_LENGTH, USAGE_COLUMNS, Message, Session, Turn, UsageModel

USAGE_SUMS = ("tokens_input", "tokens_output", "tokens_cache_read", "cost_micros")


class PromptText(AppendOnlyModel):
    """A text beside the messages that calls of a session were made with, such as its tools' descriptions: kept once."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    digest = models.CharField(max_length=64)
    """SHA-256 of the text, by which ``ModelCall.parameters["texts"]`` names it."""
    content = models.TextField()
    created_at = models.DateTimeField()

    rules = Rules()

    class Meta:
        db_table = "prompt_texts"
        constraints = [models.UniqueConstraint(fields=["session", "digest"], name="prompt_text_once")]

    def __str__(self) -> str:
        return self.id


class ModelCall(UsageModel):
    """One question to a model: what it was shown (manifest and digest) and how it ended."""

    id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="+")
    turn = models.ForeignKey(Turn, null=True, on_delete=models.PROTECT, related_name="calls")
    message = models.ForeignKey(Message, null=True, on_delete=models.PROTECT, related_name="+")
    purpose = models.CharField(max_length=16, default="turn")
    model = models.CharField(max_length=100)
    provider_model = models.CharField(max_length=200)
    parameters = models.JSONField(default=dict)
    manifest = models.JSONField(default=list)
    context_seq = models.BigIntegerField(default=0)
    """The event as of which the context was read."""
    digest = models.CharField(max_length=64)
    estimated_tokens = models.BigIntegerField(default=0)
    attempts = models.IntegerField(null=True)
    state = models.CharField(max_length=16, default="running")
    outcome = models.CharField(max_length=16, null=True)
    finish_reason = models.CharField(max_length=64, null=True)
    usage_said = models.TextField(null=True)
    """What the provider said of tokens, as JSON, whether it can be true or not."""
    error_code = models.CharField(max_length=64, null=True)
    error_message = models.TextField(null=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    rules = Rules(
        once=(
            "attempts",
            "outcome",
            "finish_reason",
            "error_code",
            "error_message",
            "ended_at",
            "usage_said",
            *USAGE_COLUMNS,
        ),
        steps={"state": (("running", "completed"), ("running", "failed"))},
    )

    class Meta:
        db_table = "model_calls"
        indexes = [
            # Both with all that is added up: a row itself has the prompt's manifest too.
            models.Index(fields=["session", "created_at", "model", "purpose", *USAGE_SUMS], name="call_of_session"),
            models.Index(
                fields=["created_at", "session", "model", "purpose", *USAGE_SUMS],
                name="call_of_day",
            ),
            # Those about summaries and files are few among many.
            models.Index(fields=["session", "purpose"], condition=models.Q(turn=None), name="call_of_no_turn"),
        ]

    def __str__(self) -> str:
        return self.id
