"""The messages and summaries that a manifest names, found among those that are at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mnesis_core.dag import ContextEntry, MessageEntry, SummaryEntry
from mnesis_core.errors import MessageNotFoundError, SummaryNotFoundError
from mnesis_core.messages import StoredMessage

Sources = Mapping[str, ContextEntry]
"""By id."""


def sources_of(entries: Iterable[ContextEntry]) -> Sources:
    """The entries by the ids of what they hold."""
    return {entry.id if isinstance(entry, SummaryEntry) else entry.message.id: entry for entry in entries}


def find_summary(sources: Sources, summary_id: str) -> SummaryEntry:
    """A summary that a prompt holds.

    :raises SummaryNotFoundError: it is not there.
    """
    entry = sources.get(summary_id)
    if not isinstance(entry, SummaryEntry):
        raise SummaryNotFoundError(f"the prompt holds summary {summary_id}, which is not there", id=summary_id)
    return entry


def find_message(sources: Sources, message_id: str) -> StoredMessage:
    """A message that a prompt holds.

    :raises MessageNotFoundError: it is not there.
    """
    entry = sources.get(message_id)
    if not isinstance(entry, MessageEntry):
        raise MessageNotFoundError(f"the prompt holds message {message_id}, which is not there", id=message_id)
    return entry.message
