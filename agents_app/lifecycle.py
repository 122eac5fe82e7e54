"""The one contract behind every door: create, start or record a turn, answer what it waits for, interrupt, fork,
archive, delete (decision 8).

Doors parse, call one of these, and translate the answer. Rules and error codes are here and below.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from agents_app import suspended
from agents_app.claiming import (
    TITLE_FROM_MESSAGE,
    check_length,
    check_message,
    check_stored,
    claim_recorded_turn,
    claim_turn,
    compact_if_due,
)
from agents_app.claiming import StartedTurn as StartedTurn
from agents_app.given_files import explored
from agents_app.hosting import change_hosting
from agents_app.recovery import end_waiting
from agents_app.runner import runner
from agents_app.sending import send_message as send_message
from agents_app.suspended import ToolResult as ToolResult
from agents_app.tools import check_tools
from mnesis_core.config import Config
from mnesis_core.errors import InvalidRequest, SessionBusy, SessionNotRunning
from mnesis_core.events import EventType
from mnesis_core.inbox import Hosting, hosting_after
from mnesis_core.llm import ToolSpec
from mnesis_core.messages import Message
from mnesis_core.record import SessionRecord, TurnRecord, TurnState
from mnesis_core.recording import RecordedTurn
from mnesis_core.spending import TurnLimits
from mnesis_core.text import encode_text
from mnesis_core.turn_options import TurnOptions
from sessions_app import forking, store
from sessions_app.conf import checked_config, default_model, get_spec, site_config
from sessions_app.database import db
from sessions_app.group_commit import durable_transaction
from sessions_app.ledger import change
from sessions_app.live import hub
from sessions_app.queries import load_launched, load_session, load_turn, open_turn

TURN_ENDS = {EventType(f"turn.{state}") for state in TurnState if state.is_end}
"""The events of which each turn has one, its last."""
TURN_STOPS = {*TURN_ENDS, EventType.TURN_SUSPENDED}
"""The events after which a turn does nothing until somebody acts."""
TITLE_LENGTH, AGENT_LENGTH = 400, 100
"""Stored characters of the columns."""
FORK_SUFFIX = " (fork)"
LOOK_AGAIN_SECONDS = 5.0
"""Whoever waits for a turn looks by themselves after this, should every word about news get lost."""
LOOK_PAUSE_SECONDS = 0.1
"""And never more often: another process's turn may have news with every word."""


def create_session(
    *,
    owner: AbstractBaseUser,
    model: str = "",
    title: str = "",
    agent: str = "default",
    system_prompt: str = "",
    labels: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    parent_id: str | None = None,
    first_message: str | None = None,
    origin: str = "chat",
    external_id: str = "",
    host_mode: bool = False,
    peer_name: str = "",
) -> SessionRecord:
    """Create a session. A ``first_message`` is checked only: when it is refused, no empty session is left behind.

    :param external_id: what the caller calls it; with owner and origin it names one session
    :param host_mode: whether it stays alive for messages of peers, who address it by ``peer_name``, or else as ``agent``
    :raises ModelNotFoundError: there is no such model.
    :raises DuplicateIDError: there is a session of this owner, origin and external id, perhaps a deleted one.
    :raises SessionNotFoundError: the parent is not there, or belongs to somebody else.
    :raises PeerNameTaken: another session of the owner in host mode has this name.
    :raises InvalidRequest: a value is out of its bounds.
    """
    alias = model or default_model()
    get_spec(alias, user_id=owner.pk)
    _check_new(_checked_config(config or {}, owner_id=owner.pk), title, agent, system_prompt, first_message)
    hosting = hosting_after(Hosting(), host_mode=host_mode, peer_name=peer_name, agent=agent)
    if parent_id is not None:
        load_session(parent_id, owner_id=owner.pk)
    session_id = store.create_session(
        owner=owner,
        model=alias,
        title=title,
        agent=agent,
        system_prompt=system_prompt,
        labels=labels,
        config=config,
        parent_id=parent_id,
        origin=origin,
        external_id=external_id,
        host_mode=hosting.is_on,
        peer_name=hosting.name,
    )
    return load_session(session_id)


