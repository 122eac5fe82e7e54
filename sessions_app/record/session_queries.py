"""Reads of sessions, of how they belong together, and of what belongs to one."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce

from mnesis_core import errors
from mnesis_core.context.branches import Path, path_to
from mnesis_core.events import DirectoryType
from mnesis_core.files.references import GivenFile, referred_file
from mnesis_core.messages import AudioPart, DocumentPart, FileRefPart, ImagePart
from mnesis_core.records import (
    FORK,
    GATEWAY,
    IMPORTED_SUB_AGENT,
    SUB_AGENT,
    SessionNode,
    SessionRecord,
    TurnState,
    record_of,
)
from mnesis_core.text import encode_text
from sessions_app.database.tables import CompiledQuery, Param
from sessions_app.models import AccountLimit, DirectoryEntry, Message, MessagePart, ModelCall, Session, Turn
from sessions_app.ownership import HOME_OF_OWNER, PROJECT_OF_SESSION, is_temporary, owned_by
from sessions_app.record.branch_queries import load_branches
from sessions_app.record.message_queries import seqs_on_path

BACK = re.compile(r"last|~(?P<place>[0-9]{1,4})")
LONGEST_LINE = 100  # more sessions above one another than delegation and forking make

# By the prefix of an id: the table, the error if it has no such row, and the name of the id in that error.
_OWNED: dict[str, tuple[Any, type[errors.NotFound], str]] = {
    "msg": (Message, errors.MessageNotFoundError, "message_id"),
    "part": (MessagePart, errors.PartNotFoundError, "part_id"),
    "turn": (Turn, errors.TurnNotFoundError, "turn_id"),
    "call": (ModelCall, errors.CallNotFoundError, "call_id"),
}
_OF_FILES = (FileRefPart.type, ImagePart.type, AudioPart.type, DocumentPart.type)
# Built once, because building these queries takes longer than running them.
# A fork of a path has fewer messages than the number of its last one; then the turn with that one has its id as key.
_WHOLE = Turn.objects.filter(session=OuterRef(OuterRef("pk")), idempotency_key=OuterRef("id"))
_TO_COME = Message.objects.filter(~Exists(_WHOLE), id=OuterRef("forked_message_id"), seq__gt=OuterRef("message_seq"))
_VISIBLE = Session.objects.filter(Q(forked_message_id="") | ~Exists(_TO_COME), deleted_at__isnull=True)
_NEWEST_TURN = Turn.objects.filter(session=OuterRef("pk")).order_by("-seq")
_OPEN_TURN = Turn.objects.filter(session=OuterRef("pk"), ended_at__isnull=True)
_NEWEST_MESSAGE = Message.objects.filter(session=OuterRef("pk")).order_by("-seq")
_LAST_SAID = Coalesce(Subquery(_NEWEST_MESSAGE.values("recorded_at")[:1]), "created_at")
_LIMITS = AccountLimit.objects.filter(owner_id=OuterRef("owner_id"))
_ANNOTATIONS: dict[str, Any] = {
    "running_turn_id": Subquery(_OPEN_TURN.values("id")[:1]),
    "last_turn_state": Subquery(_NEWEST_TURN.values("state")[:1]),
    "account_limits": Subquery(_LIMITS.values("limits")[:1]),
    "home_id": HOME_OF_OWNER,
    "in_project_id": PROJECT_OF_SESSION,
}
_WITH_TURNS: QuerySet[Any] = _VISIBLE.annotate(**_ANNOTATIONS)
_TRASHED: QuerySet[Any] = Session.objects.filter(trashed_at__isnull=False)
# What was moved to the trash with its parent comes back with it, and is not listed.
_WITH_PARENT = _TRASHED.filter(id=OuterRef("parent_id"), trashed_at=OuterRef("trashed_at"))
_IN_TRASH: QuerySet[Any] = _TRASHED.annotate(**_ANNOTATIONS)
_BY_ID: CompiledQuery[Any] = CompiledQuery(lambda: _WITH_TURNS.filter(id=Param("id")))
# A turn works with the session, or once did in an imported history.
_LAUNCHED = Q(origin=SUB_AGENT) | Q(origin__startswith="import:", agent=IMPORTED_SUB_AGENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forking:
    """The progress of a fork. An incomplete fork is not a session yet."""

    id: str
    source_id: str
    at_message_id: str  # the original of its last message; empty for a fork without messages
    copied: int
    messages: int  # when it is complete
    path: Path | None = None  # in the original; ``None`` for one without branches
    last_seq: int  # there, of its last message
    after_seq: int  # there, of the last one that is copied

    @property
    def is_whole(self) -> bool:
        return self.copied == self.messages


def load_session(session_id: str, *, owner_id: int | None = None) -> SessionRecord:
    """:raises SessionNotFoundError: there is no such session, or it does not belong to ``owner_id`` (``ownership``).
    :raises SessionInTrash: it belongs to ``owner_id`` and is in the trash.
    """
    row = _BY_ID.one(id=session_id)
    if row is None and owner_id is not None and _TRASHED.filter(owned_by(owner_id), id=session_id).exists():
        raise errors.SessionInTrash(session_id=session_id)
    if row is None or not _is_of(row, owner_id):
        raise errors.SessionNotFoundError(session_id=session_id)
    return _session(row)


def _is_of(row: Any, owner_id: int | None) -> bool:
    return owner_id is None or (row.owner_id, row.organisation_id) == (owner_id, row.home_id)


def load_forking(fork_id: str, *, owner_id: int | None = None) -> Forking:
    """:raises SessionNotFoundError: there is no such fork, or it belongs to a person other than ``owner_id``."""
    last = Message.objects.filter(id=OuterRef("forked_message_id"))
    forks = Session.objects.filter(id=fork_id, origin=FORK, deleted_at__isnull=True)
    row = forks.annotate(
        last_seq=Coalesce(Subquery(last.values("seq")), 0),
        last_branch=Coalesce(Subquery(last.values("branch")), 0),
        branches_there=F("parent__branch_seq"),
        home_id=HOME_OF_OWNER,
    ).first()
    if row is None or not _is_of(row, owner_id):
        raise errors.SessionNotFoundError(session_id=fork_id)
    path = path_to(load_branches(row.parent_id), row.last_branch) if row.branches_there else None
    # A fork counts its messages from 1, as an original without branches does.
    seqs = range(1, row.last_seq + 1) if path is None else seqs_on_path(row.parent_id, path, last_seq=row.last_seq)
    copied = min(row.message_seq, len(seqs))
    return Forking(
        id=row.id,
        source_id=row.parent_id,
        at_message_id=row.forked_message_id,
        copied=copied,
        messages=len(seqs),
        path=path,
        last_seq=row.last_seq,
        after_seq=seqs[copied - 1] if copied else 0,
    )


def load_sessions(session_ids: Sequence[str], *, owner_id: int) -> list[SessionRecord]:
    """Return those of these sessions that exist and belong to the owner, most recently changed first, in one query."""
    rows = _WITH_TURNS.filter(owned_by(owner_id), id__in=list(session_ids))
    return [_session(row) for row in rows.order_by("-updated_at", "-id")]


def list_sessions(
    *,
    owner_id: int,
    archived: bool | None = False,
    pinned: bool | None = None,
    label: tuple[str, str] | None = None,
    query: str = "",
    parent_id: str | None = None,
    sub_agents: bool | None = None,
    trashed: bool = False,
    project_id: str | None = None,
    before: tuple[datetime, str] | None = None,
    limit: int = 50,
) -> list[SessionRecord]:
    """Return sessions of one person, most recently changed first, after the cursor ``before`` (time and id).

    Temporary chats are left out, but for those that were launched or forked from one that is named.

    :param parent_id: only sessions that were launched or forked from this one
    :param sub_agents: true for only those that turns launched, false for none of them
    :param trashed: only sessions in the trash, without those that were moved there with their parents
    :param project_id: only sessions in this project, which the caller knows to be one of the person's
    :raises SessionNotFoundError: there is no such parent, or it belongs to another person.
    """
    rows = (_IN_TRASH.exclude(Exists(_WITH_PARENT)) if trashed else _WITH_TURNS).filter(owned_by(owner_id))
    parent = None if parent_id is None else load_session(parent_id, owner_id=owner_id)
    if parent is not None:
        rows = rows.filter(parent_id=parent.id)
    if parent is None or not parent.is_temporary:
        rows = rows.exclude(is_temporary())
    if sub_agents is not None:
        rows = rows.filter(_LAUNCHED if sub_agents else ~_LAUNCHED)
    if archived is not None:
        rows = rows.filter(archived_at__isnull=not archived)
    if pinned is not None:
        rows = rows.filter(pinned_at__isnull=not pinned)
    if project_id is not None:
        rows = rows.filter(project_id=project_id)
    if label is not None:
        # Not ``labels__KEY``: a key may have the name of a lookup.
        rows = rows.alias(label=KeyTransform(encode_text(label[0]), "labels")).filter(label=label[1])
    if query:
        rows = rows.filter(title__icontains=encode_text(query))
    if before is not None:
        rows = rows.filter(Q(updated_at__lt=before[0]) | Q(updated_at=before[0], id__lt=before[1]))
    return [_session(row) for row in rows.order_by("-updated_at", "-id")[:limit]]


def last_model(*, owner_id: int) -> str:
    """Return the model of the newest turn in the latest session that a person has looked at; empty if there is none."""
    looked_at = _VISIBLE.filter(~is_temporary(), owned_by(owner_id), seen_turn__isnull=False)
    newest = looked_at.order_by("-updated_at", "-id").values_list(Subquery(_NEWEST_TURN.values("model")[:1]), flat=True)
    return newest.first() or ""


def list_pinned(*, owner_id: int, limit: int) -> list[SessionRecord]:
    """Return the sessions that a person keeps on top, the last pinned first; archived ones are left out."""
    rows = _WITH_TURNS.filter(owned_by(owner_id), pinned_at__isnull=False, archived_at__isnull=True)
    return [_session(row) for row in rows.order_by("-pinned_at", "-id")[:limit]]


def with_sub_agents(session_ids: Sequence[str]) -> set[str]:
    """Return those of these sessions that launched sub-agents which are still there, in one query."""
    rows = _VISIBLE.filter(_LAUNCHED, parent_id__in=list(session_ids)) if session_ids else _VISIBLE.none()
    return set(rows.order_by().values_list("parent_id", flat=True).distinct())


def find_session(reference: str, *, owner_id: int) -> SessionRecord:
    """Return the session to resume: by its id, ``last``, or ``~N`` for the Nth before the last changed.

    Sub-agents are resumed by their ids only, because every delegation changes them.

    :raises SessionNotFoundError: there is no such session, or it belongs to another person.
    """
    back = BACK.fullmatch(reference)
    if back is None:
        return load_session(reference, owner_id=owner_id)
    place = int(back["place"] or 0)
    sessions = list_sessions(owner_id=owner_id, archived=None, sub_agents=False, limit=place + 1)
    if place >= len(sessions):
        raise errors.SessionNotFoundError(
            f"there is no session {reference}; there are {len(sessions)}", session_id=reference
        )
    return sessions[place]


def launched_by_parts(session_id: str, part_ids: Sequence[str]) -> dict[str, list[SessionRecord]]:
    """Return the sessions that tool calls of a session launched, oldest first, by the part of each call, in one query."""
    if not part_ids:
        return {}
    rows = _WITH_TURNS.filter(parent_id=session_id, parent_part_id__in=list(part_ids))
    found: dict[str, list[SessionRecord]] = defaultdict(list)
    for row in rows.order_by("created_at", "id"):
        found[row.parent_part_id].append(_session(row))
    return found


def titles_of(session_ids: Collection[str], *, owner_id: int | None) -> dict[str, str]:
    """Return titles of one person's sessions, or with ``None`` of any person's, by id, in one query."""
    rows = _VISIBLE.filter(id__in=list(session_ids))
    if owner_id is not None:
        rows = rows.filter(owned_by(owner_id))
    return dict(rows.values_list("id", "title"))


def temporary_among(session_ids: Collection[str]) -> set[str]:
    """Return which of these sessions are temporary chats; whoever asks knows whose they are."""
    rows = Session.objects.filter(is_temporary(), id__in=list(session_ids))
    return set(rows.values_list("id", flat=True))


def load_trashed(session_id: str, *, owner_id: int) -> SessionRecord:
    """:raises SessionNotFoundError: there is no such session in the trash, or it belongs to another person."""
    row = _IN_TRASH.filter(owned_by(owner_id), id=session_id).first()
    if row is None:
        raise errors.SessionNotFoundError(session_id=session_id)
    return _session(row)


def trashed_with(session: SessionRecord) -> list[str]:
    """Return the sub-agents of a session in the trash that were moved there with it, at any depth."""
    return _below(session.id, _TRASHED.filter(origin=SUB_AGENT, trashed_at=session.trashed_at))


def find_imported(*, owner_id: int, origin: str, external_id: str) -> SessionRecord | None:
    row = _WITH_TURNS.filter(owned_by(owner_id), origin=origin, external_id=external_id).first()
    return None if row is None else _session(row)


def has_imports(*, owner_id: int) -> bool:
    return Session.objects.filter(owned_by(owner_id), origin__startswith="import:", deleted_at__isnull=True).exists()


def gateway_family(session_id: str) -> list[str]:
    """Return the session of a client and those of its sub-agents, at any depth."""
    found = above = [session_id]
    while above:
        rows = Session.objects.filter(parent_id__in=above, origin=GATEWAY, deleted_at__isnull=True)
        found = [*found, *(above := list(rows.values_list("id", flat=True)))]
    return found


def newest_through_gateway(owner_id: int, *, limit: int) -> list[str]:
    rows = Session.objects.filter(owned_by(owner_id), origin=GATEWAY, deleted_at__isnull=True)
    return list(rows.order_by("-updated_at").values_list("id", flat=True)[:limit])


def forks_of_import(session_id: str, *, owner_id: int) -> list[str]:
    """Return the sessions that an import made of other branches of a conversation before sessions had branches.

    They are forks of an imported session, and forks of those; one query for each level.
    """
    imported = _VISIBLE.filter(owned_by(owner_id), origin__startswith="import:")
    rows = imported.alias(link=KeyTransform("link", "labels"))
    found: list[str] = []
    above = [session_id]
    while above:
        found += (above := list(rows.filter(link=FORK, parent_id__in=above).values_list("id", flat=True)))
    return found


def list_peers(*, owner_id: int, name: str | None = None, limit: int = 100) -> list[SessionRecord]:
    """Return a person's sessions that take messages from peers, by name; with ``name`` only the one that has it."""
    rows = _WITH_TURNS.filter(owned_by(owner_id), host_mode=True, archived_at__isnull=True)
    if name is not None:
        rows = rows.filter(peer_name=name)
    return [_session(row) for row in rows.order_by("peer_name")[:limit]]


