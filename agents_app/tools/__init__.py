"""Tools that a model may call. Importing the package registers the ones that are shipped."""

from agents_app.tools import arithmetic, memory
from agents_app.tools.definition import SHIPPED, call_tool
from agents_app.tools.registry import (
    Tool,
    ToolContext,
    ToolScope,
    check_tools,
    find_tool,
    list_tools,
    not_offered,
    offered_tools,
    permitted_tools,
    shipped_tools,
    tool,
    tool_specs,
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
    "shipped_tools",
    "tool",
    "tool_specs",
]
