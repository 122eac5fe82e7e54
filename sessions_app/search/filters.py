"""Filters of a search beside its words: the time, the speaker, the tool, the file and the branch of what was said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from django.db import connection

from mnesis_core.context.branches import END
from mnesis_core.errors import InvalidRequest
from mnesis_core.messages import Role
from mnesis_core.search.words import fold, readable
from mnesis_core.text import encode_text, read_time
from sessions_app.models import Session
from sessions_app.ownership import owned_by

SPEAKER = "speaker_"
"""The prefix of a session's labels that name the speaker of a role."""
MOST_SESSIONS = 2_000
"""The number of sessions in which a speaker's name is looked for, the newest first."""

_MESSAGE = "EXISTS (SELECT 1 FROM messages m WHERE m.session_id = e.session_id AND m.seq = e.first_seq AND {})"
_PART = "EXISTS (SELECT 1 FROM message_parts p WHERE p.id = e.source_id AND {})"
# The item of a message that a model reads now, and what a tool returned while it is no tombstone.
_LIVE = (
    "EXISTS (SELECT 1 FROM context_items c WHERE c.session_id = e.session_id AND c.item_id = m.id"
    " AND c.item_type = 'message' AND c.removed_seq IS NULL)"
    " AND NOT (e.field IN ('output', 'error_message')"
    " AND EXISTS (SELECT 1 FROM message_parts p WHERE p.id = e.source_id AND p.compacted_at IS NOT NULL))"
)
# ``replace`` compares the same way on both databases; LIKE does not.
_HAS = "replace(COALESCE(p.{0}, ''), %s, '') <> COALESCE(p.{0}, '')"
_OF_FILE = " OR ".join(_HAS.format(column) for column in ("tool_input", "content", "label"))
_IN_PROJECT = "EXISTS (SELECT 1 FROM sessions q WHERE q.id = e.session_id AND q.project_id = %s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    since: datetime | None = None
    until: datetime | None = None
    """The time before which something was said."""
    speaker: str = ""
    """A role, or a person's name as it stands in the session's labels."""
    tool: str = ""
    file: str = ""
    """The id of a file, or any part of its path."""
    branch: int | None = None
    project_id: str = ""
    """The project that sessions are in, which the caller knows to be one of the person's."""
    compacted: bool | None = None
    """The model no longer reads it as it was said; ``None`` for both."""

    def __bool__(self) -> bool:
        return self != EVERYTHING

    def conditions(self, *, owner_id: int, session_id: str | None) -> Iterator[tuple[str, list[Any]]]:
        """Yield conditions on an entry ``e`` with their values."""
        adapt = connection.ops.adapt_datetimefield_value
        if self.speaker or self.compacted is not None:
            yield "e.kind IN ('messages', 'tools')", []  # the record itself, without summaries and files
        plain = {
            _MESSAGE.format("m.created_at >= %s"): self.since and adapt(self.since),
            _MESSAGE.format("m.created_at < %s"): self.until and adapt(self.until),
            _MESSAGE.format("m.branch = %s"): self.branch,
            _IN_PROJECT: self.project_id or None,
        }
        yield from ((condition, [value]) for condition, value in plain.items() if value is not None)
        if self.compacted is not None:
            yield _MESSAGE.format(f"NOT ({_LIVE})" if self.compacted else _LIVE), []
        if self.speaker in get_args(Role):
            yield _MESSAGE.format("m.role = %s"), [self.speaker]
        elif self.speaker:
            yield _said_by(self.speaker, owner_id=owner_id, session_id=session_id)
        if self.tool:
            yield f"e.kind = 'tools' AND {_PART.format('p.tool_name = %s')}", [encode_text(self.tool)]
        if self.file:
            text = encode_text(self.file)
            yield f"(e.source_id = %s OR {_PART.format(f'({_OF_FILE})')})", [text, text, text, text]


EVERYTHING = Filters()


def read_filters(*, since: str = "", until: str = "", branch: int | None = None, **others: Any) -> Filters:
    """:raises InvalidRequest: a time is none, or there can be no such branch."""
    if branch is not None and not 0 <= branch <= END:
        raise InvalidRequest("branch must be the number of a branch", field="branch")
    return Filters(since=read_time(since, "since"), until=read_time(until, "until"), branch=branch, **others)


def _said_by(name: str, *, owner_id: int, session_id: str | None) -> tuple[str, list[Any]]:
    sessions = Session.objects.filter(owned_by(owner_id)).order_by("-updated_at")
    if session_id is not None:
        sessions = Session.objects.filter(id=session_id)
    wanted = fold(readable(name)).split()
    pairs = [
        (id, role)
        for id, labels in sessions.values_list("id", "labels")[:MOST_SESSIONS]
        for role, called in speakers_in(labels).items()
        if wanted and set(wanted) <= set(fold(called).split())
    ]
    if not pairs:
        return "1 = 0", []
    places = ", ".join(["(%s, %s)"] * len(pairs))
    return _MESSAGE.format(f"(m.session_id, m.role) IN (VALUES {places})"), [value for pair in pairs for value in pair]


def speakers_in(labels: dict[str, Any]) -> dict[str, str]:
    """Return the name of who speaks in each role, where labels tell it."""
    return {key.removeprefix(SPEAKER): readable(str(name)) for key, name in labels.items() if key.startswith(SPEAKER)}