def peer_names(session_ids: Collection[str], *, owner_id: int) -> dict[str, str]:
    """Return the peer names of a person's sessions, by id; sessions without one are left out."""
    rows = _VISIBLE.filter(owned_by(owner_id), id__in=list(session_ids)).exclude(peer_name="")
    return dict(rows.values_list("id", "peer_name"))


def imported_since(session_id: str, seq: str) -> Exists:
    """Return the condition that a session was imported here with an entry of its ledger; both are columns of other rows."""
    imports = DirectoryEntry.objects.filter(type=DirectoryType.SESSION_IMPORTED.value, session_id=OuterRef(session_id))
    return Exists(imports.filter(entries__gte=OuterRef(seq)))


def visible_sessions() -> QuerySet[Any]:
    """Return sessions that are not deleted and complete: a fork is once it has every message up to where it was forked."""
    return _VISIBLE.all()


def _session(row: Any) -> SessionRecord:
    at_home = row.organisation_id == row.home_id
    project = {"project_id": row.in_project_id or "", "named_project_id": row.project_id}
    return record_of(SessionRecord, row, account_limits=row.account_limits or {}, is_at_home=at_home, **project)


def load_line(session_id: str, *, owner_id: int) -> tuple[SessionNode, ...]:
    """Return a session, its parent, and so on upwards, as far as the owner may see them; one query for each.

    :raises SessionNotFoundError: the session does not exist or belongs to another person.
    """
    rows = visible_sessions().filter(owned_by(owner_id))
    line: list[SessionNode] = []
    above: str | None = session_id
    for _ in range(LONGEST_LINE):
        found = rows.filter(id=above or "").values("id", "parent_id", "origin").first()
        if found is None:
            break
        line.append(SessionNode(**found))
        above = line[-1].parent_id
    if not line:
        raise errors.SessionNotFoundError(session_id=session_id)
    return tuple(line)


