"""System checks: what would leave every session without a tool that the site's configuration names is an error.

* ``mnesis.E010`` ``turn.tools`` or ``turn.ask_before`` names a tool that there is not

Tools of MCP servers are not looked at: a server that was removed must not keep the site from starting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import Error, register

from agents_app.tools import shipped_tools
from mnesis_core.turns.mcp_servers import SEPARATOR
from sessions_app.conf import site_config


def register_checks() -> None:
    """Add these checks to Django's."""
    register(check_tool_names)


def check_tool_names(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[Error]:
    """E010."""
    turn, known = site_config().turn, shipped_tools()
    wrong = [name for name in (*turn.tools, *turn.ask_before) if SEPARATOR not in name and name not in known]
    return [
        Error(
            f"The configuration (MNESIS_CONFIG) names the tool {name!r}, and there is none.",
            hint=f"There are: {', '.join(sorted(known))}, and those of MCP servers as server__tool.",
            id="mnesis.E010",
        )
        for name in dict.fromkeys(wrong)
    ]
