"""Look up single messages of a session, and the sessions related to one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q

from mnesis_core.errors import MessageNotFoundError
from mnesis_core.files.footers import given_file, referred_file
from mnesis_core.records import SessionRecord
from mnesis_core.values import is_id
from sessions_app.models import Message, MessagePart
from sessions_app.pages.markdown import shown_title
from sessions_app.record.session_queries import launched_by_parts, titles_of, visible_sessions

LARGEST = 2**63 - 1
"""The highest number that a message can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    text: str
    file_ids: tuple[str, ...]


def find_seq(session_id: str, reference: str) -> int:
    """Return the number of the message that a number, an id of a message, part or turn, or a time refers to.

    A time after the last message gives ``LARGEST``. A number is returned as it is, whether the message exists or not.

    :param reference: ``120``, ``msg_…``, ``part_…``, ``turn_…``, or a date or time in ISO 8601
    :raises MessageNotFoundError: the session has nothing with this id.
    """
    messages = Message.objects.filter(session_id=session_id).order_by("seq")
    if reference.isascii() and reference.isdecimal():
        return min(int(reference[:19]), LARGEST)
    moment = _parse_time(reference)
    if moment is None:
        parts = MessagePart.objects.filter(session_id=session_id, id=reference).values("message_id")
        messages = messages.filter(Q(id=reference) | Q(turn_id=reference) | Q(id__in=parts))
    else:
        messages = messages.filter(created_at__gte=moment)
    seq = messages.values_list("seq", flat=True).first()
    if seq is None and moment is None:
        raise MessageNotFoundError(message_id=reference)
    return LARGEST if seq is None else int(seq)


def _parse_time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        # astimezone fails here on a time that UTC cannot hold; otherwise the database would.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def load_spoken_text(session_id: str, message_id: str) -> str:
    return "\n".join(content for kind, content in _contents(session_id, message_id) if kind == "text")


def load_said(session_id: str, message_id: str) -> Said:
    """Return the words of a person's message, and the files given with it, apart.

    :raises MessageNotFoundError: the session has no such message.
    """
    contents = _contents(session_id, message_id)
    if not contents:
        raise MessageNotFoundError(message_id=message_id)
    given = [given_file(content) if kind == "text" else referred_file(_json(content)) for kind, content in contents]
    words = [content for (kind, content), file in zip(contents, given, strict=True) if file is None]
    ids = [file.file_id for file in given if file is not None and is_id(file.file_id)]
    return Said(text="\n".join(words), file_ids=tuple(dict.fromkeys(ids)))


def _contents(session_id: str, message_id: str) -> list[tuple[str, str]]:
    """Return the kind and content of each text and file reference of a message, in order."""
    rows = MessagePart.objects.filter(session_id=session_id, message_id=message_id)
    rows = rows.filter(part_type__in=("text", "file_ref")).order_by("part_index")
    return [(kind, content) for kind, content in rows.values_list("part_type", "content")]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Parents, children and launched sessions.

LAUNCHING_TOOLS = {"task", "tasks", "agent"}
"""Tools, in lower case, whose calls launch sub-agents: ours, and those in imported histories."""
MOST_CHILDREN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    id: str
    title: str
    """Ready to be shown."""
    state: str
    archived_at: datetime | None


def list_children(session_id: str) -> list[tuple[str, str]]:
    """Return (id, title) of the sessions launched by this one or forked from it, oldest first."""
    rows = visible_sessions().filter(parent_id=session_id).order_by("created_at", "id")
    return [(id, title) for id, title in rows.values_list("id", "title")[:MOST_CHILDREN]]


def list_launched(session_id: str, part_ids: Sequence[str]) -> dict[str, tuple[Relative, ...]]:
    """Return the sessions that tool calls launched, by the part of each call."""
    found = launched_by_parts(session_id, part_ids)
    return {
        part_id: tuple(
            Relative(id=child.id, title=shown_title(child.title), state=child.state, archived_at=child.archived_at)
            for child in children
        )
        for part_id, children in found.items()
    }


def parent_titles(sessions: Sequence[SessionRecord], *, owner_id: int) -> dict[str, str]:
    parents = {session.parent_id for session in sessions if session.parent_id}
    titles = titles_of(parents, owner_id=owner_id) if parents else {}
    return {id: shown_title(title) for id, title in titles.items()}