def load_depth(session: SessionRecord) -> int:
    """Return the number of sessions above one that launched each other by a turn; 0 for a person's own session."""
    line = load_line(session.id, owner_id=session.owner_id)
    return sum(1 for _ in takewhile(lambda kin: kin.is_sub_agent, line))


def silent_temporary_chats(before: datetime, *, limit: int) -> list[str]:
    """Return temporary chats without a running turn in which nothing was said since then, nor were they imported.

    Those of sub-agents are left out, as they go with the chat that launched them.
    """
    rows = _silent(before).exclude(origin=SUB_AGENT).exclude(Exists(_OPEN_TURN.filter(state=TurnState.RUNNING.value)))
    return list(rows.order_by("created_at").values_list("id", flat=True)[:limit])


def has_been_silent(session_id: str, before: datetime) -> bool:
    """Return whether a session is a temporary chat still in which nothing was said since then."""
    return _silent(before).filter(id=session_id).exists()


def _silent(before: datetime) -> QuerySet[Any]:
    imports = DirectoryEntry.objects.filter(type=DirectoryType.SESSION_IMPORTED.value, session_id=OuterRef("pk"))
    rows = Session.objects.filter(is_temporary(), deleted_at__isnull=True, created_at__lte=before)
    rows = rows.exclude(Exists(imports.filter(created_at__gt=before))).alias(said_at=_LAST_SAID)
    silent: QuerySet[Any] = rows.filter(said_at__lte=before)
    return silent


