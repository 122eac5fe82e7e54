"""The use cases of sessions and turns, one function for every endpoint that offers it. Each makes one change of the record.

Each that is given the id of a session raises ``SessionNotFoundError`` if it is not there, or belongs to another person;
each that starts or resumes a turn raises ``AtCapacity`` or ``TooManyTurns`` if this process runs as many as it may, in all
or of this person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext_noop
from django_q.tasks import async_task

from agents_app.tools.registry import check_tools
from agents_app.turns import claim
from agents_app.turns.defaults import defaults_of, model_in_assistant
from agents_app.turns.leaving import hide_session
from agents_app.turns.runner import runner
from agents_app.turns.transactions import TurnEnd
from compaction_app.facts.copies import copy_facts
from files_app.fetching import fetch_pictures
from files_app.given_store import refer_to_given_files
from files_app.pictures import keep_pictures
from files_app.queries import find_media_type, load_file_reference
from mnesis_core.config import Config, layered
from mnesis_core.errors import (
    DeletionNotPermitted,
    InvalidRequest,
    MnesisError,
    SessionInTrash,
    SessionNotRunning,
    SessionTemporary,
    TemporaryNotPermitted,
)
from mnesis_core.events import EventType
from mnesis_core.files.pictures import SentPicture
from mnesis_core.llm.interface import Outcome
from mnesis_core.messages import CitationPart, FileRefPart, MediaPart, Message, Part, ShownPart, text_of
from mnesis_core.records import MessageEnd, SessionRecord, TurnRecord, TurnState
from mnesis_core.text import encode_text
from mnesis_core.turns.inbox import Draft, Hosting, InboxMessage, hosting_after
from mnesis_core.turns.options import RecordedTurn, TurnOptions, check_recorded, request_digest
from sessions_app.assistants.assistant_store import load_assistant
from sessions_app.conf import checked_config, default_model, get_spec, get_spec_to_read, session_config, site_config
from sessions_app.database.group_commit import durable_transaction
from sessions_app.database.threads import db, shielded, waiting_for, work
from sessions_app.record import histories as forking
from sessions_app.record import session_store
from sessions_app.record.actor import current_actor
from sessions_app.record.change import Change, change
from sessions_app.record.hub import hub
from sessions_app.record.message_queries import prepare_parts, seq_of_message
from sessions_app.record.project_store import load_project, model_in
from sessions_app.record.session_queries import (
    Forking,
    load_forking,
    load_launched,
    load_session,
    load_trashed,
    trashed_with,
)
from sessions_app.record.turn_queries import load_turn

TITLE_LENGTH, AGENT_LENGTH = 400, 100  # stored characters of the columns
FORK_SUFFIX = " (fork)"
COPIED_AT_ONCE = 2_000  # messages of a fork; more take too long for a request (100,000 about a minute)
FORK_TASK = "agents_app.tasks.fork"
TURN_ENDS = {EventType(f"turn.{state}") for state in TurnState if state.is_end}
TURN_STOPS = {*TURN_ENDS, EventType.TURN_SUSPENDED}  # the events after which a turn does nothing by itself
LOOK_AGAIN_SECONDS = 5.0  # a waiting caller reads the turn again after this, should a notification get lost
LOOK_PAUSE_SECONDS = 0.1  # a turn in another process may notify on every token; look at most this often


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
    project_id: str = "",
    assistant_id: str = "",
    temporary: bool = False,
) -> SessionRecord:
    """Create a session. A ``first_message`` is checked only: when it is refused, no empty session is left behind.

    :param external_id: what the caller calls it; with owner and origin it names one session
    :param host_mode: whether it stays alive for messages of peers, who address it by ``peer_name``, or else as ``agent``
    :param project_id: one of the owner's projects, whose model and configuration it has as they are now, unless others are named
    :param assistant_id: one that the owner may use, whose newest version it keeps; this stands above the project, and what is named here above both
    :param temporary: whether it is a temporary chat, as one that begins from a temporary chat always is
    :raises TemporaryNotPermitted: the site does not let people begin temporary chats.
    :raises SessionTemporary: a temporary chat is in no project, and takes no messages of peers.
    :raises AssistantNotFoundError: there is no such assistant, or the owner may not use it.
    :raises ProjectNotFoundError: there is no such project, or the owner is not a member of it.
    :raises ModelNotFoundError: there is no such model.
    :raises DuplicateIDError, PeerNameTaken: the owner has one of this origin and external id, or one in host mode so named.
    :raises InvalidRequest: a value is out of its bounds.
    """
    project = load_project(project_id, user_id=owner.pk) if project_id else None
    assistant = load_assistant(assistant_id, user_id=owner.pk) if assistant_id else None
    alias = model or (model_in_assistant(assistant, user_id=owner.pk) if assistant else "")
    alias = alias or (model_in(project, user_id=owner.pk) if project else "") or default_model()
    get_spec(alias, user_id=owner.pk)
    checked = _check_config(config or {}, owner_id=owner.pk)
    both = layered(defaults_of(project, assistant), config or {})
    _check_title(title, checked.limits.title_characters)
    claim.check_stored("agent", agent, AGENT_LENGTH)
    claim.check_length("system_prompt", system_prompt, checked.limits.message_characters)
    if first_message is not None:
        claim.check_message(first_message, checked)
    hosting = hosting_after(Hosting(), host_mode=host_mode, peer_name=peer_name, agent=agent)
    parent = None if parent_id is None else load_session(parent_id, owner_id=owner.pk)
    if temporary or (parent and parent.is_temporary):
        _check_temporary(parent, project_id, hosting)
    session_id = session_store.create_session(
        owner=owner,
        model=alias,
        title=title,
        agent=agent,
        system_prompt=system_prompt,
        labels=labels or {},
        config=both,
        parent_id=parent_id,
        origin=origin,
        external_id=external_id,
        host_mode=hosting.is_on,
        peer_name=hosting.name,
        project_id=project_id,
        assistant_version_id=assistant.version_id if assistant else "",
        assistant_instructions=assistant.instructions if assistant else "",
        temporary=temporary,
    )
    return load_session(session_id)


def update_session(
    session_id: str,
    *,
    owner_id: int,
    title: str | None = None,
    labels: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    pinned: bool | None = None,
    host_mode: bool | None = None,
    peer_name: str | None = None,
    project_id: str | None = None,
) -> SessionRecord:
    """Rename, relabel, pin or reconfigure a session, put it into a project, or change whether it takes messages of peers.

    :param project_id: one of the owner's projects; an empty text takes the session out of the one it is in
    :raises ProjectNotFoundError: there is no such project, or the owner is not a member of it.
    :raises PeerNameTaken: another session of the owner in host mode has this name.
    :raises SessionTemporary: a temporary chat is not pinned, is in no project, and takes no messages of peers.
    :raises InvalidRequest: a value is out of its bounds.
    :raises ModelNotFoundError: a fallback is not there.
    """
    session = load_session(session_id, owner_id=owner_id)
    if session.is_temporary and (pinned or project_id):
        raise SessionTemporary(session_id=session_id)
    if title is not None:
        _check_title(title, site_config().limits.title_characters)
    _check_config(config or {}, owner_id=owner_id)
    if project_id:
        load_project(project_id, user_id=owner_id)
    with change(session_id) as record:
        session_store.update_session(
            record, title=title, labels=labels, config=config, pinned=pinned, project_id=project_id
        )
        claim.change_hosting(record, host_mode=host_mode, peer_name=peer_name)
    return load_session(session_id)


def see_session(session_id: str, *, owner_id: int) -> SessionRecord:
    """Note that the owner has seen every turn that has ended, so that the session counts as read."""
    session = load_session(session_id, owner_id=owner_id)
    session_store.mark_seen(session_id, turns=session.ended_turns)
    return replace(session, seen_turn=session.ended_turns)


def archive_session(session_id: str, *, owner_id: int) -> SessionRecord:
    """Close a session and those of its sub-agents for new turns; a running turn still ends, and so do its tasks."""
    load_session(session_id, owner_id=owner_id)
    for id in (session_id, *load_launched(session_id)):
        with change(id) as record:
            session_store.archive_session(record)
    return load_session(session_id)


def reopen_session(session_id: str, *, owner_id: int) -> SessionRecord:
    """Take a session out of the archive; those of its sub-agents stay there, for their work is done.

    :raises PeerNameTaken: it is in host mode, and another session of the owner has its name by now.
    """
    load_session(session_id, owner_id=owner_id)
    with change(session_id) as record:
        session_store.reopen_session(record)
    return load_session(session_id)


def keep_session(session_id: str, *, owner_id: int) -> SessionRecord:
    """Let a temporary chat, with those of its sub-agents, be a session like any other; another one stays as it is."""
    load_session(session_id, owner_id=owner_id)
    with durable_transaction():
        for id in (session_id, *load_launched(session_id)):
            with change(id) as record:
                session_store.keep_session(record)
    return load_session(session_id)


def trash_session(session_id: str, *, owner_id: int) -> SessionRecord:
    """Move a session to the trash, with those of its sub-agents: all of them or none.

    :raises SessionTemporary: a temporary chat is in no list, so it is only deleted for good.
    :raises DeletionNotPermitted: the site does not let people delete.
    :raises SessionBusy: a turn of one of them is running, or waits.
    """
    _check_may_delete()
    if load_session(session_id, owner_id=owner_id).is_temporary:
        raise SessionTemporary(session_id=session_id)
    hide_session(session_id, session_store.trash_session)
    return load_trashed(session_id, owner_id=owner_id)


def restore_session(session_id: str, *, owner_id: int) -> SessionRecord:
    """Take a session out of the trash, with the sub-agents' sessions that were moved there with it.

    :raises SessionNotFoundError: it is not in the trash.
    :raises PeerNameTaken: it is in host mode, and another session of the owner has its name by now.
    :raises DuplicateIDError: an import or a client has given its name to another session by now.
    """
    _each_trashed(load_trashed(session_id, owner_id=owner_id), session_store.restore_session)
    return load_session(session_id)


def delete_session(session_id: str, *, owner_id: int) -> None:
    """Hide a session for good, in the trash or not, with those of its sub-agents: all of them or none.

    Every row stays (decision 1).

    :raises DeletionNotPermitted: the site does not let people delete.
    :raises SessionBusy: a turn of one of them is running, or waits.
    """
    _check_may_delete()
    try:
        discard_session(session_id, owner_id=owner_id)
    except SessionInTrash:
        _each_trashed(load_trashed(session_id, owner_id=owner_id), session_store.delete_trashed_session)


def discard_session(session_id: str, *, owner_id: int) -> None:
    """Hide a session that nobody has seen yet, whatever the site lets people do.

    :raises SessionBusy: a turn of one of them is running, or waits.
    """
    load_session(session_id, owner_id=owner_id)
    hide_session(session_id, session_store.soft_delete_session)


def _check_may_delete() -> None:
    if not site_config().deletion.people_may_delete:
        raise DeletionNotPermitted


def _check_temporary(parent: SessionRecord | None, project_id: str, hosting: Hosting) -> None:
    _check_may_begin_temporary()
    if project_id or hosting.is_on or (parent and not parent.is_temporary):
        raise SessionTemporary


def _check_may_begin_temporary() -> None:
    if site_config().temporary.chats == "off":
        raise TemporaryNotPermitted


def _each_trashed(session: SessionRecord, write: Callable[[Change], None]) -> None:
    with durable_transaction():
        for id in (session.id, *trashed_with(session)):
            with change(id, trashed=True) as record:
                write(record)


def fork_session(session_id: str, *, owner: AbstractBaseUser, **place: str | None) -> SessionRecord:
    """Return a fork that ``begin_fork`` would begin, once all is copied; raise as it does."""
    fork_id = _new_fork(session_id, owner=owner, **place).id
    finish_fork(fork_id)
    return load_session(fork_id)


def begin_fork(session_id: str, *, owner: AbstractBaseUser, **place: str | None) -> Forking:
    """Begin a session with everything up to and including one message, or before one, and return how far it is.

    A worker copies the messages where they are many.

    :param place: ``at_message_id`` or ``before_message_id``
    :raises InvalidRequest: neither message is named, or both are.
    :raises MessageNotFoundError: the session has no such message.
    :raises Conflict: the message is still being written.
    """
    fork = _new_fork(session_id, owner=owner, **place)
    if fork.messages <= COPIED_AT_ONCE:
        finish_fork(fork.id)
    else:
        async_task(FORK_TASK, fork.id, actor=current_actor().text)
    return load_forking(fork.id)


def finish_fork(fork_id: str, *, deadline: float | None = None) -> bool:
    """Copy what a fork does not have yet, until a time of the monotonic clock; return whether it is whole.

    :raises Conflict: another process copies it at the same time.
    """
    is_whole = forking.copy_messages(fork_id, deadline=deadline, at_end=copy_facts)
    if is_whole:
        claim.compact_if_due(fork_id)
    return is_whole


def _new_fork(
    session_id: str, *, owner: AbstractBaseUser, at_message_id: str | None = None, before_message_id: str | None = None
) -> Forking:
    if (at_message_id is None) == (before_message_id is None):
        raise InvalidRequest(gettext_noop("send either at_message_id or before_message_id"), field="at_message_id")
    source = load_session(session_id, owner_id=owner.pk)
    if source.is_temporary:
        _check_may_begin_temporary()
    place = forking.find_place(source, at_message_id=at_message_id, before_message_id=before_message_id)
    # A character may be stored as five.
    fits = len(encode_text(source.title)) <= TITLE_LENGTH - len(FORK_SUFFIX)
    title = f"{source.title if fits else source.title[: claim.TITLE_FROM_MESSAGE]}{FORK_SUFFIX}".strip()
    return load_forking(forking.begin_fork(source, owner=owner, last=place, title=title))


def _check_config(values: dict[str, Any], *, owner_id: int) -> Config:
    """:raises InvalidRequest: a value is unknown or out of its bounds, or names an unknown tool.
    :raises ModelNotFoundError: it names a fallback that this person may not use.
    """
    config = checked_config(values)
    for alias in config.fallbacks:
        get_spec(alias, user_id=owner_id)
    # Checked only where it is set: a tool that vanishes later breaks no session.
    check_tools(values.get("turn", {}).get("tools", ()), user_id=owner_id)
    return config


def _check_title(title: str, limit: int) -> None:
    """:raises InvalidRequest: the title is too long."""
    if len(title) > limit:
        raise InvalidRequest(
            gettext_noop("title has %(count)s characters; %(most)s are allowed"),
            {"count": str(len(title)), "most": limit},
            field="title",
        )
    claim.check_stored("title", title, TITLE_LENGTH)


async def begin_session(
    *, owner: AbstractBaseUser, message: str, pictures: Sequence[SentPicture] = (), **values: Any
) -> tuple[SessionRecord, claim.StartedTurn]:
    """Do as ``create_session`` and ``start_turn`` do; when either is refused, neither the session nor the turn is there."""
    pictures = await fetch_pictures(pictures)
    return await shielded(_begin_session(owner, message, pictures, **values))


async def _begin_session(
    owner: AbstractBaseUser, message: str, pictures: Sequence[SentPicture], **values: Any
) -> tuple[SessionRecord, claim.StartedTurn]:
    with runner.permit(owner.pk):
        first_message = None if pictures and not message else message
        session = await db(create_session, owner=owner, first_message=first_message, **values)
        said: dict[str, Any] = {"owner_id": owner.pk, "message": message}
        try:
            if pictures:
                said["files"] = await work(_keep_pictures, session.id, pictures, owner_id=owner.pk)
                await claim.wait_until_explored(session.id, said["files"], owner_id=owner.pk)
            said["more_files"] = await _given_files(session)
            return session, await _start(claim.claim_turn, session.id, **said)
        except MnesisError:
            await db(discard_session, session.id, owner_id=owner.pk)
            raise


async def _given_files(session: SessionRecord) -> list[str]:
    """Return the files of a session's project and assistant that its next message brings, once they are explored."""
    if not session.project_id and not session.assistant_version_id:
        return []
    files = await work(refer_to_given_files, session)
    if files:
        await claim.wait_until_explored(session.id, files, owner_id=session.owner_id)
    return files


