"""The only writer of sessions and of the directory: which sessions exist, whose they are, and their heads over time.

The directory is one chain for the whole site, so its writers wait for each other. An entry is written when a session is
created, imported, deleted, restored or opened by others, last in that transaction, and by each web process every five
minutes; never by a turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict, Unpack

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError, connection
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.utils import timezone
from django.utils.translation import gettext_noop

from mnesis_core.errors import (
    BranchNotFoundError,
    DuplicateIDError,
    PeerNameTaken,
    SessionArchived,
    SessionNotFoundError,
)
from mnesis_core.events import FORMAT_VERSION, GENESIS, DirectoryType, EventType, canonical_body, entry_hash
from mnesis_core.records import new_id
from mnesis_core.turns.inbox import Hosting
from sessions_app.database.group_commit import at_end, durable_transaction
from sessions_app.database.tables import Table, fetch, run, time_text
from sessions_app.models import Branch, DirectoryEntry, Session
from sessions_app.ownership import HOME
from sessions_app.record.actor import current_actor
from sessions_app.record.change import Change, change
from sessions_app.record.organisation_store import ref_of
from sessions_app.search import index

WRITER = 7_663_912  # the writers' advisory lock on PostgreSQL; SQLite has one writer anyway
RECORD_SECONDS = 300.0  # between two rounds of a process
MOST_RECORDED = 10_000
ROWS_AT_ONCE = 500
# A session's time of change is when the change began, and a clock may have been set back meanwhile.
SLACK = timedelta(hours=1)

_SESSIONS, _BRANCHES, _DIRECTORY = Table(Session), Table(Branch), Table(DirectoryEntry)
_LOCK = "SELECT pg_advisory_xact_lock(%s)"
_LAST = "SELECT seq, hash FROM directory_entries ORDER BY seq DESC LIMIT 1"
_SESSION = "SELECT owner_id, organisation_id, event_seq, head_hash FROM sessions WHERE id = %s"
# Through the users, to use the index of a person's sessions by last change; another index would slow every change.
_CHANGED = f"""
    SELECT s.id, s.owner_id, s.organisation_id, s.event_seq, s.head_hash
    FROM {get_user_model()._meta.db_table} u JOIN sessions s ON s.owner_id = u.id AND s.updated_at > %s
    WHERE s.event_seq > COALESCE((
        SELECT d.entries FROM directory_entries d WHERE d.session_id = s.id ORDER BY d.seq DESC LIMIT 1), 0)
    LIMIT {MOST_RECORDED}"""  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    session_id: str
    owner_id: int
    organisation: str
    entries: int
    head: str


def enter_imported(session_id: str) -> None:
    [(owner_id, organisation, entries, head)] = fetch(_SESSION, [session_id])
    place = Place(session_id=session_id, owner_id=owner_id, organisation=organisation, entries=entries, head=head)
    actor = current_actor().text
    at_end(lambda: _append(DirectoryType.SESSION_IMPORTED, [place], actor=actor))


def record_heads(*, since: datetime | None = None) -> int:
    """Record the heads of sessions changed since then, or ever, and return how many (at most ``MOST_RECORDED``)."""
    earliest = datetime(1, 1, 2, tzinfo=UTC) if since is None else since - SLACK
    rows = fetch(_CHANGED, [connection.ops.adapt_datetimefield_value(earliest)])
    places = [
        Place(session_id=id, owner_id=owner, organisation=organisation, entries=entries, head=head)
        for id, owner, organisation, entries, head in rows
    ]
    actor = current_actor().text
    for start in range(0, len(places), ROWS_AT_ONCE):
        with durable_transaction():
            _append(DirectoryType.SESSION_RECORDED, places[start : start + ROWS_AT_ONCE], actor=actor)
    return len(places)


class Recorder:
    def __init__(self) -> None:
        self._looked_at = time.monotonic()  # not at once: most commands are over before the first look
        self._since: datetime | None = None

    def look(self) -> None:
        now, began = time.monotonic(), timezone.now()
        if now - self._looked_at < RECORD_SECONDS:
            return
        self._looked_at = now
        if record_heads(since=self._since) < MOST_RECORDED:
            self._since = began


recorder = Recorder()


def _append(type: DirectoryType, places: Sequence[Place], *, actor: str) -> None:
    now = timezone.now()
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            run(cursor, _LOCK, [WRITER])
        last, head = run(cursor, _LAST).fetchone() or (0, GENESIS)
        rows = []
        for seq, place in enumerate(places, last + 1):
            body = canonical_body(asdict(place) | {"at": time_text(now), "v": FORMAT_VERSION}, actor=actor)
            hash = entry_hash(prev_hash=head, seq=seq, type=type.value, body=body)
            named = {"session_id": place.session_id, "type": type.value, "entries": place.entries, "body": body}
            rows.append(_DIRECTORY.row(seq=seq, **named, prev_hash=head, hash=hash, created_at=now))
            head = hash
        _DIRECTORY.insert(cursor, rows)


class SessionValues(TypedDict, total=False):
    """Columns of a new session that the model has a default for."""

    title: str
    agent: str
    system_prompt: str
    labels: dict[str, str]
    config: dict[str, Any]
    parent_part_id: str
    forked_message_id: str
    origin: str
    external_id: str
    host_mode: bool
    peer_name: str
    project_id: str
    assistant_version_id: str
    assistant_instructions: str


def create_session(
    *,
    owner: AbstractBaseUser,
    model: str,
    parent_id: str | None = None,
    created_at: datetime | None = None,
    session_id: str | None = None,
    temporary: bool = False,
    **values: Unpack[SessionValues],
) -> str:
    """Create a session in the organisation of its parent, or in that of its owner.

    :param temporary: whether it is a temporary chat; one that begins from a temporary chat always is
    :raises DuplicateIDError: ``session_id`` is taken, or the owner has a session of this origin and external id.
    :raises SessionNotFoundError: there is no session ``parent_id``.
    :raises PeerNameTaken: another session of the owner in host mode has this name.
    """
    now = timezone.now()
    peer_name = values.get("peer_name", "") if values.get("host_mode") else ""
    with durable_transaction(), _named_once(values.get("external_id", ""), peer_name):
        of_temporary = _check_ids(session_id, parent_id)
        organisation = RawSQL("(SELECT p.organisation_id FROM sessions p WHERE p.id = %s)", [parent_id])
        if not parent_id:
            ref_of(owner.pk)  # an account that was made past Django is in none until now
            organisation = RawSQL(HOME, [owner.pk])  # noqa: S611 - a constant
        session = Session.objects.create(
            id=session_id or new_id("sess"),
            owner_id=owner.pk,
            organisation_id=organisation,
            parent_id=parent_id,
            model=model,
            created_at=created_at or now,
            updated_at=now,
            began_temporary=temporary or of_temporary,
            **values,
        )
        _publish_created(session)
    return session.id


def _check_ids(session_id: str | None, parent_id: str | None) -> bool:
    """Return whether the parent is a temporary chat.

    :raises DuplicateIDError: there is a session ``session_id`` already.
    :raises SessionNotFoundError: there is no session ``parent_id``.
    """
    if session_id and Session.objects.filter(id=session_id).exists():
        raise DuplicateIDError(
            gettext_noop("there is a session %(session_id)s already"), {"session_id": session_id}, id=session_id
        )
    if not parent_id:
        return False
    parent = Session.objects.filter(id=parent_id).values_list("began_temporary", "kept_at").first()
    if parent is None:
        raise SessionNotFoundError(session_id=parent_id)
    return parent[0] and parent[1] is None


def _publish_created(session: Session) -> None:
    named = {"session_id": session.id, "owner_id": session.owner_id, "parent_id": session.parent_id}
    with change(session.id, now=session.updated_at) as record:
        named["organisation"] = record.organisation
        values = {str(field.column): getattr(session, field.attname) for field in Session._meta.concrete_fields}
        record.bind_new(_SESSIONS, _SESSIONS.stored(values))
        record.publish(EventType.SESSION_CREATED, **named, origin=session.origin)
        enter_at_end(DirectoryType.SESSION_CREATED, record)


@contextmanager
def _named_once(external_id: str, peer_name: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        # No endpoint gives both, and a guard's refusal does not name the key.
        if peer_name:
            raise PeerNameTaken(peer_name=peer_name) from error
        if not external_id:
            raise
        raise DuplicateIDError(gettext_noop("there is a session of this name already")) from error


def update_session(
    record: Change,
    *,
    title: str | None = None,
    labels: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    pinned: bool | None = None,
    hosting: Hosting | None = None,
    project_id: str | None = None,
) -> None:
    """Change what is not ``None``; a session that is pinned already keeps its place.

    :param project_id: one of the owner's projects, as the caller knows, or an empty text for none
    :raises PeerNameTaken: another session of its owner in host mode has this name.
    """
    given = {"title": title, "labels": labels, "config": config, "project_id": project_id}
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    pins = Session.objects.filter(id=record.session_id, pinned_at__isnull=False)
    if pinned is not None and pinned != pins.exists():
        values["pinned_at"] = record.now if pinned else None
    if hosting is not None:
        values |= {"host_mode": hosting.is_on, "peer_name": hosting.name}
    if values:
        with _named_once("", hosting.name if hosting and hosting.is_on else ""):
            record.update(_SESSIONS, values, id=record.session_id)
        record.publish(EventType.SESSION_UPDATED, session_id=record.session_id, fields=sorted(values))


def mark_seen(session_id: str, *, turns: int) -> None:
    """Note that the owner has seen how so many turns ended. This is no part of the record."""
    rows = Session.objects.filter(Q(seen_turn__isnull=True) | Q(seen_turn__lt=turns), id=session_id)
    rows.update(seen_turn=turns)


def begin_branch(record: Change, *, parent: int, after_seq: int) -> int:
    """Begin a branch after a message of another one, or before the first message, and return its number.

    It is not chosen by that. The caller knows that the message is on the branch ``parent``.
    """
    record.branch_seq += 1
    place = {"number": record.branch_seq, "parent": parent, "after_seq": after_seq}
    row = _BRANCHES.row(id=new_id("branch"), session_id=record.session_id, created_at=record.now, **place)
    record.insert(_BRANCHES, row)
    record.update(_SESSIONS, {"branch_seq": record.branch_seq}, id=record.session_id)
    record.publish(EventType.BRANCH_CREATED, branch=row.number, parent=parent, after_seq=after_seq)
    return record.branch_seq


def choose_branch(record: Change, number: int) -> None:
    """:raises BranchNotFoundError: the session has no such branch.
    :raises SessionArchived: the session is archived.
    """
    if not 0 <= number <= record.branch_seq:
        raise BranchNotFoundError(branch=number)
    if record.archived:
        raise SessionArchived(session_id=record.session_id)
    if number != record.branch:
        record.branch = number
        record.update(_SESSIONS, {"branch": number}, id=record.session_id)
        record.publish(EventType.BRANCH_CHOSEN, branch=number)


def archive_session(record: Change) -> None:
    if not record.archived:
        record.update(_SESSIONS, {"archived_at": record.now}, id=record.session_id)
        record.publish(EventType.SESSION_ARCHIVED, session_id=record.session_id)


def reopen_session(record: Change) -> None:
    """Let an archived session take turns again; another one stays as it is.

    :raises PeerNameTaken: another session of its owner in host mode has its name by now.
    """
    if not record.archived:
        return
    with _named_once("", Session.objects.values_list("peer_name", flat=True).get(id=record.session_id)):
        record.update(_SESSIONS, {"archived_at": None}, id=record.session_id)
    record.publish(EventType.SESSION_UPDATED, session_id=record.session_id, fields=["archived_at"])


def keep_session(record: Change) -> None:
    """Let a temporary chat be a session like any other; another one stays as it is."""
    if record.update(_SESSIONS, {"kept_at": record.now}, id=record.session_id, began_temporary=True, kept_at=None):
        record.publish(EventType.SESSION_UPDATED, session_id=record.session_id, fields=["kept_at"])


def soft_delete_session(record: Change) -> None:
    """Hide a session for good. Every row of it stays (decision 1)."""
    _hide(record, {"deleted_at": record.now})


def trash_session(record: Change) -> None:
    """Hide a session until it is restored."""
    _hide(record, {"deleted_at": record.now, "trashed_at": record.now})


def delete_trashed_session(record: Change) -> None:
    """Hide a session that is in the trash for good."""
    _hide(record, {"trashed_at": None})


def restore_session(record: Change) -> None:
    """Take a session out of the trash, as it was.

    :raises PeerNameTaken: it is in host mode, and another session of its owner has its name by now.
    :raises DuplicateIDError: an import or a client has given its name to another session by now.
    """
    named = Session.objects.values_list("external_id", "peer_name", "host_mode", "archived_at")
    external_id, peer_name, host_mode, archived_at = named.get(id=record.session_id)
    with _named_once(external_id, peer_name if host_mode and archived_at is None else ""):
        record.update(_SESSIONS, {"deleted_at": None, "trashed_at": None}, id=record.session_id)
    record.publish(EventType.SESSION_UPDATED, session_id=record.session_id, fields=["deleted_at", "trashed_at"])
    # An import leaves out of the search what is not visible.
    index.rebuild_session(record.cursor, record.session_id)
    enter_at_end(DirectoryType.SESSION_RESTORED, record)


def _hide(record: Change, marks: dict[str, Any]) -> None:
    record.update(_SESSIONS, marks, id=record.session_id)
    record.publish(EventType.SESSION_CLOSED, session_id=record.session_id)
    enter_at_end(DirectoryType.SESSION_DELETED, record)


def enter_at_end(type: DirectoryType, record: Change) -> None:
    place = Place(
        session_id=record.session_id,
        owner_id=record.owner_id,
        organisation=record.organisation,
        entries=record.event_seq,
        head=record.head_hash,
    )
    at_end(lambda: _append(type, [place], actor=record.actor))
