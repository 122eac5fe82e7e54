"""The record as a simple model has it: what was done, in plain Python values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import dropwhile, takewhile

from mnesis_core.messages import Part, ToolPart
from mnesis_core.records import MessageEnd, TurnState


@dataclass
class Said:
    """A message as the model has it."""

    id: str
    turn_id: str
    role: str
    parts: dict[str, Part]
    end: MessageEnd | None = None


@dataclass
class Talk:
    """A session as the model has it."""

    id: str
    owner_id: int
    turns: dict[str, TurnState] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)
    context: list[str] = field(default_factory=list)
    archived: bool = False
    deleted: bool = False
    seq: int = 1
    past: dict[int, tuple[list[str], set[str]]] = field(default_factory=lambda: {1: ([], set())})
    """After each event that ended a change: what was in context, and which outputs were tombstones."""

    @property
    def running(self) -> str | None:
        return next((id for id, state in self.turns.items() if not state.is_end), None)

    @property
    def tools(self) -> dict[str, ToolPart]:
        return {id: part for said in self.said for id, part in said.parts.items() if isinstance(part, ToolPart)}

    @property
    def tombstones(self) -> set[str]:
        return {id for id, part in self.tools.items() if part.compacted_at is not None}

    @property
    def messages_in_context(self) -> list[str]:
        """The first messages of the context that stand side by side."""
        ids = {said.id for said in self.said}
        from_first = dropwhile(lambda id: id not in ids, self.context)
        return list(takewhile(lambda id: id in ids, from_first))

    @property
    def written(self) -> list[Said]:
        """Messages at which a session can be forked."""
        return [said for said in self.said if said.role == "user" or said.end is not None]

    def replace_tool(self, part_id: str, **values: object) -> None:
        said = next(said for said in self.said if part_id in said.parts)
        said.parts[part_id] = replace(said.parts[part_id], **values)
