"""Sessions leave their owner: by deletion, and temporary chats by themselves. Every row of them stays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from django.utils import timezone

from agents_app.turns import claim
from agents_app.turns.transactions import TurnEnd
from mnesis_core.errors import SessionBusy, SessionNotFoundError
from mnesis_core.records import TurnState
from sessions_app.conf import site_config
from sessions_app.database.group_commit import durable_transaction
from sessions_app.record import session_store
from sessions_app.record.change import Change, change
from sessions_app.record.session_queries import has_been_silent, load_launched, silent_temporary_chats
from sessions_app.record.turn_queries import open_turn

MOST_AT_ONCE = 50  # temporary chats of one sweep: leases must not wait long for them


def hide_session(session_id: str, hide: Callable[[Change], None]) -> None:
    """Hide a session with those of its sub-agents: all of them or none.

    :raises SessionBusy: a turn of one of them is running, or waits.
    """
    now = timezone.now()  # the same for all: what was moved to the trash together comes back together
    with durable_transaction():
        # The session first: under its lock it launches no more.
        _hide_one(session_id, hide, now)
        for id in load_launched(session_id):
            _hide_one(id, hide, now)


def _hide_one(session_id: str, hide: Callable[[Change], None], now: datetime) -> None:
    with change(session_id, now=now) as record:
        turn = open_turn(session_id)
        if turn is not None:
            raise SessionBusy(session_id=session_id, turn_id=turn[0], state=turn[1])
        hide(record)


def end_temporary_chats(*, now: datetime | None = None) -> None:
    """Delete temporary chats for their owners, for good, once their last message is as old as the site says.

    A turn that is running is waited for; one that waits for somebody is cancelled, since nobody came.
    """
    before = (now or timezone.now()) - timedelta(hours=site_config().temporary.hours)
    for session_id in silent_temporary_chats(before, limit=MOST_AT_ONCE):
        # Another process may do the same, or its owner has gone on or deleted it meanwhile.
        with suppress(SessionBusy, SessionNotFoundError):
            _end(session_id, before)


def _end(session_id: str, before: datetime) -> None:
    def hide(record: Change) -> None:
        if record.session_id == session_id and not has_been_silent(session_id, before):
            raise SessionBusy(session_id=session_id)
        session_store.soft_delete_session(record)

    if has_been_silent(session_id, before):
        claim.end_waiting(session_id, TurnEnd(state=TurnState.CANCELLED), or_running=False)
    hide_session(session_id, hide)
