"""Compaction as an app: its summaries can be searched within limits, and it keeps the facts of imported transcripts."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class CompactionConfig(AppConfig):
    name = "compaction_app"
    verbose_name = _("Compaction")

    def ready(self) -> None:
        # Here, not above: apps.py is read before any model can be made.
        from compaction_app.facts.copies import keep_facts
        from sessions_app.llm.limits import drawing_for_search
        from sessions_app.record import histories
        from sessions_app.search import index, rest

        index.SOURCES["summaries"] = index.Source(
            table="summary_nodes", field="text", part_type="summary", branch="x.branch"
        )
        histories.fact_keepers[:] = [keep_facts]
        rest.use(drawing_for_search)
