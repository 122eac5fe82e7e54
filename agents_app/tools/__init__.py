"""Tools that a model may call. Importing the package registers the ones that are shipped."""

from agents_app.tools import arithmetic, memory
from agents_app.tools.registry import Tool, ToolContext, find_tool, tool, tool_specs

__all__ = ["Tool", "ToolContext", "arithmetic", "find_tool", "memory", "tool", "tool_specs"]