async def start_turn(
    session_id: str,
    *,
    owner_id: int,
    message: str | None,
    options: TurnOptions = claim.PLAIN,
    earlier: Sequence[Message] = (),
    idempotency_key: str | None = None,
    files: Sequence[str] = (),
    pictures: Sequence[SentPicture] = (),
    parent_id: str | None = None,
) -> claim.StartedTurn:
    """Write the user's message, claim the session and start the turn in this process; return at once.

    :param message: ``None`` when the model is to answer ``earlier`` itself, which ends with results of tools
    :param earlier: messages from elsewhere before this one, kept as a turn of their own; no part of the request's digest
    :param files: ids of files of the session that go with the message
    :param pictures: become files of the session that go with it too
    :param parent_id: the message that it continues, ``root`` for none; by default the last one of the chosen branch.
        Without a message, what a user said there is answered again
    :raises MessageNotFoundError, FileReferenceNotFoundError: the session has no such message, or no such file.
    :raises ModelNotFoundError: there is no such model.
    :raises SessionBusy, SessionArchived: another turn is running, or waits; or the session takes no more turns.
    :raises IdempotencyMismatch: the key was used for another request.
    :raises PeerNameTaken: another session of the owner in host mode has this one's name.
    :raises InvalidPicture: a picture cannot be shown; other errors of one at an address as ``fetch_pictures``.
    :raises InvalidRequest: the message is empty or too long, or an option is out of its bounds.
    """
    said = {"message": message, "files": files, "pictures": pictures, "parent_id": parent_id}
    asked: dict[str, Any] = {"owner_id": owner_id, "idempotency_key": idempotency_key, "options": options, **said}
    if pictures and idempotency_key and (known := await db(claim.find_repeated, session_id, **asked)):
        return known
    if options.model:
        await db(get_spec, options.model, user_id=owner_id)
    kept: list[str] = []
    if pictures:
        pictures = await fetch_pictures(pictures)
        kept = await work(_keep_pictures, session_id, pictures, owner_id=owner_id, model=options.model)
    if brought := [*files, *kept]:
        check_count(brought, "files")
        await claim.wait_until_explored(session_id, brought, owner_id=owner_id)
    given = [] if message is None else await _given_files(await db(load_session, session_id, owner_id=owner_id))
    return await _start_shielded(claim.claim_turn, session_id, **asked, more_files=[*kept, *given], earlier=earlier)


