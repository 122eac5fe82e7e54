"""The sessions that memory tools may see: the session itself, those above it, and what any of them has launched.

Sessions of other people are not there for them, whatever id is named (decision 26).
"""

from __future__ import annotations

from dataclasses import dataclass

from agents_app.queries import load_run as load_map
from agents_app.tools.definition import ToolContext
from compaction_app.queries import load_run, load_summary
from files_app.queries import load_file_reference
from mnesis_core.errors import (
    CallNotFoundError,
    CompactionNotFoundError,
    FileReferenceNotFoundError,
    MessageNotFoundError,
    NotFound,
    OperatorRunNotFoundError,
    PartNotFoundError,
    SessionNotFoundError,
    SummaryNotFoundError,
    TurnNotFoundError,
)
from mnesis_core.records import SessionNode
from mnesis_core.values import find_ids
from sessions_app.record.message_queries import find_part_of_call
from sessions_app.record.session_queries import find_file_part, load_line, load_session, session_of

_ERRORS: dict[str, type[NotFound]] = {
    "call": CallNotFoundError,
    "file": FileReferenceNotFoundError,
    "map": OperatorRunNotFoundError,
    "msg": MessageNotFoundError,
    "part": PartNotFoundError,
    "run": CompactionNotFoundError,
    "sess": SessionNotFoundError,
    "sum": SummaryNotFoundError,
    "turn": TurnNotFoundError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    kind: str  # the id's prefix: msg, part, sum, file, run, map, turn, call or sess
    id: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    owner_id: int
    line: tuple[SessionNode, ...]  # the session, its parent, and so on upwards

    @property
    def searched(self) -> tuple[str, ...]:
        # Nearest first, and nothing twice: a fork holds a copy of its parent.
        copied = {kin.parent_id for kin in self.line if kin.is_copy}
        return tuple(kin.id for kin in self.line if kin.id not in copied)

    def holds(self, session_id: str) -> bool:
        own = {kin.id for kin in self.line}
        try:
            line = load_line(session_id, owner_id=self.owner_id)
        except SessionNotFoundError:
            return False
        for kin in line:
            if kin.id in own:
                return True
            if kin.is_copy:
                return False
        return False


def load_family(context: ToolContext) -> Family:
    """:raises SessionNotFoundError: the session is not there, or belongs to another person."""
    return Family(owner_id=context.owner_id, line=load_line(context.session_id, owner_id=context.owner_id))


def wanted_id(text: str) -> str:
    """Return the first of our ids in a text, such as a pasted line; else the whole text."""
    return next(iter(find_ids(text)), text.strip())


def find(family: Family, id: str) -> Found:
    """Return what an id names. A provider's id of a tool call and an imported name of a file name their parts.

    :raises NotFound: nothing of the family has it; the error of its kind.
    """
    kind = id.partition("_")[0]
    session_id = _session_of(kind, id, family.owner_id)
    if session_id is not None and family.holds(session_id):
        return Found(kind=kind, id=id, session_id=session_id)
    for kin in family.line if id else ():
        if part_id := find_part_of_call(kin.id, id) or find_file_part(id, session_id=kin.id):
            return Found(kind="part", id=part_id, session_id=kin.id)
    raise _ERRORS.get(kind, NotFound)("Nothing of this conversation has this id.")


def find_own(id: str, *, owner_id: int) -> Found:
    """Return what an id names in any of a person's sessions, for a caller that acts for the person.

    :raises NotFound: nothing of theirs has it; the error of its kind.
    """
    kind = id.partition("_")[0]
    session_id = _session_of(kind, id, owner_id)
    try:
        if session_id is not None:
            load_session(session_id, owner_id=owner_id)
            return Found(kind=kind, id=id, session_id=session_id)
    except SessionNotFoundError:
        pass
    raise _ERRORS.get(kind, NotFound)()


def _session_of(kind: str, id: str, owner_id: int) -> str | None:
    try:
        match kind:
            case "sess":
                return id
            case "sum":
                return load_summary(id, owner_id=owner_id).session_id
            case "run":
                return load_run(id).session_id
            case "map":
                return load_map(id, owner_id=owner_id).session_id
            case "file":
                return load_file_reference(id, owner_id=owner_id).session_id
            case "msg" | "part" | "turn" | "call":
                return session_of(id)
    except NotFound:
        pass
    return None
