"""Turns, tools and what they need, as an app."""

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    """Agents and their tools."""

    name = "agents_app"
    verbose_name = "Agents and tools"

    def ready(self) -> None:
        """Register tools whose stories stand above the tools, what else others ask of us, and the checks."""
        from django_q.signals import post_spawn

        from agents_app import schedule
        from agents_app.maps import map_tools  # noqa: F401
        from agents_app.maps.llm_map import rebuild_map_payload
        from agents_app.subagents import subagent_tools  # noqa: F401
        from agents_app.tools import checks
        from compaction_app.rebuild import register_payload

        register_payload("map", rebuild_map_payload)
        checks.register_checks()
        # A worker that takes the place of a dead one: nobody else knows yet that its runs are forsaken.
        post_spawn.connect(schedule.wake_in_new_worker, dispatch_uid="operators")