def check_count(files: Sequence[Any], field: str) -> None:
    """:raises InvalidRequest: there are more files than a message may have."""
    if len(files) > claim.MOST_FILES:
        raise InvalidRequest(gettext_noop("a message may have %(most)s files"), {"most": claim.MOST_FILES}, field=field)


def _keep_pictures(session_id: str, pictures: Sequence[SentPicture], *, owner_id: int, model: str = "") -> list[str]:
    check_count(pictures, "parts")
    alias = model or load_session(session_id, owner_id=owner_id).model
    return keep_pictures(session_id, pictures, owner_id=owner_id, spec=get_spec_to_read(alias))


def with_pictures_kept(
    session: SessionRecord, messages: Sequence[Message], pictures: Sequence[SentPicture]
) -> tuple[Message, ...]:
    """Return messages from elsewhere whose pictures are files of the session.

    :param messages: their parts have the names of the pictures as sources, or the addresses

    :raises InvalidPicture: a picture cannot be shown.
    """
    if not pictures:
        return tuple(messages)
    ids = _keep_pictures(session.id, pictures, owner_id=session.owner_id)
    files = {sent.url or sent.name: (id, sent) for sent, id in zip(pictures, ids, strict=True)}

    def kept(part: Part) -> Part:
        if not isinstance(part, ShownPart) or part.source not in files:
            return part
        id, sent = files[part.source]
        size = len(sent.data)
        return replace(part, file_id=id, name=sent.name, media_type=sent.media_type, size=size, source="")

    return tuple(replace(message, parts=tuple(map(kept, message.parts))) for message in messages)


