"""The inspector's pages about contexts, summaries and compactions."""

from compaction_app.admin.records import CompactionRunAdmin, SummaryNodeAdmin

__all__ = ["CompactionRunAdmin", "SummaryNodeAdmin"]
