"""What a tool is, whoever brings it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import ToolSpec

SHIPPED = "built in"


class ToolScope(StrEnum):
    """Which sessions may be offered a tool."""

    SESSION = "session"
    """Every one."""
    SUB_AGENT = "sub_agent"
    """Only sessions that another session's turn has launched."""
    ROOT = "root"
    """Only sessions that no other session has launched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """On whose behalf a tool runs, and for which call: it sees this session and nothing else."""

    session_id: str
    owner_id: int
    turn_id: str = ""
    part_id: str = ""
    """The tool part that the result will be written to."""
    depth: int = 0
    """Sessions above this one that launched it: 0 for a person's own session, 1 for its sub-agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool that a session may be offered."""

    spec: ToolSpec
    run: Callable[..., str | Awaitable[str]]
    """Takes the context, then the arguments by name. A coroutine function runs in the turn's event loop, any
    other in a thread."""
    arguments: type[BaseModel] | None
    """What checks the arguments; None: whoever runs the tool elsewhere does."""
    timeout_seconds: float | None
    """None: it bounds its own waiting, and nothing else does."""
    read_only: bool = False
    """It changes nothing, here or elsewhere."""
    needs_approval: bool = False
    """A person is asked before each call."""
    scope: ToolScope = ToolScope.SESSION
    source: str = SHIPPED
    """Who brings it: this program, or the MCP server of this name."""
    unreachable_since: datetime | None = None
    """When the server that brings it was found not to answer; None: it does, as far as is known."""

    @property
    def is_async(self) -> bool:
        """Whether ``call`` returns an awaitable."""
        return inspect.iscoroutinefunction(self.run)

    def is_for(self, depth: int) -> bool:
        """Whether a session of this depth may be offered it."""
        return self.scope is ToolScope.SESSION or (self.scope is ToolScope.SUB_AGENT) == (depth > 0)

    def call(self, context: ToolContext, arguments: str) -> str | Awaitable[str]:
        """Check the arguments (JSON) and run, or make the coroutine that does.

        :raises InvalidRequest: they are no JSON, or do not fit the schema; the message says where.
        """
        return self.run(context, **self._checked(arguments))

    def _checked(self, arguments: str) -> dict[str, Any]:
        model = self.arguments or _AnyObject
        try:
            values = model.model_validate_json(arguments or "{}")
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            raise InvalidRequest(f"the arguments do not fit: {problems}") from None
        if self.arguments is None:
            return {"arguments": values.model_extra}
        return {name: getattr(values, name) for name in type(values).model_fields}


class _AnyObject(BaseModel):
    model_config = ConfigDict(extra="allow")
