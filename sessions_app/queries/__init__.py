"""Reads of the record for everybody else: core values out, no querysets."""

from sessions_app.queries.calls import (
    list_calls,
    load_call,
    load_call_before,
    load_prompt_texts,
    newest_call,
    running_calls,
    running_preview_calls,
    running_summary_calls,
)
from sessions_app.queries.context_items import (
    load_context,
    load_context_items,
    newest_summary,
    replaced_items,
    standing_items,
)
from sessions_app.queries.events import load_events
from sessions_app.queries.journal import journal_texts, load_live_texts
from sessions_app.queries.messages import (
    find_part_of_call,
    load_message,
    load_message_rows,
    load_messages,
    load_messages_by_ids,
    load_messages_since,
    load_part_text,
    load_parts,
    seq_of_message,
    seqs_of_session,
    unanswered_tools,
    unfinished_messages,
)
from sessions_app.queries.sessions import find_imported, list_sessions, load_session
from sessions_app.queries.turns import (
    expired_turns,
    find_turn_by_key,
    list_turns,
    load_turn,
    load_turns,
    running_turn,
    turn_keys,
)
from sessions_app.queries.usage import usage_of, usage_of_session

__all__ = [
    "expired_turns",
    "find_imported",
    "find_part_of_call",
    "find_turn_by_key",
    "journal_texts",
    "list_calls",
    "list_sessions",
    "list_turns",
    "load_call",
    "load_call_before",
    "load_context",
    "load_context_items",
    "load_events",
    "load_live_texts",
    "load_message",
    "load_message_rows",
    "load_messages",
    "load_messages_by_ids",
    "load_messages_since",
    "load_part_text",
    "load_parts",
    "load_prompt_texts",
    "load_session",
    "load_turn",
    "load_turns",
    "newest_call",
    "newest_summary",
    "replaced_items",
    "running_calls",
    "running_preview_calls",
    "running_summary_calls",
    "running_turn",
    "seq_of_message",
    "seqs_of_session",
    "standing_items",
    "turn_keys",
    "unanswered_tools",
    "unfinished_messages",
    "usage_of",
    "usage_of_session",
]
