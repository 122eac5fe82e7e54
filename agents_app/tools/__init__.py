"""Tools that a model may call. Importing the package registers the built-in ones."""

from agents_app.tools import arithmetic, memory
from agents_app.tools.registry import (
    SHIPPED,
    Tool,
    ToolContext,
    ToolScope,
    call_tool,
    check_tools,
    find_tool,
    list_tools,
    not_offered,
    offered_tools,
    permitted_tools,
    tool,
)

__all__ = [
    "SHIPPED",
    "Tool",
    "ToolContext",
    "ToolScope",
    "arithmetic",
    "call_tool",
    "check_tools",
    "find_tool",
    "list_tools",
    "memory",
    "not_offered",
    "offered_tools",
    "permitted_tools",
    "tool",
]
