"""The tables of the record, its index, and settings."""

from sessions_app.models.calls import ModelCall, PromptText
from sessions_app.models.directory import DirectoryEntry
from sessions_app.models.record import (
    ID_LENGTH,
    TOOL_STEPS,
    TURN_STEPS,
    USAGE_COLUMNS,
    ContextItem,
    Event,
    Message,
    MessagePart,
    Session,
    StreamJournal,
    Turn,
    UsageModel,
)
from sessions_app.models.search import SearchEntry
from sessions_app.models.settings import AccountLimit, ApiKey, LanguageModel, ModelGrant, SpendingMark, TryBucket

__all__ = [
    "ID_LENGTH",
    "TOOL_STEPS",
    "TURN_STEPS",
    "USAGE_COLUMNS",
    "AccountLimit",
    "ApiKey",
    "ContextItem",
    "DirectoryEntry",
    "Event",
    "LanguageModel",
    "Message",
    "MessagePart",
    "ModelCall",
    "ModelGrant",
    "PromptText",
    "SearchEntry",
    "Session",
    "SpendingMark",
    "StreamJournal",
    "TryBucket",
    "Turn",
    "UsageModel",
]
