from django.apps import AppConfig
from django.core.checks import register
from django.utils.translation import gettext_lazy as _


class AgentsConfig(AppConfig):
    name = "agents_app"
    verbose_name = _("Agents and tools")

    def ready(self) -> None:
        from django_q.signals import post_spawn

        # The first two register their tools on import: they start turns and runs, which the registry may not import.
        import agents_app.maps.service
        import agents_app.subagents  # noqa: F401
        from agents_app import schedule
        from agents_app.maps.llm_map import rebuild_map_payload
        from agents_app.tools.registry import check_tool_names
        from compaction_app.context.state import register_payload
        from sessions_app.database.guards.checks import SITE

        register_payload("map", rebuild_map_payload)
        register(check_tool_names, SITE)
        # A new worker takes the place of a dead one, whose runs no other process knows to be forsaken yet.
        post_spawn.connect(schedule.wake_in_new_worker, dispatch_uid="operators")
