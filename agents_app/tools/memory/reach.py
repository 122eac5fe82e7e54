"""What a session's memory tools may see: the session, those above it, and what any of them has launched.

Never another person's, whoever names its id: to them it is not there (decision 26).
"""

from __future__ import annotations

from dataclasses import dataclass

from agents_app.map_queries import load_run as load_map
from agents_app.tools.registry import ToolContext
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
from mnesis_core.records import Kin
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
    """Something of the record that has an id."""

    kind: str
    """The id's prefix: ``msg``, ``part``, ``sum``, ``file``, ``run``, ``map``, ``turn``, ``call`` or ``sess``."""
    id: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One session and its relations."""

    owner_id: int
    line: tuple[Kin, ...]
    """The session, its parent, and so on upwards."""

    @property
    def searched(self) -> tuple[str, ...]:
        """The sessions that are searched, nearest first; not what a fork has copied."""
        copied = {kin.parent_id for kin in self.line if kin.is_copy}
        return tuple(kin.id for kin in self.line if kin.id not in copied)

    def holds(self, session_id: str) -> bool:
        """Whether a session is one of the line, or was launched by one of it, however many steps down."""
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
    """The family on whose behalf a tool runs.

    :raises SessionNotFoundError: the session is not there, or belongs to somebody else.
    """
    return Family(owner_id=context.owner_id, line=load_line(context.session_id, owner_id=context.owner_id))


def wanted_id(text: str) -> str:
    """The id that a text names: the first of ours in it, as in a pasted line; else all of it."""
    return next(iter(find_ids(text)), text.strip())


def find(family: Family, id: str) -> Found:
    """What an id names; also a provider's id of a tool call, and what an import calls a file.

    :raises NotFound: nothing of the family has it; the error of its kind.
    """
    kind = id.partition("_")[0]
    session_id = _session_of(kind, id, family.owner_id)
    if session_id is not None and family.holds(session_id):
        return Found(kind=kind, id=id, session_id=session_id)
    found = _find_foreign(family, id)
    if found is None:
        raise _ERRORS.get(kind, NotFound)("Nothing of this conversation has this id.")
    return found


def find_own(id: str, *, owner_id: int) -> Found:
    """What an id names anywhere in a person's sessions: for whoever acts for the person, not for one session.

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


def _find_foreign(family: Family, id: str) -> Found | None:
    """The part that shows an id which is not of ours; a prompt shows such ids of parts only."""
    if not id:
        return None
    for kin in family.line:
        if part_id := find_part_of_call(kin.id, id) or find_file_part(id, session_id=kin.id):
            return Found(kind="part", id=part_id, session_id=kin.id)
    return None
