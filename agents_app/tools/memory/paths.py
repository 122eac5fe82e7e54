"""Which branch of its session something was said on: a model must not take for its own path what was said beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mnesis_core.context.branches import Branch, Path, path_to
from mnesis_core.records import SummaryRecord
from sessions_app.record.branch_queries import load_branches, load_path, place_of


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