async def _start(
    claim_it: Callable[..., claim.StartedTurn], *place: str, owner_id: int, is_resumed: bool = False, **values: Any
) -> claim.StartedTurn:
    started = await db(claim_it, *place, owner_id=owner_id, lease_owner=runner.owner, **values)
    if started.is_new:
        runner.start(started.turn, is_resumed=is_resumed, owner_id=owner_id)
    return started


async def _start_shielded(
    claim_it: Callable[..., claim.StartedTurn], *place: str, owner_id: int, **values: Any
) -> claim.StartedTurn:
    """Claim a turn and start it, even if the caller is gone by then: a turn that is claimed and never runs blocks its session."""

    async def start() -> claim.StartedTurn:
        with runner.permit(owner_id):
            return await _start(claim_it, *place, owner_id=owner_id, **values)

    return await shielded(start())


async def answer_tools(
    session_id: str, turn_id: str, *, owner_id: int, results: Sequence[claim.ToolResult]
) -> claim.StartedTurn:
    """Give a turn the results of tools that its caller runs; it resumes here when it waits for nothing more.

    All results are taken or none. One that comes after its turn has ended is kept with that turn, and goes no further.

    :raises TurnNotFoundError: the session has no such turn.
    :raises ToolCallNotFoundError: the turn made no call with this id.
    :raises ToolCallAnswered: the call has its result.
    :raises ToolCallNotCallers: the tool runs here.
    :raises InvalidRequest: there is no result, or two for one call, or one that is neither output nor error.
    """
    sent = tuple(picture for result in results for picture in result.pictures)
    found = dict(zip(sent, await fetch_pictures(sent), strict=True))
    results = tuple(replace(one, pictures=tuple(found[picture] for picture in one.pictures)) for one in results)
    return await _start_shielded(
        claim.answer_tools, session_id, turn_id, is_resumed=True, owner_id=owner_id, results=results
    )


