"""The only writer of the record's tables. Each function takes the ``Change`` of the transaction it is part of."""

from sessions_app.store.calls import finish_call, finish_calls, note_retry, start_call, start_calls
from sessions_app.store.context_items import swap_context_items
from sessions_app.store.directory import enter_imported, record_heads, recorder
from sessions_app.store.journal import Piece, append_journal, delete_journal
from sessions_app.store.messages import (
    append_message,
    append_parts,
    decide_approval,
    finalize_message,
    finish_tool,
    keep_late_output,
    start_tool,
    tombstone_parts,
)
from sessions_app.store.models import put_model, share_ratio
from sessions_app.store.sessions import (
    archive_session,
    create_session,
    reopen_session,
    soft_delete_session,
    update_session,
)
from sessions_app.store.spending import keep_sum, keep_warnings, lock_spending, put_account_limits
from sessions_app.store.turns import (
    claim_turn,
    finish_turn,
    renew_leases,
    request_interrupt,
    require_turn,
    resume_turn,
    start_turn,
    suspend_turn,
    take_over_turn,
)

__all__ = [
    "Piece",
    "append_journal",
    "append_message",
    "append_parts",
    "archive_session",
    "claim_turn",
    "create_session",
    "decide_approval",
    "delete_journal",
    "enter_imported",
    "finalize_message",
    "finish_call",
    "finish_calls",
    "finish_tool",
    "finish_turn",
    "keep_late_output",
    "keep_sum",
    "keep_warnings",
    "lock_spending",
    "note_retry",
    "put_account_limits",
    "put_model",
    "record_heads",
    "recorder",
    "renew_leases",
    "reopen_session",
    "request_interrupt",
    "require_turn",
    "resume_turn",
    "share_ratio",
    "soft_delete_session",
    "start_call",
    "start_calls",
    "start_tool",
    "start_turn",
    "suspend_turn",
    "swap_context_items",
    "take_over_turn",
    "tombstone_parts",
    "update_session",
]
