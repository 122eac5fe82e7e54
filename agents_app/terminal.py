"""A person at the terminal: whose sessions they are, which one is meant, and a turn that prints as it streams."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User

from agents_app import lifecycle
from agents_app.runner import runner
from mnesis_core.errors import InvalidRequest, SessionNotFoundError
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.record import SessionRecord, TurnRecord
from sessions_app.database import db
from sessions_app.follow import follow
from sessions_app.queries import list_sessions, load_session, load_turn


def find_user(username: str | None) -> User:
    """The user of this name, or the first administrator.

    :raises InvalidRequest: there is none.
    """
    users = get_user_model().objects.filter(is_active=True)
    if username:
        user = users.filter(username=username).first()
    else:
        user = users.filter(is_superuser=True).order_by("pk").first()
    if user is None:
        known = f"there is no user {username!r}" if username else "there is no administrator yet"
        raise InvalidRequest(f"{known}; make one with 'manage.py createsuperuser', or name one with --user")
    return user


def find_session(reference: str, *, owner_id: int) -> SessionRecord:
    """A session by its id, ``last``, or ``~N`` for the Nth before the last.

    :raises SessionNotFoundError: there is no such session.
    """
    if reference != "last" and not reference.startswith("~"):
        return load_session(reference, owner_id=owner_id)
    back = 0 if reference == "last" else int(reference[1:]) if reference[1:].isdecimal() else -1
    sessions = list_sessions(owner_id=owner_id, archived=None, limit=back + 1)
    if not 0 <= back < len(sessions):
        raise SessionNotFoundError(f"there is no session {reference}; there are {len(sessions)}", session_id=reference)
    return sessions[back]


def run_turn(session_id: str, *, owner_id: int, message: str, write: Callable[[str], None]) -> TurnRecord:
    """Run one turn here and now, writing its text as it comes. Ctrl-C interrupts it and keeps what was said."""
    return asyncio.run(_run_turn(session_id, owner_id=owner_id, message=message, write=write))


async def _run_turn(session_id: str, *, owner_id: int, message: str, write: Callable[[str], None]) -> TurnRecord:
    started = await lifecycle.start_turn(session_id, owner_id=owner_id, message=message)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(
        signal.SIGINT, lambda: loop.create_task(db(lifecycle.interrupt, session_id, owner_id=owner_id))
    )
    ending = asyncio.create_task(runner.wait(started.turn.id))
    try:
        await _write_text(session_id, started.seq - 1, write)
        await ending
        return await db(load_turn, started.turn.id, session_id=session_id)
    finally:
        await runner.shutdown()
        await close_connections()


async def _write_text(session_id: str, after: int, write: Callable[[str], None]) -> None:
    async for frame in follow(session_id, after=after):
        if frame["type"] == "delta" and frame["part_type"] == "text":
            write(frame["text"])
        if frame["type"] in lifecycle.TURN_ENDS:
            return
