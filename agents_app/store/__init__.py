"""The only writers of the tables of agents."""

from agents_app.store.inbox import receive_message, take_messages
from agents_app.store.operator_items import (
    add_items,
    claim_items,
    give_back,
    held_items,
    note_claimed,
    release_expired,
    renew_items,
    settle_items,
    start_map_calls,
)
from agents_app.store.operators import (
    begin_run,
    fail_run,
    finish_run,
    keep_output,
    retry_failed,
    set_run_state,
    start_run,
)
from agents_app.store.servers import (
    check_entered,
    enter_server,
    mark_read_only,
    note_answer,
    note_problem,
    put_listing,
    put_server,
    remove_server,
)
from agents_app.store.shares import (
    Demand,
    brake_model,
    drop_shares,
    renew_shares,
)

__all__ = [
    "Demand",
    "add_items",
    "begin_run",
    "brake_model",
    "check_entered",
    "claim_items",
    "drop_shares",
    "enter_server",
    "fail_run",
    "finish_run",
    "give_back",
    "held_items",
    "keep_output",
    "mark_read_only",
    "note_answer",
    "note_claimed",
    "note_problem",
    "put_listing",
    "put_server",
    "receive_message",
    "release_expired",
    "remove_server",
    "renew_items",
    "renew_shares",
    "retry_failed",
    "set_run_state",
    "settle_items",
    "start_map_calls",
    "start_run",
    "take_messages",
]
