"""Single messages of a session: where the one is that somebody means, and what it says, ready to be said again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q

from mnesis_core.errors import MessageNotFoundError
from mnesis_core.files.references import given_file, referred_file
from mnesis_core.records import SessionRecord
from mnesis_core.values import is_id
from sessions_app.models import Message, MessagePart
from sessions_app.pages.markdown import show_invisible
from sessions_app.record.session_queries import launched_by_parts, titles_of, visible_sessions

LARGEST = 2**63 - 1
"""No message has a higher number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a person said, ready to be said again."""

    text: str
    file_ids: tuple[str, ...]


def find_seq(session_id: str, place: str) -> int:
    """The message that somebody means: by its number, by an id of it, of a part of it or of its turn, or by a time.

    A number beyond the last message and a time after it mean the last one, which is 0 where there is none.

    :param place: ``120``, ``msg_…``, ``part_…``, ``turn_…``, or a date or time as ISO 8601 writes it
    :raises MessageNotFoundError: nothing here is called so.
    """
    messages = Message.objects.filter(session_id=session_id).order_by("seq")
    if place.isascii() and place.isdecimal():
        return min(int(place[:19]), LARGEST)
    moment = _moment(place)
    if moment is None:
        parts = MessagePart.objects.filter(session_id=session_id, id=place).values("message_id")
        messages = messages.filter(Q(id=place) | Q(turn_id=place) | Q(id__in=parts))
    else:
        messages = messages.filter(created_at__gte=moment)
    seq = messages.values_list("seq", flat=True).first()
    if seq is None and moment is None:
        raise MessageNotFoundError(message_id=place)
    return LARGEST if seq is None else int(seq)


def _moment(place: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(place)
        # astimezone: a time that UTC cannot say is none, here and not in the database.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def load_spoken_text(session_id: str, message_id: str) -> str:
    """The whole text of a message, for copying."""
    return "\n".join(content for kind, content in _contents(session_id, message_id) if kind == "text")


def load_said(session_id: str, message_id: str) -> Said:
    """What a person said with a message: their words, and the files they gave, apart.

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
    """The texts and references to files of a message, in order, each with its kind."""
    rows = MessagePart.objects.filter(session_id=session_id, message_id=message_id)
    rows = rows.filter(part_type__in=("text", "file_ref")).order_by("part_index")
    return [(kind, content) for kind, content in rows.values_list("part_type", "content")]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Sessions as others name them: what a session was launched by or forked from, what it launched, what was forked from it.

LAUNCHING_TOOLS = {"task", "tasks", "agent"}
"""Whose calls launch sub-agents: our own tools, and those of imported histories; in lower case."""
MOST_CHILDREN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A session in a line of another one's page."""

    id: str
    title: str
    """Ready to be shown."""
    state: str
    archived_at: datetime | None


def shown_title(title: str) -> str:
    """A session's title as pages show it."""
    return show_invisible(title).strip() or "Untitled session"


def list_children(session_id: str) -> list[tuple[str, str]]:
    """(id, title) of the sessions that this one launched, or that were forked from it, oldest first."""
    rows = visible_sessions().filter(parent_id=session_id).order_by("created_at", "id")
    return [(id, title) for id, title in rows.values_list("id", "title")[:MOST_CHILDREN]]


def list_launched(session_id: str, part_ids: Sequence[str]) -> dict[str, tuple[Relative, ...]]:
    """The sessions that tool calls launched, by the part of each call."""
    found = launched_by_parts(session_id, part_ids)
    return {part_id: tuple(_relative(child) for child in children) for part_id, children in found.items()}


def parent_titles(sessions: Sequence[SessionRecord], *, owner_id: int) -> dict[str, str]:
    """The titles of the sessions' parents by the parent's id; one query, none for none."""
    parents = {session.parent_id for session in sessions if session.parent_id}
    titles = titles_of(parents, owner_id=owner_id) if parents else {}
    return {id: shown_title(title) for id, title in titles.items()}


def _relative(session: SessionRecord) -> Relative:
    return Relative(
        id=session.id, title=shown_title(session.title), state=session.state, archived_at=session.archived_at
    )
