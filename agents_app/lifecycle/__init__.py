"""The one contract behind every door: create, start or record a turn, answer what it waits for, interrupt, fork,
archive, delete (decision 8).

Doors parse, call one of these, and translate the answer. Rules and error codes are here and below.
"""

from agents_app.claiming import StartedTurn
from agents_app.lifecycle.sessions import (
    archive_session,
    begin_fork,
    create_session,
    delete_session,
    finish_fork,
    fork_session,
    reopen_session,
    update_session,
)
from agents_app.lifecycle.turns import (
    LOOK_AGAIN_SECONDS,
    TURN_ENDS,
    TURN_STOPS,
    answer_tools,
    begin_session,
    decide_approval,
    interrupt,
    record_turn,
    start_turn,
    wait_turn,
)
from agents_app.sending import send_message
from agents_app.suspended import ToolResult

__all__ = [
    "LOOK_AGAIN_SECONDS",
    "TURN_ENDS",
    "TURN_STOPS",
    "StartedTurn",
    "ToolResult",
    "answer_tools",
    "archive_session",
    "begin_fork",
    "begin_session",
    "create_session",
    "decide_approval",
    "delete_session",
    "finish_fork",
    "fork_session",
    "interrupt",
    "record_turn",
    "reopen_session",
    "send_message",
    "start_turn",
    "update_session",
    "wait_turn",
]
