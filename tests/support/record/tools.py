"""Tools by name, for sessions of any depth."""

from __future__ import annotations

from agents_app.tools.registry import Tool, offered_tools


def find_tool(name: str) -> Tool:
    """:raises KeyError: there is none."""
    return (offered_tools([name], user_id=None) | offered_tools([name], user_id=None, depth=1))[name]