async def decide_approval(
    session_id: str, part_id: str, *, owner_id: int, approved: bool, note: str = ""
) -> TurnRecord:
    """Approve or refuse a tool call that waits for it; its turn resumes here when it waits for nothing more.

    :param note: the person's reason; the model is told why a call was refused
    :raises PartNotFoundError: the session has no such tool call.
    :raises ApprovalNotPending: it was decided already, or does not wait for an approval.
    """
    decided = await _start_shielded(
        claim.decide_approval, session_id, part_id, is_resumed=True, owner_id=owner_id, approved=approved, note=note
    )
    return decided.turn


async def wait_turn(session_id: str, turn_id: str, *, owner_id: int) -> TurnRecord:
    """Return the turn when it has ended or is suspended, wherever it runs.

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
) -> claim.StartedTurn:
    """Write a turn that the caller ran with its own model client, whole and ended, and ask for a compaction if due.

    :raises SessionBusy: a turn is running, or waits.
    :raises SessionArchived: the session takes no more turns.
    :raises IdempotencyMismatch: the key was used for another request.
    :raises InvalidRequest: a value is missing or out of its bounds.
    :raises FileReferenceNotFoundError: a part names a file that the owner does not have.
    :raises MessageNotFoundError: a citation names a message that the session does not have.
    """
    session = load_session(session_id, owner_id=owner_id)
    check_recorded(turn, characters=session_config(session.config).limits.message_characters)
    digest, key = request_digest(turn), claim.stored_key(idempotency_key)
    user = Message(role="user", parts=_with_files(turn.user, session))
    assistant = Message(role="assistant", parts=_with_files(turn.assistant, session))
    model = turn.model or session.model
    end = MessageEnd(finish_reason=turn.finish_reason, outcome=Outcome.COMPLETE.value, usage=turn.usage)
    return _record(session, (user, assistant), key=key, digest=digest, model=model, end=end, answerer=model)


def record_messages(
    session_id: str,
    *,
    owner_id: int,
    messages: tuple[Message, ...],
    pictures: Sequence[SentPicture] = (),
    idempotency_key: str | None = None,
) -> claim.StartedTurn:
    """Write messages from elsewhere as a turn of their own that has ended, without asking a model.

    :param pictures: become files of the session; parts of the messages have their names as sources
    :raises SessionBusy: a turn is running, or waits.
    :raises SessionArchived: the session takes no more turns.
    :raises IdempotencyMismatch: the key was used for another request.
    :raises InvalidPicture: a picture cannot be shown.
    :raises MnesisError: one at an address cannot be fetched, as ``fetch_pictures``
    :raises RequestTooLarge: a text is too long.
    """
    session = load_session(session_id, owner_id=owner_id)
    claim.check_earlier(messages, session_config(session.config).limits.message_characters)
    digest, key = request_digest(messages), claim.stored_key(idempotency_key)
    if pictures and (known := claim.find_started(session.id, key, digest)):
        return known
    kept = with_pictures_kept(session, messages, waiting_for(fetch_pictures)(pictures) if pictures else ())
    return _record(session, kept, key=key, digest=digest, model=session.model)


def _record(
    session: SessionRecord, messages: Sequence[Message], *, key: str | None, digest: str, model: str, **ended: Any
) -> claim.StartedTurn:
    """Write a turn that has ended, whole, unless its key has written it before, and ask for a compaction if due."""
    claim.close_dead_turn(session, runner.owner)
    prepared = [(message, prepare_parts(message.parts)) for message in messages]
    question = next((message for message in messages if message.role == "user"), None)
    with change(session.id) as record:
        seq = record.next_seq
        if known := claim.find_started(session.id, key, digest):
            return known
        ended |= {"idempotency_key": key, "request_digest": digest}
        id = claim.write_ended_turn(record, model, prepared, **ended)
        claim.title_from_message(record, session, text_of(question.parts) if question else "")
    claim.compact_if_due(session.id)
    return claim.StartedTurn(turn=load_turn(id, session_id=session.id), seq=seq, is_new=True)


def _with_files(parts: tuple[Part, ...], session: SessionRecord) -> tuple[Part, ...]:
    # References carry what the record knows of the files, not what the caller says of them.
    known: list[Part] = []
    for part in parts:
        if isinstance(part, FileRefPart):
            file = load_file_reference(part.file_id, owner_id=session.owner_id)
            part = FileRefPart(
                file_id=file.id,
                path=file.path,
                file_type=file.file_type,
                token_count=file.token_count,
                exploration_summary=file.exploration_summary,
            )
        elif isinstance(part, MediaPart):
            file = load_file_reference(part.file_id, owner_id=session.owner_id)
            part = replace(part, name=file.path, size=file.size or 0, media_type=find_media_type(file))
        elif isinstance(part, CitationPart):
            if part.file_id:
                load_file_reference(part.file_id, owner_id=session.owner_id)
            if part.message_id:
                seq_of_message(part.message_id, session_id=session.id)
        known.append(part)
    return tuple(known)


def interrupt(session_id: str, *, owner_id: int) -> TurnRecord:
    """Ask for the end of the running turn, from any process, or end a suspended one at once; what was said is kept.

    :raises SessionNotRunning: no turn is running, and none waits.
    """
    load_session(session_id, owner_id=owner_id)
    turn_id = claim.end_waiting(session_id, TurnEnd(state=TurnState.CANCELLED))
    if turn_id is None:
        raise SessionNotRunning(session_id=session_id)
    return load_turn(turn_id, session_id=session_id)


async def send_message(
    session_id: str, *, owner_id: int, draft: Draft, idempotency_key: str | None = None
) -> InboxMessage:
    """Put a message into the inbox of a session in host mode, which takes it when it is idle; returns at once.

    :raises SessionNotFoundError: the session, or that of the sender, is not there, or belongs to another person.
    :raises SessionArchived: it takes no more turns, so no messages either.
    :raises NotInHostMode: it does not stay alive for messages.
    :raises InboxFull: too many messages wait there.
    :raises TooManyHops: too many agents have answered each other.
    :raises InboxMessageNotFoundError: what it answers is no message to a session of this person.
    :raises IdempotencyMismatch: the key was used for another message.
    :raises InvalidRequest: the text is empty or too long, or a response answers nothing.
    """
    message = await db(claim.deliver, session_id, owner_id=owner_id, draft=draft, idempotency_key=idempotency_key)
    runner.check_inbox(session_id)
    return message
