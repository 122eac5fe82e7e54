"""A session: created, changed, forked, closed and opened again, deleted."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django_q.tasks import async_task

from agents_app.claiming import TITLE_FROM_MESSAGE, check_length, check_message, check_stored, compact_if_due
from agents_app.hosting import change_hosting
from agents_app.tools import check_tools
from mnesis_core.config import Config
from mnesis_core.errors import InvalidRequest, SessionBusy
from mnesis_core.inbox import Hosting, hosting_after
from mnesis_core.record import SessionRecord
from mnesis_core.text import encode_text
from sessions_app import forking, store
from sessions_app.conf import checked_config, default_model, get_spec, site_config
from sessions_app.group_commit import durable_transaction
from sessions_app.ledger import change
from sessions_app.queries import Forking, load_forking, load_launched, load_session, open_turn

TITLE_LENGTH, AGENT_LENGTH = 400, 100
"""Stored characters of the columns."""
FORK_SUFFIX = " (fork)"
COPIED_AT_ONCE = 2_000
"""Messages of a fork; copying more takes too long for a request. 100,000 take about a minute."""
FORK_TASK = "agents_app.tasks.fork"


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
    :raises DuplicateIDError: there is a session of this owner, origin and external id.
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
    _check_title(title, config.limits.title_characters)
    check_stored("agent", agent, AGENT_LENGTH)
    check_length("system_prompt", system_prompt, config.limits.message_characters)
    if first_message is not None:
        check_message(first_message, config)


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
        _check_title(title, site_config().limits.title_characters)
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


def fork_session(session_id: str, *, owner: AbstractBaseUser, **place: str | None) -> SessionRecord:
    """A new session with everything up to and including one message, or before one; also of an archived or running one.

    :param place: as for ``begin_fork``
    :raises MnesisError: as ``begin_fork`` does
    """
    fork_id = _new_fork(session_id, owner=owner, **place).id
    finish_fork(fork_id)
    return load_session(fork_id)


def begin_fork(session_id: str, *, owner: AbstractBaseUser, **place: str | None) -> Forking:
    """Likewise, but where many messages are to be copied a worker does it: how far it is.

    :param place: ``at_message_id`` or ``before_message_id``
    :raises InvalidRequest: neither message is named, or both are.
    :raises SessionNotFoundError: it is not there, or belongs to somebody else.
    :raises MessageNotFoundError: the session has no such message.
    :raises Conflict: the message is still being written.
    """
    fork = _new_fork(session_id, owner=owner, **place)
    if fork.messages <= COPIED_AT_ONCE:
        finish_fork(fork.id)
    else:
        async_task(FORK_TASK, fork.id)
    return load_forking(fork.id)


def finish_fork(fork_id: str, *, deadline: float | None = None) -> bool:
    """Copy what a fork does not have yet, until a time of the monotonic clock; whether it is whole.

    :raises Conflict: another process copies it at the same time.
    """
    is_whole = forking.copy_messages(fork_id, deadline=deadline)
    if is_whole:
        compact_if_due(fork_id)
    return is_whole


def _new_fork(
    session_id: str,
    *,
    owner: AbstractBaseUser,
    at_message_id: str | None = None,
    before_message_id: str | None = None,
) -> Forking:
    if (at_message_id is None) == (before_message_id is None):
        raise InvalidRequest("send either at_message_id or before_message_id", field="at_message_id")
    source = load_session(session_id, owner_id=owner.pk)
    place = forking.find_place(source.id, at_message_id=at_message_id, before_message_id=before_message_id)
    return load_forking(forking.begin_fork(source, owner=owner, last=place, title=_title_of_fork(source.title)))


def _checked_config(values: dict[str, Any], *, owner_id: int) -> Config:
    """The configuration of a session as somebody asks for it.

    :raises InvalidRequest: a value is unknown or out of its bounds, or a tool that it names is not there.
    :raises ModelNotFoundError: it names a fallback that there is not, for this person.
    """
    config = checked_config(values)
    for alias in config.fallbacks:
        get_spec(alias, user_id=owner_id)
    # Only where it is set: a tool that vanishes later breaks no session.
    check_tools(values.get("turn", {}).get("tools", ()), user_id=owner_id)
    return config


def _check_title(title: str, limit: int) -> None:
    """:raises InvalidRequest: the title is too long."""
    if len(title) > limit:
        raise InvalidRequest(f"title has {len(title)} characters; {limit} are allowed", field="title")
    check_stored("title", title, TITLE_LENGTH)


def _title_of_fork(title: str) -> str:
    # A character may be stored as five.
    fits = len(encode_text(title)) <= TITLE_LENGTH - len(FORK_SUFFIX)
    return f"{title if fits else title[:TITLE_FROM_MESSAGE]}{FORK_SUFFIX}".strip()