def _check_new(config: Config, title: str, agent: str, system_prompt: str, first_message: str | None) -> None:
    check_title(title, config.limits.title_characters)
    check_stored("agent", agent, AGENT_LENGTH)
    check_length("system_prompt", system_prompt, config.limits.message_characters)
    if first_message is not None:
        check_message(first_message, config)


async def begin_session(*, owner: AbstractBaseUser, message: str, **values: Any) -> tuple[SessionRecord, StartedTurn]:
    """Create a session and start its first turn in this process; when either is refused, neither is there.

    :param values: as ``create_session`` takes them
    :raises MnesisError: as ``create_session`` and ``start_turn`` do
    """
    with runner.permit():
        session = await db(create_session, owner=owner, first_message=message, **values)
        return session, await _set_going(claim_turn, session.id, owner_id=owner.pk, message=message)


def update_session(
    session_id: str,
    *,
    owner_id: int,
    title: str | None = None,
    labels: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    host_mode: bool | None = None,
    peer_name: str | None = None,
) -> SessionRecord:
    """Rename, relabel or reconfigure a session, or change whether it stays alive for messages of peers.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises PeerNameTaken: another session of the owner in host mode has this name.
    :raises InvalidRequest: a value is out of its bounds.
    :raises ModelNotFoundError: a fallback is not there.
    """
    load_session(session_id, owner_id=owner_id)
    if title is not None:
        check_title(title, site_config().limits.title_characters)
    _checked_config(config or {}, owner_id=owner_id)
    with change(session_id) as record:
        store.update_session(record, title=title, labels=labels, config=config)
        change_hosting(record, host_mode=host_mode, peer_name=peer_name)
    return load_session(session_id)


def archive_session(session_id: str, *, owner_id: int) -> SessionRecord:
    """Close a session and its sub-agents' for new turns; a running turn still ends, and so do the tasks it hands out.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    """
    load_session(session_id, owner_id=owner_id)
    for id in (session_id, *load_launched(session_id)):
        with change(id) as record:
            store.archive_session(record)
    return load_session(session_id)


def reopen_session(session_id: str, *, owner_id: int) -> SessionRecord:
    """Take a session out of the archive; its sub-agents' stay there, for their work is done.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises PeerNameTaken: it is in host mode, and another session of the owner has its name by now.
    """
    load_session(session_id, owner_id=owner_id)
    with change(session_id) as record:
        store.reopen_session(record)
    return load_session(session_id)


def delete_session(session_id: str, *, owner_id: int) -> None:
    """Take a session out of sight, for good, with its sub-agents': all of them or none. Every row stays (decision 1).

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SessionBusy: a turn of one of them is running, or waits.
    """
    load_session(session_id, owner_id=owner_id)
    with durable_transaction():
        # Its own first: under its lock it launches no more.
        _delete(session_id)
        for id in load_launched(session_id):
            _delete(id)


def _delete(session_id: str) -> None:
    with change(session_id) as record:
        turn = open_turn(session_id)
        if turn is not None:
            raise SessionBusy(session_id=session_id, turn_id=turn[0], state=turn[1])
        store.soft_delete_session(record)


