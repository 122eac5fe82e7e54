"""Turns, tools and what they need, as an app."""

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    """Agents and their tools."""

    name = "agents_app"
    verbose_name = "Agents and tools"

    def ready(self) -> None:
        """Register the tools whose stories stand above the tools, and the checks."""
        from agents_app import delegation, peers, tool_checks  # noqa: F401

        tool_checks.register_checks()
