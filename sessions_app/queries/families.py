"""Reads of how sessions belong together, and of the session that something belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from django.db.models import Exists, OuterRef, Q

from mnesis_core.errors import (
    CallNotFoundError,
    MessageNotFoundError,
    NotFound,
    PartNotFoundError,
    SessionNotFoundError,
    TurnNotFoundError,
)
from mnesis_core.messages import FileRefPart
from mnesis_core.record import SUB_AGENT, Kin, SessionRecord
from mnesis_core.text import encode_text
from sessions_app.models import Message, MessagePart, ModelCall, Turn
from sessions_app.queries.sessions import visible_sessions
from sessions_app.rows import PART_COLUMNS, part_of

LONGEST_LINE = 100
"""Sessions above one another that are looked at: more than delegation and forking make."""

_ERRORS: dict[str, tuple[type[NotFound], str]] = {
    "msg": (MessageNotFoundError, "message_id"),
    "part": (PartNotFoundError, "part_id"),
    "turn": (TurnNotFoundError, "turn_id"),
    "call": (CallNotFoundError, "call_id"),
}
_ROWS: dict[str, Any] = {"msg": Message, "part": MessagePart, "turn": Turn, "call": ModelCall}


def load_line(session_id: str, *, owner_id: int) -> tuple[Kin, ...]:
    """A session, its parent, and so on upwards: one person's sessions, as far as they may be seen; a read for each.

    :raises SessionNotFoundError: the session is not there, or belongs to somebody else.
    """
    line = tuple(_upwards(session_id, owner_id))
    if not line:
        raise SessionNotFoundError(session_id=session_id)
    return line


def _upwards(session_id: str | None, owner_id: int) -> Iterator[Kin]:
    rows = visible_sessions().filter(owner_id=owner_id)
    for _ in range(LONGEST_LINE):
        found = rows.filter(id=encode_text(session_id or "")).values_list("id", "parent_id", "origin").first()
        if found is None:
            return
        yield Kin(id=found[0], parent_id=found[1], origin=found[2])
        session_id = found[1]


def load_depth(session: SessionRecord) -> int:
    """How many sessions above one have launched it, each by a turn of its own; 0 for a person's own session."""
    line = load_line(session.id, owner_id=session.owner_id)
    return sum(1 for _ in takewhile(lambda kin: kin.is_sub_agent, line))


def load_children(session_id: str) -> list[Kin]:
    """The sessions that one launched, and those that were forked from it, oldest first."""
    rows = visible_sessions().filter(parent_id=session_id).order_by("created_at", "id")
    found = rows.values_list("id", "parent_id", "origin")
    return [Kin(id=id, parent_id=parent_id, origin=origin) for id, parent_id, origin in found]


def load_launched(session_id: str) -> list[str]:
    """The sub-agents of a session and theirs, however many steps down; a read for each step."""
    found: list[str] = []
    above = [session_id]
    rows = visible_sessions().filter(origin=SUB_AGENT)
    for _ in range(LONGEST_LINE):
        above = list(rows.filter(parent_id__in=above).order_by("created_at", "id").values_list("id", flat=True))
        found += above
        if not above:
            break
    return found


def launched_by_turn(session_id: str, turn_id: str) -> list[str]:
    """The sub-agents that one turn of a session has launched, oldest first."""
    parts = MessagePart.objects.filter(message__turn_id=turn_id, part_type="tool")
    rows = visible_sessions().filter(parent_id=session_id, origin=SUB_AGENT)
    found = rows.filter(parent_part_id__in=parts.values("id")).order_by("created_at", "id")
    return list(found.values_list("id", flat=True))


def session_of(id: str) -> str:
    """The session of a message, part, turn or model call; whose it is, is not asked.

    :raises NotFound: there is nothing of this id; the error of its kind.
    """
    kind = id.partition("_")[0]
    session_id = _ROWS[kind].objects.filter(id=encode_text(id)).values_list("session_id", flat=True).first()
    if session_id is None:
        error, name = _ERRORS[kind]
        raise error(**{name: id})
    return str(session_id)


def message_of_part(part_id: str, *, session_id: str) -> str:
    """The message that a part belongs to.

    :raises PartNotFoundError: the session has no such part.
    """
    rows = MessagePart.objects.filter(id=encode_text(part_id), session_id=session_id)
    message_id = rows.values_list("message_id", flat=True).first()
    if message_id is None:
        raise PartNotFoundError(part_id=part_id)
    return str(message_id)


def find_file_part(file_id: str, *, session_id: str) -> str:
    """The newest part of a session that refers to a file by this id; empty when there is none."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="file_ref")
    found = rows.filter(content__contains=_in_json(file_id)).order_by("-message__seq", "-part_index")
    return found.values_list("id", flat=True).first() or ""


def load_file_parts(file_ids: Sequence[str], *, session_id: str) -> dict[str, FileRefPart]:
    """The newest part of a session that refers to each of these files, by the ids, as far as there is one."""
    if not file_ids:
        return {}
    named = Q(*(Q(content__contains=_in_json(file_id)) for file_id in file_ids), _connector=Q.OR)
    rows = MessagePart.objects.filter(named, session_id=session_id, part_type="file_ref")
    columns = rows.order_by("message__seq", "part_index").values_list(*PART_COLUMNS)
    parts = [part for row in columns if isinstance(part := part_of(row).part, FileRefPart)]
    return {part.file_id: part for part in parts if part.file_id in file_ids}


def _in_json(file_id: str) -> str:
    """As it stands in the content of a part."""
    return encode_text(json.dumps(file_id, ensure_ascii=False))


def messages_naming(file_id: str, *, session_id: str, limit: int = 20) -> list[tuple[int, str, str]]:
    """The first messages of a session that name a file: ``seq``, role and id of each."""
    word = encode_text(file_id)
    parts = MessagePart.objects.filter(message_id=OuterRef("pk")).filter(
        Q(content__contains=word) | Q(tool_input__contains=word)
    )
    rows = Message.objects.filter(Exists(parts), session_id=session_id).order_by("seq")
    return list(rows.values_list("seq", "role", "id")[:limit])


def tool_outputs(session_id: str, tool_name: str) -> dict[str, int | None]:
    """The calls of one tool in a session, by part: the tokens of what each gave, ``None`` while it has not answered."""
    rows = MessagePart.objects.filter(session_id=session_id, part_type="tool", tool_name=encode_text(tool_name))
    return dict(rows.order_by("message__seq", "part_index").values_list("id", "output_token_estimate"))
