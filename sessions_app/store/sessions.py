"""Changes to sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError
from django.utils import timezone

from mnesis_core.errors import DuplicateIDError, PeerNameTaken, SessionNotFoundError
from mnesis_core.events import DirectoryType, EventType
from mnesis_core.ids import new_id
from mnesis_core.inbox import Hosting
from mnesis_core.text import encode_json, encode_text
from sessions_app.group_commit import durable_transaction
from sessions_app.ledger import Change, change
from sessions_app.models import Session
from sessions_app.statements import Table
from sessions_app.store.directory import Place, enter

_SESSIONS = Table(Session)
_FIELDS = Session._meta.concrete_fields


def create_session(
    *,
    owner: AbstractBaseUser,
    model: str,
    title: str = "",
    agent: str = "default",
    system_prompt: str = "",
    labels: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    parent_id: str | None = None,
    parent_part_id: str = "",
    forked_message_id: str = "",
    origin: str = "chat",
    external_id: str = "",
    created_at: datetime | None = None,
    session_id: str | None = None,
    host_mode: bool = False,
    peer_name: str = "",
) -> str:
    """Create a session and its first event; returns its id.

    :raises DuplicateIDError: ``session_id`` is taken, or the owner has a session of this origin and external id.
    :raises SessionNotFoundError: there is no session ``parent_id``.
    :raises PeerNameTaken: another session of the owner in host mode has this name.
    """
    new = session_id or new_id("sess")
    now = timezone.now()
    with durable_transaction(), _named_once(external_id, peer_name if host_mode else ""):
        _require_place(session_id, parent_id)
        session = Session.objects.create(
            id=new,
            owner_id=owner.pk,
            parent_id=parent_id,
            parent_part_id=parent_part_id,
            forked_message_id=forked_message_id,
            external_id=encode_text(external_id)[:200],
            origin=origin,
            model=model,
            agent=encode_text(agent),
            system_prompt=encode_text(system_prompt),
            title=encode_text(title)[:400],
            labels=encode_json(labels or {}),
            config=encode_json(config or {}),
            created_at=created_at or now,
            updated_at=now,
            host_mode=host_mode,
            peer_name=peer_name,
        )
        _publish_created(session)
    return new


@contextmanager
def _named_once(external_id: str, peer_name: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        # No door gives both, and a guard's refusal does not name the key.
        if peer_name:
            raise PeerNameTaken(peer_name=peer_name) from error
        if not external_id:
            raise
        raise DuplicateIDError("there is a session of this name already") from error


def _publish_created(session: Session) -> None:
    """The first event: it binds the session's row, and names its first owner; then the directory tells of it."""
    with change(session.id, now=session.updated_at) as record:
        record.bind_new(_SESSIONS, {str(field.column): getattr(session, field.attname) for field in _FIELDS})
        record.publish(
            EventType.SESSION_CREATED,
            session_id=session.id,
            owner_id=session.owner_id,
            parent_id=session.parent_id,
            origin=session.origin,
        )
        _enter(DirectoryType.SESSION_CREATED, record)


def _require_place(session_id: str | None, parent_id: str | None) -> None:
    if session_id and Session.objects.filter(id=session_id).exists():
        raise DuplicateIDError(f"there is a session {session_id} already", id=session_id)
    if parent_id and not Session.objects.filter(id=parent_id).exists():
        raise SessionNotFoundError(session_id=parent_id)


def update_session(
    record: Change,
    *,
    title: str | None = None,
    labels: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    hosting: Hosting | None = None,
) -> None:
    """Change what a person may change about a session.

    :raises PeerNameTaken: another session of its owner in host mode has this name.
    """
    values: dict[str, Any] = {}
    if title is not None:
        values["title"] = encode_text(title)
    if labels is not None:
        values["labels"] = encode_json(labels)
    if config is not None:
        values["config"] = encode_json(config)
    if hosting is not None:
        values |= {"host_mode": hosting.is_on, "peer_name": hosting.name}
    if values:
        with _named_once("", hosting.name if hosting and hosting.is_on else ""):
            record.update(_SESSIONS, values, id=record.session_id)
        record.publish(EventType.SESSION_UPDATED, session_id=record.session_id, fields=sorted(values))


def archive_session(record: Change) -> None:
    """Close a session for new turns. Archiving twice is the same as once."""
    if not record.archived:
        record.update(_SESSIONS, {"archived_at": record.now}, id=record.session_id)
        record.publish(EventType.SESSION_ARCHIVED, session_id=record.session_id)


def reopen_session(record: Change) -> None:
    """Take a session out of the archive, so that it takes turns again. Doing it twice is the same as once.

    :raises PeerNameTaken: another session of its owner in host mode has its name by now.
    """
    if not record.archived:
        return
    with _named_once("", Session.objects.values_list("peer_name", flat=True).get(id=record.session_id)):
        record.update(_SESSIONS, {"archived_at": None}, id=record.session_id)
    record.publish(EventType.SESSION_UPDATED, session_id=record.session_id, fields=["archived_at"])


def soft_delete_session(record: Change) -> None:
    """Take a session out of sight. Every row of it stays (decision 1)."""
    record.update(_SESSIONS, {"deleted_at": record.now}, id=record.session_id)
    record.publish(EventType.SESSION_CLOSED, session_id=record.session_id)
    _enter(DirectoryType.SESSION_DELETED, record)


def _enter(type: DirectoryType, record: Change) -> None:
    """Have the directory tell of the session as it is with what was published so far."""
    place = Place(
        session_id=record.session_id, owner_id=record.owner_id, entries=record.event_seq, head=record.head_hash
    )
    enter(type, place)
