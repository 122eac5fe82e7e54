"""The only writer of compactions, summaries and the tries at them."""

from compaction_app.store.runs import (
    LOST_AFTER,
    WAKE_AGAIN_AFTER,
    WAKE_AGAIN_AT_LAST_AFTER,
    RunResult,
    claim_run,
    fail_run,
    finish_run,
    prune,
    renew_run,
    request_run,
    requeue_run,
    require_run,
    supersede_run,
)
from compaction_app.store.summaries import Revision, record_preview, record_summary, revise_summaries
from compaction_app.store.tries import NewTry, close_calls, record_try

__all__ = [
    "LOST_AFTER",
    "WAKE_AGAIN_AFTER",
    "WAKE_AGAIN_AT_LAST_AFTER",
    "NewTry",
    "Revision",
    "RunResult",
    "claim_run",
    "close_calls",
    "fail_run",
    "finish_run",
    "prune",
    "record_preview",
    "record_summary",
    "record_try",
    "renew_run",
    "request_run",
    "requeue_run",
    "require_run",
    "revise_summaries",
    "supersede_run",
]
