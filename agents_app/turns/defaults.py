"""What sessions begin with by their project and their assistant, and the tools in it, which the record does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents_app.tools.registry import EVERY, check_tools, list_tools
from mnesis_core.config import layered, tightened
from mnesis_core.records import AssistantRecord, ProjectRecord
from mnesis_core.turns.mcp_servers import SEPARATOR
from sessions_app.conf import checked_config, site_config


def defaults_of(project: ProjectRecord | None, assistant: AssistantRecord | None) -> dict[str, Any]:
    """Return what is configured of a session that begins in a project with an assistant, which stands above the project."""
    below, above = project.config if project else {}, assistant.config if assistant else {}
    return tightened(layered(below, above), site_config().turn)


def check_default_tools(config: dict[str, Any] | None, *, owner_id: int) -> None:
    """:raises InvalidRequest: a configuration is none, or names a tool that its owner does not have."""
    if config:
        checked_config(config)
        check_tools(config.get("turn", {}).get("tools", ()), user_id=owner_id)


def missing_tools(config: Mapping[str, Any], *, user_id: int) -> list[str]:
    """Return the tools in a configuration that are not there for a person, who is answered without them."""
    said = config.get("turn", {}).get("tools", ())
    if not said:
        return []
    has = {tool.spec.name for tool in list_tools(user_id=user_id)}
    sources = {name.partition(SEPARATOR)[0] + SEPARATOR + EVERY for name in has if SEPARATOR in name}
    return [name for name in said if name not in has and name not in sources]