async def start_turn(
    session_id: str,
    *,
    owner_id: int,
    message: str | None,
    earlier: Sequence[Message] = (),
    idempotency_key: str | None = None,
    tools: Sequence[ToolSpec] = (),
    system_prompt: str | None = None,
    limits: TurnLimits | None = None,
    on_doom_loop: str | None = None,
    host_mode: bool | None = None,
    files: Sequence[str] = (),
    model: str = "",
) -> StartedTurn:
    """Write the user's message, claim the session and set the turn going in this process; returns at once.

    :param message: ``None`` when what happened elsewhere is itself what is to be answered: results of tools
    :param earlier: what happened elsewhere before the message, kept as a turn of its own; no part of the request's digest
    :param tools: tools that the caller runs itself, offered beside the session's and in place of one of the same name;
        a call of one suspends the turn until ``answer_tools``
    :param system_prompt: in place of the session's, for this turn
    :param limits: the most that this turn may use
    :param on_doom_loop: ``continue`` or ``stop``, in place of what the configuration says
    :param host_mode: whether the session stays alive for messages of peers from now on; ``None``: as it does already
    :param files: ids of files of the session that go with the message
    :param model: who is asked this turn in place of the session's model; empty: that one
    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises ModelNotFoundError: there is no such model.
    :raises FileReferenceNotFoundError: the session has no such file.
    :raises SessionBusy: another turn is running, or waits.
    :raises SessionArchived: the session takes no more turns.
    :raises IdempotencyMismatch: the key was used for another request.
    :raises PeerNameTaken: another session of the owner in host mode has this one's name.
    :raises InvalidRequest: the message is empty or too long, or an option is out of its bounds.
    :raises AtCapacity: this process runs as many turns as it may.
    """
    options = TurnOptions(
        tools=tuple(tools),
        system_prompt=system_prompt,
        limits=limits,
        on_doom_loop=on_doom_loop,
        host_mode=host_mode,
        model=model,
    )
    if model:
        await db(get_spec, model, user_id=owner_id)
    await explored(session_id, files, owner_id=owner_id)
    with runner.permit():
        return await _set_going(
            claim_turn,
            session_id,
            owner_id=owner_id,
            message=message,
            files=files,
            earlier=earlier,
            idempotency_key=idempotency_key,
            options=options,
        )


async def _set_going(
    claim: Callable[..., StartedTurn], *place: str, is_resumed: bool = False, **values: Any
) -> StartedTurn:
    """Claim a turn for this process, and run it here if this claim has it."""
    started = await db(claim, *place, lease_owner=runner.owner, **values)
    if started.is_new:
        runner.start(started.turn, is_resumed=is_resumed)
    return started


async def answer_tools(session_id: str, turn_id: str, *, owner_id: int, results: Sequence[ToolResult]) -> StartedTurn:
    """Give a turn the results of tools that its caller runs; it goes on here when nothing is waited for any more.

    All results are taken or none. One that comes after its turn has ended is kept with that turn, and goes no further.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises TurnNotFoundError: the session has no such turn.
    :raises ToolCallNotFoundError: the turn made no call with this id.
    :raises ToolCallAnswered: the call has its result.
    :raises ToolCallNotCallers: the tool runs here.
    :raises InvalidRequest: there is no result, or two for one call, or one that is neither output nor error.
    :raises AtCapacity: this process runs as many turns as it may.
    """
    with runner.permit():
        return await _set_going(
            suspended.answer_tools, session_id, turn_id, is_resumed=True, owner_id=owner_id, results=tuple(results)
        )


async def decide_approval(
    session_id: str, part_id: str, *, owner_id: int, approved: bool, note: str = ""
) -> TurnRecord:
    """Say yes or no to a tool call that waits for it; its turn goes on here when nothing is waited for any more.

    :param note: what the person says to it; the model is told why a call was refused
    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises PartNotFoundError: the session has no such tool call.
    :raises ApprovalNotPending: it was decided already, or does not wait for an approval.
    :raises AtCapacity: this process runs as many turns as it may.
    """
    with runner.permit():
        decided = await _set_going(
            suspended.decide_approval,
            session_id,
            part_id,
            is_resumed=True,
            owner_id=owner_id,
            approved=approved,
            note=note,
        )
    return decided.turn


