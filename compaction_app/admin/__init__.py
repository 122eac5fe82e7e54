"""The inspector's pages about contexts, summaries, previews and compactions."""

from compaction_app.admin.previews import SummaryPreviewAdmin
from compaction_app.admin.records import CompactionRunAdmin, SummaryNodeAdmin

__all__ = ["CompactionRunAdmin", "SummaryNodeAdmin", "SummaryPreviewAdmin"]
