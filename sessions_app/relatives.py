"""Sessions as others name them: what a session was launched by or forked from, what it launched, what was forked from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from mnesis_core.record import SessionRecord
from mnesis_core.text import decode_text
from sessions_app.queries import launched_by_parts, titles_of
from sessions_app.queries.sessions import visible_sessions
from sessions_app.rendering import show_invisible

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
    return [(id, decode_text(title)) for id, title in rows.values_list("id", "title")[:MOST_CHILDREN]]


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
