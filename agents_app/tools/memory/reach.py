"""The sessions that memory tools may see, itself, those above it and what any of them has launched, and their branches.

Sessions of other people are not there for them, whatever id is named (decision 26).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from agents_app.queries import load_run as load_map
from agents_app.tools.registry import ToolContext
from compaction_app.queries import load_run, load_summary
from files_app.queries import load_file_reference
from mnesis_core import errors
from mnesis_core.context.branches import Branch, Path, path_to
from mnesis_core.records import SessionNode, SummaryRecord, find_ids
from sessions_app.record.branch_queries import load_branches, load_path, place_of
from sessions_app.record.message_queries import find_message_at, find_part_of_call
from sessions_app.record.session_queries import find_file_part, load_line, load_session, session_of

# By the ids' prefixes: the error where there is none, and what returns the session of one.
_KINDS: dict[str, tuple[type[errors.NotFound], Callable[[str, int], str]]] = {
    "call": (errors.CallNotFoundError, lambda id, _: session_of(id)),
    "file": (errors.FileReferenceNotFoundError, lambda id, of: load_file_reference(id, owner_id=of).session_id),
    "map": (errors.OperatorRunNotFoundError, lambda id, of: load_map(id, owner_id=of).session_id),
    "msg": (errors.MessageNotFoundError, lambda id, _: session_of(id)),
    "part": (errors.PartNotFoundError, lambda id, _: session_of(id)),
    "run": (errors.CompactionNotFoundError, lambda id, _: load_run(id).session_id),
    "sess": (errors.SessionNotFoundError, lambda id, _: id),
    "sum": (errors.SummaryNotFoundError, lambda id, of: load_summary(id, owner_id=of).session_id),
    "turn": (errors.TurnNotFoundError, lambda id, _: session_of(id)),
}


# A message by its number: of this session, or with a session's id before it.
_HANDLE = re.compile(r"(sess_[0-9A-Za-z]+)?#([0-9]{1,18})\b")


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
        except errors.SessionNotFoundError:
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
    """Return the handle (#418) that a text begins with, the first of our ids in it, such as in a pasted line, or all of it."""
    if handle := _HANDLE.match(text.lstrip(" >-")):
        return handle[0]
    return next(iter(find_ids(text)), text.strip())


def is_handle(id: str) -> bool:
    return _HANDLE.fullmatch(id) is not None


def find(family: Family, id: str) -> Found:
    """Return what an id names. A provider's id of a tool call and an imported name of a file name their parts.

    :raises NotFound: nothing of the family has it; the error of its kind.
    """
    error, found = _look_up(id, family.owner_id, session_id=family.line[0].id)
    if found is not None and family.holds(found.session_id):
        return found
    for kin in family.line if id else ():
        if part_id := find_part_of_call(kin.id, id) or find_file_part(id, session_id=kin.id):
            return Found(kind="part", id=part_id, session_id=kin.id)
    raise error("Nothing of this conversation has this id.")


def find_own(id: str, *, owner_id: int) -> Found:
    """Return what an id names in any of a person's sessions, for a caller that acts for the person.

    :raises NotFound: nothing of theirs has it; the error of its kind.
    """
    error, found = _look_up(id, owner_id)
    with suppress(errors.SessionNotFoundError):
        if found is not None:
            load_session(found.session_id, owner_id=owner_id)
            return found
    raise error()


def _look_up(id: str, owner_id: int, *, session_id: str = "") -> tuple[type[errors.NotFound], Found | None]:
    """Return the error of an id's kind, and what the id names, in whatever session.

    :param session_id: the one that handles without a session are of
    """
    if handle := _HANDLE.fullmatch(id):
        place = handle[1] or session_id
        message_id = find_message_at(place, int(handle[2]))
        found = Found(kind="msg", id=message_id, session_id=place) if message_id else None
        return errors.MessageNotFoundError, found
    kind = id.partition("_")[0]
    if kind not in _KINDS:
        return errors.NotFound, None
    error, session_of_id = _KINDS[kind]
    try:
        return error, Found(kind=kind, id=id, session_id=session_of_id(id, owner_id))
    except errors.NotFound:
        return error, None


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    session_id: str
    chosen: Path | None  # the path that the session goes on with; ``None`` in a session without branches
    branches: Mapping[int, Branch]

    def beside(self, branch: int, seq: int) -> str:
        """Return what is to be said of a message that is on another branch; an empty text for one on the chosen path.

        :param branch: its branch, or any that it is before the end of
        """
        if self.chosen is None or any(
            self.chosen.has(at, seq) for at, *_ in path_to(self.branches, branch).within(seq, seq)
        ):
            return ""
        return f"on branch {branch}, beside the path of this conversation"

    def beside_summary(self, summary: SummaryRecord) -> str:
        return self.beside(summary.branch, summary.last_seq)

    def beside_message(self, message_id: str) -> str:
        place = place_of(self.session_id, message_id) if self.chosen is not None else None
        return self.beside(*place[:2]) if place else ""

    def through(self, message_id: str) -> Path | None:
        """Return the chosen path if a message is on it, else that to the end of its branch."""
        place = place_of(self.session_id, message_id) if self.chosen is not None else None
        return path_to(self.branches, place[0]) if place and self.beside(*place[:2]) else self.chosen


def load_paths(session_id: str) -> Paths:
    """Read the branches of a session; one query where there are none.

    :raises SessionNotFoundError: there is no such session.
    """
    chosen = load_path(session_id)
    branches = {} if chosen is None else load_branches(session_id)
    return Paths(session_id=session_id, chosen=chosen, branches=branches)