async def wait_turn(session_id: str, turn_id: str, *, owner_id: int) -> TurnRecord:
    """The turn when it has ended or is suspended, wherever it runs.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises TurnNotFoundError: the session has no such turn.
    """
    await db(load_session, session_id, owner_id=owner_id)
    with hub.follow(session_id) as follower:
        while True:
            await runner.wait(turn_id)
            turn = await db(load_turn, turn_id, session_id=session_id)
            if turn.state != TurnState.RUNNING:
                return turn
            await asyncio.sleep(LOOK_PAUSE_SECONDS)
            await follower.news(seconds=LOOK_AGAIN_SECONDS)


def record_turn(
    session_id: str, *, owner_id: int, turn: RecordedTurn, idempotency_key: str | None = None
) -> StartedTurn:
    """Write a turn that the caller ran with its own model client, whole and ended, and ask for a compaction if due.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SessionBusy: a turn is running, or waits.
    :raises SessionArchived: the session takes no more turns.
    :raises IdempotencyMismatch: the key was used for another request.
    :raises InvalidRequest: a value is missing or out of its bounds.
    :raises FileReferenceNotFoundError: a part names a file that the owner does not have.
    """
    return claim_recorded_turn(
        session_id, owner_id=owner_id, turn=turn, idempotency_key=idempotency_key, lease_owner=runner.owner
    )


def fork_session(
    session_id: str,
    *,
    owner: AbstractBaseUser,
    at_message_id: str | None = None,
    before_message_id: str | None = None,
) -> SessionRecord:
    """A new session with everything up to and including one message, or before one; also of an archived or running one.

    :raises InvalidRequest: neither message is named, or both are.
    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises MessageNotFoundError: the session has no such message.
    :raises Conflict: the message is still being written.
    """
    if (at_message_id is None) == (before_message_id is None):
        raise InvalidRequest("send either at_message_id or before_message_id", field="at_message_id")
    source = load_session(session_id, owner_id=owner.pk)
    title = _title_of_fork(source.title)
    place = forking.find_place(source.id, at_message_id=at_message_id, before_message_id=before_message_id)
    fork_id = forking.fork_session(source, owner=owner, last=place, title=title)
    compact_if_due(fork_id)
    return load_session(fork_id)


def interrupt(session_id: str, *, owner_id: int) -> TurnRecord:
    """Ask for the end of the running turn, from any process, or end a suspended one at once; what was said is kept.

    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises SessionNotRunning: no turn is running, and none waits.
    """
    load_session(session_id, owner_id=owner_id)
    try:
        turn_id: str | None = store.request_interrupt(session_id=session_id)
    except SessionNotRunning:
        turn_id = end_waiting(session_id, TurnState.CANCELLED)
    if turn_id is None:
        raise SessionNotRunning(session_id=session_id)
    return load_turn(turn_id, session_id=session_id)


def _checked_config(values: dict[str, Any], *, owner_id: int) -> Config:
    """The configuration of a session as somebody asks for it.

    :raises InvalidRequest: a value is unknown or out of its bounds, or a tool that it names is not there.
    :raises ModelNotFoundError: it names a fallback that there is not, for this person.
    """
    config = checked_config(values)
    for alias in config.fallbacks:
        get_spec(alias, user_id=owner_id)
    # Only where it is set: a tool that vanishes later breaks no session.
    check_tools(values.get("turn", {}).get("tools", ()))
    return config


def check_title(title: str, limit: int) -> None:
    """:raises InvalidRequest: the title is too long."""
    if len(title) > limit:
        raise InvalidRequest(f"title has {len(title)} characters; {limit} are allowed", field="title")
    check_stored("title", title, TITLE_LENGTH)


def _title_of_fork(title: str) -> str:
    # A character may be stored as five.
    fits = len(encode_text(title)) <= TITLE_LENGTH - len(FORK_SUFFIX)
    return f"{title if fits else title[:TITLE_FROM_MESSAGE]}{FORK_SUFFIX}".strip()