def load_children(session_id: str) -> list[SessionNode]:
    rows = visible_sessions().filter(parent_id=session_id).order_by("created_at", "id")
    return [SessionNode(**values) for values in rows.values("id", "parent_id", "origin")]


def load_launched(session_id: str) -> list[str]:
    """Return the sub-agents of a session and theirs, at any depth."""
    return _below(session_id, visible_sessions().filter(origin=SUB_AGENT))


def _below(session_id: str, rows: QuerySet[Any]) -> list[str]:
    """Return those rows whose parents lead to a session; one query for each level."""
    found: list[str] = []
    above = [session_id]
    for _ in range(LONGEST_LINE):
        above = list(rows.filter(parent_id__in=above).order_by("created_at", "id").values_list("id", flat=True))
        found += above
        if not above:
            break
    return found


def launched_by_turn(session_id: str, turn_id: str) -> list[str]:
    parts = MessagePart.objects.filter(message__turn_id=turn_id, part_type="tool")
    rows = visible_sessions().filter(parent_id=session_id, origin=SUB_AGENT)
    found = rows.filter(parent_part_id__in=parts.values("id")).order_by("created_at", "id")
    return list(found.values_list("id", flat=True))


def session_of(id: str) -> str:
    """Return the session of a message, part, turn or model call, without checking its owner.

    :raises NotFound: there is nothing with this id; the error of its kind.
    """
    table, error, name = _OWNED[id.partition("_")[0]]
    session_id = table.objects.filter(id=id).values_list("session_id", flat=True).first()
    if session_id is None:
        raise error(**{name: id})
    return str(session_id)


def message_of_part(part_id: str, *, session_id: str) -> str:
    """:raises PartNotFoundError: the session has no such part."""
    rows = MessagePart.objects.filter(id=part_id, session_id=session_id)
    message_id = rows.values_list("message_id", flat=True).first()
    if message_id is None:
        raise errors.PartNotFoundError(part_id=part_id)
    return str(message_id)


def find_file_part(file_id: str, *, session_id: str) -> str:
    """Return the newest part of a session that refers to a file; empty if there is none."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type__in=_OF_FILES)
    found = rows.filter(content__contains=_in_json(file_id)).order_by("-message__seq", "-part_index")
    return found.values_list("id", flat=True).first() or ""


def load_file_parts(file_ids: Sequence[str], *, session_id: str) -> dict[str, GivenFile]:
    """Return what the newest part of a session that refers to it says of each of these files, by the file's id."""
    if not file_ids:
        return {}
    named = Q(*(Q(content__contains=_in_json(file_id)) for file_id in file_ids), _connector=Q.OR)
    rows = MessagePart.objects.filter(named, session_id=session_id, part_type__in=_OF_FILES)
    contents = rows.order_by("message__seq", "part_index").values_list("content", flat=True)
    files: list[GivenFile] = []
    for content in contents:
        with suppress(ValueError, RecursionError):  # An import may have stored anything.
            files.append(referred_file(json.loads(content)))
    return {file.file_id: file for file in files if file.file_id in file_ids}


def _in_json(file_id: str) -> str:
    return encode_text(json.dumps(file_id, ensure_ascii=False))


def messages_naming(file_id: str, *, session_id: str, limit: int = 20) -> list[tuple[int, str, str]]:
    """Return ``seq``, role and id of the first messages of a session that name a file."""
    word = encode_text(file_id)
    parts = MessagePart.objects.filter(message_id=OuterRef("pk")).filter(
        Q(content__contains=word) | Q(tool_input__contains=word)
    )
    rows = Message.objects.filter(Exists(parts), session_id=session_id).order_by("seq")
    return list(rows.values_list("seq", "role", "id")[:limit])


def tool_outputs(session_id: str, tool_name: str) -> dict[str, int | None]:
    """Return the tokens of each result of a tool in a session, by part; ``None`` without a result yet."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", tool_name=tool_name)
    return dict(rows.order_by("message__seq", "part_index").values_list("id", "output_token_estimate"))
